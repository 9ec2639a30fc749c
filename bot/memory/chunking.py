"""Cutting a note into the pieces that are searched. Pure.

Two sizes: a chunk is what an answer points at, with the heading it stands under; a window is the
few lines inside it that get a vector of their own, because the mean of a long passage means little.
Both are functions of the text alone, so a window is never stored, only found again. A passage is a
chunk as the index stores it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import PurePosixPath

from bot.context import tokens
from bot.memory import layout, markdown, periods

VERSION = 4  # part of the index's identity: raise it when the pieces come out differently
CHUNK_TOKENS = 400
OVERLAP_TOKENS = 80
WINDOW_TOKENS = 80  # a few turns of a conversation; measured in bench/locomo
MAX_HEADINGS = 6
MAX_HEADING_CHARACTERS = 200

_ENTRY = re.compile(r"(?:[-*+]|\d{1,3}[.)])\s")  # of a list, not one inside another entry
_SEPARATORS = re.compile(r"[-_./]+")


@dataclass(frozen=True, slots=True)
class Chunk:
    """Whole lines of a note, or a piece of one line too long to stand in one chunk.

    Lines are counted from 1, both ends included. `headings` are those it stands under, outermost
    first; a heading inside the chunk is part of its text. `day` is the date of the nearest heading
    that has one.
    """

    start_line: int
    end_line: int
    text: str
    headings: tuple[str, ...] = ()
    day: date | None = None


@dataclass(frozen=True, slots=True)
class Window:
    """Some text of a chunk; `first` and `last` are lines of the chunk, counted from 0."""

    first: int
    last: int
    text: str


@dataclass(frozen=True, slots=True)
class Unit:
    """A line of a chunk, counted from 0, or a part of one that `continues` the unit before."""

    line: int
    text: str
    continues: bool


@dataclass(frozen=True, slots=True)
class Passage:
    """A chunk of a note or of something said, for the index; `windows` are what get vectors."""

    start_line: int
    end_line: int
    day: date | None
    heading: str
    body: str
    windows: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Piece:
    """A line, or a part of one."""

    line: int
    text: str
    cost: int
    is_part: bool


def of_note(
    path: str, text: str, names: tuple[str, ...] = (), day: date | None = None
) -> list[Passage]:
    """The passages of a note; `path` is within its space.

    `names` are what else it is called, and `day` is its own unless its path names one.
    """
    own_day = periods.first_day(PurePosixPath(path).stem) or day
    title = (*_title(path), *names)
    return [
        _passage(chunk, (*title, *chunk.headings), own_day or chunk.day) for chunk in split(text)
    ]


def of_document(text: str, at: int) -> list[Passage]:
    """The passages of something that was said at a time, in milliseconds."""
    day = datetime.fromtimestamp(at / 1000, UTC).date() if at else None
    return [_passage(chunk, chunk.headings, day) for chunk in split(text)]


def windows_of(heading: str, body: str) -> tuple[str, ...]:
    """The texts that get vectors for a passage: its windows, under what they are about."""
    above = "" if periods.named_days(heading) else heading
    return tuple(f"{above}\n{window.text}" if above else window.text for window in windows(body))


def split(text: str, *, size: int = CHUNK_TOKENS, overlap: int = OVERLAP_TOKENS) -> list[Chunk]:
    """The chunks of a note: at most `size` tokens each, sharing up to `overlap` tokens of lines.

    Every line that is not blank is in some chunk. A line of more than `size` tokens is cut, and its
    parts are in one chunk each.
    """
    lines = [line.rstrip("\r") for line in text.removesuffix("\n").split("\n")]
    pieces = [piece for number, line in enumerate(lines, 1) for piece in _cut(number, line, size)]
    outline = _Outline(lines)
    chunks: list[Chunk] = []
    start = 0
    while start < len(pieces):
        end = _fill(pieces, start, size)
        part = pieces[start:end]
        body = "\n".join(piece.text for piece in part)
        if body.strip():
            headings = outline.above(part[0].line)
            chunks.append(
                Chunk(part[0].line, part[-1].line, body, headings, outline.day(part[0].line))
            )
        if end == len(pieces):
            break
        start = _step_back(pieces, start, end, size, overlap)
    return chunks


def joined(chunks: Iterable[tuple[int, int, str]]) -> str:
    """The text that some chunks were cut from, given as first line, last line and words, in order.

    How its lines ended is not known from them, nor whether the last one did, nor blanks in lines
    that hold nothing else.
    """
    lines: dict[int, str] = {}
    for start, end, body in chunks:
        if start == end and start in lines:  # a part of a long line: others are never by themselves
            lines[start] += body
            continue
        lines.update(zip(range(start, end + 1), body.split("\n"), strict=False))
    return "\n".join(lines.get(number, "") for number in range(1, max(lines, default=0) + 1))


def windows(text: str, *, size: int = WINDOW_TOKENS) -> list[Window]:
    """The windows of a chunk's text, side by side: every line is in one, a long line in several."""
    pieces = [
        piece for number, line in enumerate(text.split("\n")) for piece in _cut(number, line, size)
    ]
    found: list[Window] = []
    start = 0
    while start < len(pieces):
        full = _fill(pieces, start, size)  # or before the next entry of a list
        end = next((at for at in range(start + 1, full) if _ENTRY.match(pieces[at].text)), full)
        part = pieces[start:end]
        joined = "\n".join(piece.text for piece in part)
        if joined.strip():
            found.append(Window(part[0].line, part[-1].line, joined))
        start = end
    return found


