"""Replies while they are being written.

In a direct chat Telegram has a place for that (sendMessageDraft), which the reply's own message
replaces. In groups it is one message that is edited until it is the reply. Which one that is is
kept on disk, once for each, so that the reply finds it after a restart too.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Coroutine
from hashlib import blake2b
from typing import Any

import structlog
from telegram.error import BadRequest, Forbidden, InvalidToken, RetryAfter, TelegramError

from adapters.telegram.api import Json, reason
from adapters.telegram.inbound import CHANNEL
from adapters.telegram.render import LIMIT, formatted
from adapters.telegram.send import Allowance, chat_id, failure, place_of
from bot.channel import Address, Engine, Inbound
from bot.channel.kit.drafts import Draft, Drafts
from bot.channel.kit.json_access import integer, mapping
from bot.errors import SendLater, StorageError

MARK = " ▍"  # ends a reply in a group that is being written
SPARE = 8  # of a group's messages a minute, kept for what is finished
KEPT_FOR = 24 * 3600  # seconds; a reply that was not finished for so long never will be
_KEPT = "draft "  # what the names of kept drafts begin with; one for each place

_log = structlog.get_logger()


class TelegramDrafts(Drafts[Address]):
    """The unfinished replies of one account, at most one in a place.

    Args:
        engine: keeps which messages are drafts.
        call: calls a method of the Bot API.
        spawn: runs something in a task that ends with the channel.
        first, every: seconds before a reply shows, and between two changes of it.
    """

    def __init__(
        self,
        *,
        account: str,
        engine: Engine,
        call: Callable[[str, Json], Awaitable[Any]],
        spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
        allowance: Allowance,
        first: float,
        every: float,
    ) -> None:
        super().__init__(spawn, first)
        self._account = account
        self._engine = engine
        self._call = call
        self._allowance = allowance
        self._every = every
        self._has_own_place = True  # until Telegram's server says it knows no drafts

    def hear(self, inbound: Inbound) -> None:
        """Know which message the next reply in a group answers."""
        if inbound.mentions_bot and inbound.message_id.isdecimal():
            self.asked[inbound.address] = inbound.message_id

    async def recall(self) -> None:
        """Know what an earlier run of the program left unfinished."""
        oldest = time.time() - KEPT_FOR
        try:
            kept = await self._engine.kept(CHANNEL, self._account)
            for name in (name for name in kept if name.startswith(_KEPT)):
                draft, at = self._read(kept[name])
                if at < oldest:
                    await self._engine.keep(CHANNEL, self._account, name, "")
                else:
                    self.leave(draft)
        except StorageError as error:
            said = type(error).__name__
            _log.error("telegram.drafts.unread", account=self._account, error=said)

    def _read(self, kept: str) -> tuple[Draft[Address], float]:
        """A draft that was kept, and when; what cannot be read is as old as can be."""
        try:
            chat, thread, draft_id, message, answers, at = json.loads(kept)
            place = Address(CHANNEL, self._account, str(chat), str(thread))
            return Draft(place, str(draft_id), str(answers), str(message)), float(at)
        except (ValueError, TypeError) as error:
            said = type(error).__name__
            _log.error("telegram.draft.unreadable", account=self._account, error=said)
            return Draft(Address(CHANNEL, self._account, "", ""), "", "", ""), 0.0

    async def remove(self, draft: Draft[Address]) -> None:
        """Take away what shows of a draft; in a direct chat it goes by itself."""
        where: Json = {"chat_id": chat_id(draft.place.chat), "message_id": int(draft.message)}
        try:
            await self._call("deleteMessage", where)
        except TelegramError as error:
            said = reason(error, "")
            _log.info("telegram.draft.left", account=self._account, error=said)

    def held(self, draft: Draft[Address]) -> float:
        """A group's few messages a minute are for what is finished."""
        return self._allowance.wait(draft.place.chat, SPARE)

    async def put(self, draft: Draft[Address]) -> float:
        """Show a draft; see `Drafts.put`."""
        is_private, rest = not draft.place.chat.startswith("-"), self._every
        if is_private and not self._has_own_place:
            return rest
        try:
            await self._put(draft, is_private=is_private)
        except RetryAfter as error:
            later = failure(error)
            return max(rest, later.seconds) if isinstance(later, SendLater) else rest
        except TelegramError as error:
            # No later step will fare better where the bot may not write. And a message that may
            # have been sent without our knowing must not be sent once more.
            is_lost = not draft.message and not is_private
            draft.is_dead = is_lost or isinstance(error, BadRequest | Forbidden | InvalidToken)
            if isinstance(error, InvalidToken) and "not found" in error.message.lower():
                self._has_own_place = False  # so the SDK reads "there is no such method"
            said = reason(error, "")
            _log.info("telegram.draft.failed", account=self._account, error=said)
        return rest

    async def _put(self, draft: Draft[Address], *, is_private: bool) -> None:
        shown = formatted(draft.text, LIMIT - len(MARK))
        if not shown:
            return
        words: Json = {"text": shown[0].text, "entities": shown[0].entities}
        parameters = place_of(draft.place) | words
        if is_private:
            await self._call("sendMessageDraft", parameters | {"draft_id": _number(draft.id)})
            return
        parameters["text"] += MARK
        parameters["link_preview_options"] = {"is_disabled": True}
        self._allowance.spend(draft.place.chat)
        if draft.message:
            parameters.pop("message_thread_id", None)
            parameters["message_id"] = int(draft.message)
            try:
                await self._call("editMessageText", parameters)
            except BadRequest as error:
                if "not modified" not in error.message.lower():
                    raise
            return
        sent = await self._call("sendMessage", parameters | place_of(draft.place, draft.answers))
        number = integer(mapping(sent), "message_id")
        draft.message = str(number) if number else ""
        await self._keep(draft)

    async def _keep(self, draft: Draft[Address]) -> None:
        """Note which message a draft is; the next one in its place overwrites that.

        Nothing is noted when it is finished: nobody else will ever ask for it by its id.
        """
        chat, thread, message = draft.place.chat, draft.place.thread, int(draft.message or 0)
        text = json.dumps([chat, thread, draft.id, message, draft.answers, int(time.time())])
        try:
            await self._engine.keep(CHANNEL, self._account, f"{_KEPT}{chat} {thread}", text)
        except StorageError as error:
            _log.info("telegram.draft.unkept", account=self._account, error=type(error).__name__)


def _number(draft_id: str) -> int:
    """A draft's id as Telegram takes it: a number other than 0."""
    digest = blake2b(draft_id.encode("utf-8", "surrogatepass"), digest_size=4).digest()
    return 1 + (int.from_bytes(digest, "big") >> 1) % (2**31 - 2)
