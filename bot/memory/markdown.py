"""Entries in Markdown files: making, finding, marking and replacing them. Pure.

An entry is one bullet with the indented lines below it. Whoever it comes from stands in an HTML
comment at the end of its first line, which no Markdown viewer shows: `<!-- owner -->` for what the
person said, `<!-- agent -->` for what the bot concluded, `<!-- untrusted -->` for what came from
elsewhere, `<!-- imported -->` for what another program had noted and the owner brought here. What
people write by hand has no such mark and counts as their own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from itertools import islice
from typing import Literal

from bot.storage.fulltext import folded

Provenance = Literal["owner", "agent", "imported", "untrusted"]
Span = tuple[int, int]  # characters from, and up to but not including

SHOWN: Mapping[str, str] = {"owner": "said", "agent": "concluded", "imported": "imported"}
NOTED = "noted"  # by hand
_SEAL = "\ue0ff"  # between an entry and its mark, while comments are taken out

_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1f\x7f]")
_BREAKS = re.compile(r"[\r\n\x0b\x0c\x85\u2028\u2029]+")
_MARK = re.compile(r"<!--\s*(?P<by>owner|agent|imported|untrusted)\b[^<>]*-->\s*$")
_MARK_AT_END = re.compile(
    r"(?<![ \t])[ \t]*<!--[ \t]*(?P<by>owner|agent|imported)\b[ \t]*+(?P<day>(?:\d{4}-\d\d-\d\d)?)"
    r"[^<>\n]*-->[ \t]*$",
    re.MULTILINE,
)
_SHOWN_AT_END = re.compile(
    rf" \((?:{'|'.join(SHOWN.values())}|{NOTED})(?:(?:, confirmed)? \d{{4}}-\d\d-\d\d){{0,2}}\)$",
    re.MULTILINE,
)
_UNTRUSTED = re.compile(r"<!--\s*untrusted\b[^<>]*-->")
_BULLET = re.compile(r"^(?P<lead>[ ]{0,3}[-*+][ \t]++)(?P<text>.*)$")
_CLOCK = re.compile(r"^\d{1,2}:\d{2}\s+")
HEADING = re.compile(r"^(?P<level>#{1,6})[ \t]++(?P<title>.*)$")
FENCE = re.compile(r"^ {0,3}(```+|~~~+)")
_NOT_WORD = re.compile(r"[\W_]+")


@dataclass(frozen=True, slots=True)
class Item:
    """An entry of a file: its lines from `start` up to, not including, `end`, counted from 0."""

    start: int
    end: int
    text: str


@dataclass(frozen=True, slots=True)
class Changed:
    """A file after a change: where the new words stand (from 1), and what stood there before."""

    text: str
    line: int
    old: str


@dataclass(frozen=True, slots=True)
class Match:
    """An entry that holds the words: its first and last line, from 1, and what it says."""

    first: int
    last: int
    text: str


def bullet(
    text: str, now: datetime, by: Provenance | None = None, *, about: str = "", struck: bool = False
) -> str:
    """Text as one entry of a daily note, with the time; further lines are indented below it."""
    return _entry(f"{now:%H:%M} ", text, _mark(by, about), struck=struck)


def fact(text: str, day: date, by: Provenance | None = None) -> str:
    """Text as one entry of a file that is not a day's note; the date is kept in the mark."""
    return _entry("", text, _mark(by, f"{day:%Y-%m-%d}"), struck=False)


def plain(text: str) -> str:
    """The text without comments, marks among them, and the spaces before each.

    Piece by piece, because one long step lets no other thread go on.
    """
    head, *rest = text.split("<!--")
    parts, opened = [head], list[str]()
    for piece in rest:
        # Within a comment another beginning may be a part of its end: "<!-- <!--->".
        _, closed, after = (f"<!--{piece}" if opened else piece).partition("-->")
        opened.append(piece)
        if closed:
            parts[-1] = parts[-1].rstrip(" \t")
            parts.append(after)
            opened.clear()
    return "".join([*parts, *(f"<!--{piece}" for piece in opened)])


