"""Refuses entries for memory by what a program can know: whose words, and whether twice. Pure.

It compares words and numbers and does not understand them: an entry that swaps two numbers of one
sentence, or gives one person's news to another, passes. The prompt tells the model to mind that.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import date, timedelta
from functools import cached_property
from typing import Final, Literal

from bot.clock import MONTH_NAME, month_of
from bot.context import sentences, wishes
from bot.context.quoting import Said
from bot.memory import markdown

Reason = Literal["secret", "uncited", "known", "rules", "repeated", "unsaid"]

REFUSED: Final = (
    "this holds a password, a key, a code or a number that gives access to something. "
    "Such things are not kept. Leave it out"
)

# Shares of an entry's words, chosen with `python -m bench keeping` by its "chosen by" talks.
SUPPORTED: Final = 0.65  # that the person must have said, or memory must have
ECHOED: Final = 0.7  # in one line of the bot's own files
REPEATED: Final = 0.9  # in an entry that was written a moment ago
NEAR: Final = range(-7, 32)  # days from today that may stand for "tomorrow" or "on Friday"

# A capital inside a sentence: a name, but for those of days and months, and one that stands before
# itself in another script: "Vancouver (温哥华)".
_NAME = re.compile(
    rf"(?<=[^\s.!?…:]\s)(?!(?i:{MONTH_NAME}|(?:mon|tues|wednes|thurs|fri|satur|sun)days?)\b)"
    r"[A-ZÀ-ÖØ-Þ]\w+\b(?! ?[(（][\u2e80-\U0010ffff])"
)
_MONTH = re.compile(rf"\b(?:{MONTH_NAME})\b", re.IGNORECASE)
_DAY = re.compile(
    rf"\d{{4}}-(\d\d)-(\d\d)|(\d{{1,2}}) ?月 ?(\d{{1,2}}) ?[日号]"
    rf"|\b(\d{{1,2}})(?:st|nd|rd|th|\.)? (?:of )?({MONTH_NAME})\b"
    rf"|\b({MONTH_NAME}) (\d{{1,2}})(?:st|nd|rd|th)?\b",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Guard:
    """Judges the entries made of one conversation, one after another; those kept are `written`.

    `said` is what was said since the last time, its lines counted from 1, `rules` are the bot's own
    files, and `known` is what memory says. `today` is the person's own date.
    """

    said: tuple[Said, ...]
    today: date
    rules: tuple[str, ...] = ()
    known: tuple[str, ...] = ()
    written: list[frozenset[str]] = field(default_factory=list[frozenset[str]])

    def judge(self, text: str, cites: Iterable[int]) -> Reason | None:
        """Why an entry that rests on these lines should not be kept.

        None when it may, which then counts as written.
        """
        words = sentences.content(text)
        reason = self._reason(text, words, self.near(cites)) if words else "unsaid"
        if reason is None:
            self.written.append(words)
        return reason

    def near(self, cites: Iterable[int]) -> frozenset[str]:
        """The words of lines that are the person's, with their message before and after each.

        Nothing when none of the lines is theirs, or none of their words may be written down.
        """
        places = [self._places[n] for n in cites if n in self._places]
        own = {near for place in places for near in range(max(0, place - 1), place + 2)}
        return frozenset[str]().union(*(self._own[n] for n in own if n < len(self._own)))

    def own(self, line: int) -> str:
        """The part of a line that is the person's own words and may be written down."""
        return self._texts[self._places[line]] if line in self._places else ""

    def says_after(self, cites: Iterable[int], text: str) -> bool:
        """True when the person states a text again in a later line than these."""
        last, words = max(cites, default=0), sentences.content(text)
        later = (place for line, place in self._places.items() if line > last)
        said = (place for place in later if _says(words, [self._own[place]], SUPPORTED))
        return bool(words) and any(not sentences.only_asks(self._texts[place]) for place in said)

    def _reason(self, text: str, words: frozenset[str], near: frozenset[str]) -> Reason | None:
        bare = self._without_near_days(text)
        undated = sentences.content(bare)
        if not near:
            return "uncited"
        if sentences.holds_secret(text) and not _says(undated, self._wishes, SUPPORTED):
            return "secret"
        # What the bot said may quote memory, and is no news then.
        is_echo = markdown.normal(text) in self._others
        if _says(words, self._known, SUPPORTED if is_echo else 1):
            return "known"
        if _says(words, self._rules, ECHOED):
            return "rules"
        if _says(words, self.written, SUPPORTED if is_echo else REPEATED):
            return "repeated"
        said = near if is_echo else near | (undated & self._remembered)
        names = sentences.stems(" ".join(_NAME.findall(bare)))
        is_said = undated & near and names <= said and _says(undated, [said], SUPPORTED)
        return None if is_said else "unsaid"

    @cached_property
    def _places(self) -> dict[int, int]:
        """The positions of the person's lines among their own, from 0, by line number."""
        own = (line for line, each in enumerate(self.said, 1) if each.who == "person")
        return {line: place for place, line in enumerate(own)}

    @cached_property
    def _texts(self) -> list[str]:
        return sentences.own([each.text for each in self.said if each.who == "person"])

    @cached_property
    def _others(self) -> str:
        """All that was not said by the person, for comparing."""
        return "\n".join(markdown.normal(e.text) for e in self.said if e.who != "person")

    @cached_property
    def _wishes(self) -> list[frozenset[str]]:
        return [sentences.content(text) for text in self._texts if wishes.asks_to_keep(text)]

    @cached_property
    def _own(self) -> list[frozenset[str]]:
        return [sentences.content(text).union(_months(text)) for text in self._texts]

    @cached_property
    def _remembered(self) -> frozenset[str]:
        years = (str(self.today.year), str(self.today.year + 1))
        return frozenset(years).union(*self._known)

    @cached_property
    def _known(self) -> list[frozenset[str]]:
        return [sentences.content(line) for text in self.known for line in text.splitlines()]

    @cached_property
    def _rules(self) -> list[frozenset[str]]:
        return [sentences.content(line) for text in self.rules for line in text.splitlines()]

    def _without_near_days(self, text: str) -> str:
        """An entry without the days of these weeks, which the person may have called otherwise."""
        near = {(day.month, day.day) for day in (self.today + timedelta(n) for n in NEAR)}

        def gap(found: re.Match[str]) -> str:
            month, day = sorted(filter(None, found.groups()), key=str.isdecimal)
            number = int(month) if month.isdecimal() else month_of(month)
            return " " if (number, int(day)) in near else found.group()

        return _DAY.sub(gap, text)


