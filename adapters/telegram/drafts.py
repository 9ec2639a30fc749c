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
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

import structlog
from cachetools import LRUCache
from telegram.error import BadRequest, Forbidden, InvalidToken, RetryAfter, TelegramError

from adapters.telegram.api import Json, reason
from adapters.telegram.inbound import CHANNEL
from adapters.telegram.pace import Allowance, Pace
from adapters.telegram.render import LIMIT, pieces
from adapters.telegram.send import Standing, failure, place
from bot.channel import Address, Engine, Inbound
from bot.channel.kit.shapes import integer, mapping
from bot.channel.kit.supervisor import pause
from bot.errors import SendLater, StorageError

MARK = " ▍"  # ends a reply in a group that is being written
SPARE = 8  # of a group's messages a minute, kept for what is finished
REMEMBERED = 1024  # conversations whose latest question is known
KEPT_FOR = 24 * 3600  # seconds; a reply that was not finished for so long never will be
_KEPT = "draft "  # what the names of kept drafts begin with; one for each place

_log = structlog.get_logger()

Spot = tuple[str, str]  # chat and thread


@dataclass(slots=True)
class _Draft:
    address: Address
    id: str
    answers: str
    next_at: float  # event loop time from which it may change
    text: str = ""
    shown: str = ""
    message: int = 0  # in a group, once it shows
    is_dead: bool = False
    closing: asyncio.Event = field(default_factory=asyncio.Event)
    worker: asyncio.Task[None] | None = None

    @property
    def is_private(self) -> bool:
        return not self.address.chat.startswith("-")


