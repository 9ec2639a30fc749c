"""Forgetting: which entries of a file hold some words, and who has to hear that they go.

An entry is a bullet with the lines that belong to it; any other line stands for itself. Words match
literally, without regard to case and spacing, so that what goes is what was shown.

A turn or a flush reads first and writes later, perhaps much later. So it watches the space of what
it read: forgetting tells everybody who watches, and whoever comes while it lasts waits until it is
over, and reads nothing of it any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import islice
from weakref import WeakValueDictionary

from bot.memory import markdown
from bot.storage.fulltext import folded


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


@dataclass(eq=False, slots=True)
class Watch:
    """What was forgotten in a space since somebody began to read it; nothing so far when empty."""

    words: list[str] = field(default_factory=list[str])


class Forgettings:
    """Who watches which space, and which are being forgotten in."""

    def __init__(self) -> None:
        self._watches: dict[str, list[Watch]] = {}
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    @asynccontextmanager
    async def watching(self, space: str) -> AsyncGenerator[Watch]:
        """Hear of what is forgotten in a space; begin before anything of it is read."""
        watch = Watch()
        async with self._lock(space):
            watches = self._watches.setdefault(space, [])
            watches.append(watch)
        try:
            yield watch
        finally:
            watches.remove(watch)
            if not watches:
                self._watches.pop(space, None)

    @asynccontextmanager
    async def forgetting(self, space: str, words: str) -> AsyncGenerator[None]:
        """Tell everybody who watches; nobody begins to before this is over."""
        async with self._lock(space):
            for watch in self._watches.get(space, ()):
                watch.words.append(words)
            yield

    def _lock(self, space: str) -> asyncio.Lock:
        return self._locks.setdefault(space, asyncio.Lock())


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
