"""Keeps what a person asked to have kept, and what a reply says was kept, where the model did not.

It is stored with the tool that models have, and so by the same rules. A turn that is run again
after a crash finds the entry where it stands, in the note of the day on which it was said.
"""

from __future__ import annotations

import asyncio
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

import structlog

from bot.agent.tools import DecidedCall, ToolContext, TurnMemory
from bot.agent.tools.memory import MAX_TEXT, MemoryWrite
from bot.agent.tools.toolbox import Toolbox
from bot.agent.turn import TurnResult
from bot.clock import moment
from bot.context import wishes
from bot.context.wishes import Wish
from bot.gateway.requests import PreparedRequest
from bot.i18n import text
from bot.memory import guard
from bot.memory.notes import Place
from bot.messages import Canned, Refused, Scheduled, Stored, Text, ToolResult, ToolUse
from bot.sessions import due_time
from bot.sessions.due_time import Problem
from bot.sessions.inbox import QueuedMessage

WRITE: Final = MemoryWrite.spec.name

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Asked:
    """The wishes of one message; a reply may claim to have kept what its `text` states."""

    said_at: int  # ms since the epoch
    text: str
    wishes: tuple[Wish, ...]
    reminder: str | None


@dataclass(frozen=True, slots=True)
class _Left:
    """Work a turn leaves: unkept wishes, what its reply claims was kept, a reminder.

    Each with when it was said, in ms since the epoch.
    """

    wishes: Sequence[tuple[int, Wish]] = ()
    claimed: Sequence[tuple[int, Wish]] = ()
    reminder: str | None = None


class Keeper:
    """Looks after each turn whether something is still to be kept."""

    def __init__(self, toolbox: Toolbox) -> None:
        self._toolbox = toolbox

    async def after(
        self, rows: Sequence[QueuedMessage], prepared: PreparedRequest, result: TurnResult
    ) -> str:
        """Keep what is to be kept, which the turn's memory then has as written.

        Returns what the person has to be told of what was not kept, or not set; empty for nothing.
        """
        context, language = prepared.request.context, prepared.request.language
        left = await asyncio.to_thread(_left, rows, context.memory, result)
        told = [
            await self._keep(wish, said_at, context, language, is_wish=is_wish)
            for each, is_wish in ((left.wishes, True), (left.claimed, False))
            for said_at, wish in each
        ]
        if left.reminder is not None:
            told.append(_unset(left.reminder, context.now, language))
        return "\n".join(dict.fromkeys(filter(None, told)))

    async def _keep(
        self, wish: Wish, said_at: int, context: ToolContext, language: str, *, is_wish: bool
    ) -> str:
        """Store one thing; why it was not, for the person, or nothing."""
        memory, rights = context.memory, context.rights
        reason, key = "", wish.lacks
        if WRITE not in {spec.name for spec in self._toolbox.offered(rights, context.view).specs}:
            key = "closed"
        elif not key:
            said = moment(said_at, context.now.tzinfo)
            use, then = ToolUse("kept", WRITE, {"text": wish.words}), replace(context, now=said)
            if is_wish:  # which is the person's word, where a call needs that
                call = DecidedCall(use, "allowed", rights)
                done = await self._toolbox.carry_out(call, then)
            else:
                done = await self._toolbox.run(use, then, may_ask=False)
            if isinstance(done.value, Stored):
                if done.value.already:
                    memory.written.append(Place(done.value.path, done.value.line))
                return ""
            reason = done.value.reason if isinstance(done.value, Refused) else done.text
            key = "secret" if guard.REFUSED in reason else "failed"
        log.info("memory.not_kept", why=key)
        return text(language, f"memory.unkept.{key}", reason=reason, most=MAX_TEXT)


