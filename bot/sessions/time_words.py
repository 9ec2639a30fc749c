"""Words and numbers that times are written with, in English and Chinese; times of day are read."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from typing import Final, Literal, TypeVar

from bot.clock import MONTH_NAME, month_of
from bot.sessions import zones

Part = Literal["", "dawn", "morning", "noon", "afternoon", "dusk", "evening", "midnight"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Clock:
    """A time of day as it was written; the hour is None when only a part of the day was.

    `loose` is how an hour was written that may be one of the morning or of the afternoon: as it
    is spoken ("at 3", 三点半) or with its minutes ("3:30").
    """

    hour: int | None
    minute: int = 0
    second: int = 0
    half: Literal["", "am", "pm"] = ""
    part: Part = ""
    loose: Literal["", "spoken", "written"] = ""
    zone: str = ""  # as it was written


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
    """A day: so many days from today, a weekday so many weeks on, a day of a month, or a date.

    `weeks` None is the next such weekday, a date's year None the next such date. `of_month` is
    how many months on, None for the next, and which day there; with a weekday it is both.
    """

    ahead: int = 0
    weekday: int | None = None
    weeks: int | None = None
    date: tuple[int | None, int, int] | None = None
    of_month: tuple[int | None, int] | None = None
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
_CHINESE_CLOCK_AHEAD = rf"{CHINESE_PART}|{DATE_NUMBER}\s*[点點时時:]"
# Abbreviations of two letters are words unless they are in capitals, and so are names.
_ZONE = (
    r"\s*\(?\s*(?:((?:utc|gmt)\s*[+-]\s*[0-9]{1,2}(?::?[0-9]{2})?(?![0-9:]))|"
    r"(utc|gmt|e[sd]t|c[sd]t|m[sd]t|p[sd]t|cet|cest|eet|eest|bst|ist|msk|jst|kst|hkt|sgt|aest|aedt|"
    r"(?-i:[ECMP]T|[A-Z]{3}(?=\s+time\b)))(?:\s+time)?(?![a-z0-9/])|"
    r"(?-i:([A-Z][a-z]+/[A-Z][A-Za-z_]+(?:/[A-Z][A-Za-z_]+)?))(?:\s+time)?(?![a-z])|"
    r"(?-i:([A-Z][a-z]+(?:\s[A-Z][a-z]+){0,2}))\s+time(?![a-z]))(?:\s*\))?"
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
        """The match of a pattern here, which is read past; None for no match."""
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
    """True if the characters before and at a place belong to one word or one number."""
    before, after = text[max(0, at - 1) : at], text[at : at + 1]
    if not before or not after:
        return False
    if before.isascii():
        return before.isalnum() and (after in "'’" or (after.isascii() and after.isalnum()))
    return before in NUMERAL and after in NUMERAL


def clock_at(reader: Reader) -> Clock | None:
    """The time of day that stands here, and its time zone where one is named."""
    before = _chinese_zone(reader)
    clock = _clock(reader)
    if clock is None or (clock.hour is None and before):
        return None
    return replace(clock, zone=before or _zone_behind(reader))


def _clock(reader: Reader) -> Clock | None:
    if match := reader.take(_DIGITAL):
        part, hour, minute, second, half, by_day, night = match.groups()
        is_certain = half or part or by_day or night
        return Clock(
            int(hour),
            int(minute),
            int(second or 0),
            _half(half),
            part_of(part or by_day or night),
            loose="" if is_certain else _loose(hour, "written"),
        )
    if match := reader.take(_TWELVE_HOURS):
        return Clock(int(match[1]), half=_half(match[2]))
    if match := reader.take(_BARE_HOUR):
        hour, part = match[1] or match[2], part_of(match[3] or match[4])
        return Clock(int(hour), part=part, loose="" if part else _loose(hour, "spoken"))
    if match := reader.take(_NAMED_HOUR):
        return Clock(None, part=part_of(match[1]))
    return _chinese_clock(reader)


def _loose(hour: str, how: Literal["spoken", "written"]) -> Literal["", "spoken", "written"]:
    """The spelling of an hour that may be one of twelve: 3, not 03, 0 or 15."""
    return how if 1 <= int(number(hour)) <= 11 and not hour.startswith("0") else ""


def _chinese_clock(reader: Reader) -> Clock | None:
    if match := reader.take(_CHINESE_HOUR):
        part, hour, half_past, quarters, minutes, bare = match.groups()
        minute = 30 if half_past else 0
        minute += 15 * int(number(quarters)) if quarters else 0
        minute += int(number(minutes or bare)) if minutes or bare else 0
        loose = "" if part else _loose(hour, "spoken")
        return Clock(int(number(hour)), minute, part=part_of(part), loose=loose)
    if match := reader.take(CHINESE_PART):
        return Clock(None, part=part_of(match[1]))
    return None


def _chinese_zone(reader: Reader) -> str:
    before = reader.at
    match = reader.take(rf"([\u4e00-\u9fff]{{2,4}}?)(?:时间|時間)的?\s*(?={_CHINESE_CLOCK_AHEAD})")
    if match and zones.zone_named(match[1]):
        return match[1]
    reader.at = before
    return ""


def _zone_behind(reader: Reader) -> str:
    match = reader.take(_ZONE)
    return next(filter(None, match.groups()), "") if match else ""


def _half(letter: str | None) -> Literal["", "am", "pm"]:
    if not letter:
        return ""
    return "am" if letter.lower() == "a" else "pm"


def part_of(name: str | None) -> Part:
    """The part of the day that a word names; of no word, none."""
    return PARTS[name.lower()] if name else ""


# --- spans and days -------------------------------------------------------------------------------

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
_ASCII_UNITS = any_of(name for name in UNITS if name.isascii())
_CHINESE_UNITS = any_of(name for name in UNITS if not name.isascii() and name != "月")
_DAY_OF_MONTH = r"([0-9]{1,2})(?:st|nd|rd|th)?(?![0-9a-z:])"
_YEAR = r"(?:,?\s+([0-9]{4})(?![0-9:]))?"

_PIECE = (
    rf"(half\s+an?|an?(?=\s)|[0-9]{{1,7}}(?:\.[0-9]{{1,2}})?|{any_of(WORDS)})\s*"
    rf"({_ASCII_UNITS})(?![a-z])(\s+and\s+a\s+half(?![a-z]))?"
)
_CHINESE_PIECE = (
    rf"([0-9]{{1,7}}(?:\.[0-9]{{1,2}})?|半|{NUMERAL}{{1,5}})\s*"
    rf"(?:([个個]半?)?\s*({_CHINESE_UNITS})|([个個]半?)\s*(月))(半?)"
)
_ENGLISH_DAY = (
    r"(?:(?:the\s+)?(?P<after>day\s+after\s+tomorrow)|(?P<tomorrow>tomorrow)|(?P<today>today)|"
    r"(?P<tonight>tonight)|(?P<week>next\s+week)|"
    r"(?:on\s+|(?P<which>this|next)\s+)?(?P<weekday>mon|tues|wednes|thurs|fri|satur|sun)day|"
    r"(?:on|(?P<which_short>this|next))\s+(?P<short>mon|tues?|wed|thu(?:rs?)?|fri|sat|sun))"
    r"(?:\s+(?:in\s+the\s+)?(?P<part>morning|afternoon|evening|night))?(?![a-z])"
)
_WEEKDAY = r"(?P<weekday>mon|tues|wednes|thurs|fri|satur|sun)day"
_PART_BEHIND = r"(?:\s+(?:in\s+the\s+)?(?P<part>morning|afternoon|evening|night))?(?![a-z])"
_NUMBERED = r"(?P<number>[0-9]{1,2})(?:st|nd|rd|th)"
# Two words for one day: "next week monday", "friday the 13th", "on the 3rd of next month".
_PAIRED = tuple(
    f"(?:on\\s+)?{pair}{_PART_BEHIND}"
    for pair in (
        rf"(?P<which>next|this)\s+week[\s,]+(?:on\s+)?{_WEEKDAY}",
        rf"{_WEEKDAY}[\s,]+(?:of\s+)?(?P<which>next|this)\s+week",
        rf"{_WEEKDAY}[\s,]+the\s+{_NUMBERED}",
        rf"(?P<which>next|this)\s+month[\s,]+(?:on\s+)?(?:the\s+)?{_NUMBERED}",
        rf"(?:the\s+)?{_NUMBERED}\s+(?:of\s+)?(?P<which>next|this)\s+month",
        rf"the\s+{_NUMBERED}(?=\s*(?:$|,|at\s|[0-9]))",
    )
)
_THIS_PART = r"this\s+(morning|afternoon|evening)(?![a-z])"
_ISO_DATE = r"(?:on\s+)?([0-9]{4})-([0-9]{1,2})-([0-9]{1,2})"
_DAY_MONTH = rf"(?:on\s+)?(?:the\s+)?{_DAY_OF_MONTH}\s+(?:of\s+)?{MONTH}{_YEAR}"
_MONTH_DAY = rf"(?:on\s+)?{MONTH}\s+(?:the\s+)?{_DAY_OF_MONTH}{_YEAR}"
_CHINESE_DAY = "(大[后後]天|[后後]天|明[天日]|今[天日])|([明今])(早上|晚上|早|晚)"
_CHINESE_WEEKDAY = "(下{0,3}|[这這本])[个個]?(?:[周週]|星期|礼拜|禮拜)([一二三四五六日天])"
_CHINESE_OF_MONTH = f"(下{{1,2}}|[这這本])[个個]?月的?{DATE_NUMBER}[日号號]"
_CHINESE_NUMBERED = rf"{DATE_NUMBER}[日号號](?=[的在]?\s*(?:{_CHINESE_CLOCK_AHEAD}))"
_CHINESE_DATE = f"(?:([0-9]{{4}})年)?{DATE_NUMBER}月{DATE_NUMBER}[日号號]"


def span_at(reader: Reader) -> Span | None:
    """The time from now that stands here."""
    is_led = reader.take(r"(?:in|after)\s+") is not None
    span = english_span(reader)
    if span is not None:
        return span if is_led or reader.take(r"\s+(?:from\s+now|later)(?![a-z])") else None
    is_led = reader.take(r"再?[过過]\s*") is not None
    span = chinese_span(reader)
    if span is None:
        return None
    return span if reader.take(r"\s*[以之]?[后後]") or is_led else None


def english_span(reader: Reader) -> Span | None:
    """The length of time written here: "2 hours and 5 minutes"."""
    span: Span | None = None
    between = ""
    while piece := reader.take(between + _PIECE):
        amount = number(piece[1]) + (Fraction(1, 2) if piece[3] else 0)
        span = (span or Span()).plus(amount, UNITS[piece[2].lower()])
        between = r"\s*(?:,\s*|and\s+)?"
    return span


def chinese_span(reader: Reader) -> Span | None:
    """The length of time written here: 两小时五分钟."""
    span: Span | None = None
    while piece := reader.take(r"\s*" + _CHINESE_PIECE):
        counter = piece[2] or piece[4] or ""
        amount = number(piece[1])
        amount += Fraction(1, 2) * (counter.endswith("半") + bool(piece[6]))
        span = (span or Span()).plus(amount, UNITS[piece[3] or piece[5]])
    return span


def day_at(reader: Reader) -> Day | None:
    """The day that stands here."""
    for pattern, read in _DAYS:
        if match := reader.take(pattern):
            return read(match)
    return None


def _paired_day(match: re.Match[str]) -> Day:
    said = match.groupdict()
    ahead = {"next": 1, "this": 0}.get((said.get("which") or "").lower())
    weekday = WEEKDAYS.index(said["weekday"][:3].lower()) if said.get("weekday") else None
    of_month = (ahead, int(said["number"])) if said.get("number") else None
    return Day(
        weekday=weekday,
        weeks=None if of_month else ahead,
        of_month=of_month,
        part=part_of(said["part"]),
    )


def _english_day(match: re.Match[str]) -> Day:
    part = PARTS[(match["part"] or "").lower()] if match["part"] else ""
    if match["after"] or match["tomorrow"] or match["today"]:
        return Day(2 if match["after"] else 1 if match["tomorrow"] else 0, part=part)
    if match["tonight"]:
        return Day(part="evening")
    if match["week"]:
        return Day(7, part=part)
    name = (match["weekday"] or match["short"])[:3].lower()
    which = (match["which"] or match["which_short"] or "").lower()
    return Day(weekday=WEEKDAYS.index(name), weeks=1 if which == "next" else None, part=part)


def _chinese_day(match: re.Match[str]) -> Day:
    if match[2]:
        return Day(int(match[2] == "明"), part=PARTS[match[3]])
    return Day({"今": 0, "明": 1, "大": 3}.get(match[1][0], 2))


def _chinese_weekday(match: re.Match[str]) -> Day:
    weeks = match[1].count("下") if match[1] else None
    return Day(weekday=min("一二三四五六日天".index(match[2]), 6), weeks=weeks)


def _year(digits: str | None) -> int | None:
    return int(digits) if digits else None


_DAYS: Final[tuple[tuple[str, Callable[[re.Match[str]], Day]], ...]] = (
    *((pattern, _paired_day) for pattern in _PAIRED),
    (_ENGLISH_DAY, _english_day),
    (_THIS_PART, lambda m: Day(part=PARTS[m[1].lower()])),
    (_ISO_DATE, lambda m: Day(date=(int(m[1]), int(m[2]), int(m[3])))),
    (_DAY_MONTH, lambda m: Day(date=(_year(m[3]), month_of(m[2]), int(m[1])))),
    (_MONTH_DAY, lambda m: Day(date=(_year(m[3]), month_of(m[1]), int(m[2])))),
    (_CHINESE_DAY, _chinese_day),
    (_CHINESE_WEEKDAY, _chinese_weekday),
    (_CHINESE_OF_MONTH, lambda m: Day(of_month=(m[1].count("下"), int(number(m[2]))))),
    (_CHINESE_NUMBERED, lambda m: Day(of_month=(None, int(number(m[1]))))),
    (_CHINESE_DATE, lambda m: Day(date=(_year(m[1]), int(number(m[2])), int(number(m[3]))))),
)
