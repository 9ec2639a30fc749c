"""`schedule_message`: the model has something said later, in the same conversation."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol, Self

from pydantic import Field, model_validator

from bot.agent.tools import ToolContext
from bot.agent.tools.parameters import Parameters, Stripped, Words
from bot.errors import ToolError
from bot.sessions.reminders import MAX_AHEAD, MAX_TEXT, MAX_WAITING, ReplyTarget, moment
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

    @model_validator(mode="after")
    def _has_one_time(self) -> Self:
        if (self.in_minutes is None) != bool(self.at):
            raise ValueError("give either 'at' or 'in_minutes'")
        return self


class Planner(Protocol):
    """What stores it."""

    async def schedule(self, target: ReplyTarget, words: str, due_at: int) -> bool:
        """Store it; False when too many wait for this person already."""
        ...


class ScheduleMessage:
    """Makes reminders where the turn takes place."""

    spec = Schedule.spec(
        "schedule_message",
        "Send a message to this conversation at a later time, once: use it when somebody asks to "
        "be reminded. Give either the local date and time or a number of minutes from now. The "
        "text is sent as it stands, so write it to the person, in their language. Say that a "
        "reminder is set only after this tool answered with its time.",
        tells_origins=True,
        built_in=True,
    )

    def __init__(self, planner: Planner) -> None:
        self._planner = planner

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> Scheduled:
        """Store the message; answers with its time only when it is on disk.

        Raises:
            ToolError: wrong arguments, a time that cannot be, or too many that wait.
        """
        asked = Schedule.of(arguments)
        at = _due(asked, context.now)
        if context.target is None:
            raise ToolError("nothing can be scheduled from here")
        due_at = int(at.timestamp() * 1000)
        if not await self._planner.schedule(context.target, asked.text.strip(), due_at):
            raise ToolError(
                f"{MAX_WAITING} reminders wait for this person already; they can cancel some with "
                "/reminders"
            )
        return Scheduled(due_at, f"{at:%A %Y-%m-%d %H:%M} ({at.tzinfo})")


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
