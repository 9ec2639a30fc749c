"""Days and months as people live them. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, timedelta, tzinfo
from typing import Literal

from bot.clock import moment

Span = Literal["day", "month"]


@dataclass(frozen=True, slots=True)
class Period:
    """A day or a month of some time zone: from `start` to, not including, `end`.

    Both are in ms since the epoch.
    """

    span: Span
    start: int
    end: int


def period(span: Span, now: int, zone: tzinfo) -> Period:
    """The day or month that a time in ms since the epoch belongs to, in a time zone."""
    today = moment(now, zone).date()
    if span == "day":
        return Period(span, _begin(today, zone), _begin(today + timedelta(days=1), zone))
    first = today.replace(day=1)
    following = (first + timedelta(days=32)).replace(day=1)
    return Period(span, _begin(first, zone), _begin(following, zone))


def _begin(day: date, zone: tzinfo) -> int:
    """When a day begins; where clocks skip midnight, at the moment they skip it."""
    return round(datetime(day.year, day.month, day.day, tzinfo=zone).timestamp() * 1000)
