"""`schedule_message`: the model has something said later, in the same conversation.

Once, or again and again by a rule. In a room the latter is for those who look after it, who can
say so with a command: a model that read the room's words cannot tell who asked.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol, Self
from zoneinfo import ZoneInfo

from pydantic import Field, model_validator

from bot.agent.tools import ToolContext
from bot.agent.tools.parameters import Parameters, Stripped, Words
from bot.agent.tools.provenance import provenance_of
from bot.errors import ToolError
from bot.sessions import recurrence
from bot.sessions.recurrence import MAX_RULE, MIN_TASK_MINUTES, Rule, Series
from bot.sessions.reminders import MAX_AHEAD, MAX_TEXT, MAX_WAITING, ReplyTarget, moment
from bot.sessions.repeats import MAX_REPEATS, MAX_TASKS, Kind
from bot.tool_results import Scheduled

MAX_MOMENT = 40  # characters
MAX_MINUTES = int(MAX_AHEAD.total_seconds()) // 60


class Schedule(Parameters):
    """What to say, and when."""

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

    task: bool = Field(
        default=False,
        description="With a rule: whether `text` is a task to carry out each time, with your tools "
        "and their memory, whose answer is then sent, instead of words to send as they stand.",
    )

    @model_validator(mode="after")
    def _has_one_time(self) -> Self:
        if self.task and not self.rule:
            raise ValueError("a 'task' needs a 'rule'")
        if self.rule and self.in_minutes is not None:
            raise ValueError("a 'rule' begins 'at' some time; leave out 'in_minutes'")
        if not self.rule and (self.in_minutes is None) != bool(self.at):
            raise ValueError("give either 'at' or 'in_minutes'")
        return self


class Planner(Protocol):
    """What stores it."""

    async def schedule(self, target: ReplyTarget, words: str, due_at: int) -> bool:
        """Store it; False when too many wait for this person already."""
        ...

    async def repeat(
        self, target: ReplyTarget, words: str, series: Series, zone: ZoneInfo, kind: Kind
    ) -> int | None:
        """Store it to come again and again; when it is due first, in ms since the epoch.

        None when this person has too many already.

        Raises:
            ValueError: no time of it is to come.
        """
        ...


class ScheduleMessage:
    """Makes reminders where the turn takes place."""

    spec = Schedule.spec(
        "schedule_message",
        "Send a message to this conversation at a later time: use it when somebody asks to be "
        "reminded. Give either the local date and time or a number of minutes from now, or a rule "
        "when it is to come again and again. The "
        "text is sent as it stands, so write it to the person, in their language. Say that a "
        "reminder is set only after this tool answered with its time.",
        tells_origins=True,
        built_in=True,
        short="Set a reminder: text to send the person later, in_minutes from now, or at a local "
        "date and time such as 2026-12-24T18:00.",
        few=("text", "in_minutes", "at"),
    )

    def __init__(self, planner: Planner) -> None:
        self._planner = planner

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> Scheduled:
        """Store the message; answers with its time only when it is on disk.

        Raises:
            ToolError: wrong arguments, a time that cannot be, or too many that wait.
        """
        asked = Schedule.of(arguments)
        if context.target is None:
            raise ToolError("nothing can be scheduled from here")
        if asked.rule:
            return await self._repeated(asked, context, context.target)
        at = _due(asked, context.now)
        due_at = int(at.timestamp() * 1000)
        if not await self._planner.schedule(context.target, asked.text.strip(), due_at):
            raise ToolError(
                f"{MAX_WAITING} reminders wait for this person already; they can cancel some with "
                "/reminders"
            )
        return Scheduled(due_at, _moment(at))

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
            due_at = await self._planner.repeat(target, words, series, zone, kind)
        except ValueError as error:
            raise ToolError(f"'rule': {error}") from None
        if due_at is None:
            raise ToolError(
                f"{MAX_REPEATS} reminders repeat for this person already, or {MAX_TASKS} tasks; "
                "they can cancel some with /reminders"
            )
        at = datetime.fromtimestamp(due_at / 1000, zone)
        begins = series.begins.isoformat()
        return Scheduled(due_at, _moment(at), rule=str(rule), begins=begins)


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
    """Where a rule begins, as `Series` wants it.

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
        try:
            begins = datetime.fromisoformat(at)
            begins = moment(begins, now) if begins.tzinfo is None else begins
            begins = begins.astimezone(UTC if rule.is_elapsed else now.tzinfo)
        except (ValueError, OverflowError):
            raise ToolError("'at' must be a date and time such as 2026-12-24T18:00") from None
        if abs(begins.timestamp() - now.timestamp()) > MAX_AHEAD.total_seconds():
            raise ToolError("'at' is more than five years away")
    return begins.replace(second=0, microsecond=0, tzinfo=None)


def _moment(at: datetime) -> str:
    return f"{at:%A %Y-%m-%d %H:%M} ({at.tzinfo})"


def _due(asked: Schedule, now: datetime) -> datetime:
    """When to send it, on the person's clocks.

    Raises:
        ToolError: it is no time, or one that is past or too far away.
    """
    if asked.in_minutes is not None:
        later = now.astimezone(UTC) + timedelta(minutes=asked.in_minutes)
        return later.astimezone(now.tzinfo)
    try:
        at = datetime.fromisoformat(asked.at)
        at = moment(at, now) if at.tzinfo is None else at.astimezone(now.tzinfo)
    except (ValueError, OverflowError):
        raise ToolError("'at' must be a date and time such as 2026-12-24T18:00") from None
    seconds = at.timestamp() - now.timestamp()
    if seconds <= 0:
        raise ToolError(f"that is past: it is {now:%Y-%m-%d %H:%M} now ({now.tzinfo})")
    if seconds > MAX_AHEAD.total_seconds():
        raise ToolError("that is more than five years away")
    return at