def is_secret(text: str, own: Iterable[str]) -> bool:
    """True for a secret that none of somebody's messages asks to keep."""
    return sentences.holds_secret(text) and not any(map(wishes.asks_to_keep, own))


def says(entry: str, text: str) -> bool:
    """True when an entry has most words of a text, and all its numbers."""
    words = sentences.content(text)
    return bool(words) and _says(words, [sentences.content(entry)], SUPPORTED)


def _says(words: frozenset[str], texts: Iterable[frozenset[str]], share: float) -> bool:
    """True when one of some texts has such a share of an entry's words, and all its numbers."""
    numbers = frozenset(filter(str.isdecimal, words))
    enough = share * len(words - numbers)
    return any(numbers <= text and len(words & text) - len(numbers) >= enough for text in texts)


def _months(text: str) -> Iterator[str]:
    """The numbers of the months that a text names."""
    return (str(month_of(found.group())) for found in _MONTH.finditer(text))


# What a model decides about notes, read from the plain lines it answers with. Pure.
#
# A line is a sign, numbers in brackets, and words. `+ [12] fact` keeps what line 12 of a
# conversation says, `~ [e7] new wording [15]` changes entry 7, `- [e3] [16]` ends entry 3, and
# `NONE` is nothing to do. Small models get the form nearly right: other bullets, brackets and
# signs are read as well. What is no decision is left out.

Sign = Literal["+", "~", "-"]

MOST_LINES: Final = 500  # of an answer that are read
MOST_CHARACTERS: Final = 1_000  # of a line that are read
MOST_CITED: Final = 3  # lines that one decision may rest on: a few can be looked at, all prove all
NO_DECISION: Final = "NONE"

