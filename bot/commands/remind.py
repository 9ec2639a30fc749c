"""`/remind` and `/reminders`: being told something at a certain time."""

from __future__ import annotations

import re
from typing import Protocol

from bot.clock import moment
from bot.commands.base import Answer, Apply, Call, saying
from bot.i18n import text
from bot.sessions import due_time, reminders
from bot.sessions.due_time import Problem, When, shown
from bot.sessions.reminders import MAX_TEXT, MAX_WAITING, ReplyTarget
from bot.sessions.store import Session
from bot.unit_of_work import UnitOfWork

MAX_SHOWN = 20  # reminders of one list
MAX_QUOTE = 80  # characters of a reminder in a list

_CANCEL = re.compile(
    r"(?:cancel|delete|remove|取消|删除)\s*(?:#|第)?(\d{1,3})(?:条|个)?", re.IGNORECASE
)


class ReminderDesk(Protocol):
    """What these commands may ask of the running program."""

    def expect(self, due_at: int) -> None:
        """Look for what is due at this time, in ms since the epoch."""
        ...


class RemindCommands:
    """`/remind`, `/reminders`."""

    def __init__(self, desk: ReminderDesk) -> None:
        self._desk = desk

    async def remind(self, call: Call) -> Apply:
        """Remember to say something at a certain time."""
        found = due_time.parse(call.rest, moment(call.now, call.conversation.zone))
        if not isinstance(found, When):
            return saying(_explained(call, found))
        if not found.rest:
            return saying(text(call.language, "reminder.what", when=shown(call.language, found.at)))
        if len(found.rest) > MAX_TEXT:
            return saying(text(call.language, "reminder.long", most=MAX_TEXT))
        due_at = int(found.at.timestamp() * 1000)
        self._desk.expect(due_at)
        target = ReplyTarget(call.place.key, call.person, call.inbound.address, call.language)

        def apply(unit: UnitOfWork, session: Session) -> Answer:
            added = reminders.add(unit.tx, target, found.rest, due_at, call.now)
            if added is None:
                return Answer(text(call.language, "reminder.full", most=MAX_WAITING))
            at = shown(call.language, found.at)
            return Answer(text(call.language, "reminder.set", when=at, text=added.text))

        return apply

    async def reminders(self, call: Call) -> Apply:
        """List what waits in this conversation, or cancel one of it by its number."""
        if not call.rest:
            return lambda unit, _session: Answer(_list(unit, call))
        asked = _CANCEL.fullmatch(call.rest)
        if asked is None:
            return saying(text(call.language, "reminder.usage"))
        number = int(asked[1])

        def apply(unit: UnitOfWork, session: Session) -> Answer:
            gone = reminders.cancel(unit.tx, call.place.key, number, call.now)
            if gone is None:
                return Answer(text(call.language, "reminder.no_such", number=number))
            at = _shown(call, gone.due_at)
            words = text(call.language, "reminder.cancelled", when=at, text=_quote(gone.text))
            return Answer(words)

        return apply


def _list(unit: UnitOfWork, call: Call) -> str:
    waiting = reminders.of_key(unit.tx, call.place.key)
    if not waiting:
        return text(call.language, "reminder.none")
    lines = [text(call.language, "reminder.list"), ""]
    lines += [
        text(
            call.language,
            "reminder.item",
            number=number,
            when=_shown(call, each.due_at),
            text=_quote(each.text),
        )
        for number, each in enumerate(waiting[:MAX_SHOWN], start=1)
    ]
    if len(waiting) > MAX_SHOWN:
        lines += ["", text(call.language, "reminder.more", count=len(waiting) - MAX_SHOWN)]
    return "\n".join((*lines, "", text(call.language, "reminder.how")))


def _shown(call: Call, at: int) -> str:
    return shown(call.language, moment(at, call.conversation.zone))


def _explained(call: Call, problem: Problem) -> str:
    words = text(call.language, f"reminder.problem_{problem.value}")
    return f"{words}\n\n{text(call.language, 'reminder.examples')}"


def _quote(words: str) -> str:
    flat = " ".join(words.split())
    return flat if len(flat) <= MAX_QUOTE else f"{flat[:MAX_QUOTE]}…"
