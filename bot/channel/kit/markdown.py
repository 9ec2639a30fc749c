r"""The Markdown parser of the channels that render: CommonMark, tables, strikethrough, formulas.

Its work grows with the length of a text, whatever the text is. Every "[" makes a parser look for
its "]" up to the end of the paragraph; here brackets that open and open are plain text once too
much time went into looking for their ends.

Of formulas, `$…$` and `\(…\)` stand in a line, `$$…$$` and `\[…\]` by themselves. Prices and
variables of a shell stay as they were written.

A footnote is `[^1]: …` at the start of a line, goes on in lines that are indented, and is moved to
the end; `[^1]` refers to it. Those that nothing refers to come last.
"""

from __future__ import annotations

import re
from collections.abc import Callable, MutableMapping
from functools import partial
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.parser_inline import ParserInline
from markdown_it.rules_block import StateBlock
from markdown_it.rules_core import StateCore
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token

STEPS_PER_CHARACTER = 4  # of looking ahead for a link's end; what people write takes one or two
SPARE_STEPS = 256  # for short texts
MAX_NESTING = 100  # quotes in quotes, lists in lists
MOST_FORMULA = 1_000  # characters of one formula
MOST_LINES = 40  # of one that stands by itself

# A formula with its signs, and the environment of `parse` → the content of its token; empty for one
# that is left as it is.
Drawing = Callable[[str, MutableMapping[str, Any]], str]

# What defines something, so that a short formula could become a long one, or leads elsewhere.
_REFUSED = re.compile(
    r"\\(?:re|provide)?newcommand|\\provide|\\[egx]?def|\\let|\\href|\\verb|\\style|\\class|`|\$"
)
_SIGNS = re.compile(r"[\\^_]")
_LETTERS = re.compile(r"[^\W\d_]+")
_FOREIGN = re.compile(r"[^\x00-\u024f\u0370-\u03ff\u1f00-\u2bff]")  # no letter of formulas
_NOTE = re.compile(r"\[\^([^\s\[\]^]{1,32})\]")
_ENDS = {"$$": "$$", "$": "$", "\\(": "\\)", "\\[": "\\]"}


class Markdown(MarkdownIt):
    """A parser without HTML; `breaks` keeps line breaks, and with `maths` it finds formulas.

    With `notes` it finds footnotes: a reference is a token "note" whose content is its number.
    """

    def __init__(
        self, *, breaks: bool = False, maths: Drawing | None = None, notes: bool = False
    ) -> None:
        super().__init__()
        self.inline = _BoundedInline()
        self.configure("commonmark", {"html": False, "breaks": breaks, "maxNesting": MAX_NESTING})
        self.enable(["table", "strikethrough"])
        if maths is not None:
            self.inline.add_terminator_char("$")
            self.inline.ruler.before("escape", "maths", partial(_inline, maths))
            ends = ["paragraph", "reference", "blockquote", "list"]
            self.block.ruler.before("fence", "maths", partial(_block, maths), {"alt": ends})

        if notes:
            self.inline.ruler.before("link", "note", _note)
            ends = ["paragraph", "reference"]
            self.block.ruler.before("reference", "note", _noted, {"alt": ends})
            self.core.ruler.after("inline", "notes", _notes_last)

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


def reads_as_maths(source: str) -> bool:
    """False for what more probably is a price, a name or a sentence between two signs."""
    if not source.strip() or len(source) > MOST_FORMULA or _REFUSED.search(source):
        return False
    if _SIGNS.search(source):
        return True
    if _FOREIGN.search(source):
        return False
    longest = max(map(len, _LETTERS.findall(source)), default=0)
    if longest > 1 and re.search(r"\s", source):
        return longest <= 3 and "=" in source
    return longest <= 3


def _inline(draw: Drawing, state: StateInline, silent: bool) -> bool:  # noqa: FBT001 - as it is called
    begin = state.pos
    opening = next((each for each in _ENDS if state.src.startswith(each, begin)), "")
    if not opening:
        return False
    first, closing = begin + len(opening), _ENDS[opening]
    last = state.src.find(closing, first, min(first + MOST_FORMULA, state.posMax))
    source = state.src[first : max(first, last)]
    if not reads_as_maths(source) or (opening == "$" and not _is_tight(state.src, begin, last)):
        return False
    end = last + len(closing)
    drawn = draw(state.src[begin:end], state.env)
    if not silent and drawn:
        state.push("maths", "math", 0).content = drawn
    elif not silent:
        state.pending += state.src[begin:end]  # as it was written
    state.pos = end
    return True


