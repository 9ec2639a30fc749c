"""Code in colours: HTML with a class for each kind of word, whose text is the code to the letter.

Lexers are made of regular expressions, some of which take time with the square of what is not
closed. So only languages on this list are coloured, no more code than such an expression gets
through in a moment, and none that takes longer. Nothing of the library is loaded before there is
code to colour.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterable, Iterator
from functools import cache, lru_cache
from html import escape
from itertools import groupby
from time import thread_time
from typing import Any

import structlog

MOST_CODE = 5_000  # characters of one block, …
MOST_LINE = 600  # … of one of its lines …
MOST_BLANK = 100  # … and of blanks and line ends in a row
MOST_SECONDS = 0.3  # of a processor; what people write takes a few ms
KEPT = 64  # blocks: a reply that grows is drawn anew for each of its pieces

log = structlog.get_logger(__name__)

# What is coloured, by Pygments' own names, and what else people write for them.
_LANGUAGES = frozenset(
    """bash c c# c++ cfg cpp cs csharp css diff docker dockerfile go golang html ini java javascript
    js json kotlin lua make makefile php powershell ps1 py python python3 r rb rs ruby rust sh shell
    sql swift toml ts typescript xml yaml zsh""".split()  # noqa: SIM905
)
_NAMES = {
    "c": "h",
    "cpp": "cc cxx hpp",
    "diff": "patch",
    "html": "htm",
    "ini": "conf properties",
    "js": "jsx mjs",
    "json": "jsonc jsonl",
    "kotlin": "kt",
    "make": "mk",
    "ts": "tsx",
    "xml": "svg",
    "yaml": "yml",
}
_OTHERS = {name: language for language, names in _NAMES.items() for name in names.split()}
_OPTIONS = {"php": {"startinline": True}}

# What shows in a colour, by the class it has; of a kind within another the longer one counts.
_SHOWN = {
    "c": "Comment",
    "d": "Generic.Deleted",
    "k": "Keyword Operator.Word Name.Tag Generic.Heading Generic.Subheading",
    "m": "Literal.Number Literal.Date Keyword.Constant Name.Constant",
    "n": "Name.Function Name.Class Name.Decorator Name.Builtin Name.Exception Name.Attribute",
    "s": "Literal.String Generic.Inserted",
    "v": "Name.Variable",
}
CLASSES = frozenset(_SHOWN)
_CLASSES = {tuple(k.split(".")): name for name, kinds in _SHOWN.items() for k in kinds.split()}
_TOO_MUCH = re.compile(rf"[^\n]{{{MOST_LINE + 1}}}|\s{{{MOST_BLANK + 1}}}")


@lru_cache(maxsize=KEPT)
def coloured(code: str, language: str) -> str:
    """Code as HTML; empty when it is to be shown as it is.

    The first of a language may take a moment, in which its lexer is loaded.
    """
    language = _OTHERS.get(language.lower(), language.lower())
    if language not in _LANGUAGES or len(code) > MOST_CODE or _TOO_MUCH.search(code):
        return ""
    try:
        words = list(_words(_lexer(language), code))
    except Exception as error:  # noqa: BLE001 - code nobody can read still has to be shown
        log.warning("code.not_coloured", language=language, error=type(error).__name__)
        return ""
    if "".join(word for _, word in words) != code:
        return ""
    return "".join(_html(words))


@cache
def _lexer(language: str) -> Any:
    lexers = importlib.import_module("pygments.lexers")
    return lexers.get_lexer_by_name(language, **_OPTIONS.get(language, {}))


def _words(lexer: Any, code: str) -> Iterator[tuple[str, str]]:
    """The code in order, each part with its class, which is empty for most of it."""
    until = thread_time() + MOST_SECONDS
    for _, kind, word in lexer.get_tokens_unprocessed(code):
        if thread_time() > until:
            raise TimeoutError
        yield _class_of(tuple(kind)), word


@cache
def _class_of(kind: tuple[str, ...]) -> str:
    ways = (kind[:length] for length in range(len(kind), 0, -1))
    return next((_CLASSES[way] for way in ways if way in _CLASSES), "")


def _html(words: Iterable[tuple[str, str]]) -> Iterator[str]:
    for kind, same in groupby(words, key=lambda each: each[0]):
        text = escape("".join(word for _, word in same))
        yield f'<span class="{kind}">{text}</span>' if kind and text.strip() else text
