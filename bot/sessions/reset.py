"""Automatic resets: one pure function says when a conversation starts afresh.

It takes values and returns a value; the lazy check on the next message and the scheduler both
call it, so they cannot disagree.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Literal
from zoneinfo import ZoneInfo

from bot.config import ResetConfig, ResetPolicy

Reason = Literal["daily", "idle"]

QUIET_MINUTES = 60  # a daily reset waits until the person has been silent this long


@dataclass(frozen=True, slots=True)
class SessionTimes:
    """The times a session began and its person last wrote, in ms since the epoch."""

    started_at: int
    last_user_at: int


@dataclass(frozen=True, slots=True)
class Cut:
    """Bounds for every session that may be over, under any policy; ms since the epoch.

    Nobody has written after `idle_since`, or nobody has after `quiet_since` and it was taken up
    before `boundary`. A bound that nothing can meet is `NEVER`.
    """

    idle_since: int
    quiet_since: int
    boundary: int


NEVER = -(2**62)


def policy_for(config: ResetConfig, channel: str, chat_type: str, chat: str = "") -> ResetPolicy:
    """The policy that applies: by chat, else by channel, else by type, else the default."""
    found = config.by_chat.get(f"{channel}:{chat}") or config.by_channel.get(channel)
    by_type = (policy for kind, policy in config.by_type.items() if kind == chat_type)
    return found or next(by_type, config)


def expired(policy: ResetPolicy, times: SessionTimes, now: int, zone: ZoneInfo) -> Reason | None:
    """Why the session is over at `now` (ms), or None while it goes on.

    A clock that went backwards expires nothing.
    """
    soonest = min(QUIET_MINUTES, policy.idle_minutes or QUIET_MINUTES)
    if now < times.last_user_at + soonest * 60_000:  # as at most messages
        return None
    end = ends_at(policy, times, zone)
    return end[1] if end is not None and end[0] <= now else None


def ends_at(policy: ResetPolicy, times: SessionTimes, zone: ZoneInfo) -> tuple[int, Reason] | None:
    """The time the session is over (ms) if nothing more is said, and why; None for never.

    Daily: a boundary has come since it began, and the person has been silent for an hour. Idle:
    the person has been silent for `idle_minutes`. What came first is the reason.
    """
    if policy.mode == "none":
        return None
    ends: list[tuple[int, Reason]] = []
    if policy.idle_minutes > 0:
        ends.append((times.last_user_at + policy.idle_minutes * 60_000, "idle"))
    if policy.mode == "daily":
        boundary = next_boundary(times.started_at, policy.at_hour, zone)
        ends.append((max(boundary, times.last_user_at + QUIET_MINUTES * 60_000), "daily"))
    return min(ends, key=lambda end: end[0], default=None)


def cut(config: ResetConfig, now: int, zones: Collection[ZoneInfo]) -> Cut | None:
    """The loosest cut over all policies and time zones; None when nothing ever ends.

    It only leaves out what cannot be over: `expired` decides about the rest.
    """
    others = (config.by_type, config.by_channel, config.by_chat)
    policies = [config, *(policy for each in others for policy in each.values())]
    idle = [p.idle_minutes for p in policies if p.mode != "none" and p.idle_minutes > 0]
    hours = {policy.at_hour for policy in policies if policy.mode == "daily"}
    if not idle and not hours:
        return None
    boundaries = (latest_boundary(now, hour, zone) for hour in hours for zone in zones)
    return Cut(
        idle_since=now - min(idle) * 60_000 if idle else NEVER,
        quiet_since=now - QUIET_MINUTES * 60_000 if hours else NEVER,
        boundary=max(boundaries, default=NEVER),
    )


def latest_boundary(now: int, at_hour: int, zone: ZoneInfo) -> int:
    """The last moment at or before `now` when it was `at_hour` o'clock in `zone`, in ms.

    Where the clock skips that hour, the boundary is the instant the skipped hour would have been;
    where it comes twice, the first.
    """
    # A clock set back across midnight repeats a day's end, so tomorrow's boundary may be past.
    day = _day(now, zone) + timedelta(days=1)
    while (instant := _at(day, at_hour, zone)) > now:
        day -= timedelta(days=1)
    return instant


def next_boundary(after: int, at_hour: int, zone: ZoneInfo) -> int:
    """The first such moment that comes after `after`, in ms."""
    day = _day(after, zone) - timedelta(days=1)
    while (instant := _at(day, at_hour, zone)) <= after:
        day += timedelta(days=1)
    return instant


def _day(moment: int, zone: ZoneInfo) -> date:
    return datetime.fromtimestamp(moment / 1000, zone).date()


def _at(day: date, hour: int, zone: ZoneInfo) -> int:
    wall = datetime(day.year, day.month, day.day, hour, tzinfo=zone)
    return int(wall.astimezone(UTC).timestamp() * 1000)
