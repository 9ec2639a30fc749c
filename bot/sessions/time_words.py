"""Words and numbers that times are written with, in English and Chinese; times of day are read."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Final, Literal, TypeVar

from bot.clock import MONTH_NAME

Part = Literal["", "dawn", "morning", "noon", "afternoon", "dusk", "evening", "midnight"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Clock:
    """A time of day as it was written; the hour is None when only a part of the day was."""

    hour: int | None
    minute: int = 0
    second: int = 0
    half: Literal["", "am", "pm"] = ""
    part: Part = ""


UNITS: Final = {
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds", "秒", "秒钟", "秒鐘"), "second"),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), "minute"),
    **dict.fromkeys(("分", "分钟", "分鐘"), "minute"),
    **dict.fromkeys(("刻钟", "刻鐘"), "quarter"),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), "hour"),
    **dict.fromkeys(("小时", "小時", "钟头", "鐘頭"), "hour"),
    **dict.fromkeys(("d", "day", "days", "天", "日"), "day"),
    **dict.fromkeys(("w", "week", "weeks", "周", "週", "星期", "礼拜", "禮拜"), "week"),
    **dict.fromkeys(("month", "months", "月"), "month"),
    **dict.fromkeys(("y", "year", "years", "年"), "year"),
}
_NUMBERS: Final = """one two three four five six seven eight nine ten eleven twelve
    fifteen twenty thirty forty-five sixty ninety""".split()  # noqa: SIM905
WORDS: Final = dict(zip(_NUMBERS, (*range(1, 13), 15, 20, 30, 45, 60, 90), strict=True))
_DIGITS: Final = dict(
    zip("零〇一二两兩三四五六七八九", (0, 0, 1, 2, 2, 2, *range(3, 10)), strict=True)
)
_TENS: Final = {"十": 10, "百": 100}
WEEKDAYS: Final = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
PARTS: Final[dict[str, Part]] = {
    "morning": "morning",
    "noon": "noon",
    "midday": "noon",
    "afternoon": "afternoon",
    "evening": "evening",
    "night": "evening",
    "midnight": "midnight",
    **dict.fromkeys(("凌晨", "清晨"), "dawn"),
    **dict.fromkeys(("早上", "早晨", "上午", "早"), "morning"),
    **dict.fromkeys(("中午", "正午"), "noon"),
    "下午": "afternoon",
    "傍晚": "dusk",
    **dict.fromkeys(("晚上", "晚间", "晚間", "夜里", "夜裡", "夜晚", "晚"), "evening"),
    **dict.fromkeys(("半夜", "午夜"), "midnight"),
}


def number(word: str) -> Fraction:
    """12, 1.5, "twelve", "an", "两百三十" or 半."""
    word = word.lower()
    if word[0] in "0123456789":
        return Fraction(word)
    if word in WORDS:
        return Fraction(WORDS[word])
    if word in {"a", "an"}:
        return Fraction(1)
    if word.startswith("half") or word == "半":
        return Fraction(1, 2)
    total, digit = 0, None
    for letter in word:
        if letter in _DIGITS:
            digit = _DIGITS[letter]
        else:
            total += (1 if digit is None else digit) * _TENS[letter]
            digit = None
    return Fraction(total + (digit or 0))


# --- patterns ------------------------------------------------------------------------------------


def any_of(words: Iterable[str]) -> str:
    """A pattern for one of some words, the longest first."""
    return "|".join(sorted(words, key=len, reverse=True))


NUMERAL = "[零〇一二两兩三四五六七八九十百]"
DATE_NUMBER = f"([0-9]{{1,2}}|{NUMERAL}{{1,3}})"
MONTH = rf"({MONTH_NAME})(?![a-z])\.?"
CHINESE_PART = f"({any_of(name for name in PARTS if not name.isascii() and len(name) > 1)})"
_IN_THE_PART = r"(?:\s+(?:in\s+the\s+(morning|afternoon|evening)|at\s+(night))(?![a-z]))?"
_DIGITAL = (
    rf"(?:{CHINESE_PART}\s*)?(?:at\s+)?([0-9]{{1,2}}):([0-9]{{2}})(?::([0-9]{{2}}))?(?![:0-9])"
    rf"(?:\s*([ap])\.?m(?![a-z])\.?)?{_IN_THE_PART}"
)
_TWELVE_HOURS = r"(?:at\s+)?([0-9]{1,2})\s*([ap])\.?m(?![a-z])\.?"
_BARE_HOUR = (
    rf"(?:(?:at\s+)?([0-9]{{1,2}})\s*o['’]?clock(?![a-z])|at\s+([0-9]{{1,2}})(?![0-9:.]))"
    rf"{_IN_THE_PART}"
)
_NAMED_HOUR = r"(?:at\s+)?(noon|midday|midnight)(?![a-z])"
# Minutes need their 分 where a digit might as well count something: 8点三个人.
_CHINESE_HOUR = (
    rf"(?:{CHINESE_PART}\s*)?{DATE_NUMBER}\s*[点點时時](?:[钟鐘整])?(?:(半)|([一三])刻|"
    rf"{DATE_NUMBER}\s*分(?![钟鐘])|([0-9]{{2}}|[零〇]{NUMERAL}|{NUMERAL}?十{NUMERAL}?)"
    r"(?!\s*[个個位名人次件条斤年月天小分秒]))?"
)
BETWEEN = r"(?:\s*,\s*|\s+|的|)在?"

# --- reading -------------------------------------------------------------------------------------


@cache
def compiled(pattern: str) -> re.Pattern[str]:
    """A pattern, made when it is first asked for."""
    # Not at import: a program that starts has better things to do. ASCII, or "ſ" is an s.
    return re.compile(pattern, re.IGNORECASE | re.ASCII)


class Reader:
    """A text and how far it has been read."""

    def __init__(self, text: str, at: int = 0) -> None:
        self.text = text
        self.at = at

    def take(self, pattern: str) -> re.Match[str] | None:
        """What stands here, if it is this."""
        match = compiled(pattern).match(self.text, self.at)
        if match is not None:
            self.at = match.end()
        return match

    def read(self, part: Callable[[Reader], T | None], *, between: str = "") -> T | None:
        """A part of a phrase, if one stands here and no word or number is cut in two by its end."""
        before = self.at
        if self.take(between) is not None:
            found = part(self)
            if found is not None and not joined(self.text, self.at):
                return found
        self.at = before
        return None


def joined(text: str, at: int) -> bool:
    """Whether the characters before and at a place belong to one word or one number."""
    before, after = text[max(0, at - 1) : at], text[at : at + 1]
    if not before or not after:
        return False
    if before.isascii():
        return before.isalnum() and (after in "'’" or (after.isascii() and after.isalnum()))
    return before in NUMERAL and after in NUMERAL


def clock_at(reader: Reader) -> Clock | None:
    """The time of day that stands here."""
    if match := reader.take(_DIGITAL):
        part, hour, minute, second, half, by_day, night = match.groups()
        return Clock(
            int(hour), int(minute), int(second or 0), _half(half), part_of(part or by_day or night)
        )
    if match := reader.take(_TWELVE_HOURS):
        return Clock(int(match[1]), half=_half(match[2]))
    if match := reader.take(_BARE_HOUR):
        return Clock(int(match[1] or match[2]), part=part_of(match[3] or match[4]))
    if match := reader.take(_NAMED_HOUR):
        return Clock(None, part=part_of(match[1]))
    return _chinese_clock(reader)


def _chinese_clock(reader: Reader) -> Clock | None:
    if match := reader.take(_CHINESE_HOUR):
        part, hour, half_past, quarters, minutes, bare = match.groups()
        minute = 30 if half_past else 0
        minute += 15 * int(number(quarters)) if quarters else 0
        minute += int(number(minutes or bare)) if minutes or bare else 0
        return Clock(int(number(hour)), minute, part=part_of(part))
    if match := reader.take(CHINESE_PART):
        return Clock(None, part=part_of(match[1]))
    return None


def _half(letter: str | None) -> Literal["", "am", "pm"]:
    if not letter:
        return ""
    return "am" if letter.lower() == "a" else "pm"


def part_of(name: str | None) -> Part:
    """The part of the day that a word names; of no word, none."""
    return PARTS[name.lower()] if name else ""
