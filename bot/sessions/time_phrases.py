"""How people write times, in English and Chinese, as values; `due_time` says what they mean."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Final

from bot.clock import month_of
from bot.sessions.repeat_phrases import Repetition, repetition_at
from bot.sessions.time_words import (
    BETWEEN,
    DATE_NUMBER,
    MONTH,
    NUMERAL,
    PARTS,
    UNITS,
    WEEKDAYS,
    WORDS,
    Clock,
    Part,
    Reader,
    any_of,
    clock_at,
    compiled,
    joined,
    number,
)

LEAD = 160  # characters at the beginning of a text in which a time is looked for
TAIL = 64  # and at its end


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
class Phrase:
    """What a text says of a time, and its other words."""

    span: Span | None
    day: Day | None
    clock: Clock | None
    rest: str = ""
    repeats: bool = False  # no one time, but again and again
    repetition: Repetition | None = None  # how often, where that can be read


def find(text: str) -> Phrase | None:
    """The time a text begins with, or else ends with."""
    text = text.strip()
    return _at_beginning(text) or _at_end(text)


def beginning(text: str) -> int:
    """How many characters at the beginning of a text say when, once or again and again."""
    reader = Reader(_plain(text[:LEAD]))
    if reader.read(repetition_at) is None and _phrase(reader) is None:
        return 0
    return reader.at


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
# One character for one, so that places in the text stay what they are.
_NARROW: Final = {
    0xA0: " ",
    0x3000: " ",
    **{code: chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F)},
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
_THIS_PART = r"this\s+(morning|afternoon|evening)(?![a-z])"
_ISO_DATE = r"(?:on\s+)?([0-9]{4})-([0-9]{1,2})-([0-9]{1,2})"
_DAY_MONTH = rf"(?:on\s+)?(?:the\s+)?{_DAY_OF_MONTH}\s+(?:of\s+)?{MONTH}{_YEAR}"
_MONTH_DAY = rf"(?:on\s+)?{MONTH}\s+(?:the\s+)?{_DAY_OF_MONTH}{_YEAR}"
_CHINESE_DAY = "(大[后後]天|[后後]天|明[天日]|今[天日])|([明今])(早上|晚上|早|晚)"
_CHINESE_WEEKDAY = "(下{0,3}|[这這本])[个個]?(?:[周週]|星期|礼拜|禮拜)([一二三四五六日天])"
_CHINESE_DATE = f"(?:([0-9]{{4}})年)?{DATE_NUMBER}月{DATE_NUMBER}[日号號]"


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
    rf"{any_of(WORDS)})\s+)?(?:(?:mon|tues|wednes|thurs|fri|satur|sun|week)days?|weekends?|"
    r"mornings?|noon|afternoons?|evenings?|nights?|hours?|minutes?|days?|weeks?|months?|years?)\b|"
    r"\bon\s+(?:mon|tues|wednes|thurs|fri|satur|sun|week)days\b|"
    rf"每[个個隔]?(?:[0-9]{{1,3}}|{NUMERAL}{{1,3}}|半)?[个個]?"
    r"(?:天|日|早|晚|周|週|星期|礼拜|禮拜|月|年|小时|小時|分钟|分鐘)|天天)"
)
_REPEATING = rf"(?:{_EVERY}|\b(?:daily|weekly|monthly|yearly|hourly|nightly)\b)"
_MAY_REPEAT = (
    r".*(?:every|each|on\s|at\s+weekends|(?:dai|week|month|year|hour|night|annual)ly|[每隔]|"
    r"天天|工作日)"
)
_EDGES = " \t\r\n,，;；、"


def _at_beginning(text: str) -> Phrase | None:
    reader = Reader(_plain(text[:LEAD]))
    reader.take(_ASKING)
    repetition = reader.read(repetition_at)
    if repetition is not None:
        return _again(repetition, _words(text[reader.at :]))
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
    if (again := _repetition_at_end(window)) is not None:
        repetition, start = again
        return _again(repetition, _words(text[: offset + start]))
    if compiled(rf".*{_REPEATING}$").match(window):
        return _AGAIN
    for start in range(len(window)):
        if window[start].isspace() or joined(window, start):
            continue
        reader = Reader(window, start)
        found = _phrase(reader)
        if found is not None and reader.at == len(window):
            before = window[:start]
            if compiled(rf".*(?:{_REPEATING}|\b(?:every|each))[\s,]*$").match(before):
                return _AGAIN
            if compiled(_BELONGING).match(before):
                return None
            return replace(found, rest=_words(text[: offset + start]))
    return None


def _repetition_at_end(window: str) -> tuple[Repetition, int] | None:
    """How often, if a text ends with that, and where it begins there."""
    if compiled(_MAY_REPEAT).match(window) is None:
        return None
    for start in range(len(window)):
        if window[start].isspace() or joined(window, start):
            continue
        reader = Reader(window, start)
        found = reader.read(repetition_at)
        if found is not None and reader.at == len(window):
            is_of_words = compiled(_BELONGING).match(window[:start])
            return None if is_of_words else (found, start)
    return None


def _again(repetition: Repetition, rest: str) -> Phrase:
    return Phrase(None, None, None, rest, repeats=True, repetition=repetition)


def _plain(text: str) -> str:
    """The text as it is read, with every character where it was."""
    text = text.translate(_NARROW).replace("\n", " ")
    return compiled(r"(?<=[0-9])t(?=[0-9]{1,2}:)").sub(" ", text)  # 2026-12-24T18:00


def _words(rest: str) -> str:
    """What is to be said, without what leads to it."""
    filling = compiled(_FILLING).match(rest[:LEAD])
    return rest[filling.end() if filling else 0 :].strip(_EDGES)


def _phrase(reader: Reader) -> Phrase | None:
    span = reader.read(_span)
    if span is not None:
        by_calendar = not span.seconds and (span.days or span.months)
        clock = reader.read(clock_at, between=BETWEEN) if by_calendar else None
        return Phrase(span, None, clock)
    day = reader.read(_day)
    if day is not None:
        return Phrase(None, day, reader.read(clock_at, between=BETWEEN))
    clock = reader.read(clock_at)
    if clock is not None:
        return Phrase(None, reader.read(_day, between=r"\s+"), clock)
    return None


def _span(reader: Reader) -> Span | None:
    is_led = reader.take(r"(?:in|after)\s+") is not None
    span = _english_span(reader)
    if span is not None:
        return span if is_led or reader.take(r"\s+(?:from\s+now|later)(?![a-z])") else None
    is_led = reader.take(r"再?[过過]\s*") is not None
    span = _chinese_span(reader)
    if span is None:
        return None
    return span if reader.take(r"\s*[以之]?[后後]") or is_led else None


def _english_span(reader: Reader) -> Span | None:
    span: Span | None = None
    between = ""
    while piece := reader.take(between + _PIECE):
        amount = number(piece[1]) + (Fraction(1, 2) if piece[3] else 0)
        span = (span or Span()).plus(amount, UNITS[piece[2].lower()])
        between = r"\s*(?:,\s*|and\s+)?"
    return span


def _chinese_span(reader: Reader) -> Span | None:
    span: Span | None = None
    while piece := reader.take(r"\s*" + _CHINESE_PIECE):
        counter = piece[2] or piece[4] or ""
        amount = number(piece[1])
        amount += Fraction(1, 2) * (counter.endswith("半") + bool(piece[6]))
        span = (span or Span()).plus(amount, UNITS[piece[3] or piece[5]])
    return span


def _day(reader: Reader) -> Day | None:
    if match := reader.take(_ENGLISH_DAY):
        return _english_day(match)
    if match := reader.take(_THIS_PART):
        return Day(part=PARTS[match[1].lower()])
    if match := reader.take(_ISO_DATE):
        return Day(date=(int(match[1]), int(match[2]), int(match[3])))
    if match := reader.take(_DAY_MONTH):
        return Day(date=(_year(match[3]), month_of(match[2]), int(match[1])))
    if match := reader.take(_MONTH_DAY):
        return Day(date=(_year(match[3]), month_of(match[1]), int(match[2])))
    return _chinese_day(reader)


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


def _chinese_day(reader: Reader) -> Day | None:
    if match := reader.take(_CHINESE_DAY):
        if match[2]:
            return Day(int(match[2] == "明"), part=PARTS[match[3]])
        ahead = {"今": 0, "明": 1, "大": 3}.get(match[1][0], 2)
        return Day(ahead)
    if match := reader.take(_CHINESE_WEEKDAY):
        weeks = match[1].count("下") if match[1] else None
        return Day(weekday=min("一二三四五六日天".index(match[2]), 6), weeks=weeks)
    if match := reader.take(_CHINESE_DATE):
        return Day(date=(_year(match[1]), int(number(match[2])), int(number(match[3]))))
    return None


def _year(digits: str | None) -> int | None:
    return int(digits) if digits else None
