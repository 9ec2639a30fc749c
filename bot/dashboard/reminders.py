"""`/reminders`: what a visitor is to be told or have done, what came of it, and changing it.

They are those of the visitor's own identities, wherever they asked for them; anybody else's is
answered as if it were not there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import get_args

import structlog
from aiohttp import web

from bot.clock import moment
from bot.dashboard.pages import Pages, Visit, in_menu, route, see
from bot.i18n import text
from bot.sessions import due_time, reminders, repeats
from bot.sessions.due_time import Every, Problem
from bot.sessions.recurrence import MIN_TASK_MINUTES
from bot.sessions.reminders import MAX_AHEAD, MAX_TEXT, Reminder
from bot.sessions.repeats import Agenda, Change, PastReminder, Repeat, changes_of, id_of
from bot.storage import Database, Transaction

PAGE, CHANGE, EDIT = "/reminders", "/reminders/change", "/reminders/edit"
MOST_PAST = 20
MOST_TIME = 200  # characters of when something is to come

log = structlog.stdlib.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Row:
    """One that waits: its text, how often and when it comes, and what came of its last times."""

    id: str
    text: str
    when: str
    where: str  # the channel it is said in
    changes: tuple[Change, ...]
    runs: list[str]
    edits: bool


@dataclass(frozen=True, slots=True)
class Form:
    """The fields of a reminder as it is edited; `problem` is a sentence."""

    id: str
    text: str
    when: str
    now: str  # when it comes as it is stored, in words
    repeats: bool
    problem: str = ""


@in_menu(PAGE)
class ReminderPages(Pages):
    """Lists and changes a visitor's reminders and tasks."""

    def __init__(self, database: Database, expect: Callable[[int], None]) -> None:
        """`expect` is called with the time at which something is due."""
        self._database = database
        self._expect = expect

    @route("GET", PAGE, shared=True)
    async def _list(self, visit: Visit) -> web.Response:
        def read(tx: Transaction) -> tuple[list[Row], list[PastReminder]]:
            agenda = _agenda(tx, visit)
            rows = [_row(visit, agenda, each) for each in agenda.waiting()]
            return rows, repeats.past(tx, agenda.people, MOST_PAST)

        rows, past = await self._database.read(read)
        examples = visit.say("reminder.examples").split("\n- ")[1:]
        return visit.page("reminders.html", rows=rows, past=past, examples=examples)

    @route("POST", CHANGE, shared=True)
    async def _change(self, visit: Visit) -> web.Response:
        """Cancel, pause or resume one."""
        form = await visit.form()
        change = next((each for each in get_args(Change) if each == form.get("change")), None)
        if change is None:
            raise web.HTTPBadRequest

        def work(tx: Transaction) -> bool:
            agenda = _agenda(tx, visit)
            number = agenda.number_of(form.get("id", ""))
            if not number or change not in changes_of(agenda.waiting()[number - 1]):
                return False
            agenda.change(change, number)
            return True

        is_done = await self._database.write(work)
        if is_done:
            log.info("reminder.changed", by="page", change=change)
        if change == "resume":
            self._expect(visit.now)
        return see(f"{PAGE}?told={change if is_done else 'gone'}")

    @route("GET", EDIT, shared=True)
    async def _form(self, visit: Visit) -> web.Response:
        def read(tx: Transaction) -> Form | None:
            agenda = _agenda(tx, visit)
            found = _waiting(agenda, visit.query("id"))
            return None if found is None else _form_of(agenda, found)

        form = await self._database.read(read)
        return _drawn(visit, form) if form is not None else see(f"{PAGE}?told=gone")

    @route("POST", EDIT, shared=True)
    async def _edit(self, visit: Visit) -> web.Response:
        """Store what was sent; or say what is wrong with it, and show it again."""
        form = await visit.form()
        words, when = form.get("text", "").strip(), form.get("when", "").strip()
        if not words or len(words) > MAX_TEXT or len(when) > MOST_TIME:
            raise web.HTTPBadRequest

        def work(tx: Transaction) -> tuple[Form | None, int | None]:
            agenda = _agenda(tx, visit)
            found = _waiting(agenda, form.get("id", ""))
            if found is None:
                return None, None
            due_at = _stored(agenda, found, words, when)
            if isinstance(due_at, int):
                return None, due_at
            return replace(_form_of(agenda, found), text=words, when=when, problem=due_at), None

        again, due_at = await self._database.write(work)
        if again is not None:
            return _drawn(visit, again)
        if due_at is None:
            return see(f"{PAGE}?told=gone")
        self._expect(due_at)
        log.info("reminder.changed", by="page", change="edit")
        return see(f"{PAGE}?told=edit")


