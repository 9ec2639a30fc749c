"""`schedule_message` has something said later in the same conversation; `reminders` manages that.

It is said once, or again and again by a rule. In a room the latter is for those who look after it,
who can say so with a command: a model that read the room's words cannot tell who asked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta, tzinfo
from functools import partial
from typing import Any, Literal, Self
from zoneinfo import ZoneInfo

from pydantic import Field, model_validator

from bot.agent.tools import Parameters, Stripped, ToolContext, Words
from bot.agent.tools.provenance import is_asked_for, provenance_of
from bot.context import sentences
from bot.errors import ToolError
from bot.i18n import text
from bot.messages import Scheduled
from bot.sessions import recurrence, reminders, repeats
from bot.sessions.recurrence import MAX_RULE, MIN_TASK_MINUTES, Rule, Series
from bot.sessions.reminders import (
    MAX_ABOUT,
    MAX_AHEAD,
    MAX_TEXT,
    MAX_WAITING,
    NEVER,
    ReplyTarget,
    moment,
)
from bot.sessions.repeats import MAX_REPEATS, MAX_TASKS, Agenda, Kind
from bot.storage import Database, Transaction

MAX_MOMENT = 40  # characters
MAX_MINUTES = int(MAX_AHEAD.total_seconds()) // 60


class Schedule(Parameters):
    """Parameters: the message, and its time."""

    text: Words = Field(
        max_length=MAX_TEXT, description=f"What to say then, at most {MAX_TEXT} characters."
    )
    at: Stripped = Field(
        "",
        max_length=MAX_MOMENT,
        description="Date and time in the person's time zone, such as 2026-12-24T18:00.",
    )
    in_minutes: int | None = Field(
        None, ge=1, le=MAX_MINUTES, description="Instead of `at`: minutes from now."
    )
    rule: Stripped = Field(
        "",
        max_length=MAX_RULE,
        description="To send it again and again: an RRULE of RFC 5545 without COUNT, such as "
        "FREQ=WEEKLY;BYDAY=MO,TU,WE,TH,FR;BYHOUR=8;BYMINUTE=0 or FREQ=HOURLY;INTERVAL=2. `at` "
        "is then where it begins, and may be left out.",
    )

    about: Stripped = Field(
        "",
        max_length=MAX_ABOUT,
        description="Instead of a time: what they have to talk about, such as Berlin, for it to be "
        "said the next time they do.",
    )
    task: bool = Field(
        default=False,
        description="With a rule: whether `text` is a task to carry out each time, with your tools "
        "and their memory, whose answer is then sent, instead of words to send as they stand.",
    )

    @model_validator(mode="after")
    def _has_one_time(self) -> Self:
        if self.about and (self.rule or self.at or self.in_minutes is not None):
            raise ValueError("give 'about' or a time, not both")
        if self.about:
            return self
        if self.task and not self.rule:
            raise ValueError("a 'task' needs a 'rule'")
        if self.rule and self.in_minutes is not None:
            raise ValueError("a 'rule' begins 'at' some time; leave out 'in_minutes'")
        if not self.rule and (self.in_minutes is None) != bool(self.at):
            raise ValueError("give either 'at' or 'in_minutes'")
        return self


class ScheduleMessage:
    """Makes reminders where the turn takes place."""

    spec = Schedule.spec(
        "schedule_message",
        "Send a message to this conversation at a later time: use it when somebody asks to be "
        "reminded. Give either the local date and time or a number of minutes from now, a rule "
        "when it is to come again and again, or what they next have to talk about. The "
        "text is sent as it stands, so write it to the person, in their language. Say that a "
        "reminder is set only after this tool answered with its time.",
        tells_origins=True,
        built_in=True,
        repeatable=True,
        short="Set a reminder: text to send the person later, in_minutes from now, or at a local "
        "date and time such as 2026-12-24T18:00.",
        few=("text", "in_minutes", "at"),
    )

    def __init__(self, database: Database, expect: Callable[[int], None]) -> None:
        """`expect` is told when something is due, in ms since the epoch."""
        self._database = database
        self._expect = expect

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> Scheduled:
        """Store the message; answers with its time only when it is on disk.

        Raises:
            ToolError: wrong arguments, a time that cannot be, or too many that wait.
        """
        asked = Schedule.from_arguments(arguments)
        target, words, now = context.target, asked.text.strip(), _ms(context.now)
        if target is None:
            raise ToolError("nothing can be scheduled from here")
        if asked.rule:
            return await self._repeated(asked, context, target)
        at = None if asked.about else _due(asked, context.now)
        due_at = NEVER if at is None else _ms(at)
        more: Mapping[str, Any] = {"made_by": "agent", "about": asked.about}
        added = await self._database.write(
            lambda tx: reminders.add(tx, target, words, due_at, now, **more)
        )
        if added is None:
            raise ToolError(
                f"{MAX_WAITING} reminders wait for this person already; they can cancel some with "
                "/reminders"
            )
        if at is None:
            return Scheduled(added.due_at, "", about=added.about)
        self._expect(added.due_at)
        return Scheduled(_ms(at), _moment(at))

    async def _repeated(
        self, asked: Schedule, context: ToolContext, target: ReplyTarget
    ) -> Scheduled:
        if target.origin is None or target.origin.chat_type != "direct":
            raise ToolError(
                "in a room only its admins can have something said again and again, with "
                "/remind every …; tell the person so"
            )
        zone = context.now.tzinfo
        if not isinstance(zone, ZoneInfo):
            raise ToolError("nothing can be repeated from here")
        try:
            rule = recurrence.parse(asked.rule)
            series = Series(rule, _begins(rule, asked.at, context.now))
            words = asked.text.strip()
            kind: Kind = "task" if asked.task else "text"
            if asked.task:
                _check_task(words, rule, context)
            add = partial(repeats.add, zone=zone, now=_ms(context.now), made_by="agent", kind=kind)
            added = await self._database.write(lambda tx: add(tx, target, words, series))
        except ValueError as error:
            raise ToolError(f"'rule': {error}") from None
        if added is None:
            raise ToolError(
                f"{MAX_REPEATS} reminders repeat for this person already, or {MAX_TASKS} tasks; "
                "they can cancel some with /reminders"
            )
        self._expect(added.due_at)
        at = datetime.fromtimestamp(added.due_at / 1000, zone)
        begins = series.begins.isoformat()
        return Scheduled(added.due_at, _moment(at), rule=str(rule), begins=begins)


def _check_task(words: str, rule: Rule, context: ToolContext) -> None:
    """Refuse what may be no task.

    Raises:
        ToolError: it comes too often, or may be somebody else's wish.
    """
    if rule.least_minutes < MIN_TASK_MINUTES:
        raise ToolError(f"a task must have {MIN_TASK_MINUTES} minutes in between")
    # A page or a file must not have the model do something again and again.
    if provenance_of(words, context) == "untrusted":
        raise ToolError(
            "there are words of others here, so the person must set this task themselves, with "
            "/task every …; tell them so"
        )


def _begins(rule: Rule, at: str, now: datetime) -> datetime:
    """The start of a rule, as `Series` wants it.

    Raises:
        ToolError: `at` is no time, or one is needed.
    """
    if not at:
        if rule.is_elapsed:
            begins = now.astimezone(UTC) + timedelta(seconds=rule.seconds)
        elif rule.hours:
            begins = now.replace(minute=0)
        else:
            raise ToolError("give BYHOUR in 'rule', or 'at' for where it begins")
    else:
        begins = _parsed(at, now, UTC if rule.is_elapsed else now.tzinfo)
        if abs(begins.timestamp() - now.timestamp()) > MAX_AHEAD.total_seconds():
            raise ToolError("'at' is more than five years away")
    return begins.replace(second=0, microsecond=0, tzinfo=None)


def _ms(at: datetime) -> int:
    return int(at.timestamp() * 1000)


def _moment(at: datetime) -> str:
    return f"{at:%A %Y-%m-%d %H:%M} ({at.tzinfo})"


def _parsed(at: str, now: datetime, zone: tzinfo | None) -> datetime:
    """A written time; one without a zone is on the person's clocks.

    Raises:
        ToolError: it is none.
    """
    try:
        found = datetime.fromisoformat(at)
        return (moment(found, now) if found.tzinfo is None else found).astimezone(zone)
    except (ValueError, OverflowError):
        raise ToolError("'at' must be a date and time such as 2026-12-24T18:00") from None


def _due(asked: Schedule, now: datetime) -> datetime:
    """The time to send it, on the person's clocks.

    Raises:
        ToolError: it is no time, or one that is past or too far away.
    """
    if asked.in_minutes is not None:
        later = now.astimezone(UTC) + timedelta(minutes=asked.in_minutes)
        return later.astimezone(now.tzinfo)
    at = _parsed(asked.at, now, now.tzinfo)
    seconds = at.timestamp() - now.timestamp()
    if seconds <= 0:
        raise ToolError(f"that is past: it is {now:%Y-%m-%d %H:%M} now ({now.tzinfo})")
    if seconds > MAX_AHEAD.total_seconds():
        raise ToolError("that is more than five years away")
    return at


# --- reminders -----------------------------------------------------------------------------------


class Manage(Parameters):
    """Parameters: the action, and the reminder it is for."""

    action: Literal["list", "cancel", "pause", "resume"] = Field(
        description="Only what repeats can be paused and resumed."
    )
    number: int | None = Field(None, ge=1, description="Its number in the list.")
    about: Stripped = Field("", max_length=MAX_TEXT, description="Instead: words that are in it.")


class ManageReminders:
    """Lists and changes what waits where the turn takes place, as `/reminders` does."""

    spec = Manage.spec(
        "reminders",
        "List the reminders and tasks of this conversation or, when the person asks, cancel, pause "
        "or resume the one that has all words of `about`. Where several have, ask which: numbers "
        "are as listed just now. Say that it is done only after this tool answered so.",
        tells_origins=True,
        built_in=True,
        short="Reminders: action list, cancel, pause or resume; about: words of the one meant.",
        few=("action", "about"),
    )

    def __init__(self, database: Database) -> None:
        self._database = database

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> str:
        """List, or change one; answers what `/reminders` says, in the person's language.

        Raises:
            ToolError: wrong arguments, no conversation, or maybe somebody else's wish.
            StorageError: it was not stored.
        """
        asked = Manage.from_arguments(arguments)
        target, zone = context.target, context.now.tzinfo
        if target is None or not isinstance(zone, ZoneInfo):
            raise ToolError("there are no reminders here")

        def work(tx: Transaction) -> tuple[str, list[str]]:
            agenda = Agenda(tx, target.key, target.language, zone, _ms(context.now))
            others = [each.text for each in agenda.waiting() if each.target.person != target.person]
            return _managed(agenda, asked, context), others

        is_list = asked.action == "list"
        words, others = await (self._database.read if is_list else self._database.write)(work)
        context.memory.foreign.extend(others)
        return words


def _managed(agenda: Agenda, asked: Manage, context: ToolContext) -> str:
    waiting, wanted = agenda.waiting(), sentences.terms(asked.about)
    if asked.action == "list" or not waiting:
        return agenda.list()
    shared = [sentences.shared(wanted, each.text) for each in waiting]
    fitting = [number for number, count in enumerate(shared, start=1) if count == len(wanted)]
    numbers = [asked.number] if asked.number else fitting
    if len(numbers) != 1:
        key = "reminder.which" if numbers else "reminder.nothing_fits"
        return agenda.list(text(agenda.language, key, about=asked.about), numbers)
    (number,) = numbers
    # A page or a file must not have a reminder fail to come.
    if number <= len(waiting) and not is_asked_for(waiting[number - 1].text, context):
        what = {"change": asked.action, "number": number}
        raise ToolError(text(agenda.language, "reminder.by_hand", **what))
    return agenda.change(asked.action, number)
