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

# The names people write, by where the library has their lexer.
_LEXERS = {
    "pygments.lexers.c_cpp:CLexer": "c h",
    "pygments.lexers.c_cpp:CppLexer": "cpp c++ cc cxx hpp",
    "pygments.lexers.configs:DockerLexer": "dockerfile docker",
    "pygments.lexers.configs:IniLexer": "ini cfg conf properties",
    "pygments.lexers.configs:TOMLLexer": "toml",
    "pygments.lexers.css:CssLexer": "css",
    "pygments.lexers.data:JsonLexer": "json jsonc jsonl",
    "pygments.lexers.data:YamlLexer": "yaml yml",
    "pygments.lexers.diff:DiffLexer": "diff patch",
    "pygments.lexers.dotnet:CSharpLexer": "csharp cs c#",
    "pygments.lexers.go:GoLexer": "go golang",
    "pygments.lexers.html:HtmlLexer": "html htm",
    "pygments.lexers.html:XmlLexer": "xml svg",
    "pygments.lexers.javascript:JavascriptLexer": "javascript js jsx mjs",
    "pygments.lexers.javascript:TypeScriptLexer": "typescript ts tsx",
    "pygments.lexers.jvm:JavaLexer": "java",
    "pygments.lexers.jvm:KotlinLexer": "kotlin kt",
    "pygments.lexers.make:MakefileLexer": "makefile make mk",
    "pygments.lexers.objective:SwiftLexer": "swift",
    "pygments.lexers.php:PhpLexer": "php",
    "pygments.lexers.python:PythonLexer": "python py python3",
    "pygments.lexers.r:SLexer": "r",
    "pygments.lexers.ruby:RubyLexer": "ruby rb",
    "pygments.lexers.rust:RustLexer": "rust rs",
    "pygments.lexers.scripting:LuaLexer": "lua",
    "pygments.lexers.shell:BashLexer": "bash sh shell zsh",
    "pygments.lexers.shell:PowerShellLexer": "powershell ps1",
    "pygments.lexers.sql:SqlLexer": "sql",
}
_PLACES = {name: place for place, names in _LEXERS.items() for name in names.split()}
_OPTIONS = {"php": {"startinline": True}}

# What shows in a colour; of a kind within another the longer one counts.
_CLASSES: dict[tuple[str, ...], str] = {
    ("Comment",): "c",
    ("Keyword",): "k",
    ("Operator", "Word"): "k",
    ("Literal", "String"): "s",
    ("Literal", "Number"): "m",
    ("Literal", "Date"): "m",
    ("Keyword", "Constant"): "m",
    ("Name", "Constant"): "m",
    ("Name", "Function"): "n",
    ("Name", "Class"): "n",
    ("Name", "Decorator"): "n",
    ("Name", "Builtin"): "n",
    ("Name", "Exception"): "n",
    ("Name", "Tag"): "k",
    ("Name", "Attribute"): "n",
    ("Name", "Variable"): "v",
    ("Generic", "Inserted"): "s",
    ("Generic", "Deleted"): "d",
    ("Generic", "Heading"): "k",
    ("Generic", "Subheading"): "k",
}
CLASSES = frozenset(_CLASSES.values())

_TOO_MUCH = re.compile(rf"[^\n]{{{MOST_LINE + 1}}}|\s{{{MOST_BLANK + 1}}}")


@lru_cache(maxsize=KEPT)
def coloured(code: str, language: str) -> str:
    """Code as HTML; empty when it is to be shown as it is.

    The first of a language may take a moment, in which its lexer is loaded.
    """
    place = _PLACES.get(language.lower())
    if place is None or len(code) > MOST_CODE or _TOO_MUCH.search(code):
        return ""
    try:
        words = list(_words(_lexer(place, language.lower()), code))
    except Exception as error:  # noqa: BLE001 - code nobody can read still has to be shown
        log.warning("code.not_coloured", language=place, error=type(error).__name__)
        return ""
    if "".join(word for _, word in words) != code:
        return ""
    return "".join(_html(words))


@cache
def _lexer(place: str, language: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(module), name)(**_OPTIONS.get(language, {}))


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
