"""Notes as people read them, piece by piece. Pure.

A piece is a bullet with the lines below it, a heading, or a stretch of other lines; comments say
nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import PurePosixPath

from bot.memory import claims, layout, markdown, periods
from bot.memory.claims import Claim
from bot.memory.notes import is_day_note


@dataclass(frozen=True, slots=True)
class Remembered:
    """An entry or a paragraph of the note `path`.

    `claim` has its words, its lines, whose it is and when it was said. `topic` is the heading above
    it, empty without one and below a day. A paragraph (not `is_entry`) cannot be struck out.
    """

    path: str
    topic: str
    claim: Claim
    is_entry: bool = True

    @property
    def words(self) -> str:
        """Its text, without the time of day it begins with."""
        return markdown.untimed(self.claim.text)


def of_note(path: str, text: str) -> Iterator[Remembered]:
    """Everything a note says that was not struck out, in order."""
    known = {claim.first: claim for claim in claims.of_note(path, text)}
    raw, shown = text.split("\n"), uncommented(text).split("\n")
    day, topic = periods.first_day(PurePosixPath(path).stem), ""
    for start, end, is_entry in pieces(shown):
        heading = None if is_entry else markdown.HEADING.match(shown[start])
        if heading is not None:
            title = heading["title"].strip(" #")
            topic = "" if title == f"{periods.first_day(title)}" else title
            continue
        claim = known.get(start + 1) if is_entry else None
        if claim is None:
            # The mark of a section may be on any of its lines.
            marked = next(filter(markdown.mark_of, raw[start:end]), raw[start])
            claim = claims.of_entry(markdown.Item(start, end, marked), day)
            claim = replace(claim, text="\n".join(shown[start:end]).strip())
        if not claim.is_over and markdown.normal(claim.text):
            yield Remembered(path, topic, claim, is_entry)


def newest_first(found: Iterable[Remembered]) -> list[Remembered]:
    """By when each was said; what has no date comes last."""

    def key(each: Remembered) -> tuple[date, str, int]:
        claim = each.claim
        return claim.said or date.min, markdown.clock(claim.text), claim.first

    return sorted(found, key=key, reverse=True)


def by_topic(found: Iterable[Remembered]) -> list[Remembered]:
    """By note and in its order: lasting facts, then notes by their names, then the days."""

    def key(each: Remembered) -> tuple[int, str]:
        if each.path in layout.CURATED:
            return 0, str(layout.CURATED[::-1].index(each.path))
        return (2, "") if is_day_note(each.path) else (1, each.path)

    # Of days the newest comes first; within all others, what stands first.
    first = sorted(found, key=lambda each: each.claim.first)
    days = newest_first(each for each in first if is_day_note(each.path))
    return sorted([*(each for each in first if not is_day_note(each.path)), *days], key=key)


def pieces(lines: Sequence[str]) -> Iterator[tuple[int, int, bool]]:
    """The first and last line of each piece, and whether it is an entry."""
    at = 0
    for item in markdown.items("\n".join(lines)):
        yield from ((*piece, False) for piece in _others(lines, at, item.start))
        yield item.start, item.end, True
        at = item.end
    yield from ((*piece, False) for piece in _others(lines, at, len(lines)))


def _others(lines: Sequence[str], start: int, end: int) -> Iterator[tuple[int, int]]:
    """Headings, and stretches without a blank line; what is fenced stays together."""
    begun, fenced = -1, False
    for number in range(start, end):
        is_fence = bool(markdown.FENCE.match(lines[number]))
        apart = not fenced and (not lines[number].strip() or markdown.HEADING.match(lines[number]))
        if begun >= 0 and (apart or (is_fence and not fenced)):
            yield begun, number
            begun = -1
        fenced ^= is_fence
        if apart and lines[number].strip():
            yield number, number + 1
        elif not apart and begun < 0:
            begun = number
        if is_fence and not fenced:
            yield begun, number + 1
            begun = -1
    if begun >= 0:
        yield begun, end


def uncommented(text: str) -> str:
    """The text without comments, with as many lines: what is not closed is no comment."""
    parts: list[str] = []
    at = 0
    while (start := text.find("<!--", at)) >= 0 and (end := text.find("-->", start + 4)) >= 0:
        parts += [text[at:start].rstrip(" \t"), "\n" * text.count("\n", start, end)]
        at = end + len("-->")
    return "".join([*parts, text[at:]])
