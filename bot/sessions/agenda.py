"""Reminders of a conversation as people see them: listed, shown, and changed by number."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal
from zoneinfo import ZoneInfo

from bot.channel import Button
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
MAX_BUTTONS = 5  # reminders of a list that have buttons
MAX_QUOTE = 80  # characters of a reminder in a list

Change = Literal["cancel", "pause", "resume"]


@dataclass(frozen=True, slots=True)
class Agenda:
    """The reminders and tasks of the conversation `key`, told in a language and by its clocks.

    With `people` they are all of theirs instead. `now` is in ms since the epoch. Numbers are places
    in the list, from 1; a button goes by the id, which stays the same.
    """

    tx: Transaction
    key: str
    language: str
    zone: ZoneInfo
    now: int
    people: Sequence[str] = ()

    def waiting(self) -> list[Reminder | Repeat]:
        """All of it, in order."""
        if self.people:
            return repeats.of_people(self.tx, self.people)
        return repeats.of_key(self.tx, self.key)

    def number_of(self, id_: str) -> int:
        """The number of what has this `id_of`; 0 when it does not wait any more."""
        ids = [id_of(each) for each in self.waiting()]
        return ids.index(id_) + 1 if id_ in ids else 0

    def buttons(self, number: int = 0) -> tuple[Button, ...]:
        """Buttons for what can be done with one, or with the first ones of the list."""
        every = list(enumerate(self.waiting(), start=1))
        some = every[number - 1 : number] if number else every[:MAX_BUTTONS]
        return tuple(
            Button(
                self._text(f"button.{change}_one", number=at), f"/reminders {change} {id_of(each)}"
            )
            for at, each in some
            for change in changes_of(each)
        )

    def list(self, head: str = "", numbers: Collection[int] = ()) -> str:
        """A line for each, or for those with these numbers, and how to see or cancel one.

        At most `MAX_SHOWN` are listed. Recurring ones show the result of their last time.
        """
        every = self.waiting()
        if not every:
            return self._text("reminder.none")
        found = [each for each in enumerate(every, start=1) if not numbers or each[0] in numbers]
        lines = [head or self._text("reminder.list"), ""]
        for number, each in found[:MAX_SHOWN]:
            lines.append(self._item(number, each, one_line(each.text, MAX_QUOTE)))
            if isinstance(each, Repeat):
                lines += [f"   {run}" for run in self.runs(each, 1)]
        if len(found) > MAX_SHOWN:
            lines += ["", self._text("reminder.more", count=len(found) - MAX_SHOWN)]
        return "\n".join((*lines, "", self._text("reminder.how")))

    def show(self, number: int) -> str:
        """One with all of its words and, if it recurs, the results of its last times."""
        found = self._numbered(number)
        if found is None:
            return self._text("reminder.no_such", number=number)
        lines = [self._item(number, found, found.text)]
        if isinstance(found, Repeat):
            ran = self.runs(found, repeats.KEPT_RUNS)
            lines += ["", *(ran or [self._text("repeat.never")])]
        return "\n".join(lines)

    def change(self, change: Change, number: int) -> str:
        """Cancel one, pause it or let it go on; what was done, or why nothing was."""
        found = self._numbered(number)
        if found is None:
            return self._text("reminder.no_such" if number else "reminder.gone", number=number)
        said = one_line(found.text, MAX_QUOTE)
        if change == "cancel":
            if isinstance(found, Repeat):
                repeats.cancel(self.tx, found, self.now)
            else:
                reminders.mark(self.tx, found, "cancelled", self.now)
            return self._text("reminder.cancelled", when=self.when(found), text=said)
        if not isinstance(found, Repeat) or repeats.is_paused(found) != (change == "resume"):
            return self._text(f"repeat.cannot_{change}", number=number)
        if change == "pause":
            repeats.pause(self.tx, found)
            return self._text("repeat.set_paused", number=len(self.waiting()), text=said)
        due_at = repeats.resume(self.tx, found, self.zone_of(found), self.now)
        return self._text("repeat.resumed", when=self._shown(due_at or found.due_at), text=said)

    def zone_of(self, repeat: Repeat) -> ZoneInfo:
        """The zone that one goes by: that of its room, or of whoever asked for it."""
        is_of_room = self.people and repeat.origin.chat_type != "direct"
        return ZoneInfo(repeat.zone) if is_of_room else self.zone

    def _numbered(self, number: int) -> Reminder | Repeat | None:
        waiting = self.waiting()
        return waiting[number - 1] if 1 <= number <= len(waiting) else None

    def _item(self, number: int, each: Reminder | Repeat, words: str) -> str:
        return self._text("reminder.item", number=number, when=self.when(each), text=words)

    def when(self, each: Reminder | Repeat) -> str:
        """Its time and how it repeats, in words."""
        if isinstance(each, Reminder) and each.about:
            return self._text("reminder.about", about=each.about)
        at = self._shown(each.due_at)
        if isinstance(each, Reminder):
            return at
        key = "repeat.paused" if repeats.is_paused(each) else "repeat.next"
        words = self._text(key, often=described(self.language, each.series), when=at)
        return self._text("task.marked", when=words) if each.kind == "task" else words

    def runs(self, repeat: Repeat, most: int) -> list[str]:
        """The results of its last times, one line each."""
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


def id_of(each: Reminder | Repeat) -> str:
    """A stable name for it while it waits: "r12", or "e5" if it repeats."""
    return f"{'e' if isinstance(each, Repeat) else 'r'}{each.id}"


def changes_of(each: Reminder | Repeat) -> tuple[Change, ...]:
    """The changes that can be made to it now."""
    if not isinstance(each, Repeat):
        return ("cancel",)
    return ("resume" if repeats.is_paused(each) else "pause", "cancel")
