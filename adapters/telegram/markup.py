"""Markdown → the messages Telegram shows: pure."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from adapters.telegram.render import render
from adapters.telegram.runs import Run, between, cut, escape, to_html
from adapters.visible import has_ink

if TYPE_CHECKING:
    from adapters.markdown import Markdown

LIMIT = 4096  # UTF-16 units of one message, counted after Telegram took the tags out
# Bytes of one request's text, tags included; Telegram's server refuses more than 2^15.
MAX_HTML_BYTES = 32_000

# Text in which Markdown changes nothing has none of these: marks, block starts, odd white space.
_MARKED = re.compile(
    r"[\\`*_~\[<&|\r\0\t]"
    r"|^[#>+=:-]|^\d{1,9}[.)]|^ "
    r"| $|\n\n\n",
    re.MULTILINE,
)
_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Piece:
    """One message: as HTML, and the same words without any formatting."""

    html: str
    plain: str


def pieces(markdown: str, limit: int = LIMIT) -> list[Piece]:
    """The messages a Markdown text becomes, in order; none when it has nothing to show.

    Args:
        markdown: CommonMark with tables and strikethrough.
        limit: UTF-16 units one message may have once the tags are taken out.
    """
    runs = parse(markdown)
    flat = "".join(run.text for run in runs)
    spans = cut(flat, limit)
    if len(spans) == 1:
        return [_piece(runs, flat)]
    return [_piece(between(runs, *span), flat[slice(*span)]) for span in spans]


def parse(markdown: str) -> list[Run]:
    """The runs of a Markdown text."""
    text = markdown.strip()
    if not text.isascii():
        text = _SURROGATE.sub("\ufffd", text)  # half a character cannot be sent
    if not _MARKED.search(text):
        return [Run(text)] if text else []
    runs = render(_parser().parse(text))
    # Of an empty quote or fence nothing shows: what it is written as is better than no message.
    is_hidden = has_ink(text) and not any(has_ink(run.text) for run in runs)
    return [Run(text)] if is_hidden else runs


def _piece(runs: Sequence[Run], plain: str) -> Piece:
    html = to_html(runs)
    # A character has at most four bytes, so most texts need no encoding to be known as short.
    if len(html) > MAX_HTML_BYTES // 4 and len(html.encode()) > MAX_HTML_BYTES:
        html = escape(plain)  # tags around every letter: the words matter more
    return Piece(html, plain)


@functools.cache
def _parser() -> Markdown:
    from adapters.markdown import Markdown  # noqa: PLC0415  # most messages never need it

    return Markdown()