def attributed(text: str) -> tuple[str, tuple[Span, ...]]:
    """The text without comments, in which marks have become words: "(said 2026-07-01)".

    Also where in it the bot's conclusions stand, and what was imported, each with the end of its
    last line, the oldest first; one without a date counts as older than any other.
    """
    sealed = _MARK_AT_END.sub(rf"{_SEAL}\g<by> \g<day>", text.replace(_SEAL, ""))
    lines = plain(sealed).split("\n")
    ends = {item.start: item.end for item in items("\n".join(lines))}
    shown: list[str] = []
    starts: list[int] = [0]
    concluded: list[tuple[str, int]] = []
    for number, line in enumerate(lines):
        words, sealed_by, mark = line.partition(_SEAL)
        by, _, day = mark.partition(" ")
        shown.append(f"{words} ({f'{SHOWN[by]} {day}'.strip()})" if sealed_by else line)
        starts.append(starts[-1] + len(shown[-1]) + 1)
        if by in {"agent", "imported"} and number in ends:
            concluded.append((day, number))
    whole = "\n".join(shown)
    spans = (
        (starts[start], min(starts[ends[start]], len(whole))) for _, start in sorted(concluded)
    )
    return whole, tuple(spans)


def unattributed(text: str) -> str:
    """The text without the words that `attributed` put behind entries."""
    return _SHOWN_AT_END.sub("", text)


def readable(text: str) -> str:
    """The text without marks; what came from elsewhere says so."""
    lines = [
        f"(from an untrusted source) {line}" if is_untrusted(line) else line
        for line in text.split("\n")
    ]
    return plain("\n".join(lines))


def says_nothing(text: str) -> bool:
    """True if a text holds only headings and comments."""
    lines = plain(text).splitlines()
    return all(not line.strip(" …") or line.startswith("#") for line in lines)


def without_untrusted(text: str) -> str:
    """The text without entries, and other lines, that are marked as untrusted."""
    lines = text.split("\n")
    drop = {
        number
        for item in items(text)
        if _UNTRUSTED.search(lines[item.start])
        for number in range(item.start, item.end)
    }
    kept = (
        line
        for number, line in enumerate(lines)
        if number not in drop and not _UNTRUSTED.search(line)
    )
    return "\n".join(kept)


def is_untrusted(line: str) -> bool:
    """True if a line is marked as untrusted."""
    return bool(_UNTRUSTED.search(line))


def untrusted_lines(text: str) -> list[str]:
    """Every line that `without_untrusted` leaves out."""
    lines = text.split("\n")
    found = [line for line in lines if _UNTRUSTED.search(line)]
    for item in items(text):
        if _UNTRUSTED.search(lines[item.start]):
            found.extend(lines[item.start + 1 : item.end])
    return [line for line in found if line.strip()]


def parted(passage: str, untrusted: Sequence[str]) -> tuple[str, list[str]]:
    """A passage without the lines that are, or are part of, what came from elsewhere; and those."""
    others = "\n".join(untrusted)
    kept: list[str] = []
    left: list[str] = []
    for line in passage.split("\n"):
        core = line.strip(" …")
        (left if core and core in others else kept).append(line)
    return "\n".join(kept), left


def items(text: str) -> Iterator[Item]:
    """The entries of a file, in order."""
    lines = text.split("\n")
    number, fenced = 0, False
    while number < len(lines):
        fenced ^= bool(FENCE.match(lines[number]))
        found = None if fenced else _BULLET.match(lines[number])
        start = number
        number += 1
        if found is None:
            continue
        while (after := _following(lines, number)) < len(lines) and _continues(lines[after]):
            number = after + 1
        body = [found["text"], *lines[start + 1 : number]]
        yield Item(start, number, "\n".join(line.strip() for line in body))


def entry_around(lines: Sequence[str], number: int) -> Item | None:
    """The first line of the entry that a line, from 0, belongs to; None when it is in none."""
    for start in range(number, -1, -1):
        if _is_top_bullet(lines[start]):
            found = _BULLET.match(lines[start])
            return Item(start, start + 1, found["text"] if found else "")
        if lines[start].strip() and not _continues(lines[start]):
            break
    return None


