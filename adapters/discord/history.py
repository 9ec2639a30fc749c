"""Messages to one bot, live ones and missed ones: each event → a stored message."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping

import structlog
from cachetools import LRUCache

from adapters.discord import DiscordConfig, inbound, interactions
from adapters.discord.api import Rest, first_id_at, identity, number_in, sent_at
from adapters.discord.inbound import (
    CHANNEL,
    CREATED,
    REACTIONS,
    UPDATED,
    Identity,
    Ignored,
    edited_at,
    normalise,
)
from adapters.discord.interactions import Interaction, PendingInteractions, interaction_of
from adapters.discord.places import Place, Places, Room
from adapters.discord.render import MARK
from adapters.discord.send import MESSAGE, MESSAGES, Sender
from bot.channel import Address, Inbound
from bot.channel.kit.intake import MAX_AGE, MAX_MISSED, Where, listens, newest_chats
from bot.channel.kit.json_access import Json, child, children, integer, mapping, text
from bot.channel.kit.supervisor import Stopped, Supervisor
from bot.clock import system_clock
from bot.errors import ChannelError

PAGE = 100
MAX_STARTED = 10_000  # threads whose first message was looked up
START_TIMEOUT = 3.0  # seconds

_log = structlog.get_logger()

Event = tuple[str, Json]  # its name, and what it holds


class History:
    """Stores the messages and interactions that one account gets, or missed."""

    def __init__(
        self,
        supervisor: Supervisor,
        *,
        rest: Rest,
        config: DiscordConfig,
        places: Places,
        pending: PendingInteractions,
        sender: Sender,
    ) -> None:
        self.me = Identity("")
        self.public: Collection[str] = ()  # commands whose answers everybody may read
        self._supervisor = supervisor
        self._rest = rest
        self._account = supervisor.account
        self._config = config
        self._places = places
        self._pending = pending
        self._sender = sender
        self._started: LRUCache[str, None] = LRUCache(MAX_STARTED)

    async def read(self, chat: str, after: int) -> Collection[int]:
        """Store what was missed in a chat after a message; the numbers of what is there.

        Raises:
            Stopped: the account stops first.
        """
        missed = await self._missed(chat, after)
        if missed:
            _log.info("discord.history.read", account=self._account, messages=len(missed))
        for kind, message in missed:
            await self.store(chat, (kind, {**message, "channel_id": chat}))
        return {int(identity(message, "id")) for _, message in missed}

    async def store(self, chat: str, event: Event) -> None:
        """Store the message in an event, however often it takes, or count why there is none.

        Raises:
            Stopped: the account stops first.
        """
        try:
            read = await self._read(chat, *event)
        except Stopped:
            raise
        except Exception as error:  # noqa: BLE001  # whatever it holds, the others must go on
            self.leave_out("unreadable")
            name = type(error).__name__
            _log.warning("discord.event.unreadable", account=self._account, error=name)
            return
        if read is None:
            return
        found, interaction = read
        if interaction is not None:
            self._pending.opened(interaction)
        elif found.chat_type != "direct" and found.mentions_bot:
            # In a room a reply is one from its first word.
            self._sender.asked[found.address] = number_in(found.message_id)
        if await self._supervisor.receive(found) and interaction is not None:
            self._pending.stored(interaction)

    async def _read(
        self, chat: str, kind: str, data: Json
    ) -> tuple[Inbound, Interaction | None] | None:
        """The message in an event, or None after counting why there is none."""
        if kind == interactions.EVENT:
            interaction = interaction_of(data, self.public)
            found = interactions.normalise(data, self._account, self.me, self.public)
            if interaction is None or found is None:
                self.leave_out("interaction")
            elif self._pending.repeated(interaction):
                self.leave_out("repeated")
            else:
                self._places.keep(chat, interactions.place_in(data))
                return found, interaction
            if interaction is not None:
                self._pending.dismiss(interaction)
            return None
        if kind in REACTIONS:
            await self._reacted(chat, kind, data)
            return None
        # Most of what is left out can be told without knowing the place.
        first = normalise(kind, data, self._account, self.me, Room(Place("group")))
        if isinstance(first, Ignored):
            self.leave_out(first.reason)
            return None
        room = self._places.room(await self._place(chat, data))
        result = normalise(kind, data, self._account, self.me, room)
        if isinstance(result, Ignored):
            return None
        if result.mentions_bot and result.chat_type == "thread" and result.reply_to is None:
            start = await self._start(result.parent, chat)
            result = normalise(kind, data, self._account, self.me, room, start=start)
        return None if isinstance(result, Ignored) else (result, None)

    async def _reacted(self, chat: str, kind: str, data: Json) -> None:
        account, nowhere = self._account, Place("group")
        if inbound.reaction_of(kind, data, account, self.me, nowhere) is None:
            self.leave_out("reaction")
            return
        place = await self._place(chat, data)
        reaction = inbound.reaction_of(kind, data, account, self.me, place)
        if reaction is not None:
            await self._supervisor.engine.reacted(reaction)

    async def _place(self, chat: str, data: Json) -> Place:
        known = self._places.place(chat)
        if known is not None:
            return known
        server = identity(data, "guild_id")
        if integer(data, "channel_type") == 1 and not server:
            return self._places.learn({"id": chat, "type": 1})
        found = await self._asked(chat)
        # Who may not know where this is takes it for a room: there nothing private shows.
        return found or Place("channel" if server else "group", "", server)

    def leave_out(self, why: str) -> None:
        """Count something that becomes no message."""
        self._supervisor.drop(why)
        _log.debug("discord.event.ignored", account=self._account, reason=why)

    # --- what was said while nobody listened -----------------------------------------------------

    async def _asked(self, chat: str) -> Place | None:
        """The place of a chat, as Discord says; None if the bot may not know.

        Raises:
            Stopped: the account stops before Discord answers.
        """
        try:
            found = await self._supervisor.patiently(
                lambda: self._rest.call("GET", "/channels/{channel_id}", channel_id=chat)
            )
        except ChannelError as error:
            _log.info("discord.place.unknown", account=self._account, error=str(error))
            return None
        return self._places.learn({**mapping(found), "id": chat})

    async def _start(self, parent: str, thread: str) -> Json:
        """The message with which a thread began, the first time it is asked for; or nothing.

        It has the thread's id: in a forum it is the post itself, elsewhere it is in the parent.
        Nobody waits for it long: a message can be answered without.
        """
        if thread in self._started:
            return {}
        self._started[thread] = None
        for chat in filter(None, (thread, parent)):
            try:
                async with asyncio.timeout(START_TIMEOUT):
                    found = await self._rest.call(
                        "GET", MESSAGE, channel_id=chat, message_id=thread
                    )
                return mapping(found)
            except (ChannelError, TimeoutError) as error:
                _log.info("discord.start.unknown", account=self._account, error=str(error))
        return {}

    async def _missed(self, chat: str, after: int) -> list[tuple[str, Json]]:
        """The events in a chat after the message with this id, oldest first.

        That is its newest messages, as `CREATED`, and the edits of those before, as `UPDATED`.
        Replies of the bot's that were never finished are taken away on the way.

        Raises:
            Stopped: the account stops before Discord answers.
        """
        place = self._places.place(chat) or await self._asked(chat)
        if place is None or not self._listens(chat, place):
            return []
        try:
            page = await self._supervisor.patiently(
                lambda: self._rest.call(
                    "GET",
                    MESSAGES,
                    query={"limit": str(min(PAGE, MAX_MISSED))},
                    channel_id=chat,
                )
            )
        except ChannelError as error:
            _log.info("discord.history.refused", account=self._account, error=str(error))
            return []
        since = system_clock() - MAX_AGE
        messages = children({"page": page}, "page")
        found = [new for message in messages if (new := _new(message, after, since))]
        created = [message for _, kind, message in found if kind == CREATED]
        if len(created) >= MAX_MISSED:
            _log.warning("discord.history.cut", account=self._account, kept=len(created))
        for message in created:
            await self._clean(chat, message)
        found.sort(key=lambda new: (new[0], int(identity(new[2], "id"))))
        return [(kind, message) for _, kind, message in found]

    def chats(self, last_seen: Mapping[str, str], since: int, server: str = "") -> dict[str, int]:
        """The chats to look through, each with the id of the message to begin after.

        They are those of `last_seen`, and the listed ones of one server or of all in which there
        is something newer than the message id `since`; the ones with the newest messages, when
        they are many.
        """
        numbers = {chat: number_in(message) for chat, message in last_seen.items()}
        begin = {chat: int(seen) for chat, seen in numbers.items() if seen and chat.isdecimal()}
        newest = self._places.newest(server)
        for chat, number in newest.items():
            place = self._places.place(chat)
            if place is None:
                continue
            # What was said before the bot joined was not said to it.
            known = max(since, int(first_id_at(self._places.joined(place.server))))
            if number > known and self._listens(chat, place):
                begin.setdefault(chat, known)
        chosen = newest_chats({chat: max(at, newest.get(chat, 0)) for chat, at in begin.items()})
        if len(chosen) < len(begin):
            _log.warning("discord.history.chats_cut", account=self._account, chats=len(begin))
        return {chat: begin[chat] for chat in chosen}

    def _listens(self, chat: str, place: Place) -> bool:
        return listens(self._config, Where(place.kind, chat, place.parent, place.server))

    async def _clean(self, chat: str, message: Json) -> None:
        number = identity(message, "id")
        is_own = identity(child(message, "author"), "id") == self._places.me
        is_draft = is_own and text(message, "content").endswith(MARK.strip())
        place = Address(CHANNEL, self._account, chat)
        if not is_draft or self._sender.shows(place, number):
            return
        try:
            await self._supervisor.patiently(lambda: self._sender.delete(place, number))
        except ChannelError as error:
            _log.info("discord.draft.left", account=self._account, error=str(error))


def _new(message: Json, after: int, since: int) -> tuple[int, str, Json] | None:
    """The time (ms since the epoch), the event and the message; None if it is known or old.

    `after` is the id of a message that is known, `since` is in ms since the epoch.
    """
    number, edited = identity(message, "id"), edited_at(message)
    if not number:
        return None
    at = sent_at(number)
    if int(number) > after and at >= since:
        return at, CREATED, message
    if edited is not None and edited >= since:
        return edited, UPDATED, message
    return None
