"""The phrases by which people ask to have something kept or not, as patterns, from `phrases.toml`.

They are compiled when they are first asked for, which takes half a second: not on the event loop.
"""

from __future__ import annotations

import re
import tomllib
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Final, Literal

OPENINGS: Final = 8  # words before a wish

Kind = Literal["before", "asking", "remind"]

_APART: Final = r"[\s,，、.;；:：!！。…¿¡،؟–—-]"
_CLAUSE: Final = r"(?:^|[,，、.;；:：!！?？。…¿¡،؟\n–—])\s*"  # where one begins
_NO_SPACES: Final = frozenset({"zh", "ja", "ko"})  # nothing tells where a word ends
_NAME: Final = r"(?:(?![\u2e80-\uffff])\w){2,20}"  # as in "Nova, remember that …"
_INSIDE: Final = r"(?!(?<=\w)\w)"  # no place inside a word
_LATER: Final = "\u0700"  # scripts from here on compose letters of other things than accents


@dataclass(frozen=True, slots=True)
class Language:
    """What begins a sentence, by what it asks for, and what then makes it something else."""

    heads: tuple[tuple[Kind, re.Pattern[str]], ...]
    never: re.Pattern[str]


@dataclass(frozen=True, slots=True)
class Phrases:
    """The phrases of all languages together, and what begins a sentence by language."""

    languages: tuple[Language, ...]
    openings: tuple[re.Pattern[str], ...]  # without and with somebody's name
    pointing: re.Pattern[str]
    behind: re.Pattern[str]
    ending: re.Pattern[str]
    reminding: re.Pattern[str]
    unwanted: re.Pattern[str]
    claims: re.Pattern[str]


def folded(sentence: str) -> str:
    """A sentence in small letters, each in its place."""
    return sentence.replace("İ", "i").lower()


@cache
def phrases() -> Phrases:
    """The table, read once; every pattern is for what `folded` gives."""
    raw = resources.files("bot.context").joinpath("phrases.toml").read_text("utf-8")
    table: dict[str, dict[str, list[str]]] = tomllib.loads(raw)

    def all_of(*keys: str, after: str = "") -> str:
        every = [(name, table[name][key]) for name in table for key in keys]
        return _any(((name, phrase) for name, some in every for phrase in some), after)

    opening = rf"(?:{all_of('opening')}{_APART}*){{0,{OPENINGS}}}+"
    return Phrases(
        tuple(_language(name, lists) for name, lists in table.items()),
        (
            _made(rf"{_APART}*{opening}"),
            _made(rf"{_APART}*(?:{opening}@\S{{1,40}}\s|{_NAME},)?{_APART}*{opening}"),
        ),
        _made(rf"(?:(?:{all_of('this', 'opening')}){_APART}*)*+"),
        _made(rf"{_CLAUSE}{opening}{all_of('behind')}\W*$"),
        _made(rf"{all_of('ending')}\W*$"),
        _made(rf"{all_of('reminding')}\W*$"),
        _made(all_of("unwanted", after=f"{_CLAUSE}{opening}")),
        _made(all_of("claims")),
    )


def _language(name: str, lists: dict[str, list[str]]) -> Language:
    kinds: tuple[Kind, ...] = ("before", "asking", "remind")
    heads = {kind: _any((name, phrase) for phrase in lists[kind]) for kind in kinds}
    never = _any((name, phrase) for phrase in lists["never"])
    return Language(tuple((kind, _made(each)) for kind, each in heads.items()), _made(never))


def _made(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


def _any(phrases: Iterable[tuple[str, str]], after: str = "") -> str:
    """Any of some phrases with their languages, those that say most first; of none, nothing.

    Those of languages that put spaces between words stand `after` something.
    """
    spaced: list[str] = []
    others: list[str] = []
    for language, whole in phrases:
        for phrase in _alternatives(whole):
            is_spaced = language not in _NO_SPACES
            made = "".join(_pieces(phrase, spaced=is_spaced))
            (spaced if is_spaced else others).append(made)
    both = (
        *([rf"{after}(?<!\w)(?:{_first(spaced)}){_INSIDE}"] if spaced else ()),
        *([_first(others)] if others else ()),
    )
    return f"(?:{'|'.join(both)})" if both else "(?!)"


def _first(patterns: list[str]) -> str:
    return "|".join(sorted(patterns, key=len, reverse=True))


def _alternatives(phrase: str) -> list[str]:
    """The phrases that one of nothing but alternatives stands for."""
    inner = phrase[1:-1]
    is_plain = phrase[0] == "{" and phrase[-1] == "}" and not set("{}[]") & set(inner)
    return inner.split("|") if is_plain else [phrase]


_SIGNS: Final = {
    "{": "(?:",
    "~{": "(?=",
    "}": ")",
    "|": "|",
    "[": "(?:",
    "]": ")?",
    "]?": ")?",
    "]*": "){0,4}",
    "}?": ")?",
    "}*": "){0,4}",
    ":": r"(?:\s*[:：、]\s*|\s+[–—-]\s+|\s*$)",
    "^": r"^\W*",
    "'": "['’]",
}


def _pieces(phrase: str, *, spaced: bool) -> Iterator[str]:
    """A phrase of the table as a regular expression, piece by piece."""
    for sign in re.findall(r"~\{|[~…]\w+|[\]}][?*]|.", phrase):
        if sign in _SIGNS:
            yield _SIGNS[sign]
        elif sign[0] == "…":
            yield rf"\w*{sign[1:]}(?!\w)"
        elif sign[0] == "~":
            yield rf"(?=\w*{sign[1:]}(?!\w))"
        elif sign == " ":
            yield rf"(?:,?\s|{_INSIDE})" if spaced else r"\s?"
        else:
            yield _letter(sign)


def _letter(sign: str) -> str:
    """A letter, with and without its accent."""
    plain = unicodedata.normalize("NFD", sign)[0] if sign < _LATER else sign
    return re.escape(sign) if plain == sign else f"[{sign}{plain}]"