_SIGNS: Final[dict[str, Sign]] = {
    **dict.fromkeys("+＋", "+"),
    **dict.fromkeys("~～〜∼˜", "~"),
    **dict.fromkeys("-－−–—‐", "-"),
}
_OPEN, _CLOSE = r"\[［【〔", r"\]］】〕"
_NAMED = r"(?:[eE]|[lL](?:ine)?|[mM]|#|第)?[ .#]?\d{1,6}"
_NUMBERS = rf"{_NAMED}(?:[ \t]?[,，、;；&][ \t]?{_NAMED}){{0,9}}"
_BULLET = re.compile(r"(?:[>\s`*·•●▪‣○]|\d{1,3}[.)、．](?!\d))+")
# At the beginning round brackets will do: at the end they are part of what is said.
_FIRST = re.compile(
    rf"[\s*`]*(?:[{_OPEN}]\s?({_NUMBERS})\s?[{_CLOSE}]|[(（]({_NUMBERS})[)）])[\s*`:：,，]*"
)
_LAST = re.compile(rf"[{_OPEN}]\s?({_NUMBERS})\s?[{_CLOSE}]$")
_NUMBER = re.compile(r"([eE])?[^\d,，、;；&]{0,5}(\d{1,6})")
_EDGES: Final = " \t*`:："
_BEHIND: Final = " \t\r*`.。)）"  # the last number of a line
_BEFORE: Final = " \t*`,，;；(（"
_QUOTES: Final = ('""', "“”", "「」", "''")


@dataclass(frozen=True, slots=True)
class Decision:
    """Something to keep, change or end, by the numbers of lines and of an entry; 0 is none."""

    sign: Sign
    words: str
    cites: tuple[int, ...]
    entry: int = 0


def read_decisions(answer: str) -> list[Decision]:
    """The decisions of an answer in their order, each once."""
    lines = answer.split("\n", MOST_LINES)[:MOST_LINES]
    found = (_of_line(line[:MOST_CHARACTERS]) for line in lines)
    return list(dict.fromkeys(each for each in found if each is not None))


def says_none(answer: str) -> bool:
    """True when a line of an answer says that there is nothing to do."""
    lines = answer.split("\n", MOST_LINES)[:MOST_LINES]
    return any(
        line[:MOST_CHARACTERS].strip("-+~[]()（）.。*`>\"' \t\r") == NO_DECISION for line in lines
    )


def _of_line(line: str) -> Decision | None:
    """The decision of a line; None when it is none."""
    bare = line.strip()
    found = _BULLET.match(bare)
    rest = bare[found.end() :] if found is not None else bare
    sign = _SIGNS.get(rest[:1])
    if sign is not None:
        rest = rest[1:].lstrip()
        if sign == "-" and rest[:1] in _SIGNS:  # it was a bullet
            sign, rest = _SIGNS[rest[0]], rest[1:]
    elif found is None or ">" in found.group():  # a quotation of what it was shown
        return None
    cites, entries, words = _parted(rest)
    if not cites and not entries:
        return None
    if sign == "-" and entries:  # words may say why, or be the new ones behind a mere bullet
        return Decision("-", words, cites, entries[0])
    if not words:
        return None
    if sign == "~" and entries:
        return Decision("~", words, cites, entries[0])
    is_listed = sign is not None or not entries  # without a sign an entry may only be told of
    return Decision("+", words, cites) if is_listed and cites else None


def _parted(text: str) -> tuple[tuple[int, ...], tuple[int, ...], str]:
    """The numbers of lines and of entries around some words, and the words."""
    numbers: list[tuple[str, str]] = []
    while found := _FIRST.match(text):
        numbers += _NUMBER.findall(found[1] or found[2])
        text = text[found.end() :]
    last: list[tuple[str, str]] = []
    while found := _LAST.search(text.rstrip(_BEHIND)):
        last = _NUMBER.findall(found[1]) + last
        text = text[: found.start()].rstrip(_BEFORE)
    words = text.strip(_EDGES)
    if words[:1] + words[-1:] in _QUOTES:
        words = words[1:-1].strip(_EDGES)
    numbers += last
    lines = dict.fromkeys(int(number) for named, number in numbers if not named)
    entries = dict.fromkeys(int(number) for named, number in numbers if named)
    return tuple(lines)[:MOST_CITED], tuple(entries), words
