"""What was said while nobody listened, and channels nobody described: asking Discord, patiently."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

import structlog

from adapters.discord import DiscordConfig
from adapters.discord.api import Rest, reason
from adapters.discord.drafts import MARK
from adapters.discord.ids import first_id_at, identity, number_in, sent_at
from adapters.discord.inbound import CHANNEL, CREATED, UPDATED, edited_at
from adapters.discord.places import Place, Places
from adapters.discord.sdk import discord
from bot.channel import Inbound
from bot.channel.kit.drafts import Drafts
from bot.channel.kit.intake import MAX_AGE, MAX_MISSED, listens, newest_chats
from bot.channel.kit.json_access import Json, child, children, mapping, text
from bot.channel.kit.supervisor import Supervisor

PAGE = 100

_log = structlog.get_logger()
T = TypeVar("T")


class History:
    """Reads what one account missed."""

    def __init__(
        self,
        supervisor: Supervisor,
        *,
        rest: Rest,
        config: DiscordConfig,
        places: Places,
        drafts: Drafts[str],
    ) -> None:
        self._supervisor = supervisor
        self._rest = rest
        self._account = supervisor.account
        self._config = config
        self._places = places
        self._drafts = drafts

    async def place(self, chat: str) -> Place | None:
        """Where a chat is; None when the bot may not know.

        Raises:
            Stopped: the account stops before Discord answers.
        """
        known = self._places.place(chat)
        if known is not None:
            return known
        try:
            found = await self._patiently(
                lambda: self._rest.call("GET", "/channels/{channel_id}", channel_id=chat)
            )
        except discord.HTTPException as error:
            _log.info("discord.place.unknown", account=self._account, error=reason(error))
            return None
        return self._places.learn({**mapping(found), "id": chat})

    async def missed(self, chat: str, after: int) -> list[tuple[str, Json]]:
        """What happened in a chat after the message with this id, oldest first.

        That is its newest messages, as `CREATED`, and the edits of those before, as `UPDATED`.
        Replies of the bot's that were never finished are taken away on the way.

        Raises:
            Stopped: the account stops before Discord answers.
        """
        place = await self.place(chat)
        if place is None or not self._listens(chat, place):
            return []
        try:
            page = await self._patiently(
                lambda: self._rest.call(
                    "GET",
                    "/channels/{channel_id}/messages",
                    query={"limit": str(min(PAGE, MAX_MISSED))},
                    channel_id=chat,
                )
            )
        except discord.HTTPException as error:
            _log.info("discord.history.refused", account=self._account, error=reason(error))
            return []
        since = time.time_ns() // 1_000_000 - MAX_AGE
        messages = children({"page": page}, "page")
        found = [new for message in messages if (new := _new(message, after, since))]
        created = [message for _, kind, message in found if kind == CREATED]
        if len(created) >= MAX_MISSED:
            _log.warning("discord.history.cut", account=self._account, kept=len(created))
        for message in created:
            await self._clean(chat, message)
        return [(kind, message) for _, kind, message in sorted(found, key=_when)]

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
        """Whether the bot reads here at all: a direct chat, or a room it listens in."""
        somewhere = Inbound(
            channel=CHANNEL,
            account=self._account,
            chat=chat,
            chat_type=place.kind,
            sender="",
            message_id="",
            text="",
            sent_at=0,
            parent=place.parent,
            server=place.server,
        )
        return listens(self._config, somewhere)

    async def _clean(self, chat: str, message: Json) -> None:
        number = identity(message, "id")
        is_own = identity(child(message, "author"), "id") == self._places.me
        if not is_own or not text(message, "content").endswith(MARK.strip()):
            return
        if self._drafts.shows(chat, number):
            return
        path = "/channels/{channel_id}/messages/{message_id}"
        try:
            await self._patiently(
                lambda: self._rest.call("DELETE", path, channel_id=chat, message_id=number)
            )
        except discord.HTTPException as error:
            _log.info("discord.draft.left", account=self._account, error=reason(error))

    async def _patiently(self, call: Callable[[], Awaitable[T]]) -> T:
        """The answer to a call, asked again until there is one.

        Raises:
            HTTPException: Discord says no.
            Stopped: the account stops first.
        """
        backoff = self._supervisor.backoff()
        while True:
            try:
                return await call()
            except discord.RateLimited as error:
                delay = error.retry_after
            except discord.HTTPException as error:
                if error.status < 500 and error.status != 401:
                    raise
                delay = backoff.next()
            except discord.DiscordException:
                delay = backoff.next()
            await self._supervisor.pause(delay)


def _new(message: Json, after: int, since: int) -> tuple[int, str, Json] | None:
    """When it happened (ms since the epoch), what, and the message; None when it is known or old.

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


def _when(found: tuple[int, str, Json]) -> tuple[int, int]:
    at, _, message = found
    return at, int(identity(message, "id"))
