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
        r"(?<!\d)(?<!\d\.)" + _YEAR + r"[-/.](?P<number>\d{1,2})[-/.](?P<day>\d{1,2})(?!\d|\.\d)",
        r"(?<![\w.])(?P<day>\d{1,2})\. ?(?P<number>\d{1,2})\. ?" + _YEAR + r"(?!\d|\.\d)",
        r"(?<!\d)" + _YEAR + r"\s*年\s*(?P<number>\d{1,2})\s*月(?:\s*(?P<day>\d{1,2})\s*[日号])?",
        r"\b" + _DAY + r"\s+(?:of\s+)?" + _MONTH + r",?\s+" + _YEAR + r"\b",
        r"\b" + _MONTH + r"\s+" + _DAY + r",?\s+" + _YEAR + r"\b",
        r"\b" + _MONTH + r",?\s+(?:of\s+)?" + _YEAR + r"\b",
    )
)
_HAS_YEAR = re.compile(r"(?<!\d)(?:19|20)\d\d(?!\d)")


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


def days(text: str) -> frozenset[date]:
    """The whole days a text names."""
    if not _HAS_YEAR.search(text):  # which is quickly seen, and so with most texts
        return frozenset()
    return frozenset(day for value in named(text) if (day := value.as_date()))


def first_day(text: str) -> date | None:
    """The first whole day a text names."""
    return next((day for value in named(text) if (day := value.as_date())), None)


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
