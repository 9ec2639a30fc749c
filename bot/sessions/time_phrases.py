"""How people write times, in English and Chinese, as values; `due_time` says what they mean."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from typing import Final, Literal, TypeVar

from bot.clock import MONTH_NAME, month_of

LEAD = 160  # characters at the beginning of a text in which a time is looked for
TAIL = 64  # and at its end

Part = Literal["", "dawn", "morning", "noon", "afternoon", "dusk", "evening", "midnight"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Span:
    """A time from now: months and days by the calendar, seconds by the clock."""

    months: int = 0
    days: int = 0
    seconds: int = 0

    def plus(self, amount: Fraction, unit: str) -> Span:
        """So much more; half a month is fifteen days, half a day twelve hours."""
        months, days, seconds = (amount * size for size in _SIZES[unit])
        days += months % 1 * 30
        seconds += days % 1 * 86_400
        return Span(self.months + int(months), self.days + int(days), self.seconds + round(seconds))


@dataclass(frozen=True, slots=True)
class Day:
    """A day: so many days from today, a weekday so many weeks on, or a date.

    `weeks` None is the next such weekday, a date's year None the next such date.
    """

    ahead: int = 0
    weekday: int | None = None
    weeks: int | None = None
    date: tuple[int | None, int, int] | None = None
    part: Part = ""


@dataclass(frozen=True, slots=True)
class Clock:
    """A time of day as it was written; the hour is None when only a part of the day was."""

    hour: int | None
    minute: int = 0
    second: int = 0
    half: Literal["", "am", "pm"] = ""
    part: Part = ""


@dataclass(frozen=True, slots=True)
class Phrase:
    """What a text says of a time, and its other words."""

    span: Span | None
    day: Day | None
    clock: Clock | None
    rest: str = ""
    repeats: bool = False  # no one time, but again and again


def find(text: str) -> Phrase | None:
    """The time a text begins with, or else ends with."""
    text = text.strip()
    return _at_beginning(text) or _at_end(text)


# --- words and numbers ---------------------------------------------------------------------------

_SIZES: Final = {  # months, days, seconds
    "second": (0, 0, 1),
    "minute": (0, 0, 60),
    "quarter": (0, 0, 900),
    "hour": (0, 0, 3600),
    "day": (0, 1, 0),
    "week": (0, 7, 0),
    "month": (1, 0, 0),
    "year": (12, 0, 0),
}
_UNITS: Final = {
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
_WORDS: Final = dict(zip(_NUMBERS, (*range(1, 13), 15, 20, 30, 45, 60, 90), strict=True))
_DIGITS: Final = dict(
    zip("零〇一二两兩三四五六七八九", (0, 0, 1, 2, 2, 2, *range(3, 10)), strict=True)
)
_TENS: Final = {"十": 10, "百": 100}
_WEEKDAYS: Final = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
_PARTS: Final[dict[str, Part]] = {
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

# One character for one, so that places in the text stay what they are.
_NARROW: Final = {
    0xA0: " ",
    0x3000: " ",
    **{code: chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F)},
}


def _number(word: str) -> Fraction:
    """12, 1.5, "twelve", "an", "两百三十" or 半."""
    word = word.lower()
    if word[0] in "0123456789":
        return Fraction(word)
    if word in _WORDS:
        return Fraction(_WORDS[word])
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


def _any_of(words: Iterable[str]) -> str:
    return "|".join(sorted(words, key=len, reverse=True))


_NUMERAL = "[零〇一二两兩三四五六七八九十百]"
_DATE_NUMBER = f"([0-9]{{1,2}}|{_NUMERAL}{{1,3}})"
_ASCII_UNITS = _any_of(name for name in _UNITS if name.isascii())
_CHINESE_UNITS = _any_of(name for name in _UNITS if not name.isascii() and name != "月")
_MONTH = rf"({MONTH_NAME})(?![a-z])\.?"
_DAY_OF_MONTH = r"([0-9]{1,2})(?:st|nd|rd|th)?(?![0-9a-z:])"
_YEAR = r"(?:,?\s+([0-9]{4})(?![0-9:]))?"

_PIECE = (
    rf"(half\s+an?|an?(?=\s)|[0-9]{{1,7}}(?:\.[0-9]{{1,2}})?|{_any_of(_WORDS)})\s*"
    rf"({_ASCII_UNITS})(?![a-z])(\s+and\s+a\s+half(?![a-z]))?"
)
_CHINESE_PIECE = (
    rf"([0-9]{{1,7}}(?:\.[0-9]{{1,2}})?|半|{_NUMERAL}{{1,5}})\s*"
    rf"(?:([个個]半?)?\s*({_CHINESE_UNITS})|([个個]半?)\s*(月))(半?)"
)
_ENGLISH_DAY = (
    r"(?:(?:the\s+)?(?P<after>day\s+after\s+tomorrow)|(?P<tomorrow>tomorrow)|(?P<today>today)|"
    r"(?P<tonight>tonight)|(?P<week>next\s+week)|"
    r"(?:on\s+|(?P<which>this|next)\s+)?(?P<weekday>mon|tues|wednes|thurs|fri|satur|sun)day|"
    r"(?:on|(?P<which_short>this|next))\s+(?P<short>mon|tues?|wed|thu(?:rs?)?|fri|sat|sun))"
    r"(?:\s+(?:in\s+the\s+)?(?P<part>morning|afternoon|evening|night))?(?![a-z])"
)
_THIS_PART = r"this\s+(morning|afternoon|evening)(?![a-z])"
_ISO_DATE = r"(?:on\s+)?([0-9]{4})-([0-9]{1,2})-([0-9]{1,2})"
_DAY_MONTH = rf"(?:on\s+)?(?:the\s+)?{_DAY_OF_MONTH}\s+(?:of\s+)?{_MONTH}{_YEAR}"
_MONTH_DAY = rf"(?:on\s+)?{_MONTH}\s+(?:the\s+)?{_DAY_OF_MONTH}{_YEAR}"
_CHINESE_DAY = "(大[后後]天|[后後]天|明[天日]|今[天日])|([明今])(早上|晚上|早|晚)"
_CHINESE_WEEKDAY = "(下{0,3}|[这這本])[个個]?(?:[周週]|星期|礼拜|禮拜)([一二三四五六日天])"
_CHINESE_DATE = f"(?:([0-9]{{4}})年)?{_DATE_NUMBER}月{_DATE_NUMBER}[日号號]"

_CHINESE_PART = f"({_any_of(name for name in _PARTS if not name.isascii() and len(name) > 1)})"
_IN_THE_PART = r"(?:\s+(?:in\s+the\s+(morning|afternoon|evening)|at\s+(night))(?![a-z]))?"
_DIGITAL = (
    rf"(?:{_CHINESE_PART}\s*)?(?:at\s+)?([0-9]{{1,2}}):([0-9]{{2}})(?::([0-9]{{2}}))?(?![:0-9])"
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
    rf"(?:{_CHINESE_PART}\s*)?{_DATE_NUMBER}\s*[点點时時](?:[钟鐘整])?(?:(半)|([一三])刻|"
    rf"{_DATE_NUMBER}\s*分(?![钟鐘])|([0-9]{{2}}|[零〇]{_NUMERAL}|{_NUMERAL}?十{_NUMERAL}?)"
    r"(?!\s*[个個位名人次件条斤年月天小分秒]))?"
)
_BETWEEN = r"(?:\s*,\s*|\s+|的|)在?"

# --- reading -------------------------------------------------------------------------------------


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    # Not at import: a program that starts has better things to do. ASCII, or "ſ" is an s.
    return re.compile(pattern, re.IGNORECASE | re.ASCII)


class _Reader:
    """A text and how far it has been read."""

    def __init__(self, text: str, at: int = 0) -> None:
        self.text = text
        self.at = at

    def take(self, pattern: str) -> re.Match[str] | None:
        """What stands here, if it is this."""
        match = _compiled(pattern).match(self.text, self.at)
        if match is not None:
            self.at = match.end()
        return match

    def read(self, part: Callable[[_Reader], T | None], *, between: str = "") -> T | None:
        """A part of a phrase, if one stands here and no word or number is cut in two by its end."""
        before = self.at
        if self.take(between) is not None:
            found = part(self)
            if found is not None and not _joined(self.text, self.at):
                return found
        self.at = before
        return None


def _joined(text: str, at: int) -> bool:
    """Whether the characters before and at a place belong to one word or one number."""
    before, after = text[max(0, at - 1) : at], text[at : at + 1]
    if not before or not after:
        return False
    if before.isascii():
        return before.isalnum() and (after in "'’" or (after.isascii() and after.isalnum()))
    return before in _NUMERAL and after in _NUMERAL


_AGAIN: Final = Phrase(None, None, None, repeats=True)
_ASKING = r"(?:(?:please\s+)?(?:remind\s+)?me(?:\s+|$)|[请請]?提醒我[\s,:]*)?"
_FILLING = (
    r"[\s,;:，。、；：—–-]*(?:(?:(?:please\s+)?remind\s+)?me(?:\s+|$))?"
    r"(?:(?:to|that|about|of)(?:\s+|$))?(?:[请請]?提醒我[\s,，:：]*)?"
)
# A time after one of these belongs to the words ("pack for tomorrow"), or is half of what nobody
# can read for sure ("3/4 18:00").
_BELONGING = (
    r".*(?:\b(?:for|until|till|by|before|after|about|since|of|from|than|the)|"
    r"[0-9][./:][0-9./]*)\s*$"
)
# "every day", "on mondays", 每天: no one time, wherever a time may stand.
_EVERY = (
    r"(?:\b(?:every|each)\s+(?:(?:single|other|second|few|couple\s+of|[0-9]{1,3}|"
    rf"{_any_of(_WORDS)})\s+)?(?:(?:mon|tues|wednes|thurs|fri|satur|sun|week)days?|weekends?|"
    r"mornings?|noon|afternoons?|evenings?|nights?|hours?|minutes?|days?|weeks?|months?|years?)\b|"
    r"\bon\s+(?:mon|tues|wednes|thurs|fri|satur|sun|week)days\b|"
    rf"每[个個隔]?(?:[0-9]{{1,3}}|{_NUMERAL}{{1,3}}|半)?[个個]?"
    r"(?:天|日|早|晚|周|週|星期|礼拜|禮拜|月|年|小时|小時|分钟|分鐘)|天天)"
)
_REPEATING = rf"(?:{_EVERY}|\b(?:daily|weekly|monthly|yearly|hourly|nightly)\b)"
_EDGES = " \t\r\n,，;；、"


def _at_beginning(text: str) -> Phrase | None:
    reader = _Reader(_plain(text[:LEAD]))
    reader.take(_ASKING)
    if reader.take(_REPEATING) is not None:
        return _AGAIN
    found = _phrase(reader)
    if found is None:
        return None
    if reader.take(rf"[\s,]*{_EVERY}") is not None:
        return _AGAIN
    return replace(found, rest=_words(text[reader.at :]))


def _at_end(text: str) -> Phrase | None:
    text = text.rstrip(" \t\r\n.!?。！？")
    offset = max(0, len(text) - TAIL)
    window = _plain(text[offset:])
    if _compiled(rf".*{_REPEATING}$").match(window):
        return _AGAIN
    for start in range(len(window)):
        if window[start].isspace() or _joined(window, start):
            continue
        reader = _Reader(window, start)
        found = _phrase(reader)
        if found is not None and reader.at == len(window):
            before = window[:start]
            if _compiled(rf".*(?:{_REPEATING}|\b(?:every|each))[\s,]*$").match(before):
                return _AGAIN
            if _compiled(_BELONGING).match(before):
                return None
            return replace(found, rest=_words(text[: offset + start]))
    return None


def _plain(text: str) -> str:
    """The text as it is read, with every character where it was."""
    text = text.translate(_NARROW).replace("\n", " ")
    return _compiled(r"(?<=[0-9])t(?=[0-9]{1,2}:)").sub(" ", text)  # 2026-12-24T18:00


def _words(rest: str) -> str:
    """What is to be said, without what leads to it."""
    filling = _compiled(_FILLING).match(rest[:LEAD])
    return rest[filling.end() if filling else 0 :].strip(_EDGES)


def _phrase(reader: _Reader) -> Phrase | None:
    span = reader.read(_span)
    if span is not None:
        by_calendar = not span.seconds and (span.days or span.months)
        clock = reader.read(_clock, between=_BETWEEN) if by_calendar else None
        return Phrase(span, None, clock)
    day = reader.read(_day)
    if day is not None:
        return Phrase(None, day, reader.read(_clock, between=_BETWEEN))
    clock = reader.read(_clock)
    if clock is not None:
        return Phrase(None, reader.read(_day, between=r"\s+"), clock)
    return None


def _span(reader: _Reader) -> Span | None:
    is_led = reader.take(r"(?:in|after)\s+") is not None
    span = _english_span(reader)
    if span is not None:
        return span if is_led or reader.take(r"\s+(?:from\s+now|later)(?![a-z])") else None
    is_led = reader.take(r"再?[过過]\s*") is not None
    span = _chinese_span(reader)
    if span is None:
        return None
    return span if reader.take(r"\s*[以之]?[后後]") or is_led else None


def _english_span(reader: _Reader) -> Span | None:
    span: Span | None = None
    between = ""
    while piece := reader.take(between + _PIECE):
        amount = _number(piece[1]) + (Fraction(1, 2) if piece[3] else 0)
        span = (span or Span()).plus(amount, _UNITS[piece[2].lower()])
        between = r"\s*(?:,\s*|and\s+)?"
    return span


def _chinese_span(reader: _Reader) -> Span | None:
    span: Span | None = None
    while piece := reader.take(r"\s*" + _CHINESE_PIECE):
        counter = piece[2] or piece[4] or ""
        amount = _number(piece[1])
        amount += Fraction(1, 2) * (counter.endswith("半") + bool(piece[6]))
        span = (span or Span()).plus(amount, _UNITS[piece[3] or piece[5]])
    return span


def _day(reader: _Reader) -> Day | None:
    if match := reader.take(_ENGLISH_DAY):
        return _english_day(match)
    if match := reader.take(_THIS_PART):
        return Day(part=_PARTS[match[1].lower()])
    if match := reader.take(_ISO_DATE):
        return Day(date=(int(match[1]), int(match[2]), int(match[3])))
    if match := reader.take(_DAY_MONTH):
        return Day(date=(_year(match[3]), month_of(match[2]), int(match[1])))
    if match := reader.take(_MONTH_DAY):
        return Day(date=(_year(match[3]), month_of(match[1]), int(match[2])))
    return _chinese_day(reader)


def _english_day(match: re.Match[str]) -> Day:
    part = _PARTS[(match["part"] or "").lower()] if match["part"] else ""
    if match["after"] or match["tomorrow"] or match["today"]:
        return Day(2 if match["after"] else 1 if match["tomorrow"] else 0, part=part)
    if match["tonight"]:
        return Day(part="evening")
    if match["week"]:
        return Day(7, part=part)
    name = (match["weekday"] or match["short"])[:3].lower()
    which = (match["which"] or match["which_short"] or "").lower()
    return Day(weekday=_WEEKDAYS.index(name), weeks=1 if which == "next" else None, part=part)


def _chinese_day(reader: _Reader) -> Day | None:
    if match := reader.take(_CHINESE_DAY):
        if match[2]:
            return Day(int(match[2] == "明"), part=_PARTS[match[3]])
        ahead = {"今": 0, "明": 1, "大": 3}.get(match[1][0], 2)
        return Day(ahead)
    if match := reader.take(_CHINESE_WEEKDAY):
        weeks = match[1].count("下") if match[1] else None
        return Day(weekday=min("一二三四五六日天".index(match[2]), 6), weeks=weeks)
    if match := reader.take(_CHINESE_DATE):
        return Day(date=(_year(match[1]), int(_number(match[2])), int(_number(match[3]))))
    return None


def _clock(reader: _Reader) -> Clock | None:
    if match := reader.take(_DIGITAL):
        part, hour, minute, second, half, by_day, night = match.groups()
        return Clock(
            int(hour), int(minute), int(second or 0), _half(half), _part(part or by_day or night)
        )
    if match := reader.take(_TWELVE_HOURS):
        return Clock(int(match[1]), half=_half(match[2]))
    if match := reader.take(_BARE_HOUR):
        return Clock(int(match[1] or match[2]), part=_part(match[3] or match[4]))
    if match := reader.take(_NAMED_HOUR):
        return Clock(None, part=_part(match[1]))
    return _chinese_clock(reader)


def _chinese_clock(reader: _Reader) -> Clock | None:
    if match := reader.take(_CHINESE_HOUR):
        part, hour, half_past, quarters, minutes, bare = match.groups()
        minute = 30 if half_past else 0
        minute += 15 * int(_number(quarters)) if quarters else 0
        minute += int(_number(minutes or bare)) if minutes or bare else 0
        return Clock(int(_number(hour)), minute, part=_part(part))
    if match := reader.take(_CHINESE_PART):
        return Clock(None, part=_part(match[1]))
    return None


def _half(letter: str | None) -> Literal["", "am", "pm"]:
    if not letter:
        return ""
    return "am" if letter.lower() == "a" else "pm"


def _part(name: str | None) -> Part:
    return _PARTS[name.lower()] if name else ""


def _year(digits: str | None) -> int | None:
    return int(digits) if digits else None
