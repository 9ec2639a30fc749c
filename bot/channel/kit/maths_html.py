r"""Formulas in a Markdown text, as MathML that the browser draws and reads aloud.

`$…$` and `\(…\)` stand in a line, `$$…$$` and `\[…\]` by themselves. Prices, variables of a
shell and whatever cannot be read stay as they were written. Nothing of the library is loaded before
there is a formula.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import MutableMapping, Sequence
from functools import lru_cache
from html import escape
from typing import Any

import structlog
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.rules_block import StateBlock
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token
from markdown_it.utils import OptionsDict

MOST_FORMULA = 1_000  # characters of one …
MOST_MATHS = 20_000  # … and of all in one text
MOST_DRAWN = 60  # characters that one of them may become
MOST_LINES = 40  # of one that stands by itself
DEEPEST = 24  # braces in braces
KEPT = 256  # formulas: a reply that grows is drawn anew for each of its pieces

TAGS = (
    frozenset({"math", "mrow", "mi", "mn", "mo", "mtext", "mspace", "mstyle", "mpadded"})
    | {"mfrac", "msqrt", "mroot", "msub", "msup", "msubsup", "munder", "mover", "munderover"}
    | {"mtable", "mtr", "mtd", "mphantom"}
)
# Lengths are short ones: a formula takes no more room than its lines.
_LENGTH = r"-?\d{1,2}(?:\.\d{1,4})?(?:em|ex|px|pt|mu|%)?"
_WORD = r"[a-z]{1,20}"
_VALUES = {
    "display": _WORD,
    "alttext": rf"[\s\S]{{0,{MOST_FORMULA}}}",
    "stretchy": _WORD,
    "fence": _WORD,
    "form": _WORD,
    "separator": _WORD,
    "accent": _WORD,
    "largeop": _WORD,
    "movablelimits": _WORD,
    "displaystyle": _WORD,
    "mathvariant": r"[a-z-]{1,30}",
    "scriptlevel": r"[+-]?\d",
    "linethickness": _LENGTH,
    "width": _LENGTH,
    "lspace": _LENGTH,
    "rspace": _LENGTH,
    "minsize": _LENGTH,
    "maxsize": _LENGTH,
    "columnalign": r"[a-z ]{1,40}",
}
ATTRIBUTES = {
    "math": frozenset({"display", "alttext"}),
    "mi": frozenset({"mathvariant"}),
    "mo": frozenset({"stretchy", "fence", "form", "separator", "accent", "largeop"})
    | {"movablelimits", "lspace", "rspace", "minsize", "maxsize", "mathvariant"},
    "mstyle": frozenset({"displaystyle", "scriptlevel"}),
    "mspace": frozenset({"width"}),
    "mpadded": frozenset({"width", "lspace"}),
    "mfrac": frozenset({"linethickness"}),
    "mtable": frozenset({"displaystyle"}),
    "mtd": frozenset({"columnalign"}),
}

# What defines something, so that a short formula could become a long one, or leads elsewhere.
_REFUSED = re.compile(
    r"\\(?:re|provide)?newcommand|\\provide|\\[egx]?def|\\let|\\href|\\verb|\\style|\\class|`|\$"
)
_SIGNS = re.compile(r"[\\^_]")
_LETTERS = re.compile(r"[^\W\d_]+")
_FOREIGN = re.compile(r"[^\x00-\u024f\u0370-\u03ff\u1f00-\u2bff]")  # no letter of formulas
_UNKNOWN = re.compile(r"<m[a-z]+[^>]*>\\")  # a command that nobody knows
_ENDS = {"$$": "$$", "$": "$", "\\(": "\\)", "\\[": "\\]"}

log = structlog.get_logger(__name__)


def add_to(parser: MarkdownIt) -> None:
    """Have a parser find formulas, and draw those that can be read."""
    parser.inline.add_terminator_char("$")
    parser.inline.ruler.before("escape", "maths", _inline)
    ends = ["paragraph", "reference", "blockquote", "list"]
    parser.block.ruler.before("fence", "maths", _block, {"alt": ends})
    parser.add_render_rule("maths", _render)


def is_allowed(attribute: str, value: str) -> bool:
    """True when a page may have this value of an attribute."""
    pattern = _VALUES.get(attribute)
    return pattern is not None and re.fullmatch(pattern, value) is not None


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


@lru_cache(maxsize=KEPT)
def mathml(source: str, *, is_block: bool) -> str:
    """A formula as MathML, which still has to be sanitised; empty when it cannot be read."""
    if _depth(source) > DEEPEST:
        return ""
    try:
        converter = importlib.import_module("latex2mathml.converter")
        drawn = str(converter.convert(source, display="block" if is_block else "inline"))
    except Exception as error:  # noqa: BLE001 - what nobody can read is shown as it was written
        log.debug("maths.not_read", error=type(error).__name__)
        return ""
    if len(drawn) > MOST_DRAWN * len(source) + 500 or _UNKNOWN.search(drawn):
        return ""
    _, _, rest = drawn.partition(">")
    display = "block" if is_block else "inline"
    return f'<math display="{display}" alttext="{escape(source)}">{rest}'


def _depth(source: str) -> int:
    """How deep the braces of a formula nest."""
    braces = deepest = 0
    for sign in source:
        braces += (sign in "{[") - (sign in "}]")
        deepest = max(deepest, braces)
    return deepest


def _drawn(source: str, env: MutableMapping[str, Any], *, is_block: bool) -> str:
    """A formula of a text, as far as there is room for more of them."""
    env["maths"] = left = env.get("maths", MOST_MATHS) - len(source)
    return mathml(source.strip(), is_block=is_block) if left >= 0 else ""


def _inline(state: StateInline, silent: bool) -> bool:  # noqa: FBT001 - as the parser calls it
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
    drawn = _drawn(source, state.env, is_block=opening in {"$$", "\\["})
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


def _block(state: StateBlock, first: int, end: int, silent: bool) -> bool:  # noqa: FBT001
    begin = state.bMarks[first] + state.tShift[first]
    opening = state.src[begin : begin + 2]
    if opening not in {"$$", "\\["} or state.is_code_block(first):
        return False
    found = _lines(state, first, min(end, first + MOST_LINES), opening)
    if not reads_as_maths("\n".join(found)):
        return False
    drawn = _drawn("\n".join(found), state.env, is_block=True)
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


def _render(
    renderer: RendererHTML,
    tokens: Sequence[Token],
    index: int,
    options: OptionsDict,
    env: MutableMapping[str, Any],
) -> str:
    return tokens[index].content
