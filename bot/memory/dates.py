"""Days and months that a text names, in the ways people and programs write them. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date

from bot.clock import MONTH_NAME, month_of

_MONTH = rf"(?P<month>{MONTH_NAME})\.?"
_YEAR = r"(?P<year>(?:19|20)\d\d)"
_DAY = r"(?P<day>\d{1,2})(?:st|nd|rd|th)?"
_WRITTEN = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"(?<!\d)" + _YEAR + r"[-/.](?P<number>\d{1,2})[-/.](?P<day>\d{1,2})(?!\d)",
        _YEAR + r"\s*年\s*(?P<number>\d{1,2})\s*月(?:\s*(?P<day>\d{1,2})\s*[日号])?",
        r"\b" + _DAY + r"\s+(?:of\s+)?" + _MONTH + r",?\s+" + _YEAR + r"\b",
        r"\b" + _MONTH + r"\s+" + _DAY + r",?\s+" + _YEAR + r"\b",
        r"\b" + _MONTH + r",?\s+(?:of\s+)?" + _YEAR + r"\b",
    )
)


@dataclass(frozen=True, slots=True)
class Named:
    """A day, or a whole month when `day` is 0."""

    year: int
    month: int
    day: int

    def as_date(self) -> date | None:
        """The day, or None for a month."""
        return date(self.year, self.month, self.day) if self.day else None


def named(text: str) -> tuple[Named, ...]:
    """The days and months a text names with their year, each once, in the order of the text.

    A month that is part of a named day is not named again by itself.
    """
    found: dict[tuple[int, int], Named] = {}
    for pattern in _WRITTEN:
        for match in pattern.finditer(text):
            if any(start <= match.start() < end for start, end in found):
                continue
            for value in _valid(match):
                found[match.span()] = value
    return tuple(dict.fromkeys(found[span] for span in sorted(found)))


def first_day(text: str) -> date | None:
    """The first whole day a text names."""
    return next((day for value in named(text) if (day := value.as_date())), None)


def nearness(wanted: tuple[Named, ...], day: date | None) -> float:
    """How well a note's day answers the days a question names: from 0 to 1.

    What happened on a day is often told within the week after it, so those days count half.
    """
    if day is None:
        return 0.0
    return max((_near(value, day) for value in wanted), default=0.0)


def _near(wanted: Named, day: date) -> float:
    exact = wanted.as_date()
    if exact is None:
        return 1.0 if (wanted.year, wanted.month) == (day.year, day.month) else 0.0
    after = (day - exact).days
    if after == 0:
        return 1.0
    return 0.5 if 0 < after <= 7 else 0.0


def _valid(match: re.Match[str]) -> Iterator[Named]:
    parts = match.groupdict()
    number = parts.get("number")
    month = int(number) if number else month_of(parts["month"])
    value = Named(int(parts["year"]), month, int(parts.get("day") or 0))
    try:
        date(value.year, value.month, value.day or 1)
    except ValueError:
        return
    yield value
