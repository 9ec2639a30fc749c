"""The Markdown parser of the channels that render: CommonMark with tables and strikethrough.

Its work grows with the length of a text, whatever the text is. Every "[" makes a parser look for
its "]" up to the end of the paragraph; here brackets that open and open are plain text once too
much time went into looking for their ends.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.parser_inline import ParserInline
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token

STEPS_PER_CHARACTER = (
    4  # of looking ahead for the end of a link; what people write takes one or two
)
SPARE_STEPS = 256  # for short texts
MAX_NESTING = 100  # quotes in quotes, lists in lists


class Markdown(MarkdownIt):
    """A parser without HTML; `breaks` keeps line breaks."""

    def __init__(self, *, breaks: bool = False) -> None:
        super().__init__()
        self.inline = _BoundedInline()
        self.configure("commonmark", {"html": False, "breaks": breaks, "maxNesting": MAX_NESTING})
        self.enable(["table", "strikethrough"])

    def parse(self, src: str, env: MutableMapping[str, Any] | None = None) -> list[Token]:
        """The tokens of a text."""
        environment: MutableMapping[str, Any] = {} if env is None else env
        environment["ahead"] = STEPS_PER_CHARACTER * len(src) + SPARE_STEPS
        return super().parse(src, environment)


class _BoundedInline(ParserInline):
    """Looks ahead no longer than there is reason to."""

    def skipToken(self, state: StateInline) -> None:  # noqa: N802 - the parser's own name
        state.env["ahead"] -= 1
        if state.env["ahead"] > 0:
            super().skipToken(state)
        else:
            state.pos = state.posMax
