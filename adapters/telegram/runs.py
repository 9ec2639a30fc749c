"""Formatted text as runs (a piece of text and the tags it stands in), and cutting it: pure.

Runs are what gets cut, so a tag or a code block that is cut is closed in one message and opened
again in the next.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

MAX_CLUSTER = 32  # code points of one visible character that are looked at

_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;"})


@dataclass(frozen=True, slots=True)
class Tag:
    """An HTML tag with the one attribute it may have; `serial` keeps neighbours apart."""

    name: str
    value: str = ""  # the href of a link, or the language of a code block
    serial: int = 0

    @property
    def opening(self) -> str:
        """The tag, or tags, as they begin."""
        if self.name == "a":
            return f'<a href="{escape(self.value)}">'
        if self.name == "pre" and self.value:
            return f'<pre><code class="language-{escape(self.value)}">'
        return f"<{self.name}>"

    @property
    def closing(self) -> str:
        """The tag, or tags, as they end."""
        return "</code></pre>" if self.name == "pre" and self.value else f"</{self.name}>"


@dataclass(frozen=True, slots=True)
class Run:
    """Text in one set of tags, outermost first."""

    text: str
    tags: tuple[Tag, ...] = ()


def escape(text: str) -> str:
    """Text as HTML that shows the same."""
    return text.translate(_ESCAPES)


def units(text: str) -> int:
    """The length of a text as Telegram counts it: UTF-16 code units."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def shared(left: Sequence[Tag], right: Sequence[Tag]) -> int:
    """How many tags two stacks have in common, from the outside."""
    count = 0
    for one, other in zip(left, right, strict=False):
        if one != other:
            break
        count += 1
    return count


def to_html(runs: Sequence[Run]) -> str:
    """Runs as Telegram HTML, every tag closed."""
    out: list[str] = []
    opened: tuple[Tag, ...] = ()
    for run in runs:
        kept = shared(opened, run.tags)
        out.extend(tag.closing for tag in reversed(opened[kept:]))
        out.extend(tag.opening for tag in run.tags[kept:])
        out.append(escape(run.text))
        opened = run.tags
    out.extend(tag.closing for tag in reversed(opened))
    return "".join(out)


def between(runs: Sequence[Run], start: int, stop: int) -> list[Run]:
    """The runs, or parts of them, that stand between two places of the whole text."""
    found: list[Run] = []
    at = 0
    for run in runs:
        text = run.text[max(0, start - at) : max(0, stop - at)]
        if text:
            found.append(Run(text, run.tags))
        at += len(run.text)
        if at >= stop:
            break
    return found


def cut(text: str, limit: int) -> list[tuple[int, int]]:
    """Where to cut a text into spans of at most `limit` UTF-16 units, without blank spans.

    It cuts at a line break, else at a space, else between any two characters; the one it cuts at
    is dropped.
    """
    spans: list[tuple[int, int]] = []
    start, end = 0, len(text)
    while start < end:
        stop = _reach(text, start, limit)
        if stop < end:
            stop = _break(text, start, stop)
        if text[start:stop].strip():
            spans.append((start, stop))
        start = stop + 1 if stop < end and text[stop] in "\n " else stop
    return spans


def _reach(text: str, start: int, limit: int) -> int:
    """How far a span from `start` can go within `limit` units: at least one character."""
    stop = min(len(text), start + limit)
    over = units(text[start:stop]) - limit
    while over > 0:
        # A character is at most two units, so this many have to go at least.
        stop -= (over + 1) // 2
        over = units(text[start:stop]) - limit
    return max(stop, start + 1)


def _break(text: str, start: int, stop: int) -> int:
    """A good place to cut at or before `stop`, but not in the first half: small messages tire."""
    half = start + (stop - start) // 2
    for mark in "\n ":
        at = text.rfind(mark, half, stop + 1)
        if at > half:
            return at
    return _whole(text, start, stop)


def _whole(text: str, start: int, stop: int) -> int:
    """The place, moved back so that it does not fall inside one visible character."""
    for at in range(stop, max(start, stop - MAX_CLUSTER), -1):
        if not _continues(text, at):
            return at
    return stop


def _continues(text: str, at: int) -> bool:
    """Whether the character there belongs to the one before it."""
    here, before = text[at], text[at - 1]
    if here.isascii():
        return False
    if "\u200d" in {here, before} or "\ufe00" <= here <= "\ufe0f" or unicodedata.combining(here):
        return True
    if "\U0001f3fb" <= here <= "\U0001f3ff":  # skin tones
        return True
    flags = 0  # a flag is two letters, so it depends on how many stand before
    while flags <= at and "\U0001f1e6" <= text[at - flags] <= "\U0001f1ff":
        flags += 1
    return flags > 0 and flags % 2 == 0
