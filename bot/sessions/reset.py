"""When a conversation starts afresh by itself: one pure function.

It takes values and returns a value; the lazy check on the next message and the scheduler both
call it, so they cannot disagree.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal
from zoneinfo import ZoneInfo

from bot.config import ResetConfig, ResetPolicy

Reason = Literal["daily", "idle"]

QUIET_MINUTES = 60  # a daily reset waits until the person has been silent this long


@dataclass(frozen=True, slots=True)
class SessionTimes:
    """When a session began and when its person last wrote, in ms since the epoch."""

    started_at: int
    last_user_at: int


def policy_for(config: ResetConfig, channel: str, chat_type: str) -> ResetPolicy:
    """The policy that applies: by channel, else by type, else the default."""
    for name, policy in config.by_channel.items():
        if name == channel:
            return policy
    for kind, policy in config.by_type.items():
        if kind == chat_type:
            return policy
    return config


def expired(policy: ResetPolicy, times: SessionTimes, now: int, zone: ZoneInfo) -> Reason | None:
    """Why the session is over at `now` (ms), or None while it goes on.

    Daily: it began before the latest boundary and the person has been silent for an hour. Idle:
    the person has been silent for `idle_minutes`. A clock that went backwards expires nothing.
    """
    if policy.mode == "none":
        return None
    silent_ms = now - times.last_user_at
    if policy.idle_minutes > 0 and silent_ms >= policy.idle_minutes * 60_000:
        return "idle"
    if policy.mode == "daily" and silent_ms >= QUIET_MINUTES * 60_000:
        boundary = latest_boundary(now, policy.at_hour, zone)
        if times.started_at < boundary:
            return "daily"
    return None


def latest_boundary(now: int, at_hour: int, zone: ZoneInfo) -> int:
    """The last moment at or before `now` when it was `at_hour` o'clock in `zone`, in ms.

    Where the clock skips that hour, the boundary is the instant the skipped hour would have been;
    where it comes twice, the first.
    """
    # A clock set back across midnight repeats a day's end, so tomorrow's boundary may be past.
    day = datetime.fromtimestamp(now / 1000, zone).date() + timedelta(days=1)
    while True:
        wall = datetime(day.year, day.month, day.day, at_hour, tzinfo=zone)
        instant = int(wall.astimezone(UTC).timestamp() * 1000)
        if instant <= now:
            return instant
        day -= timedelta(days=1)
