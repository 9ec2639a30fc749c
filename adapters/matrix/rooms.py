"""Rooms of a homeserver: invitations, messages in order, and those without a key."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace

import orjson
import structlog
from cachetools import LRUCache

from adapters.matrix import MatrixConfig
from adapters.matrix.api import Api, escaped
from adapters.matrix.inbound import (
    CHANNEL,
    ENCRYPTED,
    REACTION,
    Identity,
    Ignored,
    Room,
    answered,
    edited,
    normalise,
    reaction_of,
    thread,
)
from adapters.matrix.keys import Forged, Keys, Missing
from adapters.matrix.send import tell_later, transaction
from bot.channel import Address, ChatType, Health, Inbound, Reaction
from bot.channel.kit.intake import MAX_AGE, MAX_MISSED, Where, listens
from bot.channel.kit.json_access import (
    Json,
    child,
    children,
    integer,
    label,
    mapping,
    parse_json,
    text,
    texts,
)
from bot.channel.kit.supervisor import Supervisor
from bot.errors import ChannelError, SendLater, SendTransient

REMEMBERED = 4096  # names, events that were looked up, addresses of messages
MOST_WAITING = 200  # messages whose keys are missing
TRIES = 5  # to go into a room
JOINING = 300.0  # seconds that one of them may take

_log = structlog.get_logger()

Keep = Callable[[str, str], Awaitable[object]]
Say = Callable[[str, Json, str], Awaitable[object]]


class Rooms:
    """The rooms of one account, and what is said there.

    Args:
        api: the homeserver.
        config: of the account.
        supervisor: what stores its messages.
        keep: keeps a small text by name.
        say: says something in a room, once.
    """

    def __init__(
        self, api: Api, config: MatrixConfig, supervisor: Supervisor, keep: Keep, say: Say
    ) -> None:
        self._api, self._config, self._keep, self._say = api, config, keep, say
        self._supervisor, self._engine = supervisor, supervisor.engine
        self._name = supervisor.account
        self.rooms: dict[str, Room] = {}
        self.waits: dict[str, Json] = {}  # messages whose keys are missing, by id
        self._me = Identity("")
        self._keys: Keys | None = None
        self._directs: Json = {}
        self._names: LRUCache[tuple[str, str], str] = LRUCache(REMEMBERED)
        self._events: LRUCache[tuple[str, str], Json] = LRUCache(REMEMBERED)
        self._heard: LRUCache[str, Address] = LRUCache(REMEMBERED)
        self._reactions: LRUCache[str, Reaction] = LRUCache(REMEMBERED)

    async def begin(self, me: Identity, keys: Keys | None, notes: Mapping[str, str]) -> None:
        """Take up what an earlier run left; the next sync has the state of every room."""
        self._me, self._keys = me, keys
        self._directs = await self._api.asked(f"/user{escaped(me.id)}/account_data/m.direct")
        rooms = [name.partition("/")[2] for name in notes if name.startswith("encrypted/")]
        self.rooms = {room: Room(encrypted=True) for room in rooms}
        waits = [mapping(parse_json(notes[name])) for name in notes if name.startswith("waits/")]
        self.waits = {text(each, "id"): each for each in waits}

    async def take(self, sync: Json, since: str) -> None:
        """Store everything that a sync brings; doing so again changes nothing."""
        for event in children(child(sync, "account_data"), "events"):
            self._directs = child(event, "content")
        rooms = child(sync, "rooms")
        for room_id in child(rooms, "invite"):
            await self._invited(room_id, child(child(rooms, "invite"), room_id))
        for room_id in child(rooms, "join"):
            await self._joined(room_id, child(child(rooms, "join"), room_id), since)
        for room_id in child(rooms, "leave"):
            self.rooms.pop(room_id, None)
        for number, wait in [*self.waits.items()]:
            if self._keys is not None and self._keys.has(text(wait, "session")):
                await self._recover(number, text(wait, "room"))

    async def _invited(self, room_id: str, invite: Json) -> None:
        """Go into a room that the configuration lets it into."""
        events = children(child(invite, "invite_state"), "events")
        own = next((each for each in events if each.get("state_key") == self._me.id), Json())
        inviter, is_direct = text(own, "sender"), child(own, "content").get("is_direct") is True
        config = self._config
        names = {*config.allow_from, *(() if is_direct else config.group_allow_from)}
        where = Where("direct" if is_direct else "group", room_id)
        is_known = inviter in names or (is_direct and config.dm_policy in {"pairing", "open"})
        may_listen = listens(config, where) or (is_known and config.group_policy != "disabled")
        if not (is_known and listens(config, where) if is_direct else may_listen):
            self._supervisor.drop("invitation")
            return
        if is_direct and room_id not in self._direct_rooms:
            self._directs |= {inviter: [*texts(self._directs, inviter), room_id]}
            path = f"/user{escaped(self._me.id)}/account_data/m.direct"
            await self._api.call("PUT", path, self._directs)
        self._supervisor.spawn(self._join(room_id))  # a server far away may take minutes

    async def _join(self, room_id: str) -> None:
        for _ in range(TRIES):
            try:
                await self._api.call("POST", f"/join{escaped(room_id)}", {}, patience=JOINING)
            except (SendLater, SendTransient) as error:
                seconds = (
                    error.seconds if isinstance(error, SendLater) else self._supervisor.longest
                )
                await self._supervisor.pause(seconds)
            except ChannelError as error:
                _log.info("matrix.invitation.failed", account=self._name, error=str(error))
                return
            else:
                return

    @property
    def _direct_rooms(self) -> set[str]:
        """The rooms that somebody wants to be direct chats."""
        return {room for who in self._directs for room in texts(self._directs, who)}

    async def _joined(self, room_id: str, part: Json, since: str) -> None:
        room = self.rooms.setdefault(room_id, Room())
        timeline = child(part, "timeline")
        events = children(timeline, "events")
        for event in children(child(part, "state"), "events"):
            await self._state(room_id, room, event)
        # The first time nothing was missed, and nothing said before the bot was asked in is for it.
        begin = next((at for at, each in enumerate(events) if self._is_arrival(each)), None)
        if since and begin is None and timeline.get("limited") is True:
            missed = await self._missed(room_id, text(timeline, "prev_batch"), since)
            known = {text(each, "event_id") for each in events}
            events = [*(each for each in missed if text(each, "event_id") not in known), *events]
        for at, event in enumerate(events):
            if "state_key" in event:
                await self._state(room_id, room, event)
            elif since and at >= (begin or 0):
                await self._hear(room_id, room, event)

    def _is_arrival(self, event: Json) -> bool:
        """True where the bot was invited into a room, or came into it."""
        before = child(child(event, "unsigned"), "prev_content").get("membership")
        now = child(event, "content").get("membership")
        is_own = event.get("type") == "m.room.member" and event.get("state_key") == self._me.id
        return is_own and (now == "invite" or (now == "join" and before not in {"join", "invite"}))

    async def _state(self, room_id: str, room: Room, event: Json) -> None:
        was_encrypted = room.encrypted
        room.hear(event)
        content = child(event, "content")
        if room.encrypted and not was_encrypted:
            await self._keep(f"encrypted/{room_id}", "1")  # whatever the server says later
        if event.get("type") == "m.room.member":
            self._names[room_id, text(event, "state_key")] = label(text(content, "displayname"))
            if self._keys is not None:
                self._keys.rotate(room_id)

    async def _missed(self, room_id: str, token: str, since: str) -> list[Json]:
        """The messages of a room that a sync leaves out, oldest first."""
        found: list[Json] = []
        oldest = time.time() * 1000 - MAX_AGE
        while token and len(found) < MAX_MISSED and self._listens(room_id):
            query = {"dir": "b", "from": token, "to": since, "limit": str(MAX_MISSED)}
            answer = await self._api.call("GET", f"/rooms{escaped(room_id)}/messages", query=query)
            chunk = children(answer, "chunk")
            kept = [each for each in chunk if (integer(each, "origin_server_ts") or 0) >= oldest]
            found += [each for each in kept if "state_key" not in each]
            token = text(answer, "end") if chunk and len(kept) == len(chunk) else ""
        return found[:MAX_MISSED][::-1]

    def _listens(self, room_id: str) -> bool:
        kind = "direct" if room_id in self._direct_rooms else "group"
        return listens(self._config, Where(kind, room_id))

    async def _hear(self, room_id: str, room: Room, event: Json) -> None:
        """Store one event of a timeline, if it is a message."""
        if event.get("type") == ENCRYPTED and self._keys is not None:
            try:
                event = self._keys.decrypt(room_id, event)
            except Missing:
                await self._wait(room_id, room, event)
                return
            except Forged:
                self._supervisor.drop("forged")
                return
        if event.get("type") == "m.room.redaction":
            number = text(event, "redacts") or text(child(event, "content"), "redacts")
            await self._redacted(room_id, number)
            return
        if event.get("type") == REACTION:
            await self._reacted(room_id, room, event)
            return
        found = await self._read(room_id, room, event)
        if isinstance(found, Ignored):
            self._supervisor.drop(found.reason)
        elif await self._supervisor.receive(found):
            self._heard[found.message_id] = found.address

    async def _read(self, room_id: str, room: Room, event: Json) -> Inbound | Ignored:
        """The content of an event, with the message it refers to."""
        sender, now = text(event, "sender"), int(time.time() * 1000)
        if sender == self._me.id:
            return Ignored("own")
        looks = self._listens(room_id)
        original = await self._event(room_id, edited(event)) if looks else {}
        said = original or event
        link, root = answered(said), thread(said)
        inbound = Inbound(
            channel=CHANNEL,
            account=self._name,
            chat=room_id,
            chat_type=await self._kind(room_id, room, sender),
            sender=sender,
            sender_name=self._names.get((room_id, sender)) or label(sender),
            message_id=text(event, "event_id"),
            text="",
            sent_at=min(integer(event, "origin_server_ts") or now, now),
            thread=root,
        )
        before = await self._event(room_id, link) if looks else {}
        start = await self._event(room_id, root) if looks and not link else {}
        made = normalise(event, self._me, inbound, original=original, before=before, start=start)
        if isinstance(made, Ignored):
            return made
        words = made.text.split(maxsplit=1)
        if words and words[0][:1] == "!":  # apps take slashes for commands of their own
            names = {each.name for each in self._engine.commands("")}
            is_command = words[0][1:] in names
            made = replace(made, text=f"/{made.text[1:]}") if is_command else made
        if made.reply_to is not None:
            name = self._names.get((room_id, made.reply_to.sender_name))
            reply = replace(made.reply_to, sender_name=name or made.reply_to.sender_name)
            made = replace(made, reply_to=reply)
        return made

    async def _kind(self, room_id: str, room: Room, sender: str) -> ChatType:
        """The chat type of a room for somebody in it."""
        if room_id not in self._direct_rooms:
            return "group"
        await self.people(room_id, room)
        return "direct" if room.is_direct(self._me.id, sender) else "group"

    async def _reacted(self, room_id: str, room: Room, event: Json) -> None:
        """Tell the engine of a reaction; taking it back names only its event."""
        sender, place = text(event, "sender"), Address(CHANNEL, self._name, room_id)
        name = self._names.get((room_id, sender)) or label(sender)
        kind = await self._kind(room_id, room, sender)
        found = reaction_of(event, self._me, place, kind, name)
        if found is None:
            self._supervisor.drop("reaction")
            return
        self._reactions[text(event, "event_id")] = found
        await self._engine.reacted(found)

    async def _event(self, room_id: str, number: str) -> Json:
        """An event that another one refers to, readable; empty when there is none."""
        if not number:
            return {}
        found = self._events.get((room_id, number))
        if found is None:
            try:
                found = await self._api.asked(f"/rooms{escaped(room_id)}/event{escaped(number)}")
                if found.get("type") == ENCRYPTED and self._keys is not None:
                    found = self._keys.decrypt(room_id, found)
            except (SendLater, SendTransient, Missing, Forged):
                return {}
            self._events[room_id, number] = found
        return found

    async def people(self, room_id: str, room: Room) -> frozenset[str]:
        """The people who are in a room, or invited."""
        if room.people is None:
            path = f"/rooms{escaped(room_id)}/members"
            answer = await self._api.call("GET", path, query={"not_membership": "leave"})
            found = children(answer, "chunk")
            room.people = frozenset(
                text(each, "state_key")
                for each in found
                if child(each, "content").get("membership") in {"join", "invite"}
            )
        return room.people

    # --- messages without a key ------------------------------------------------------------------

    async def _wait(self, room_id: str, room: Room, event: Json) -> None:
        """Note a message that cannot be read yet, and say so."""
        number, group = text(event, "event_id"), text(child(event, "content"), "session_id")
        if number in self.waits or text(event, "sender") == self._me.id:
            return
        if not self._listens(room_id):
            self._supervisor.drop("encrypted")
            return
        if len(self.waits) >= MOST_WAITING:
            await self._waited(next(iter(self.waits)))
        is_told = any(wait.get("session") == group for wait in self.waits.values())
        self.waits[number] = {"id": number, "room": room_id, "session": group}
        await self._keep(f"waits/{number}", orjson.dumps(self.waits[number]).decode())
        _log.warning("matrix.key.missing", account=self._name, waiting=len(self.waits))
        self._tell_waiting()
        if not is_told and room_id in self._direct_rooms:
            content = tell_later(self._config.language)
            await self._say(room_id, content, transaction(f"key {number}"))

    async def _waited(self, number: str) -> None:
        self.waits.pop(number, None)
        await self._keep(f"waits/{number}", "")
        self._tell_waiting()

    def _tell_waiting(self) -> None:
        if not self.waits:
            self._supervisor.well("rights")
            return
        words = f"Encrypted messages without a key: {len(self.waits)}; see docs/matrix.md."
        self._supervisor.trouble("rights", Health.DEGRADED, words)

    async def _recover(self, number: str, room_id: str) -> None:
        """Read a message whose key has come."""
        room = self.rooms.get(room_id)
        event = await self._api.asked(f"/rooms{escaped(room_id)}/event{escaped(number)}")
        if event and room is not None:
            await self._hear(room_id, room, event)
        await self._waited(number)

    async def _redacted(self, room_id: str, number: str) -> None:
        """Forget a message that was taken back before it was answered, or a reaction."""
        if reaction := self._reactions.pop(number, None):
            await self._engine.reacted(replace(reaction, is_removed=True))
            return
        address = self._heard.get(number) or Address(CHANNEL, self._name, room_id)
        withdraw = self._engine.withdraw
        await self._supervisor.insist("withdraw.failed", lambda: withdraw(address, number))
