"""What a model decides about notes, read from the plain lines it answers with. Pure.

A line is a sign, numbers in brackets, and words. `+ [12] fact` keeps what line 12 of a conversation
says, `~ [e7] new wording [15]` changes entry 7, `- [e3] [16]` ends entry 3, and `NONE` is nothing
to do. Small models get the form nearly right: other bullets, brackets and signs are read as well.
What is no decision is left out.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

Sign = Literal["+", "~", "-"]

MOST_LINES: Final = 500  # of an answer that are read
MOST_CHARACTERS: Final = 1_000  # of a line that are read
MOST_CITED: Final = 3  # lines that one decision may rest on: a few can be looked at, all prove all
NONE: Final = "NONE"

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
    """What is to be kept, changed or ended, by the numbers of lines and of an entry; 0 is none."""

    sign: Sign
    words: str
    cites: tuple[int, ...]
    entry: int = 0


def read(answer: str) -> list[Decision]:
    """The decisions of an answer in their order, each once."""
    lines = answer.split("\n", MOST_LINES)[:MOST_LINES]
    found = (_of_line(line[:MOST_CHARACTERS]) for line in lines)
    return list(dict.fromkeys(each for each in found if each is not None))


def says_none(answer: str) -> bool:
    """True when a line of an answer says that there is nothing to do."""
    lines = answer.split("\n", MOST_LINES)[:MOST_LINES]
    return any(line[:MOST_CHARACTERS].strip("-+~[]()（）.。*`>\"' \t\r") == NONE for line in lines)


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