def says(text: str, words: str, *, trusted: bool = False) -> int:
    """The line, from 1, of the entry that says exactly these words, or 0.

    With `trusted` what is marked as untrusted does not count.
    """
    wanted = normal(words)
    for item in items(text):
        if wanted and entry_words(item.text) == wanted:
            if trusted and is_untrusted(item.text.partition("\n")[0]):
                continue
            return item.start + 1
    return 0


def headings(lines: Iterable[str]) -> Iterator[tuple[int, int, str]]:
    """The line, from 0, of each heading, its level and its title; in code there are none."""
    fenced = False
    for number, line in enumerate(lines):
        fenced ^= bool(FENCE.match(line))
        heading = None if fenced else HEADING.match(line)
        if heading is not None:
            yield number, len(heading["level"]), heading["title"]


def unlisted(line: str) -> str:
    """A line without the bullet that it begins with."""
    found = _BULLET.match(line)
    return found["text"] if found else line


def clock(text: str) -> str:
    """The time of day that an entry's text begins with, "HH:MM"; empty when it does not."""
    found = _CLOCK.match(text)
    return f"{found.group().strip():0>5}" if found is not None else ""


def untimed(text: str) -> str:
    """An entry's text without the time of day that it begins with."""
    return _CLOCK.sub("", text)


def entry_words(text: str) -> str:
    """An entry's words, without its mark and time, for comparing; nothing if it is struck out."""
    return "" if is_struck(text) else normal(untimed(plain(text).strip()))


def is_struck(text: str) -> bool:
    """True for an entry that was struck out: it is not true any more."""
    return untimed(plain(text).strip()).startswith("~~")


def normal(text: str) -> str:
    """Words for comparing: no case, no punctuation, single spaces."""
    return _NOT_WORD.sub(" ", text.casefold()).strip()


def supersede(text: str, old: str, new: str) -> Changed:
    """Put the entry `new` in the place of the one that says `old`.

    Raises:
        LookupError: no entry says that; or, with a number above 1, so many do.
    """
    wanted = normal(untimed(plain(old).strip().lstrip("-*+ ")))
    entries = list(items(text))
    exact = [item for item in entries if wanted and entry_words(item.text) == wanted]
    near = [item for item in entries if wanted and f" {wanted} " in f" {entry_words(item.text)} "]
    found = exact or near
    if len(found) != 1:
        raise LookupError(len(found))
    item, lines = found[0], text.split("\n")
    end = item.end
    while end > item.start + 1 and not lines[end - 1].strip():
        end -= 1  # blank lines behind an entry stay
    before = "\n".join(lines[item.start : end])
    lines[item.start : end] = new.rstrip("\n").split("\n")
    return Changed("\n".join(lines), item.start + 1, before)


def replace_section(text: str, title: str, body: str, mark: str) -> Changed:
    """Put `body` below the heading `title`, in the place of what stood there; made if missing."""
    lines = text.split("\n")
    place = _section(lines, title)
    if place is None:
        lead = text.rstrip("\n")
        head = f"{lead}\n\n" if lead else ""
        before = f"{head}## {one_line(title)}\n\n"
        return Changed(f"{before}{_body(body, 2, mark)}\n", before.count("\n") + 1, "")
    start, end, level = place
    old = "\n".join(lines[start + 1 : end]).strip("\n")
    following = ["", *lines[end:]] if end < len(lines) else [""]
    changed = [*lines[: start + 1], "", *_body(body, level, mark).split("\n"), *following]
    return Changed("\n".join(changed), start + 3, old)


def holding(text: str, words: str, most: int | None = None) -> list[Match]:
    """The first entries of a file that hold these words; none for words that are white space.

    An entry is a bullet with the lines that belong to it; any other line stands for itself. Words
    match literally, without regard to case and spacing, so that what goes is what was shown.
    """
    wanted = folded(words)
    if not wanted:
        return []
    found = (match for match in _entries(text) if wanted in folded(match.text))
    return list(islice(found, most))