def _left(rows: Sequence[QueuedMessage], memory: TurnMemory, result: TurnResult) -> _Left:
    """The work a turn leaves to be done."""
    asked = [_asked(row) for row in rows if row.inbound.text and not row.inbound.answers]
    wanted = list(_wanted(asked, memory, len(rows)))
    left = _unkept(wanted, result) if wanted else []
    if result.error is not None or result.stopped or result.asked or _is_canned(result):
        return _Left(left)
    reminder = next((each.reminder for each in asked if each.reminder is not None), None)
    if reminder is not None:
        return _Left(left, reminder=None if _has_scheduled(result) else reminder)
    is_false = wishes.claims(result.reply) and not (wanted or memory.written)
    if not is_false or any(_written(result)):
        return _Left(left)
    stated = ((each.said_at, wishes.stated(each.text)) for each in asked)
    return _Left(left, [(said_at, Wish(words)) for said_at, words in stated if words])


def _asked(row: QueuedMessage) -> _Asked:
    inbound = row.inbound
    wanted = wishes.read(inbound.text)
    found = wanted.wishes
    if inbound.reply_to is not None:  # what "remember this" is about then is somebody else's
        found = tuple(replace(w, lacks="quoted") if w.lacks == "before" else w for w in found)
    return _Asked(inbound.sent_at, inbound.text, found, wanted.reminder)


def _wanted(asked: Sequence[_Asked], memory: TurnMemory, count: int) -> Iterator[tuple[int, Wish]]:
    """The things messages ask to keep, each once, with when that was said.

    What one of them points back to is what the person stated in the message before it.
    """
    before: str | None = None
    seen: set[str] = set()
    for message in asked:
        for wish in message.wishes:
            words = wish.words
            if wish.lacks == "before":
                words = wishes.stated(_previous(memory, count) if before is None else before)
            lacks = "" if words else wish.lacks
            if (words or lacks) not in seen:
                seen.add(words or lacks)
                yield message.said_at, Wish(words, lacks)
        before = message.text


def _previous(memory: TurnMemory, count: int) -> str:
    """The person's last words before the newest `count` messages."""
    seen = reversed(memory.seen[: -count or None])
    return next((message.own_text for message in seen if message.begins_turn), "")


def _unkept(wanted: Sequence[tuple[int, Wish]], result: TurnResult) -> list[tuple[int, Wish]]:
    """The wishes the model has not written by itself; each of its entries is for one wish.

    One in another script cannot be compared, and is for whatever is left.
    """
    entries = list(_written(result))
    left: list[tuple[int, Wish]] = []
    for each in wanted:
        words = each[1].words
        same = next((entry for entry in entries if guard.says(entry, words)), None)
        if same is None:
            left.append(each)
        else:
            entries.remove(same)
    others = [
        entry
        for entry in entries
        if all(not w.words or _scripts(w.words) - _scripts(entry) for _, w in left)
    ]
    return left[len(others) :]


def _scripts(words: str) -> frozenset[str]:
    """The names of the scripts that letters of a text belong to."""
    return frozenset(unicodedata.name(c, "?").split()[0] for c in words if c.isalpha())


def _written(result: TurnResult) -> Iterator[str]:
    """The texts the model wrote to memory, or wanted to that stand there already."""
    calls: dict[str, str] = {}  # a service may give an id again
    for message in result.messages:
        for block in message.blocks:
            if isinstance(block, ToolUse) and block.name == WRITE:
                calls[block.id] = str(block.input.get("text", ""))
            elif isinstance(block, ToolResult) and isinstance(block.value, Stored):
                yield calls.get(block.tool_use_id, "")


def _has_scheduled(result: TurnResult) -> bool:
    """True when the model has set a reminder."""
    blocks = (block for message in result.messages for block in message.blocks)
    return any(isinstance(b, ToolResult) and isinstance(b.value, Scheduled) for b in blocks)


def _unset(reminder: str, now: datetime, language: str) -> str:
    """That no reminder was set, and what sets it."""
    words = " ".join(reminder.split())
    if isinstance(due_time.parse(words, now), Problem):
        words = f"{text(language, 'reminder.some_time')} {words}"
    return text(language, "reminder.unset", words=words)


def _is_canned(result: TurnResult) -> bool:
    """True when the model without a model has replied, which says itself what it did not do."""
    blocks = result.messages[-1].blocks if result.messages else ()
    return any(isinstance(block, Text) and isinstance(block.value, Canned) for block in blocks)