class Drafts:
    """The unfinished replies of one account, at most one in a place.

    Args:
        engine: keeps which messages are drafts.
        call: calls a method of the Bot API.
        spawn: runs something in a task that ends with the channel.
    """

    def __init__(
        self,
        *,
        account: str,
        engine: Engine,
        call: Callable[[str, Json], Awaitable[Any]],
        spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
        allowance: Allowance,
        pace: Pace,
    ) -> None:
        self._account = account
        self._engine = engine
        self._call = call
        self._spawn = spawn
        self._allowance = allowance
        self._pace = pace
        self._open: dict[Spot, _Draft] = {}
        # What showed when the program ended, by place and id of the draft.
        self._left: dict[tuple[Spot, str], Standing] = {}
        self._asked: LRUCache[Spot, str] = LRUCache(REMEMBERED)
        self._has_own_place = True  # until Telegram's server says it knows no drafts

    def hear(self, inbound: Inbound) -> None:
        """Know which message the next reply in a group answers."""
        if not inbound.mentions_bot or not inbound.message_id.isdecimal():
            return
        spot = inbound.chat, inbound.thread
        self._asked[spot] = inbound.message_id

    async def recall(self) -> None:
        """Know what an earlier run of the program left unfinished."""
        oldest = time.time() - KEPT_FOR
        try:
            kept = await self._engine.kept(CHANNEL, self._account)
            for name in (name for name in kept if name.startswith(_KEPT)):
                chat, thread, draft_id, message, answers, at = json.loads(kept[name])
                if at < oldest:
                    await self._engine.keep(CHANNEL, self._account, name, "")
                else:
                    self._left[(chat, thread), draft_id] = Standing(message, answers)
        except StorageError as error:
            said = type(error).__name__
            _log.error("telegram.drafts.unread", account=self._account, error=said)

    async def show(self, address: Address, draft_id: str, text: str) -> None:
        """Show the text so far as soon as it may change; an empty one takes it away."""
        spot = address.chat, address.thread
        draft = self._open.get(spot)
        if draft is not None and (draft.id != draft_id or not text):
            await self.drop(address, await self.take(address, draft.id))
            draft = None
        if not text:
            await self.drop(address, self._left.pop((spot, draft_id), None))
            return
        if draft is None:
            start = asyncio.get_running_loop().time() + self._pace.draft_first
            draft = _Draft(address, draft_id, self._asked.get(spot, ""), start)
            left = self._left.pop((spot, draft_id), None)
            if left is not None:
                draft.message, draft.answers = left.message, left.answers
            self._open[spot] = draft
        draft.text = text
        if draft.worker is None or draft.worker.done():
            draft.worker = self._spawn(self._work(draft))
        # Whoever gives up waiting here does not break off a call to Telegram.
        await asyncio.wait({draft.worker})

    async def take(self, address: Address, draft_id: str) -> Standing | None:
        """End a draft, for the reply to replace it; None when no message shows it."""
        spot = address.chat, address.thread
        draft = self._open.get(spot)
        if draft is None or draft.id != draft_id:
            return self._left.pop((spot, draft_id), None)
        del self._open[spot]
        draft.closing.set()
        if draft.worker is not None:
            await asyncio.wait({draft.worker})
        return Standing(draft.message, draft.answers) if draft.message else None

    def leave(self, address: Address, draft_id: str, standing: Standing | None) -> None:
        """Keep what a reply could not replace yet, for its next try."""
        if standing is not None and standing.message:
            self._left[(address.chat, address.thread), draft_id] = standing
            if len(self._left) > REMEMBERED:
                self._left.pop(next(iter(self._left)))

    async def drop(self, address: Address, standing: Standing | None) -> None:
        """Take away what shows of a draft; in a direct chat it goes by itself."""
        if standing is None:
            return
        where = place(address) | {"message_id": standing.message}
        where.pop("message_thread_id", None)
        try:
            await self._call("deleteMessage", where)
        except TelegramError as error:
            said = reason(error, "")
            _log.info("telegram.draft.left", account=self._account, error=said)

    def close(self) -> None:
        """The account stops: nothing changes any more."""
        for draft in self._open.values():
            draft.closing.set()

    async def _work(self, draft: _Draft) -> None:
        wait = draft.next_at - asyncio.get_running_loop().time()
        wait = max(wait, self._allowance.wait(draft.address.chat, SPARE))
        if wait > 0 and await pause(wait, draft.closing):
            return
        if draft.closing.is_set() or draft.is_dead or draft.shown == draft.text:
            return
        if draft.is_private and not self._has_own_place:
            return
        text, rest = draft.text, self._pace.draft
        try:
            await self._put(draft, text)
            draft.shown = text
        except RetryAfter as error:
            later = failure(error)
            rest = max(rest, later.seconds) if isinstance(later, SendLater) else rest
        except TelegramError as error:
            # No later step will fare better where the bot may not write. And a message that may
            # have been sent without our knowing must not be sent once more.
            is_lost = not draft.message and not draft.is_private
            draft.is_dead = is_lost or isinstance(error, BadRequest | Forbidden | InvalidToken)
            if isinstance(error, InvalidToken) and "not found" in error.message.lower():
                self._has_own_place = False  # so the SDK reads "there is no such method"
            said = reason(error, "")
            _log.info("telegram.draft.failed", account=self._account, error=said)
        draft.next_at = asyncio.get_running_loop().time() + rest

    async def _put(self, draft: _Draft, text: str) -> None:
        shown = pieces(text, LIMIT - len(MARK))
        if not shown:
            return
        cut = shown[0]
        parameters: Json = place(draft.address)
        parameters |= {"text": cut.html, "parse_mode": "HTML"}
        if draft.is_private:
            await self._call("sendMessageDraft", parameters | {"draft_id": _number(draft.id)})
            return
        parameters["text"] += MARK
        parameters["link_preview_options"] = {"is_disabled": True}
        self._allowance.spend(draft.address.chat)
        if draft.message:
            parameters.pop("message_thread_id", None)
            parameters["message_id"] = draft.message
            try:
                await self._call("editMessageText", parameters)
            except BadRequest as error:
                if "not modified" not in error.message.lower():
                    raise
            return
        if draft.answers:
            parameters["reply_parameters"] = {
                "message_id": int(draft.answers),
                "allow_sending_without_reply": True,
            }
        sent = await self._call("sendMessage", parameters)
        draft.message = integer(mapping(sent), "message_id") or 0
        await self._keep(draft)

    async def _keep(self, draft: _Draft) -> None:
        """Note which message a draft is; the next one in its place overwrites that.

        Nothing is noted when it is finished: nobody else will ever ask for it by its id.
        """
        spot = draft.address.chat, draft.address.thread
        text = json.dumps([*spot, draft.id, draft.message, draft.answers, int(time.time())])
        name = f"{_KEPT}{' '.join(spot)}"
        try:
            await self._engine.keep(CHANNEL, self._account, name, text)
        except StorageError as error:
            _log.info("telegram.draft.unkept", account=self._account, error=type(error).__name__)


def _number(draft_id: str) -> int:
    """A draft's id as Telegram takes it: a number other than 0."""
    digest = blake2b(draft_id.encode("utf-8", "surrogatepass"), digest_size=4).digest()
    return 1 + (int.from_bytes(digest, "big") >> 1) % (2**31 - 2)