def without_words(text: str, words: str) -> str:
    """The file without the entries that hold these words; the rest stays byte for byte."""
    gone = {
        number for match in holding(text, words) for number in range(match.first, match.last + 1)
    }
    lines = text.split("\n")
    return "\n".join(line for number, line in enumerate(lines, start=1) if number not in gone)


def mark_of(text: str) -> str:
    """The text of the mark of an entry's first line, without its frame; empty when it has none."""
    found = _MARK.search(text.split("\n", 1)[0])
    return found.group().strip("<!->\n ") if found else ""


def one_line(text: str) -> str:
    """A text as one line that can frame nothing."""
    return " ".join(_safe(text).split())


def section_mark(by: Provenance, day: date) -> str:
    """The mark of a section that was written as a whole."""
    return _mark(by, f"{day:%Y-%m-%d}")


def _mark(by: Provenance | None, about: str = "") -> str:
    return "" if by is None else f" <!-- {f'{by} {about}'.strip()} -->"


def _entry(lead: str, text: str, mark: str, *, struck: bool) -> str:
    lines = [_safe(line).rstrip() for line in _BREAKS.sub(_break, text.strip()).split("\n")]
    if struck:
        lines = [f"~~{line.strip()}~~" if line.strip() else "" for line in lines]
    first, *rest = lines
    indented = [f"  {line}" if line else "" for line in rest]
    return "\n".join([f"- {lead}{first}{mark}", *indented]) + "\n"


def _break(found: re.Match[str]) -> str:
    """One kind of line break; blank lines stay when they were made of the usual ones."""
    return "\n" * max(1, found.group().replace("\r\n", "\n").count("\n"))


def _safe(text: str) -> str:
    """Without control characters, and with nothing that begins or ends a comment."""
    return _CONTROL.sub("", text).replace("<!--", "<!- -").replace("-->", "- ->")


def _following(lines: list[str], number: int) -> int:
    """The next line, from `number` on, that is not blank; as many as there are when all are."""
    while number < len(lines) and not lines[number].strip():
        number += 1
    return number


def _continues(line: str) -> bool:
    """True if a line is indented and belongs to the entry above it, blank lines between or not."""
    return line.startswith(("  ", "\t")) and not _is_top_bullet(line)


def _is_top_bullet(line: str) -> bool:
    return bool(_BULLET.match(line)) and not line.startswith("  ")


def _section(lines: list[str], title: str) -> tuple[int, int, int] | None:
    """The lines of a section's heading and of the next one, and the section's level."""
    wanted, start, level = normal(title), -1, 0
    for number, found, words in headings(lines):
        if start >= 0 and found <= level:
            return start, number, level
        if start < 0 and normal(plain(words)) == wanted:
            start, level = number, found
    return (start, len(lines), level) if start >= 0 else None


def _body(body: str, level: int, mark: str) -> str:
    """A section's text: no heading in it ends it; the mark is on its first line and each entry."""
    lines = [_safe(line).rstrip() for line in _BREAKS.sub(_break, body.strip()).split("\n")]
    for number, line in enumerate(lines):
        heading = HEADING.match(line)
        if heading and len(heading["level"]) <= level:
            lines[number] = f"\\{line}"
    for number in {0, *(item.start for item in items("\n".join(lines)))}:
        lines[number] += mark
    return "\n".join(lines)


def _entries(text: str) -> Iterator[Match]:
    lines = text.split("\n")
    taken = 0
    for item in items(text):
        yield from _single(lines, taken, item.start)
        yield Match(item.start + 1, item.end, "\n".join(lines[item.start : item.end]))
        taken = item.end
    yield from _single(lines, taken, len(lines))


def _single(lines: list[str], start: int, end: int) -> Iterator[Match]:
    for number in range(start, end):
        if lines[number].strip():
            yield Match(number + 1, number + 1, lines[number])
