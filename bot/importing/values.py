"""Values read from other programs, and careful readers of untrusted JSON."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from hashlib import blake2b
from typing import Literal, cast

from bot.memory import markdown
from bot.sessions.entries import Source
from bot.unicode import harmless, well_formed

MAX_TEXT = 1_000_000  # characters of one message; what is beyond is left out, and said so
MAX_BY = 100  # characters of a name
CUT = "\n[… {count} characters were left out by the import]"
_FIRST_MS = 946_684_800_000  # the year 2000: whatever is older is no time of a chat
_LAST_MS = 4_102_444_800_000  # the year 2100


class Left(StrEnum):
    """Why a message of a conversation is left out."""

    WORDLESS = "without text, such as pictures"
    BY_TOOLS = "to and from tools"
    THOUGHTS = "of thinking"
    BRANCHED = "on branches that were left"
    BROKEN = "that are damaged"
    SERVICE = "of the program itself"
    TWICE = "with the id of another one"


@dataclass(frozen=True, slots=True)
class Said:
    """A message: its id where it comes from, and when it was said, in ms since the epoch.

    The time is 0 where nothing says it. `by` is who said it, where it was neither the person nor
    the program.
    """

    id: str
    role: Literal["user", "assistant"]
    text: str
    at: int
    by: str = ""


@dataclass(frozen=True, slots=True)
class Talk:
    """A conversation with another program.

    `left` counts its messages that are left out, by why. `assumed` says what was taken for granted.
    """

    source: Source
    id: str
    title: str
    said: tuple[Said, ...]
    left: Mapping[Left, int] = field(default_factory=dict[Left, int])
    assumed: str = ""


@dataclass(frozen=True, slots=True)
class Remembered:
    """A memory of another program: a piece of the note at `path`, below the heading `about`.

    `at` is when it was saved, in ms since the epoch, or 0. Of those that are `is_newest` only the
    newest counts.
    """

    path: str
    about: str
    text: str
    at: int
    is_newest: bool = False


@dataclass(frozen=True, slots=True)
class Skipped:
    """Something that could not be read: where it stands, and why."""

    where: str
    why: str


Found = Talk | Remembered | Skipped


def made(
    source: Source, id_: str, title: str, said: Sequence[Said | Left | None], began_at: int
) -> Talk:
    """A conversation of what was found in it: messages, and why others are left out.

    A message without a time has that of the one before it, the first that of the conversation, and
    none where nothing in it has one; a message without an id is known by what it says.
    """
    at = began_at or next((each.at for each in said if isinstance(each, Said) and each.at), 0)
    found: dict[str, Said] = {}
    left = Counter[Left]()
    for each in said:
        if not isinstance(each, Said):
            left[each or Left.WORDLESS] += 1
            continue
        at = each.at or at
        text = within(well_formed(each.text.replace("\0", "")))
        name = each.id or digest(each.role, str(len(found)), text)
        if name in found:
            left[Left.TWICE] += 1
        else:
            by = harmless(well_formed(each.by))[:MAX_BY]
            found[name] = replace(each, id=name, text=text, at=at, by=by)
    name = id_ or digest(*(each.id for each in found.values()))
    return Talk(source, name, harmless(well_formed(title)), tuple(found.values()), left)


def digest(*parts: str) -> str:
    """Another name for each content."""
    long = "".join(f"{len(part)}:{part}" for part in parts)
    return blake2b(long.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()


def within(text: str) -> str:
    """A text that is not too long, with how much was left out."""
    if len(text) <= MAX_TEXT:
        return text
    return text[:MAX_TEXT] + CUT.format(count=len(text) - MAX_TEXT)


# --- JSON that anybody wrote ----------------------------------------------------------------------


def mapping(value: object) -> Mapping[str, object]:
    """The value if it is an object, else an empty one."""
    return cast("Mapping[str, object]", value) if isinstance(value, dict) else {}


def items(value: object) -> Sequence[object]:
    """The value if it is a list, else an empty one."""
    return cast("Sequence[object]", value) if isinstance(value, list) else ()


def words(value: object) -> str:
    """The value if it is a text, else an empty one."""
    return value if isinstance(value, str) else ""


def text_of(content: object) -> str:
    """The words of a message: a text, or blocks of which some are."""
    if isinstance(content, str):
        return content.strip()
    blocks = [mapping(each) for each in items(content)]
    texts = [words(each.get("text")) for each in blocks if each.get("type") == "text"]
    return "\n\n".join(filter(None, texts)).strip()


def seconds(value: object) -> int:
    """Seconds since the epoch as ms; 0 for what is no time of a chat."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return 0
    return milliseconds(value * 1000) if math.isfinite(value) else 0


def milliseconds(value: object) -> int:
    """Milliseconds since the epoch; 0 for what is no time of a chat."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return 0
    return int(value) if _FIRST_MS <= value < _LAST_MS else 0


def moment(value: object) -> int:
    """A time as ISO 8601 writes it, in ms since the epoch; 0 for what is none of a chat."""
    try:
        found = datetime.fromisoformat(words(value))
    except ValueError:
        return 0
    if found.tzinfo is None:
        found = found.replace(tzinfo=UTC)
    try:
        return milliseconds(found.timestamp() * 1000)
    except (OverflowError, ValueError):
        return 0


# Notes of another program as notes here: taken apart, and marked as imported. Pure.
#
# Each entry, and each other piece of text, gets a mark of its own, `<!-- imported 2026-11-20
# -->`, so that nothing in them is taken for what the person said here. A mark that stands there
# already is made void: it is no other program's to say whose words something is.

# Marks of ours that would say more than is known; one that says less stays.
_FORGED = re.compile(r"<!--\s*(owner|agent|imported)\b")
_TABLE = re.compile(r"^\s*\|")


@dataclass(frozen=True, slots=True)
class Piece:
    """Some lines that belong together; `is_heading` for a heading, which says nothing itself.

    `day` is when it was noted, where it is known of this piece alone.
    """

    text: str
    is_heading: bool = False
    day: str = ""

    @property
    def digest(self) -> str:
        """Another one for other words; marks and other comments beside them do not count."""
        return digest(" ".join((self.words or self.text).split()))

    @property
    def words(self) -> str:
        """Its text without comments."""
        return markdown.plain(self.text).strip()


def pieces(text: str) -> list[Piece]:
    """The pieces of a note, in order: headings, entries, and paragraphs."""
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
    """The number of pieces of a note with text in them."""
    return sum(bool(piece.words) and not piece.is_heading for piece in pieces(text))


def _end(lines: Sequence[str], start: int, entries: Collection[int]) -> int:
    """The end of a piece that is no entry; a fenced one ends with its fence."""
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
    day = piece.day or day
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
