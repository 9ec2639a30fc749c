"""A note as the page shows it: what belongs together, whose words it is, and on which lines. Pure.

Every line of the file can be linked to, whatever stands in it; nothing in a note reaches the page
but through `bot.channel.kit.markdown_html`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from bot.channel.kit.markdown_html import render
from bot.memory import layout, markdown

Whose = Literal["owner", "agent", "imported", "untrusted", "hand"]
DEEPEST = 6  # level of a heading

_DAY = r"\d{4}-\d\d-\d\d"
_MARK = re.compile(
    rf"(?P<day>{_DAY})?(?: ?confirmed {_DAY})?(?:, )?(?:in (?P<path>.+) until (?P<until>{_DAY})|"
    rf"until (?P<struck>{_DAY}), (?P<why>same as|ended by|moved to|let go)(?: (?P<other>.+))?)?"
)
_LEAD = re.compile(r"^ {0,3}[-*+][ \t]+")
_BOX = re.compile(r"\A<p>\[([ xX])\] ")  # of an entry that is a task
_DRAWN_HEADING = re.compile(r"<(/?)h[1-6]>")


@dataclass(frozen=True, slots=True)
class Source:
    """Whose words something is, since when, and until when it was true and where it stood.

    `why` says why it was struck out at night: "same" as, or "moved" to, what stands in `path`;
    empty when it is not true any more.
    """

    whose: Whose
    day: str = ""
    until: str = ""
    path: str = ""
    why: str = ""


@dataclass(frozen=True, slots=True)
class Block:
    """Lines `first` to `last` of a file, from 1, as HTML that needs no further care.

    `level` is that of a heading on the page, 0 for anything else; `is_old` says that it is no
    longer true.
    """

    first: int
    last: int
    html: str
    level: int = 0
    source: Source | None = None
    is_old: bool = False

    @property
    def lines(self) -> range:
        """The numbers of its lines."""
        return range(self.first, self.last + 1)


def blocks(text: str, first: int = 1) -> list[Block]:
    """What a part of a note that begins at line `first` is made of, in order."""
    marked = text.split("\n")
    shown = _uncommented(text).split("\n")
    drawn: list[Block] = []
    level = 1
    for start, end, is_entry in _pieces(shown):
        words, raw = shown[start:end], marked[start:end]
        place = (start + first, end + first - 1)
        heading = None if is_entry else markdown.HEADING.match(words[0])
        if heading is not None:
            # Levels are never left out, whatever the note does: a reader goes by them.
            level = min(level + 1, len(heading["level"]) + 1, DEEPEST)
            drawn.append(Block(*place, _inline(heading["title"]), level))
            continue
        source = _source(raw, is_entry=is_entry)
        body = _dedented(words) if is_entry else "\n".join(words)
        old = is_entry and (bool(source and source.until) or _is_struck(body))
        html = _BOX.sub(_ticked, _html(body)) if is_entry else _html(body)
        drawn.append(Block(*place, html, 0, source, old))
    return drawn


def source_of(line: str) -> Source | None:
    """Whose words an entry is, by the mark on its first line; None when it has none."""
    by, _, about = markdown.mark_of(line).partition(" ")
    whose: Whose
    match by:
        case "owner" | "agent" | "imported" | "untrusted":
            whose = by
        case _:
            return None
    found = _MARK.fullmatch(about.strip(", "))
    if found is None:
        return Source(whose)
    path = found["path"] or found["other"] or ""
    until = found["until"] or found["struck"] or ""
    why = {"same as": "same", "moved to": "moved"}.get(found["why"] or "", "")
    return Source(whose, found["day"] or "", until, path if layout.is_note(path) else "", why)


def _source(raw: Sequence[str], *, is_entry: bool) -> Source | None:
    """Whose words some lines are: an entry's mark is on its first one, a section's on any."""
    if is_entry:
        return source_of(raw[0]) or Source("hand")
    return next((found for line in raw if (found := source_of(line))), None)


def _pieces(lines: Sequence[str]) -> Iterator[tuple[int, int, bool]]:
    """Where entries, headings and what stands between them begin and end, and whether an entry."""
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


def _uncommented(text: str) -> str:
    """The text without comments, with as many lines: what is not closed is no comment."""
    parts: list[str] = []
    at = 0
    while (start := text.find("<!--", at)) >= 0 and (end := text.find("-->", start + 4)) >= 0:
        parts += [text[at:start].rstrip(" \t"), "\n" * text.count("\n", start, end)]
        at = end + len("-->")
    return "".join([*parts, text[at:]])


def _dedented(lines: Sequence[str]) -> str:
    """An entry without its bullet, its further lines moved to the left with it."""
    lead = _LEAD.match(lines[0])
    width = lead.end() if lead else 0
    rest = (line[min(width, len(line) - len(line.lstrip())) :] for line in lines[1:])
    return "\n".join([lines[0][width:], *rest])


def _is_struck(body: str) -> bool:
    return not markdown.entry_words(body) and "~~" in body


def _html(body: str) -> str:
    """Words of a note; a heading inside is none of the page's."""
    return _DRAWN_HEADING.sub(r"<\1p>", render(body, rich=True))


def _ticked(box: re.Match[str]) -> str:
    return f"<p>{'☐' if box[1] == ' ' else '☑'} "


def _inline(title: str) -> str:
    """The words of a heading, without the paragraph around them."""
    return re.sub(r"</?(?:p|ul|ol|li|blockquote|pre|hr)[^>]*>", "", _html(title)).strip()
