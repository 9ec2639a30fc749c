"""The time of day, as a value that is passed in, so that nothing else asks the machine for it."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, tzinfo

DAY_MS = 86_400_000

Clock = Callable[[], int]
"""Milliseconds since the epoch. It may jump; durations are measured with `time.monotonic`."""


def system_clock() -> int:
    """The machine's clock."""
    return time.time_ns() // 1_000_000


_ahead: dict[str, float] = {}  # by server: how far the machine's clock was ahead of it, in seconds


def note_server(server: str, theirs: float) -> None:
    """A server that was asked anyway has just said its time, in seconds since the epoch."""
    _ahead[server] = system_clock() / 1000 - theirs


def ahead_of_others() -> tuple[float, int]:
    """The seconds the machine's clock is ahead of the servers', and the number of servers."""
    found = sorted(_ahead.values())
    return (found[len(found) // 2] if found else 0.0), len(found)


MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
MONTH_NAME = (
    "jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|"
    "sep(?:t(?:ember)?)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?"
)


def month_of(name: str) -> int:
    """The number of a month by its English name, whole or shortened."""
    return MONTHS.index(name[:3].lower()) + 1


_FIRST = datetime(1900, 1, 1, tzinfo=UTC)
_LAST = datetime(9000, 1, 1, tzinfo=UTC)


def moment(ms: int, zone: tzinfo | None) -> datetime:
    """A time in ms since the epoch on the clocks of a zone (None: this machine's).

    Whatever number a platform sends is a date: one no calendar has is the first or last there is.
    """
    seconds = min(max(ms / 1000, _FIRST.timestamp()), _LAST.timestamp())
    return datetime.fromtimestamp(seconds, zone)


def to_the_minute(ms: int, zone: tzinfo | None) -> str:
    """A time as lists show it: "2026-11-23 08:05"; see `moment`. "undated" for 0, which is none."""
    return f"{moment(ms, zone):%Y-%m-%d %H:%M}" if ms else "undated"
