"""Markdown of which nothing would show, and the same text so that all of it does: pure.

"[docs]: https://…", ">", "#" and an empty fence are whole answers now and then; what they are
written as is better than nothing.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from markdown_it.token import Token

    from adapters.markdown import Markdown

# A text whose first line begins with a letter or a digit shows at least that line.
_PLAIN = re.compile(r"\s*[^\W_]")
_MARKS = re.compile(r"[\\`*_~|<&\[!]")
_FIRST = re.compile(r"^(\s*)([#>+=-])", re.MULTILINE)


def shows(markdown: str) -> bool:
    """True when something of a Markdown text is seen by whoever reads it rendered."""
    return bool(_PLAIN.match(markdown)) or any(map(_is_seen, _parser().parse(markdown)))


def seen(markdown: str) -> str:
    """A Markdown text of which something shows: as it is, or so that it shows as it is written."""
    return markdown if shows(markdown) or not has_ink(markdown) else literal(markdown)


def literal(markdown: str) -> str:
    """Markdown that shows a text as it is written."""
    return _FIRST.sub(r"\1\\\2", _MARKS.sub(r"\\\g<0>", markdown))


def _is_seen(token: Token) -> bool:
    if token.type in {"hr", "list_item_open"}:
        return True
    if token.children:
        return _has_words(token.children)
    return token.type != "inline" and has_ink(token.content)


def _has_words(tokens: Sequence[Token]) -> bool:
    return any(token.type == "image" or has_ink(token.content) for token in tokens)


def has_ink(text: str) -> bool:
    """True when a text has a character that is seen."""
    return any(char.isprintable() and not char.isspace() for char in text)


@functools.cache
def _parser() -> Markdown:
    from adapters.markdown import Markdown  # noqa: PLC0415  # most messages never need it

    return Markdown()
