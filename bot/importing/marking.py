"""Notes of another program as notes here: taken apart, and marked as imported. Pure.

Each entry, and each other piece of text, gets a mark of its own, `<!-- imported 2026-11-20 -->`,
so that nothing in them is taken for what the person said here. A mark that stands there already is
made void: it is no other program's to say whose words something is.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from bot.importing.values import digest
from bot.memory import markdown

# Marks of ours that would say more than is known; one that says less stays.
_FORGED = re.compile(r"<!--\s*(owner|agent|imported)\b")
_TABLE = re.compile(r"^\s*\|")


@dataclass(frozen=True, slots=True)
class Piece:
    """Some lines that belong together; `is_heading` for a heading, which says nothing itself."""

    text: str
    is_heading: bool = False

    @property
    def digest(self) -> str:
        """Another one for other words; marks and other comments beside them do not count."""
        return digest(" ".join((self.words or self.text).split()))

    @property
    def words(self) -> str:
        """What it says, without comments."""
        return markdown.plain(self.text).strip()


def pieces(text: str) -> list[Piece]:
    """What a note is made of, in order: headings, entries, and what stands between blank lines."""
    lines = _FORGED.sub(r"<!-- not \1", text.replace("\r\n", "\n").replace("\r", "\n")).split("\n")
    ends = {item.start: item.end for item in markdown.items("\n".join(lines))}
    found: list[Piece] = []
    at = 0
    while at < len(lines):
        end = ends.get(at) or _end(lines, at, ends)
        some = "\n".join(lines[at:end]).rstrip()
        if some.strip():
            found.append(Piece(some, bool(markdown.HEADING.match(some)) and "\n" not in some))
        at = end
    return found


def count(text: str) -> int:
    """How many pieces of a note say something."""
    return sum(bool(piece.words) and not piece.is_heading for piece in pieces(text))


def _end(lines: Sequence[str], start: int, entries: Collection[int]) -> int:
    """Where a piece ends that is no entry: a fenced one where its fence does."""
    fence = markdown.FENCE.match(lines[start])
    if fence is not None:
        closing = (at for at in range(start + 1, len(lines)) if markdown.FENCE.match(lines[at]))
        return next(closing, len(lines) - 1) + 1
    if markdown.HEADING.match(lines[start]) or not lines[start].strip():
        return start + 1
    at = start + 1
    while at < len(lines) and lines[at].strip() and at not in entries:
        if markdown.HEADING.match(lines[at]) or markdown.FENCE.match(lines[at]):
            break
        at += 1
    return at


def marked(piece: Piece, day: str) -> str:
    """A piece with its mark; `day` is empty in a day's note, whose name says it."""
    if piece.is_heading or markdown.is_untrusted(piece.text.split("\n", 1)[0]):
        return piece.text
    mark = f"<!-- imported {day} -->" if day else "<!-- imported -->"
    first, _, rest = piece.text.partition("\n")
    if _is_entry(piece.text):
        return f"{first} {mark}\n{rest}" if rest else f"{first} {mark}"
    is_apart = markdown.FENCE.match(first) or _TABLE.match(first)
    return f"{piece.text}\n{mark}" if is_apart else f"{piece.text} {mark}"


def merged(text: str, found: Sequence[Piece], known: Collection[str], day: str) -> str:
    """A note with those pieces at its end that it has not, and that never were brought to it.

    `known` are the digests of those that were: what was removed since stays away.
    """
    standing = {piece.digest for piece in pieces(text)}
    titles = {piece.digest for piece in found if piece.is_heading and _level(piece) == 1}
    wanted = [piece for piece in found if piece.digest not in titles & standing]
    new = list(_with_headings(wanted, {*standing, *known}))
    if not new:
        return text
    said = _joined([marked(piece, day) for piece in new], new)
    if not text.strip():
        return f"{said}\n"
    return f"{text.rstrip()}\n\n{said}\n"


def _with_headings(found: Sequence[Piece], known: Collection[str]) -> Iterator[Piece]:
    """The pieces that are new, each below the headings it stood below."""
    waiting: list[Piece] = []
    for piece in found:
        if piece.is_heading:
            waiting = [each for each in waiting if _level(each) < _level(piece)]
            waiting.append(piece)
        elif piece.digest not in known:
            yield from waiting
            waiting = []
            yield piece


def _joined(texts: Sequence[str], found: Sequence[Piece]) -> str:
    """Pieces as a note has them: entries below one another, all else with a blank line between."""
    parts: list[str] = []
    before = None
    for text, piece in zip(texts, found, strict=True):
        is_entry = not piece.is_heading and _is_entry(text)
        parts.append("" if before is None else "\n" if before and is_entry else "\n\n")
        parts.append(text)
        before = is_entry
    return "".join(parts)


def _level(heading: Piece) -> int:
    return len(heading.text) - len(heading.text.lstrip("#"))


def _is_entry(text: str) -> bool:
    return next(iter(markdown.items(text)), None) is not None
