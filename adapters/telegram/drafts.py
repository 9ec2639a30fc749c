"""Replies while they are being written.

In a direct chat Telegram has a place for that (sendMessageDraft), which the reply's own message
replaces. In groups it is one message that is edited until it is the reply.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

import structlog
from telegram.error import BadRequest, Forbidden, InvalidToken, RetryAfter, TelegramError

from adapters.telegram.api import Json, reason
from adapters.telegram.markup import LIMIT, pieces
from adapters.telegram.pace import Allowance, Pace
from adapters.telegram.send import Standing, failure, place
from adapters.telegram.shapes import integer, mapping
from adapters.waits import pause
from bot.channel import Address, Inbound
from bot.errors import SendLater

MARK = " ▍"  # ends a reply in a group that is being written
SPARE = 8  # of a group's messages a minute, kept for what is finished
REMEMBERED = 1024  # conversations whose latest question is known

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
        call: calls a method of the Bot API.
        spawn: runs something in a task that ends with the channel.
    """

    def __init__(
        self,
        account: str,
        call: Callable[[str, Json], Awaitable[Any]],
        spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
        allowance: Allowance,
        pace: Pace,
    ) -> None:
        self._account = account
        self._call = call
        self._spawn = spawn
        self._allowance = allowance
        self._pace = pace
        self._open: dict[Spot, _Draft] = {}
        self._asked: OrderedDict[Spot, str] = OrderedDict()
        self._has_own_place = True  # until Telegram's server says it knows no drafts

    def hear(self, inbound: Inbound) -> None:
        """Know which message the next reply in a group answers."""
        if not inbound.mentions_bot or not inbound.message_id.isdecimal():
            return
        spot = inbound.chat, inbound.thread
        self._asked[spot] = inbound.message_id
        self._asked.move_to_end(spot)
        if len(self._asked) > REMEMBERED:
            self._asked.popitem(last=False)

    async def show(self, address: Address, draft_id: str, text: str) -> None:
        """Show the text so far as soon as it may change; an empty one takes it away."""
        spot = address.chat, address.thread
        draft = self._open.get(spot)
        if draft is not None and (draft.id != draft_id or not text):
            await self.drop(address, await self.take(address))
            draft = None
        if not text:
            return
        if draft is None:
            start = asyncio.get_running_loop().time() + self._pace.draft_first
            draft = _Draft(address, draft_id, self._asked.get(spot, ""), start)
            self._open[spot] = draft
        draft.text = text
        if draft.worker is None or draft.worker.done():
            draft.worker = self._spawn(self._work(draft))
        # Whoever gives up waiting here does not break off a call to Telegram.
        await asyncio.wait({draft.worker})

    async def take(self, address: Address) -> Standing | None:
        """End a place's draft, for the reply to replace it; None when no message shows it."""
        draft = self._open.pop((address.chat, address.thread), None)
        if draft is None:
            return None
        draft.closing.set()
        if draft.worker is not None:
            await asyncio.wait({draft.worker})
        return Standing(draft.message, draft.answers) if draft.message else None

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
        draft.message = integer(mapping(sent) or {}, "message_id") or 0


def _number(draft_id: str) -> int:
    """A draft's id as Telegram takes it: a number other than 0."""
    digest = blake2b(draft_id.encode("utf-8", "surrogatepass"), digest_size=4).digest()
    return 1 + (int.from_bytes(digest, "big") >> 1) % (2**31 - 2)
