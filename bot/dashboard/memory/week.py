"""What was saved to memory in the last days: entries with their place, by day. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta

from bot.dashboard.memory.drawing import Source, source_of
from bot.memory import dates, markdown

DAYS = 7
MOST_WORDS = 160  # characters of an entry


@dataclass(frozen=True, slots=True)
class Saved:
    """An entry that the bot wrote: where it stands, what it says, and whose words it is."""

    path: str
    line: int
    words: str
    source: Source


def by_day(notes: Mapping[str, str], today: date) -> list[tuple[date, Sequence[Saved]]]:
    """The last days, today first, with what was saved on each; `notes` are texts by path."""
    days = [today - timedelta(days=number) for number in range(DAYS)]
    found: dict[date, list[Saved]] = {day: [] for day in days}
    for path, text in notes.items():
        for day, saved in _entries(path, text):
            if day is not None and day in found:
                found[day].append(saved)
    return [(day, found[day]) for day in days]


def _entries(path: str, text: str) -> Iterator[tuple[date | None, Saved]]:
    lines = text.split("\n")
    named = dates.first_day(path.rsplit("/", 1)[-1])
    for item in markdown.items(text):
        source = source_of(lines[item.start])
        if source is None or source.until:
            continue
        words = " ".join(markdown.plain(item.text).split())
        short = words if len(words) <= MOST_WORDS else f"{words[:MOST_WORDS]}…"
        day = named or dates.first_day(source.day)
        yield day, Saved(path, item.start + 1, short, source)