def units(text: str, *, size: int) -> list[Unit]:
    """The lines of a chunk's text, those of more than `size` tokens in parts."""
    found: list[Unit] = []
    surely_fits = (size - 1) * tokens.CHARACTERS_PER_TOKEN
    for number, line in enumerate(text.split("\n")):
        if len(line) < size or (len(line) < surely_fits and line.isascii()):
            found.append(Unit(number, line, continues=False))
            continue
        parts = list(_cut(number, line, size))
        found += [Unit(number, part.text, continues=at > 0) for at, part in enumerate(parts)]
    return found


def heading_of(line: str) -> tuple[int, str] | None:
    """The level and text of a Markdown heading, or None for any other line."""
    match = markdown.HEADING.match(line)
    # Not by the pattern: what ends a heading could be told from its words in too many ways.
    title = match["title"].rstrip().rstrip("#").rstrip() if match else ""
    return (len(match["level"]), title[:MAX_HEADING_CHARACTERS]) if match and title else None


def _fill(pieces: Sequence[_Piece], start: int, size: int) -> int:
    """The end of the longest run from `start` that holds at most `size` tokens."""
    if pieces[start].is_part:
        return start + 1
    used, end = 0, start
    while end < len(pieces) and not pieces[end].is_part and used + pieces[end].cost < size:
        used += pieces[end].cost
        end += 1
    return end


def _step_back(pieces: Sequence[_Piece], start: int, end: int, size: int, overlap: int) -> int:
    """The start of the next chunk: early enough to overlap, and still taking the next piece."""
    if pieces[end].is_part:
        return end
    allowed = min(overlap, size - 1 - pieces[end].cost)
    while end > start + 1 and not pieces[end - 1].is_part and pieces[end - 1].cost <= allowed:
        end -= 1
        allowed -= pieces[end].cost
    return end


def _cut(number: int, line: str, size: int) -> Iterator[_Piece]:
    cost = max(1, tokens.estimate(line))  # rounded up, so the line's end is in it
    if cost < size:
        yield _Piece(number, line, cost, is_part=False)
        return
    rest = line
    while rest:
        length = _fitting(rest, size)
        yield _Piece(number, rest[:length], size, is_part=True)
        rest = rest[length:]


def _fitting(text: str, size: int) -> int:
    """The number of leading characters that fit `size` tokens, up to a space if one is near."""
    low, high = 1, min(len(text), size * tokens.CHARACTERS_PER_TOKEN)
    while low < high:
        middle = (low + high + 1) // 2
        if tokens.estimate(text[:middle]) <= size:
            low = middle
        else:
            high = middle - 1
    if low < len(text):
        space = text.rfind(" ", low // 2, low)
        if space > 0:
            return space + 1
    return low


def _passage(chunk: Chunk, headings: tuple[str, ...], day: date | None) -> Passage:
    heading = " · ".join(dict.fromkeys(headings))
    windows = windows_of(heading, chunk.text)
    return Passage(chunk.start_line, chunk.end_line, day, heading, chunk.text, windows)


def _title(path: str) -> tuple[str, ...]:
    """The words of a topic's file name; none for daily and curated notes."""
    if path in layout.CURATED or periods.named_days(PurePosixPath(path).stem):
        return ()
    inner = path.removeprefix(f"{layout.NOTES_FOLDER}/").removesuffix(layout.SUFFIX)
    words = _SEPARATORS.sub(" ", inner).strip()
    return (words,) if words else ()


class _Outline:
    """The headings of a note, and which stand above a line."""

    def __init__(self, lines: Sequence[str]) -> None:
        self._marks: list[tuple[int, tuple[str, ...], date | None]] = [(0, (), None)]
        open_headings: list[tuple[int, str]] = []
        fenced = False
        for number, line in enumerate(lines, 1):
            if markdown.FENCE.match(line):
                fenced = not fenced
            heading = None if fenced else heading_of(line)
            if heading is None:
                continue
            open_headings = [h for h in open_headings if h[0] < heading[0]][-MAX_HEADINGS:]
            open_headings.append(heading)
            texts = tuple(text for _, text in open_headings)
            day = next((d for text in reversed(texts) if (d := periods.first_day(text))), None)
            self._marks.append((number, texts, day))
        self._at = 0

    def above(self, line: int) -> tuple[str, ...]:
        """The headings in force before a line."""
        return self._mark(line - 1)[1]

    def day(self, line: int) -> date | None:
        """The date in force at a line, or the first one after it when it is the note's start."""
        number, _, day = self._mark(line)
        return day or (next((d for _, _, d in self._marks if d), None) if number <= 1 else None)

    def _mark(self, line: int) -> tuple[int, tuple[str, ...], date | None]:
        # Lines come in rising order but for the overlap, so the place of the last answer is near.
        while self._at + 1 < len(self._marks) and self._marks[self._at + 1][0] <= line:
            self._at += 1
        while self._marks[self._at][0] > line:
            self._at -= 1
        return self._marks[self._at]
