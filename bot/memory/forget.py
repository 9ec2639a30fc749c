"""Finding and removing what a file says, entry by entry. Pure.

An entry is a bullet with the lines that belong to it; any other line stands for itself. Words match
literally, without regard to case and spacing, so that what goes is what was shown.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from bot.memory import markdown


@dataclass(frozen=True, slots=True)
class Match:
    """An entry that holds the words: its first and last line, from 1, and what it says."""

    first: int
    last: int
    text: str


def matches(text: str, words: str, most: int | None = None) -> list[Match]:
    """The first entries of a file that hold these words; none for words that are white space."""
    wanted = folded(words)
    if not wanted:
        return []
    found = (match for match in _entries(text) if wanted in folded(match.text))
    return list(islice(found, most))


def without(text: str, words: str) -> str:
    """The file without the entries that hold these words; the rest stays byte for byte."""
    gone = {
        number for match in matches(text, words) for number in range(match.first, match.last + 1)
    }
    lines = text.split("\n")
    return "\n".join(line for number, line in enumerate(lines, start=1) if number not in gone)


def folded(text: str) -> str:
    """A text as it is compared: case and spacing do not count."""
    return " ".join(text.casefold().split())


def _entries(text: str) -> Iterator[Match]:
    lines = text.split("\n")
    taken = 0
    for item in markdown.items(text):
        yield from _single(lines, taken, item.start)
        yield Match(item.start + 1, item.end, "\n".join(lines[item.start : item.end]))
        taken = item.end
    yield from _single(lines, taken, len(lines))


def _single(lines: list[str], start: int, end: int) -> Iterator[Match]:
    for number in range(start, end):
        if lines[number].strip():
            yield Match(number + 1, number + 1, lines[number])
