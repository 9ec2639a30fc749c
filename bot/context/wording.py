"""Texts as sets of words, for comparing what they say: as written, by stems, by numbers. Pure."""

from __future__ import annotations

import re
import unicodedata
from typing import Final

from bot.storage import fulltext
from bot.unicode import normal_form

LONGEST_WORD = 30  # letters
STEM = 5  # letters two words begin with to count as one: "allergic" and "allergy"

# How a note speaks of whom it is about, whatever it says; stems.
SUBJECTS: Final = frozenset("user person owner becau pleas also well too then since 用 户".split())  # noqa: SIM905

_SUFFIX = re.compile(r"(?<=\w{3})(?:['’]s?|ies|ied|ing|ed|es|s|ly|e|(?<=\w{4})y)$")
_DIGITS = re.compile(r"\d+")
_NUMBERS_EN: Final = {
    word: int(number)
    for number, *names in map(
        str.split,
        (
            "0 zero midnight", "1 one first", "2 two second twice", "3 three third",
            "4 four fourth", "5 five fifth", "6 six sixth", "7 seven seventh", "8 eight eighth",
            "9 nine ninth", "10 ten tenth", "11 eleven eleventh", "12 twelve twelfth noon",
            "13 thirteen", "14 fourteen", "15 fifteen", "16 sixteen", "18 eighteen", "20 twenty",
            "30 thirty", "40 forty", "50 fifty", "60 sixty", "70 seventy", "80 eighty", "90 ninety",
            "100 hundred",
        ),
    )
    for word in names
}  # fmt: skip
_NUMBERS_ZH: Final = dict(zip("零一二三四五六七八九", range(10), strict=True)) | {"两": 2, "〇": 0}
_UNITS_ZH: Final = {"十": 10, "百": 100, "千": 1_000, "万": 10_000}
_RUN_ZH = re.compile("[零〇一二两三四五六七八九十百千万]{1,12}")
_WORD_EN = re.compile(r"[a-z]+")


def words(text: str) -> frozenset[str]:
    """The content of a text, for comparing: words, and pairs of characters of CJK runs."""
    found: set[str] = set()
    for run in fulltext.runs(text.casefold()):
        if fulltext.is_cjk(run):
            found.update(run[n : n + 2] for n in range(max(1, len(run) - 1)))
        elif not fulltext.is_stop_word(run):
            found.add(run)
    return frozenset(found)


def terms(text: str) -> frozenset[str]:
    """A text's words by how they begin, and its Chinese in pairs of characters."""
    return frozenset(word if fulltext.is_cjk(word) else stem(word) for word in words(text))


def shared(wanted: frozenset[str], text: str) -> int:
    """Count the `terms` that a text has; one Chinese character may be inside a pair."""
    there = terms(text)
    return sum(term in there or (fulltext.is_cjk(term) and term in text) for term in wanted)


def stems(text: str) -> frozenset[str]:
    """The content of a text, for telling whether it says in other words what another one says.

    Words by how they begin, without numbers; CJK by single characters without those that only hold
    a sentence together.
    """
    found: set[str] = set()
    for run in fulltext.runs(text.casefold()):
        if fulltext.is_cjk(run):
            found.update(c for c in run if not fulltext.is_function_character(c))
        elif not fulltext.is_stop_word(run) and not run.isdigit():
            found.add(stem(run))
    return frozenset(found)


def content(text: str) -> frozenset[str]:
    """The stems of a text's words and its numbers, without those that say whom a note is about."""
    return stems(text).union(map(str, numbers(text))) - SUBJECTS


def stem(word: str) -> str:
    """The beginning of a word, without accents: the same for most of its forms."""
    if not word.isascii():
        word = "".join(c for c in normal_form("NFD", word) if not unicodedata.combining(c))
    return _SUFFIX.sub("", word[:LONGEST_WORD])[:STEM]


def numbers(text: str) -> frozenset[int]:
    """Every number a text names, in digits or in words of either language."""
    found = {int(digits[:15]) for digits in _DIGITS.findall(text)}
    found.update(_NUMBERS_EN[w] for w in _WORD_EN.findall(text.lower()) if w in _NUMBERS_EN)
    for run in _RUN_ZH.findall(text):
        found.add(_number_zh(run))
        found.update(_NUMBERS_ZH[c] for c in run if c in _NUMBERS_ZH)
    return frozenset(found)


def _number_zh(run: str) -> int:
    """A number in Chinese characters: 三千八 is 3800, 十二 12, 两万三 23000."""
    total = section = digit = 0
    unit = last = 1
    for character in run:
        if character in _NUMBERS_ZH:
            digit = _NUMBERS_ZH[character]
            last = unit
            continue
        unit = _UNITS_ZH[character]
        if unit == _UNITS_ZH["万"]:
            total, section, digit = (total + section + digit) * unit or unit, 0, 0
        else:
            section, digit = section + (digit or 1) * unit, 0
    # What follows a unit directly counts in the next smaller one.
    follows = run[-1] in _NUMBERS_ZH and len(run) > 1 and run[-2] in "百千万"
    return total + section + digit * (last // 10 if follows else 1)
