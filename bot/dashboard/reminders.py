"""`/reminders`: what a visitor is to be told or have done, what came of it, and changing it.

They are those of the visitor's own identities, wherever they asked for them; anybody else's is
answered as if it were not there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import get_args

import structlog
from aiohttp import web

from bot.channel.http import shared
from bot.clock import moment, to_the_minute
from bot.core import Core
from bot.dashboard import pages
from bot.dashboard.pages import Visits, form_of, in_menu
from bot.i18n import text
from bot.identity import Conversation
from bot.sessions import due_time, reminders, repeats
from bot.sessions.agenda import Agenda, Change, changes_of, id_of
from bot.sessions.due_time import Every, Problem
from bot.sessions.recurrence import MIN_TASK_MINUTES
from bot.sessions.reminders import MAX_AHEAD, MAX_TEXT, Reminder
from bot.sessions.repeats import PastReminder, Repeat
from bot.storage import Transaction

PAGE, CHANGE, EDIT = "/reminders", "/reminders/change", "/reminders/edit"
MOST_PAST = 20
MOST_TIME = 200  # characters of when something is to come
MOST_BODY = 16 * 1024  # bytes of a form

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
    """What one says and when it comes, as it is edited; a `problem` is a sentence."""

    id: str
    text: str
    when: str
    now: str  # when it comes as it is stored, in words
    repeats: bool
    problem: str = ""


@in_menu(PAGE)
class ReminderPages:
    """Lists and changes a visitor's reminders and tasks."""

    def __init__(self, core: Core, visits: Visits, expect: Callable[[int], None]) -> None:
        """`expect` hears when something is due."""
        self._visits = visits
        self._core = core
        self._expect = expect

    def routes(self) -> list[web.RouteDef]:
        """The routes; each visitor sees and changes what is theirs."""
        return shared(
            [
                web.get(PAGE, self._list),
                web.post(CHANGE, self._change),
                web.get(EDIT, self._form),
                web.post(EDIT, self._edit),
            ]
        )

    def _agenda(self, tx: Transaction, request: web.Request, who: Conversation) -> Agenda:
        people = who.view.people or (who.person,)
        return Agenda(tx, who.key, pages.language(request), who.zone, self._core.clock(), people)

    async def _list(self, request: web.Request) -> web.Response:
        who, language = self._visits.of(request), pages.language(request)

        def read(tx: Transaction) -> tuple[list[Row], list[PastReminder]]:
            agenda = self._agenda(tx, request, who)
            rows = [_row(agenda, each) for each in agenda.waiting()]
            return rows, repeats.past(tx, agenda.people, MOST_PAST)

        rows, past = await self._core.database.read(read)
        done = request.query.get("done", "")
        return pages.page(
            request,
            "reminders.html",
            rows=rows,
            past=past,
            at=partial(to_the_minute, zone=who.zone),
            done=done if done in {*get_args(Change), "edit", "gone"} else "",
            examples=text(language, "reminder.examples").split("\n- ")[1:],
        )

    async def _change(self, request: web.Request) -> web.Response:
        """Cancel, pause or resume one."""
        who, form = self._visits.of(request), await form_of(request, MOST_BODY)
        change = next((each for each in get_args(Change) if each == form.get("change")), None)
        if change is None:
            return pages.refuse_status(request, 400)

        def work(tx: Transaction) -> bool:
            agenda = self._agenda(tx, request, who)
            number = agenda.number_of(form.get("id", ""))
            if not number or change not in changes_of(agenda.waiting()[number - 1]):
                return False
            agenda.change(change, number)
            return True

        is_done = await self._core.database.write(work)
        if is_done:
            log.info("reminder.changed", by="page", change=change)
        if change == "resume":
            self._expect(self._core.clock())
        return pages.see(f"{PAGE}?done={change if is_done else 'gone'}")

    async def _form(self, request: web.Request) -> web.Response:
        who, id_ = self._visits.of(request), request.query.get("id", "")

        def read(tx: Transaction) -> Form | None:
            agenda = self._agenda(tx, request, who)
            found = _waiting(agenda, id_)
            return None if found is None else _form_of(agenda, found)

        form = await self._core.database.read(read)
        if form is None:
            return pages.see(f"{PAGE}?done=gone")
        return self._drawn(request, form)

    async def _edit(self, request: web.Request) -> web.Response:
        """Store what was sent; or say what is wrong with it, and show it again."""
        who, form = self._visits.of(request), await form_of(request, MOST_BODY)
        words, when = form.get("text", "").strip(), form.get("when", "").strip()
        if not words or len(words) > MAX_TEXT or len(when) > MOST_TIME:
            return pages.refuse_status(request, 400)

        def work(tx: Transaction) -> tuple[Form | None, int | None]:
            agenda = self._agenda(tx, request, who)
            found = _waiting(agenda, form.get("id", ""))
            if found is None:
                return None, None
            due_at = _stored(agenda, found, words, when)
            if isinstance(due_at, int):
                return None, due_at
            return replace(_form_of(agenda, found), text=words, when=when, problem=due_at), None

        again, due_at = await self._core.database.write(work)
        if again is not None:
            return self._drawn(request, again)
        if due_at is None:
            return pages.see(f"{PAGE}?done=gone")
        self._expect(due_at)
        log.info("reminder.changed", by="page", change="edit")
        return pages.see(f"{PAGE}?done=edit")

    def _drawn(self, request: web.Request, form: Form) -> web.Response:
        status = 409 if form.problem else 200
        return pages.page(
            request, "reminder_edit.html", status, form=form, most=MAX_TEXT, most_time=MOST_TIME
        )


def _waiting(agenda: Agenda, id_: str) -> Reminder | Repeat | None:
    """One that waits and may be edited: what repeats in a room is for those who look after it."""
    found = next((each for each in agenda.waiting() if id_of(each) == id_), None)
    return found if found is not None and _may_edit(found) else None


def _may_edit(each: Reminder | Repeat) -> bool:
    return not each.about if isinstance(each, Reminder) else each.origin.chat_type == "direct"


def _row(agenda: Agenda, each: Reminder | Repeat) -> Row:
    channel = each.target.address.channel
    return Row(
        id_of(each),
        each.text,
        agenda.when(each),
        text(agenda.language, "conversations.page")
        if channel == pages.CHANNEL
        else channel.replace("_", " ").capitalize(),
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
