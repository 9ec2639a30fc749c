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
CLAUSE: Final = re.compile(r"(?:^|[,，、.;；:：!！?？。…¿¡،؟\n–—])\s*+")  # where one begins
_NO_SPACES: Final = ("zh", "ja", "ko")  # nothing tells where a word ends
NAMED: Final = re.compile(r"\W*(?:@\S{1,40}\s|(?:(?![\u2e80-\uffff])\w){2,20},)")  # "Nova, …"
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
    opening: re.Pattern[str]
    this: re.Pattern[str]
    behind: re.Pattern[str]
    ending: re.Pattern[str]
    remind: re.Pattern[str]
    reminding: re.Pattern[str]
    unwanted: re.Pattern[str]
    unwanted_anywhere: re.Pattern[str]  # where no space tells where a word begins
    claims: re.Pattern[str]

    def opened(self, text: str, start: int = 0) -> int:
        """Where what may stand before a wish ends, in a folded text."""
        found = self.opening.match(text, start)
        return found.end() if found else start

    def points_back(self, text: str) -> bool:
        """True for a folded text that names nothing but what was said before, or nothing at all."""
        at = -1
        end = self.opened(text)
        while end > at:
            found = self.this.match(text, end)
            at, end = end, self.opened(text, found.end() if found else end)
        return end == len(text)

    def clause(self, pattern: re.Pattern[str], text: str, start: int = 0) -> tuple[int, int] | None:
        """Where the first clause of a folded text begins that a pattern matches, and ends."""
        for clause in CLAUSE.finditer(text, start):
            if found := pattern.match(text, self.opened(text, clause.end())):
                return clause.start(), found.end()
        return None


def folded(sentence: str) -> str:
    """A sentence in small letters, each in its place."""
    return sentence.replace("İ", "i").lower()


@cache
def phrases() -> Phrases:
    """The table, read once; every pattern is for what `folded` gives."""
    raw = resources.files("bot.context").joinpath("phrases.toml").read_text("utf-8")
    table: dict[str, dict[str, list[str]]] = tomllib.loads(raw)

    def all_of(key: str, names: Iterable[str] = table) -> str:
        return _any((name, phrase) for name in names for phrase in table[name][key])

    return Phrases(
        languages=tuple(_language(name, lists) for name, lists in table.items()),
        opening=re.compile(rf"{_APART}*(?:{all_of('opening')}{_APART}*){{0,{OPENINGS}}}+"),
        this=re.compile(all_of("this")),
        behind=re.compile(rf"{all_of('behind')}\W*$"),
        ending=re.compile(rf"{all_of('ending')}\W*$"),
        remind=re.compile(all_of("remind")),
        reminding=re.compile(rf"{all_of('reminding')}\W*$"),
        unwanted=re.compile(all_of("unwanted")),
        unwanted_anywhere=re.compile(all_of("unwanted", _NO_SPACES)),
        claims=re.compile(all_of("claims")),
    )


def _language(name: str, lists: dict[str, list[str]]) -> Language:
    kinds: tuple[Kind, ...] = ("before", "asking", "remind")
    heads: list[tuple[Kind, re.Pattern[str]]] = [
        (kind, re.compile(_any((name, phrase) for phrase in lists[kind]))) for kind in kinds
    ]
    never = _any((name, phrase) for phrase in lists["never"])
    return Language(tuple(heads), re.compile(never))


def _any(phrases: Iterable[tuple[str, str]]) -> str:
    """Any of some phrases with their languages, those that say most first; of none, nothing."""
    spaced: list[str] = []
    others: list[str] = []
    for language, whole in phrases:
        for phrase in _alternatives(whole):
            is_spaced = language not in _NO_SPACES
            made = "".join(_pieces(phrase, spaced=is_spaced))
            (spaced if is_spaced else others).append(made)
    both = (
        *([rf"(?<!\w)(?:{_first(spaced)}){_INSIDE}"] if spaced else ()),
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
