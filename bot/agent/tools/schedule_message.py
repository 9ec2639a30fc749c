"""`schedule_message`: the model has something said later, in the same conversation."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Protocol

from bot.agent.models import ToolSpec
from bot.agent.tools import ToolContext, arguments
from bot.errors import ToolError
from bot.sessions.reminders import MAX_AHEAD, MAX_TEXT, MAX_WAITING, Origin, moment

MAX_MINUTES = int(MAX_AHEAD.total_seconds()) // 60

SPEC: Final = ToolSpec(
    name="schedule_message",
    description=(
        "Send a message to this conversation at a later time, once: use it when somebody asks to "
        "be reminded. Give either the local date and time or a number of minutes from now. The "
        "text is sent as it stands, so write it to the person, in their language. Say that a "
        "reminder is set only after this tool answered with its time."
    ),
    schema={
        "type": "object",
        "properties": {
            "text": {
                "type": "string",
                "description": f"What to say then, at most {MAX_TEXT} characters.",
            },
            "at": {
                "type": "string",
                "description": "Date and time in the person's time zone, such as 2026-12-24T18:00.",
            },
            "in_minutes": {
                "type": "integer",
                "minimum": 1,
                "maximum": MAX_MINUTES,
                "description": "Instead of `at`: minutes from now.",
            },
        },
        "required": ["text"],
        "additionalProperties": False,
    },
    tells_origins=True,
)


class Planner(Protocol):
    """What stores it."""

    async def schedule(self, origin: Origin, words: str, due_at: int) -> bool:
        """Store it; False when too many wait for this person already."""
        ...


class ScheduleMessage:
    """Makes reminders where the turn takes place."""

    def __init__(self, planner: Planner) -> None:
        self._planner = planner

    @property
    def spec(self) -> ToolSpec:
        """How the model sees it."""
        return SPEC

    async def run(self, arguments_: Mapping[str, Any], context: ToolContext) -> str:
        """Store the message; answers with its time only when it is on disk.

        Raises:
            ToolError: wrong arguments, a time that cannot be, or too many that wait.
        """
        arguments.only(arguments_, "text", "at", "in_minutes")
        words = arguments.text(arguments_, "text", longest=MAX_TEXT).strip()
        at = _due(arguments_, context.now)
        if context.origin is None:
            raise ToolError("nothing can be scheduled from here")
        due_at = int(at.timestamp() * 1000)
        if not await self._planner.schedule(context.origin, words, due_at):
            raise ToolError(
                f"{MAX_WAITING} reminders wait for this person already; they can cancel some with "
                "/reminders"
            )
        return f"scheduled for {at:%A %Y-%m-%d %H:%M} ({at.tzinfo}); /reminders lists and cancels"


def _due(arguments_: Mapping[str, Any], now: datetime) -> datetime:
    """When to send it, on the person's clocks.

    Raises:
        ToolError: the arguments say none, or one that is past or too far away.
    """
    has_minutes = arguments_.get("in_minutes") is not None
    written = arguments.optional(arguments_, "at", longest=40)
    if has_minutes == bool(written):
        raise ToolError("give either 'at' or 'in_minutes'")
    if has_minutes:
        minutes = arguments.integer(arguments_, "in_minutes", default=1, low=1, high=MAX_MINUTES)
        return (now.astimezone(UTC) + timedelta(minutes=minutes)).astimezone(now.tzinfo)
    try:
        at = datetime.fromisoformat(written)
        at = moment(at, now) if at.tzinfo is None else at.astimezone(now.tzinfo)
    except (ValueError, OverflowError):
        raise ToolError("'at' must be a date and time such as 2026-12-24T18:00") from None
    seconds = at.timestamp() - now.timestamp()
    if seconds <= 0:
        raise ToolError(f"that is past: it is {now:%Y-%m-%d %H:%M} now ({now.tzinfo})")
    if seconds > MAX_AHEAD.total_seconds():
        raise ToolError("that is more than five years away")
    return at
