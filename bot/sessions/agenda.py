"""What waits in a conversation, as a person reads it: listed, shown and changed by its number."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal
from zoneinfo import ZoneInfo

from bot.clock import moment
from bot.i18n import text
from bot.sessions import reminders, repeats
from bot.sessions.due_time import shown
from bot.sessions.recurrence import described
from bot.sessions.reminders import Reminder
from bot.sessions.repeats import Repeat
from bot.storage import Transaction
from bot.unicode import one_line

MAX_SHOWN = 20  # reminders of one list
MAX_QUOTE = 80  # characters of a reminder in a list

Change = Literal["cancel", "pause", "resume"]


@dataclass(frozen=True, slots=True)
class Agenda:
    """The reminders and tasks of the conversation `key`, told in a language and by its clocks.

    `now` is in ms since the epoch. Numbers are places in the list, from 1.
    """

    tx: Transaction
    key: str
    language: str
    zone: ZoneInfo
    now: int

    def waiting(self) -> list[Reminder | Repeat]:
        """All of it, in order."""
        return repeats.of_key(self.tx, self.key)

    def list(self, head: str = "", numbers: Collection[int] = ()) -> str:
        """A line for each, or for those with these numbers, and how to see or cancel one.

        At most `MAX_SHOWN` are listed. Below what comes again is what came of its last time.
        """
        every = self.waiting()
        if not every:
            return self._text("reminder.none")
        found = [each for each in enumerate(every, start=1) if not numbers or each[0] in numbers]
        lines = [head or self._text("reminder.list"), ""]
        for number, each in found[:MAX_SHOWN]:
            lines.append(self._item(number, each, one_line(each.text, MAX_QUOTE)))
            if isinstance(each, Repeat):
                lines += [f"   {run}" for run in self._runs(each, 1)]
        if len(found) > MAX_SHOWN:
            lines += ["", self._text("reminder.more", count=len(found) - MAX_SHOWN)]
        return "\n".join((*lines, "", self._text("reminder.how")))

    def show(self, number: int) -> str:
        """One with all of its words and, when it comes again, what came of its last times."""
        found = self._numbered(number)
        if found is None:
            return self._text("reminder.no_such", number=number)
        lines = [self._item(number, found, found.text)]
        if isinstance(found, Repeat):
            ran = self._runs(found, repeats.KEPT_RUNS)
            lines += ["", *(ran or [self._text("repeat.never")])]
        return "\n".join(lines)

    def change(self, change: Change, number: int) -> str:
        """Cancel one, pause it or let it go on; what was done, or why nothing was."""
        found = self._numbered(number)
        if found is None:
            return self._text("reminder.no_such", number=number)
        said = one_line(found.text, MAX_QUOTE)
        if change == "cancel":
            if isinstance(found, Repeat):
                repeats.cancel(self.tx, found, self.now)
            else:
                reminders.mark(self.tx, found, "cancelled", self.now)
            return self._text("reminder.cancelled", when=self._when(found), text=said)
        if not isinstance(found, Repeat) or repeats.is_paused(found) != (change == "resume"):
            return self._text(f"repeat.cannot_{change}", number=number)
        if change == "pause":
            repeats.pause(self.tx, found)
            return self._text("repeat.set_paused", number=len(self.waiting()), text=said)
        due_at = repeats.resume(self.tx, found, self.zone, self.now)
        return self._text("repeat.resumed", when=self._shown(due_at or found.due_at), text=said)

    def _numbered(self, number: int) -> Reminder | Repeat | None:
        waiting = self.waiting()
        return waiting[number - 1] if 1 <= number <= len(waiting) else None

    def _item(self, number: int, each: Reminder | Repeat, words: str) -> str:
        return self._text("reminder.item", number=number, when=self._when(each), text=words)

    def _when(self, each: Reminder | Repeat) -> str:
        at = self._shown(each.due_at)
        if isinstance(each, Reminder):
            return at
        key = "repeat.paused" if repeats.is_paused(each) else "repeat.next"
        words = self._text(key, often=described(self.language, each.series), when=at)
        return self._text("task.marked", when=words) if each.kind == "task" else words

    def _runs(self, repeat: Repeat, most: int) -> list[str]:
        """What came of its last times, a line each."""
        return [
            self._text(
                f"repeat.run_{run.came}",
                when=self._shown(run.due_at),
                why=run.error,
                missed=self._text("repeat.run_missed", count=run.missed) if run.missed else "",
            )
            for run in repeats.runs(self.tx, repeat, most)
        ]

    def _shown(self, at: int) -> str:
        return shown(self.language, moment(at, self.zone))

    def _text(self, key: str, **values: object) -> str:
        return text(self.language, key, **values)