def _is_tight(src: str, begin: int, end: int) -> bool:
    """True for a pair of single signs that no price and no variable has."""
    before, after = src[begin - 1 : begin], src[end + 1 : end + 2]
    inner = src[begin + 1 : end]
    outside = (before + after).replace("_", "a")
    return (
        bool(inner)
        and not inner[0].isspace()
        and not inner[-1].isspace()
        and "\n" not in inner
        and not any(each.isascii() and (each.isalnum() or each in "\\$") for each in outside)
        and "://" not in src[src.rfind(" ", max(0, begin - 200), begin) + 1 : begin]
    )


def _block(draw: Drawing, state: StateBlock, first: int, end: int, silent: bool) -> bool:  # noqa: FBT001
    begin = state.bMarks[first] + state.tShift[first]
    opening = state.src[begin : begin + 2]
    if opening not in {"$$", "\\["} or state.is_code_block(first):
        return False
    found = _lines(state, first, min(end, first + MOST_LINES), opening)
    source = "\n".join(found)
    if not reads_as_maths(source):
        return False
    drawn = draw(opening + source + _ENDS[opening], state.env)
    if drawn and not silent:
        state.line = first + len(found)
        state.push("paragraph_open", "p", 1).map = [first, state.line]
        state.push("maths", "math", 0).content = drawn
        state.push("paragraph_close", "p", -1)
    return bool(drawn)


def _lines(state: StateBlock, first: int, end: int, opening: str) -> list[str]:
    """The lines of a formula that stands by itself; none when it is not closed at their end."""
    found: list[str] = []
    for line in range(first, end):
        start = state.bMarks[line] + state.tShift[line] + (2 if line == first else 0)
        words, closed, after = state.src[start : state.eMarks[line]].partition(_ENDS[opening])
        if closed:
            return [] if after.strip() else [*found, words]
        is_outside = line > first and (not words.strip() or state.sCount[line] < state.blkIndent)
        if is_outside or opening in words:
            return []
        found.append(words)
    return []


def _note(state: StateInline, silent: bool) -> bool:  # noqa: FBT001 - as it is called
    """A reference to a footnote there is."""
    found = _NOTE.match(state.src, state.pos, state.posMax)
    numbers: dict[str, int] = state.env.get("notes", {})
    if found is None or found[1] not in numbers:
        return False
    if not silent:
        if not numbers[found[1]]:
            numbers[found[1]] = state.env["noted"] = 1 + state.env.get("noted", 0)
        state.push("note", "sup", 0).content = str(numbers[found[1]])
    state.pos = found.end()
    return True


def _noted(state: StateBlock, first: int, end: int, silent: bool) -> bool:  # noqa: FBT001
    """A footnote; the first of a name counts."""
    begin = state.bMarks[first] + state.tShift[first]
    found = _NOTE.match(state.src, begin, state.eMarks[first])
    if found is None or state.src[found.end() : found.end() + 1] != ":":
        return False
    numbers: dict[str, int] = state.env.setdefault("notes", {})
    if found[1] in numbers or state.is_code_block(first):
        return False
    if silent:
        return True
    numbers[found[1]] = 0
    words = [state.src[found.end() + 1 : state.eMarks[first]].strip()]
    state.line = first + 1
    while state.line < end and state.sCount[state.line] >= state.blkIndent + 2:
        line = state.src[state.bMarks[state.line] : state.eMarks[state.line]].strip()
        if not line:
            break
        words.append(line)
        state.line += 1
    state.push("list_item_open", "li", 1).meta = {"note": found[1]}
    inline = state.push("inline", "", 0)
    inline.content, inline.children, inline.map = "\n".join(words), [], [first, state.line]
    state.push("list_item_close", "li", -1)
    return True


def _notes_last(state: StateCore) -> None:
    """Put the footnotes at the end, in the order of their numbers."""
    numbers: dict[str, int] = state.env.get("notes", {})
    notes: list[tuple[int, list[Token]]] = []
    kept: list[Token] = []
    tokens = iter(state.tokens)
    for token in tokens:
        if name := token.meta.get("note"):
            notes.append((numbers[name] or len(state.tokens), [token, next(tokens), next(tokens)]))
        else:
            kept.append(token)
    if notes:
        notes.sort(key=lambda note: note[0])
        listed = (token for _, each in notes for token in each)
        opening, closing = (
            Token("ordered_list_open", "ol", 1, block=True),
            Token("ordered_list_close", "ol", -1, block=True),
        )
        state.tokens = [*kept, Token("hr", "hr", 0, block=True), opening, *listed, closing]
