"""One bot: what its homeserver brings it with each `/sync`, and what it says."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import orjson
import structlog
from cachetools import LRUCache

from adapters.matrix import MatrixConfig
from adapters.matrix.api import Api, Refused, TokenRefused, escaped
from adapters.matrix.inbound import (
    CHANNEL,
    ENCRYPTED,
    MESSAGE,
    REACTION,
    Identity,
    Ignored,
    Room,
    answered,
    edited,
    location,
    normalise,
    reaction_of,
    thread,
)
from adapters.matrix.keys import Forged, Keys, Missing, opened, sealed
from adapters.matrix.send import file_content, tell_later, transaction, words_content
from bot.channel import Address, Engine, Health, Inbound, Media, Piece, Reaction, reveal
from bot.channel.kit.client import session
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
from bot.errors import ChannelError, SendLater, SendRefused, SendTransient, SendUnreachable

REMEMBERED = 4096  # names, events that were looked up, addresses of messages
MOST_WAITING = 200  # messages whose keys are missing
TRIES = 5  # to go into a room
JOINING = 300.0  # seconds that one of them may take
ADMIN = 50  # the power level that may change a room
OLD_ROOMS = frozenset(map(str, range(1, 12)))  # versions in which creators have a power level
_WANTED: Json = {
    "presence": {"types": []},
    "account_data": {"types": ["m.direct"]},
    "room": {
        "account_data": {"types": []},
        "ephemeral": {"types": []},
        "state": {"lazy_load_members": True, "include_redundant_members": True},
        "timeline": {"limit": 50, "lazy_load_members": True},
    },
}
_FILTER = orjson.dumps(_WANTED).decode()

_log = structlog.get_logger()
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Pace:
    """Waits in seconds."""

    first: float = 2.0
    longest: float = 60.0
    rejected: float = 60.0  # before a token that was refused is tried again
    poll: float = 30.0


class Account:
    """One account of a homeserver."""

    def __init__(
        self, name: str, config: MatrixConfig, token: str, engine: Engine, pace: Pace
    ) -> None:
        self.name, self._config, self._engine, self._pace = name, config, engine, pace
        self._session = session(reveal(config.proxy))
        self.api = Api(config.address, token, self._session)
        self.supervisor = Supervisor(
            CHANNEL,
            name,
            engine,
            waiting="they stay on the homeserver",
            first=pace.first,
            longest=pace.longest,
        )
        self._backoff = self.supervisor.backoff()
        self.me = Identity("")
        self._keys: Keys | None = None
        self._rooms: dict[str, Room] = {}
        self._directs: Json = {}
        self._waits: dict[str, Json] = {}  # messages whose keys are missing, by id
        self._names: LRUCache[tuple[str, str], str] = LRUCache(REMEMBERED)
        self._events: LRUCache[tuple[str, str], Json] = LRUCache(REMEMBERED)
        self._heard: LRUCache[str, Address] = LRUCache(REMEMBERED)
        self._reactions: LRUCache[str, Reaction] = LRUCache(REMEMBERED)
        self._signs: LRUCache[tuple[str, str], str] = LRUCache(REMEMBERED)
        self.connected = asyncio.Event()

    def start(self) -> None:
        """Begin to listen."""
        listening = self.supervisor.listen(self._serve, self._failed, end=self.connected.clear)
        self.supervisor.spawn(listening)

    async def stop(self) -> None:
        """Stop listening, after what is being stored."""
        await self.supervisor.stop()
        await self._session.close()

    # --- listening -------------------------------------------------------------------------------

    def _failed(self, error: Exception) -> float | None:
        """Say why a connection ended; how long to wait in seconds."""
        if not isinstance(error, ChannelError):
            return None
        if isinstance(error, TokenRefused):
            delay, health = self._pace.rejected, Health.DOWN
        else:
            delay = error.seconds if isinstance(error, SendLater) else self._backoff.next()
            health = Health.DEGRADED
        why = "The homeserver asks to wait" if isinstance(error, SendLater) else str(error)
        _log.warning("matrix.connection.failed", account=self.name, error=why, retry_in=delay)
        self.supervisor.trouble("receiving", health, f"{why}. Trying again in {delay:g} s.")
        return delay

    async def _keep(self, name: str, value: str) -> None:
        keep = self._engine.keep
        await self.supervisor.insist("keep.failed", lambda: keep(CHANNEL, self.name, name, value))

    async def _serve(self) -> None:
        kept = self._engine.kept
        notes = await self.supervisor.insist("kept.failed", lambda: kept(CHANNEL, self.name))
        await self._begin(notes)
        since, poll, full = notes.get("since", ""), 0, "true"
        while True:
            query = {"timeout": str(poll), "full_state": full, "filter": _FILTER}
            query |= {"since": since} if since else {}
            patience = 2 * self._pace.poll + 30
            call = self.api.call("GET", "/sync", query=query, patience=patience)
            sync = await self.supervisor.unless_stopped(call)
            if not text(sync, "next_batch"):
                raise SendTransient("The homeserver answers with something else than a sync")
            await self._take(sync, since)
            since, poll, full = text(sync, "next_batch"), int(self._pace.poll * 1000), "false"
            await self._keep("since", since)
            self._backoff.reset()
            self.connected.set()
            self.supervisor.well("receiving")
            if self._keys is not None:
                await self._keys.tidy()

    async def _begin(self, notes: Any) -> None:
        """Ask who the bot is, and take up what an earlier run left."""
        self.connected.clear()  # until it knows the rooms again
        who = await self.api.call("GET", "/account/whoami")
        me = Identity(text(who, "user_id"), text(who, "device_id"))
        shown = await self._asked(f"/profile{escaped(me.id)}/displayname")
        self.me = replace(me, name=label(text(shown, "displayname")))
        self._directs = await self._asked(f"/user{escaped(me.id)}/account_data/m.direct")
        self._keys = Keys(self.api, self.me, notes, self._keep) if me.device else None
        if self._keys is not None:
            await self._keys.tidy()  # before it goes anywhere: people encrypt for known devices
            await self._keys.sign()
        rooms = [name.partition("/")[2] for name in notes if name.startswith("encrypted/")]
        self._rooms = {room: Room(encrypted=True) for room in rooms}
        waits = [mapping(parse_json(notes[name])) for name in notes if name.startswith("waits/")]
        self._waits = {text(each, "id"): each for each in waits}
        key = self._keys.fingerprint if self._keys is not None else ""
        _log.info("matrix.connected", account=self.name, device=me.device, fingerprint=key)

    async def _asked(self, path: str) -> Json:
        """What the homeserver knows, or nothing."""
        try:
            return await self.api.call("GET", path)
        except Refused:
            return {}

    async def _take(self, sync: Json, since: str) -> None:
        """Store everything that a sync brings; doing so again changes nothing."""
        if self._keys is not None:
            self._keys.hear(sync)
            await self._keys.flush()
        for event in children(child(sync, "account_data"), "events"):
            self._directs = child(event, "content")
        rooms = child(sync, "rooms")
        for room_id in child(rooms, "invite"):
            await self._invited(room_id, child(child(rooms, "invite"), room_id))
        for room_id in child(rooms, "join"):
            await self._joined(room_id, child(child(rooms, "join"), room_id), since)
        for room_id in child(rooms, "leave"):
            self._rooms.pop(room_id, None)
        for number, wait in [*self._waits.items()]:
            if self._keys is not None and self._keys.has(text(wait, "session")):
                await self._recover(number, text(wait, "room"))

    async def _invited(self, room_id: str, invite: Json) -> None:
        """Go into a room that the configuration lets it into."""
        events = children(child(invite, "invite_state"), "events")
        own = next((each for each in events if each.get("state_key") == self.me.id), Json())
        inviter, is_direct = text(own, "sender"), child(own, "content").get("is_direct") is True
        config = self._config
        names = {*config.allow_from, *(() if is_direct else config.group_allow_from)}
        where = Where("direct" if is_direct else "group", room_id)
        is_known = inviter in names or (is_direct and config.dm_policy in {"pairing", "open"})
        may_listen = listens(config, where) or (is_known and config.group_policy != "disabled")
        if not (is_known and listens(config, where) if is_direct else may_listen):
            self.supervisor.drop("invitation")
            return
        if is_direct and room_id not in self._direct_rooms:
            self._directs |= {inviter: [*texts(self._directs, inviter), room_id]}
            path = f"/user{escaped(self.me.id)}/account_data/m.direct"
            await self.api.call("PUT", path, self._directs)
        self.supervisor.spawn(self._join(room_id))  # a server far away may take minutes

    async def _join(self, room_id: str) -> None:
        for _ in range(TRIES):
            try:
                await self.api.call("POST", f"/join{escaped(room_id)}", {}, patience=JOINING)
            except (SendLater, SendTransient) as error:
                seconds = error.seconds if isinstance(error, SendLater) else self._pace.longest
                await self.supervisor.pause(seconds)
            except ChannelError as error:
                _log.info("matrix.invitation.failed", account=self.name, error=str(error))
                return
            else:
                return

    @property
    def _direct_rooms(self) -> set[str]:
        """The rooms that somebody wants to be direct chats."""
        return {room for who in self._directs for room in texts(self._directs, who)}

    async def _joined(self, room_id: str, part: Json, since: str) -> None:
        room = self._rooms.setdefault(room_id, Room())
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
        is_own = event.get("type") == "m.room.member" and event.get("state_key") == self.me.id
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
        """What was said in a room that a sync leaves out, oldest first."""
        found: list[Json] = []
        oldest = time.time() * 1000 - MAX_AGE
        while token and len(found) < MAX_MISSED and self._listens(room_id):
            query = {"dir": "b", "from": token, "to": since, "limit": str(MAX_MISSED)}
            answer = await self.api.call("GET", f"/rooms{escaped(room_id)}/messages", query=query)
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
                self.supervisor.drop("forged")
                return
        if event.get("type") == "m.room.redaction":
            number = text(event, "redacts") or text(child(event, "content"), "redacts")
            undone = self._reactions.pop(number, None)
            if undone is not None:
                await self._engine.reacted(replace(undone, is_removed=True))
            else:
                await self._redacted(room_id, number)
            return
        if event.get("type") == REACTION:
            await self._reacted(room_id, room, event)
            return
        found = await self._read(room_id, room, event)
        if isinstance(found, Ignored):
            self.supervisor.drop(found.reason)
        elif await self.supervisor.receive(found):
            self._heard[found.message_id] = found.address

    async def _read(self, room_id: str, room: Room, event: Json) -> Inbound | Ignored:
        """What an event says, with what it refers to."""
        sender, now = text(event, "sender"), int(time.time() * 1000)
        if sender == self.me.id:
            return Ignored("own")
        if room_id in self._direct_rooms:
            await self._people(room_id, room)
        looks = self._listens(room_id)
        original = await self._event(room_id, edited(event)) if looks else {}
        said = original or event
        link, root = answered(said), thread(said)
        inbound = Inbound(
            channel=CHANNEL,
            account=self.name,
            chat=room_id,
            chat_type="direct" if self._is_direct(room_id, room, sender) else "group",
            sender=sender,
            sender_name=self._names.get((room_id, sender)) or label(sender),
            message_id=text(event, "event_id"),
            text="",
            sent_at=min(integer(event, "origin_server_ts") or now, now),
            thread=root,
        )
        before = await self._event(room_id, link) if looks else {}
        start = await self._event(room_id, root) if looks and not link else {}
        made = normalise(event, self.me, inbound, original=original, before=before, start=start)
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

    def _is_direct(self, room_id: str, room: Room, sender: str) -> bool:
        return room_id in self._direct_rooms and room.is_direct(self.me.id, sender)

    async def _event(self, room_id: str, number: str) -> Json:
        """An event that another one refers to, readable; empty when there is none."""
        if not number:
            return {}
        found = self._events.get((room_id, number))
        if found is None:
            try:
                found = await self._asked(f"/rooms{escaped(room_id)}/event{escaped(number)}")
                if found.get("type") == ENCRYPTED and self._keys is not None:
                    found = self._keys.decrypt(room_id, found)
            except (SendLater, SendTransient, Missing, Forged):
                return {}
            self._events[room_id, number] = found
        return found

    async def _people(self, room_id: str, room: Room) -> frozenset[str]:
        """Who is in a room, or invited."""
        while room.people is None:
            path = f"/rooms{escaped(room_id)}/members"
            answer = await self.api.call("GET", path, query={"not_membership": "leave"})
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
        if number in self._waits or text(event, "sender") == self.me.id:
            return
        if not self._listens(room_id):
            self.supervisor.drop("encrypted")
            return
        if len(self._waits) >= MOST_WAITING:
            await self._waited(next(iter(self._waits)))
        is_told = any(wait.get("session") == group for wait in self._waits.values())
        self._waits[number] = {"id": number, "room": room_id, "session": group}
        await self._keep(f"waits/{number}", orjson.dumps(self._waits[number]).decode())
        _log.warning("matrix.key.missing", account=self.name, waiting=len(self._waits))
        self._tell_waiting()
        if not is_told and room_id in self._direct_rooms:
            content = tell_later(self._config.language)
            await self._say(room_id, content, transaction(f"key {number}"))

    async def _waited(self, number: str) -> None:
        self._waits.pop(number, None)
        await self._keep(f"waits/{number}", "")
        self._tell_waiting()

    def _tell_waiting(self) -> None:
        if not self._waits:
            self.supervisor.well("rights")
            return
        words = f"Encrypted messages without a key: {len(self._waits)}; see docs/matrix.md."
        self.supervisor.trouble("rights", Health.DEGRADED, words)

    async def _recover(self, number: str, room_id: str) -> None:
        """Read a message whose key has come."""
        room = self._rooms.get(room_id)
        event = await self._asked(f"/rooms{escaped(room_id)}/event{escaped(number)}")
        if event and room is not None:
            await self._hear(room_id, room, event)
        await self._waited(number)

    async def _reacted(self, room_id: str, room: Room, event: Json) -> None:
        """Tell the engine of a reaction; taking it back names only its event."""
        sender = text(event, "sender")
        if room_id in self._direct_rooms:
            await self._people(room_id, room)
        kind = "direct" if self._is_direct(room_id, room, sender) else "group"
        name = self._names.get((room_id, sender)) or label(sender)
        place = Address(CHANNEL, self.name, room_id)
        found = reaction_of(event, self.me, place, kind, name)
        if found is None:
            self.supervisor.drop("reaction")
            return
        self._reactions[text(event, "event_id")] = found
        await self._engine.reacted(found)

    async def _redacted(self, room_id: str, number: str) -> None:
        """Forget a message that was taken back before it was answered."""
        address = self._heard.get(number) or Address(CHANNEL, self.name, room_id)
        withdraw = self._engine.withdraw
        await self.supervisor.insist("withdraw.failed", lambda: withdraw(address, number))

    # --- saying ----------------------------------------------------------------------------------

    async def send(self, piece: Piece) -> str:
        """Send one message, or one file; see `Channel.send`."""
        room = self._rooms.get(piece.address.chat)
        if not self.connected.is_set():
            raise SendTransient("Matrix is not connected")
        if room is None:
            raise SendUnreachable("the bot is not in this room")
        content = words_content(piece)
        if piece.attachments:
            content = file_content(piece, await self._upload(piece, room))
        return await self._told(self._say(piece.address.chat, content, transaction(piece.id)))

    async def _upload(self, piece: Piece, room: Room) -> Json:
        """Where a file of ours is: "url", or with its key as "file"."""
        file = piece.attachments[0]
        locked: Json = {}
        data = file.data
        if room.encrypted:
            data, locked = await asyncio.to_thread(sealed, data)
        path, mime = "/_matrix/media/v3/upload", "application/octet-stream" if locked else file.mime
        answer = await self._told(self.api.call("POST", path, data, mime=mime, patience=120.0))
        url = text(answer, "content_uri")
        return {"file": locked | {"url": url}} if locked else {"url": url}

    async def _say(self, room_id: str, content: Json, number: str) -> str:
        room, kind = self._rooms[room_id], MESSAGE
        if room.encrypted:
            if self._keys is None:
                raise SendRefused("this access token belongs to no device, which encryption needs")
            people = await self._people(room_id, room)
            content = await self._keys.encrypt(room_id, MESSAGE, content, people)
            kind = ENCRYPTED
        path = f"/rooms{escaped(room_id)}/send{escaped(kind, number)}"
        return text(await self.api.call("PUT", path, content), "event_id")

    async def _told(self, work: Awaitable[T]) -> T:
        """What a call returns, with the errors of the contract."""
        try:
            return await work
        except TokenRefused as error:
            raise SendTransient(str(error)) from None
        except Refused as error:
            kind = SendUnreachable if error.status in {403, 404} else SendRefused
            raise kind(str(error)) from None

    async def typing(self, room_id: str) -> None:
        """Show that a reply is being written."""
        path = f"/rooms{escaped(room_id)}/typing{escaped(self.me.id)}"
        await self.api.call("PUT", path, {"typing": True, "timeout": 8000})

    async def react(self, room_id: str, number: str, emoji: str) -> None:
        """Put a sign below a message, or take ours away."""
        place = f"/rooms{escaped(room_id)}"
        before = self._signs.pop((room_id, number), "")
        if before:
            path = f"{place}/redact{escaped(before, transaction(f'off {before}'))}"
            await self.api.call("PUT", path, {})
        if emoji:
            link: Json = {"rel_type": "m.annotation", "event_id": number, "key": emoji}
            path = f"{place}/send/m.reaction{escaped(transaction(f'{emoji} {number}'))}"
            answer = await self.api.call("PUT", path, {"m.relates_to": link})
            self._signs[room_id, number] = text(answer, "event_id")

    async def fetch(self, media: Media, most: int) -> bytes:
        """The bytes of a file; see `Channel.fetch`."""
        server, number, locked = location(media.ref)
        if not server or media.size > most:
            raise SendRefused("this file is too large, or none of Matrix")
        data = await self.api.download(server, number, most)
        return await asyncio.to_thread(opened, data, locked) if locked else data

    async def is_admin(self, address: Address, sender: str) -> bool:
        """True if somebody may change the room."""
        place = f"/rooms{escaped(address.chat)}/state"
        powers = await self._asked(f"{place}/m.room.power_levels")
        level = integer(child(powers, "users"), sender)
        if level is None:
            level = integer(powers, "users_default") or 0
        if level >= ADMIN:
            return True
        made = await self.api.call("GET", f"{place}/m.room.create", query={"format": "event"})
        content = child(made, "content")
        is_creator = sender in {made.get("sender"), *texts(content, "additional_creators")}
        return is_creator and text(content, "room_version") not in {"", *OLD_ROOMS}
