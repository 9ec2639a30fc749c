"""What was said while nobody listened, and channels nobody described: asking Discord, patiently."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

import structlog

from adapters.discord import DiscordConfig
from adapters.discord.api import Rest, as_json, reason
from adapters.discord.drafts import MARK, Drafts
from adapters.discord.inbound import CHANNEL, first_id_at, number_in
from adapters.discord.pace import Pace
from adapters.discord.places import Place, Places
from adapters.discord.sdk import discord
from adapters.discord.shapes import Json, child, children, identity, text
from adapters.missed import AT_ONCE, MAX_AGE, MAX_MISSED, listens, newest_chats
from adapters.waits import Backoff, Stopped, pause
from bot.channel import Inbound

PAGE = 100

_log = structlog.get_logger()
T = TypeVar("T")


class History:
    """Reads what one account missed."""

    def __init__(
        self,
        *,
        rest: Rest,
        account: str,
        config: DiscordConfig,
        places: Places,
        drafts: Drafts,
        pace: Pace,
        stopping: asyncio.Event,
    ) -> None:
        self._rest = rest
        self._account = account
        self._config = config
        self._places = places
        self._drafts = drafts
        self._pace = pace
        self._stopping = stopping
        self._room = asyncio.Semaphore(AT_ONCE)

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
        return self._places.learn({**as_json(found), "id": chat})

    async def missed(self, chat: str, after: str) -> list[Json]:
        """The newest messages of a chat after one with this id, oldest first.

        Replies of the bot's that were never finished are taken away on the way.

        Raises:
            Stopped: the account stops before Discord answers.
        """
        place = await self.place(chat)
        if place is None or not self._listens(chat, place):
            return []
        oldest = max(int(after), int(first_id_at(time.time_ns() // 1_000_000 - MAX_AGE)))
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
        newer = [m for m in children({"page": page}, "page") if _number(m) > oldest]
        if len(newer) >= MAX_MISSED:
            _log.warning("discord.history.cut", account=self._account, kept=len(newer))
        for message in newer:
            await self._clean(chat, message)
        return sorted(newer, key=_number)

    def chats(self, last_seen: Mapping[str, str]) -> dict[str, str]:
        """The chats to look through: the newest ones, with the newest message seen in each."""
        seen = {chat: number_in(message) for chat, message in last_seen.items()}
        known = {chat: int(after) for chat, after in seen.items() if after and chat.isdecimal()}
        found = newest_chats(known)
        if len(found) < len(known):
            _log.warning("discord.history.chats_cut", account=self._account, chats=len(known))
        return {chat: str(after) for chat, after in found.items()}

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
        if self._drafts.holds(chat, number):
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
        backoff = Backoff(self._pace.first, self._pace.longest)
        while True:
            try:
                async with self._room:
                    return await call()
            except discord.RateLimited as error:
                delay = error.retry_after
            except discord.HTTPException as error:
                if error.status < 500 and error.status != 401:
                    raise
                delay = backoff.next()
            except discord.DiscordException:
                delay = backoff.next()
            if await pause(delay, self._stopping):
                raise Stopped


def _number(message: Json) -> int:
    return int(identity(message, "id") or 0)