def _agenda(tx: Transaction, visit: Visit) -> Agenda:
    who = visit.conversation
    people = who.view.people or (who.person,)
    return Agenda(tx, who.key, visit.language, visit.zone, visit.now, people)


def _drawn(visit: Visit, form: Form) -> web.Response:
    status = 409 if form.problem else 200
    return visit.page("reminder_edit.html", status, form=form, most=MAX_TEXT, most_time=MOST_TIME)


def _waiting(agenda: Agenda, id_: str) -> Reminder | Repeat | None:
    """One that waits and may be edited: what repeats in a room is for those who look after it."""
    found = next((each for each in agenda.waiting() if id_of(each) == id_), None)
    return found if found is not None and _may_edit(found) else None


def _may_edit(each: Reminder | Repeat) -> bool:
    return not each.about if isinstance(each, Reminder) else each.origin.chat_type == "direct"


def _row(visit: Visit, agenda: Agenda, each: Reminder | Repeat) -> Row:
    return Row(
        id_of(each),
        each.text,
        agenda.when(each),
        visit.place(each.target.address.channel),
        changes_of(each),
        agenda.runs(each, repeats.KEPT_RUNS) if isinstance(each, Repeat) else [],
        _may_edit(each),
    )


def _form_of(agenda: Agenda, each: Reminder | Repeat) -> Form:
    due = moment(each.due_at, agenda.zone)
    is_once = isinstance(each, Reminder)
    when = f"{due:%Y-%m-%dT%H:%M}" if is_once else ""
    return Form(id_of(each), each.text, when, agenda.when(each), not is_once)


def _stored(agenda: Agenda, each: Reminder | Repeat, words: str, when: str) -> int | str:
    """Store another text and time; when it comes next (ms), or what is wrong with the time."""
    now = moment(agenda.now, agenda.zone)
    if isinstance(each, Reminder):
        due = _due(when, now)
        if isinstance(due, Problem):
            return text(agenda.language, f"reminder.problem_{due.value}")
        # To the minute it is as it was; the seconds it had stay.
        is_same = when == f"{moment(each.due_at, agenda.zone):%Y-%m-%dT%H:%M}"
        due_at = each.due_at if is_same else int(due.timestamp() * 1000)
        reminders.change(agenda.tx, each, words, due_at)
        return due_at
    changed = replace(each, text=words)
    if when:
        found = due_time.parse(when, now)
        if isinstance(found, Problem):
            return text(agenda.language, f"reminder.problem_{found.value}")
        if not isinstance(found, Every) or found.rest:
            return text(agenda.language, "reminders.how_often")
        if each.kind == "task" and found.series.rule.least_minutes < MIN_TASK_MINUTES:
            return text(agenda.language, "task.often", minutes=MIN_TASK_MINUTES)
        changed = replace(changed, series=found.series)
    return repeats.change(agenda.tx, changed, agenda.zone, agenda.now) or agenda.now


def _due(when: str, now: datetime) -> datetime | Problem:
    """The moment of a field of date and time, on the clocks of `now`'s zone."""
    try:
        wall = datetime.fromisoformat(when)
        due = reminders.moment(wall.replace(tzinfo=None), now)
    except (ValueError, OverflowError):
        return Problem.WRONG
    if due <= now:
        return Problem.PAST
    return Problem.FAR if due - now > MAX_AHEAD else due
