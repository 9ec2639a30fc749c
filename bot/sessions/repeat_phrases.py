"""Recurrence as people write it, in English and Chinese, read as rules. Pure.

What it says is read once, for `time_phrases`; a time of day may stand before it or after it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final

from bot.clock import month_of
from bot.sessions.recurrence import WORKDAYS, Frequency, Rule
from bot.sessions.time_words import (
    BETWEEN,
    DATE_NUMBER,
    MONTH,
    NUMERAL,
    PARTS,
    WEEKDAYS,
    WORDS,
    Clock,
    Day,
    Part,
    Reader,
    Span,
    any_of,
    chinese_span,
    clock_at,
    compiled,
    day_at,
    english_span,
    joined,
    number,
    part_of,
)


@dataclass(frozen=True, slots=True)
class Repetition:
    """A rule without its times of day and its end, and these as they were written.

    The day `until` which it comes is the last one, or with `is_before` the first without it.
    """

    rule: Rule
    clocks: tuple[Clock, ...] = ()
    part: Part = ""
    until: Day | None = None
    is_before: bool = False
    lasting: Span | None = None


Read = Callable[[re.Match[str]], Repetition | None]


def repetition_at(reader: Reader) -> Repetition | None:
    """The repetition written here, if any."""
    clocks = _clocks(reader, "")
    if clocks:
        reader.take(r"[\s,]*")
    found = _english(reader) or _chinese(reader)
    if found is None:
        return None
    found = replace(found, clocks=clocks)
    found = completed(reader, found)
    clocks = tuple(
        replace(each, part=found.part, loose="")
        if found.part and not each.part and not each.half
        else each
        for each in found.clocks
    )
    return replace(found, clocks=clocks)


def completed(reader: Reader, found: Repetition) -> Repetition:
    """With the days, times of day and end that stand here, in any order."""
    before = -1
    while reader.at > before:
        before = reader.at
        found = _ended(reader, _without(reader, _timed(reader, _with_days(reader, found))))
    return found


def _timed(reader: Reader, found: Repetition) -> Repetition:
    """With the times of day that stand behind."""
    if found.clocks:
        return found
    if clocks := _clocks(reader, BETWEEN):
        return replace(found, clocks=clocks)
    part = reader.take(_IN_THE_PART)
    return replace(found, part=part_of(part[1] or part[2])) if part else found


def _clocks(reader: Reader, between: str) -> tuple[Clock, ...]:
    found: list[Clock] = []
    while (clock := reader.read(clock_at, between=between)) is not None:
        found.append(clock)
        between = r"\s*(?:,\s*(?:and\s+)?|and\s+|&\s*|[、和及跟])\s*"
    return tuple(found)


def _without(reader: Reader, found: Repetition) -> Repetition:
    """Without the days of the week that are excepted behind it."""
    rule, before = found.rule, reader.at
    days = rule.weekdays or (_EVERY_DAY if rule.frequency == "DAILY" else ())
    if rule.interval != 1 or rule.frequency not in {"DAILY", "WEEKLY"} or not days:
        return found
    match = reader.take(_EXCEPT) or reader.take(_CHINESE_EXCEPT)
    if match is None:
        return found
    gone = _WEEKEND if match["end"] else _excepted(match["names"])
    left = tuple(day for day in days if day not in gone)
    if joined(reader.text, reader.at) or not left or len(left) == len(days):
        reader.at = before
        return found
    return replace(found, rule=replace(rule, frequency="WEEKLY", weekdays=left))


def _ended(reader: Reader, found: Repetition) -> Repetition:
    """With its end, where that stands behind: "until june", "for a week", 持续一周."""
    before = reader.at
    if found.until is not None or found.lasting is not None:
        return found
    if reader.take(_UNTIL):
        day = reader.read(day_at)
        if day is not None and not day.part:
            reader.take("(?:为止|為止)")
            return replace(found, until=day)
        if (month := reader.read(month_at)) is not None:
            return replace(found, until=Day(date=(None, month, 1)), is_before=True)
    reader.at = before
    if reader.take(r"[\s,]*for\s+(?:the\s+next\s+)?"):
        lasting = reader.read(english_span)
    else:
        lasting = reader.read(chinese_span, between=r"[\s,]*(?:持续|持續|连续|連續|为期|為期)")
    if lasting is not None and not lasting.seconds:
        return replace(found, lasting=lasting)
    reader.at = before
    return found


def month_at(reader: Reader) -> int | None:
    """The month that stands here."""
    if match := reader.take(MONTH):
        return month_of(match[1])
    match = reader.take(f"{DATE_NUMBER}月(?:份|为止|為止)?(?![0-9])")
    return int(number(match[1])) if match and 1 <= number(match[1]) <= 12 else None


# --- English -------------------------------------------------------------------------------------

_NAME = r"(?:mon|tues?|wed(?:nes)?|thu(?:rs?)?|fri|sat(?:ur)?|sun)(?:days?)?(?![a-z])"
_AND = r"\s*(?:,\s*and\b|,|\band\b|&)\s*"
_TO = r"\s*(?:\bto\b|\bthrough\b|-|–)\s*"
_LISTED = rf"{_NAME}(?:(?:{_AND}|{_TO}){_NAME})*"
_NAMES = f"({_LISTED})"
_PLURALS = (
    r"((?:mon|tues|wednes|thurs|fri|satur|sun)days(?![a-z])"
    rf"(?:{_AND}(?:mon|tues|wednes|thurs|fri|satur|sun)days(?![a-z]))*)"
)
_EVERY = r"(?:every|each)\s+"
_COUNT = rf"(?:(other|second|single|half(?:\s+an?)?|[0-9]{{1,4}}|{any_of(WORDS)})\s+)?"
_UNIT = r"(second|minute|hour|day|week|fortnight|month|quarter|year)s?(?![a-z])"
_WORKDAYS = r"(weekday|workday|working\s+day|weekend)s?(?![a-z])"
_PART = r"(?:\s+(morning|afternoon|evening|night)s?(?![a-z]))?"
_BARE_PART = r"(morning|noon|afternoon|evening|night|midnight)s?(?![a-z])"
_IN_THE_PART = r"\s+(?:in\s+the\s+(morning|afternoon|evening)|at\s+(night))(?![a-z])"
_NTH = r"(?:([0-9]{1,2})(?:st|nd|rd|th)?|first|last)(?![0-9a-z:])"
_NTHS = rf"(?:the\s+)?({_NTH}(?:{_AND}(?:the\s+)?{_NTH})*)(?:\s+day)?"
_ORDINAL = r"(?:the\s+)?(first|1st|second|2nd|third|3rd|fourth|4th|last)\s+"
_OF_MONTH = r"\s+(?:of|in)\s+(?:each|every)\s+month(?![a-z])"
_OF_THE_MONTH = r"\s+(?:of|in)\s+(?:the|each|every)\s+month(?![a-z])"
_DATE = rf"(?:(?:the\s+)?{MONTH}\s+(?:the\s+)?([0-9]{{1,2}})|(?:the\s+)?([0-9]{{1,2}})"
_DATES = rf"{_DATE}(?:st|nd|rd|th)?\s+(?:of\s+)?{MONTH})(?:st|nd|rd|th)?(?![0-9a-z:])"
_ONE_WORD = r"(daily|weekly|fortnightly|monthly|quarterly|yearly|annually|hourly|nightly)(?![a-z])"
_END = r"(?P<end>weekends?)"
_EXCEPT = (
    rf"[\s,(]*(?:except(?:\s+for)?|excluding|but\s+not)\s+(?:on\s+|at\s+)?"
    rf"(?:the\s+)?(?:{_END}|(?P<names>{_LISTED}))\)?(?![a-z])"
)
_UNTIL = r"[\s,]*(?:(?:until|till)\s+|直到|[到至])"

_FREQUENCIES: Final[dict[str, Frequency]] = {
    "minute": "MINUTELY",
    "hour": "HOURLY",
    "day": "DAILY",
    "week": "WEEKLY",
    "month": "MONTHLY",
    "year": "YEARLY",
}
_ONE_WORDS: Final[dict[str, Frequency]] = {
    "hourly": "HOURLY",
    "daily": "DAILY",
    "nightly": "DAILY",
    "weekly": "WEEKLY",
    "fortnightly": "WEEKLY",
    "quarterly": "MONTHLY",
    "monthly": "MONTHLY",
    "yearly": "YEARLY",
    "annually": "YEARLY",
}
_WHICH: Final = {"first": 1, "1st": 1, "second": 2, "2nd": 2, "third": 3, "3rd": 3, "fourth": 4}
_WEEKEND: Final = ((0, 5), (0, 6))
_EVERY_DAY: Final = (*WORKDAYS, *_WEEKEND)
_TIMES: Final = {"fortnight": ("week", 2), "quarter": ("month", 3)}


def _english(reader: Reader) -> Repetition | None:
    found = _first_of(reader, _ENGLISH)
    if found is None and reader.take(_EVERY) is not None:
        found = _first_of(reader, _AFTER_EVERY)
    return found


def _first_of(reader: Reader, known: Iterable[tuple[str, Read]]) -> Repetition | None:
    """The repetition of the first pattern that matches here."""
    for pattern, read in known:
        if match := reader.take(pattern):
            return read(match)
    return None


def _one_word(match: re.Match[str]) -> Repetition:
    word = match[1].lower()
    interval = {"fortnightly": 2, "quarterly": 3}.get(word, 1)
    return Repetition(Rule(_ONE_WORDS[word], interval), part="evening" if word == "nightly" else "")


def _each_workday(match: re.Match[str]) -> Repetition:
    is_end = match[1].lower() == "weekend"
    return Repetition(Rule("WEEKLY", weekdays=_WEEKEND if is_end else WORKDAYS))


def _each_weekday(match: re.Match[str]) -> Repetition:
    rule = replace(_weekly(match[2]), interval=2 if match[1] else 1)
    return Repetition(rule, part=part_of(match[3]))


def _counted(match: re.Match[str]) -> Repetition | None:
    """Every so many of a unit; seconds are a rule that nobody may have."""
    count, unit = (match[1] or "").lower(), match[2].lower()
    if unit == "second":
        return Repetition(Rule("MINUTELY", 0))
    if count.startswith("half"):
        return Repetition(Rule("MINUTELY", 30)) if unit == "hour" else None
    interval = 1
    if count in {"other", "second"}:
        interval = 2
    elif count and count != "single":
        interval = int(number(count))
    unit, times = _TIMES.get(unit, (unit, 1))
    return Repetition(Rule(_FREQUENCIES[unit], interval * times))


def _excepted(names: str) -> tuple[tuple[int, int], ...]:
    return _weekly(names).weekdays if names.isascii() else _chinese_weekdays(names)


def _with_days(reader: Reader, found: Repetition) -> Repetition:
    """On which days, where that stands behind: "every month on the 1st"."""
    rule = found.rule
    if rule.weekdays or rule.days or rule.months:
        return found
    if rule.frequency == "WEEKLY" and (match := reader.take(rf"\s+on\s+{_NAMES}{_PART}")):
        rule, part = replace(rule, weekdays=_weekly(match[1]).weekdays), part_of(match[2])
        return replace(found, rule=rule, part=part or found.part)
    if rule.frequency == "MONTHLY":
        if match := reader.take(rf"\s+on\s+{_ORDINAL}{_NAME}"):
            weekdays = _monthly_weekday(match[0], match[1]).weekdays
            return replace(found, rule=replace(rule, weekdays=weekdays))
        if match := reader.take(rf"\s+on\s+{_NTHS}"):
            return replace(found, rule=replace(rule, days=_days(match[1])))
    if rule.frequency == "YEARLY" and (match := reader.take(rf"\s+on\s+{_DATES}")):
        dated = _yearly(match)
        return replace(found, rule=replace(rule, months=dated.months, days=dated.days))
    return found


def _weekly(names: str) -> Rule:
    found = [
        (bool(match[1]), WEEKDAYS.index(match[2][:3].lower()))
        for match in compiled(rf"({_TO})?({_NAME})").finditer(names)
    ]
    return Rule("WEEKLY", weekdays=_spread(found))


def _spread(days: Iterable[tuple[bool, int]]) -> tuple[tuple[int, int], ...]:
    """Days of the week, each with whether those from the one before it up to it are meant too."""
    found: list[int] = []
    for is_range, day in days:
        first = found[-1] if is_range else day
        found += [(first + ahead) % 7 for ahead in range((day - first) % 7 + 1)]
    return tuple((0, day) for day in sorted(set(found)))


def _monthly_weekday(words: str, which: str) -> Rule:
    name = compiled(_NAME).findall(words)[-1]
    number_of = -1 if which.lower() == "last" else _WHICH.get(which.lower(), 4)
    return Rule("MONTHLY", weekdays=((number_of, WEEKDAYS.index(name[:3].lower())),))


def _days(words: str) -> tuple[int, ...]:
    said = [match[0].lower() for match in compiled(r"[0-9]{1,2}|first|last").finditer(words)]
    return tuple(sorted({{"first": 1, "last": -1}.get(each) or int(each) for each in said}))


def _yearly(match: re.Match[str]) -> Rule:
    month, day = (match[1], match[2]) if match[1] else (match[4], match[3])
    return Rule("YEARLY", months=(month_of(month),), days=(int(day),))


_ENGLISH: Final[tuple[tuple[str, Read], ...]] = (
    (_ONE_WORD, _one_word),
    (rf"on\s+{_PLURALS}{_PART}", lambda m: Repetition(_weekly(m[1]), part=part_of(m[2]))),
    (r"(?:on|at)\s+(weekday|weekend)s(?![a-z])", _each_workday),
    (
        rf"(?:on\s+)?{_ORDINAL}{_NAME}{_OF_MONTH}",
        lambda m: Repetition(_monthly_weekday(m[0], m[1])),
    ),
    (rf"(?:on\s+)?{_NTHS}{_OF_MONTH}", lambda m: Repetition(Rule("MONTHLY", days=_days(m[1])))),
)
_AFTER_EVERY: Final[tuple[tuple[str, Read], ...]] = (
    (rf"{_ORDINAL}{_NAME}{_OF_THE_MONTH}", lambda m: Repetition(_monthly_weekday(m[0], m[1]))),
    (rf"{_NTHS}{_OF_THE_MONTH}", lambda m: Repetition(Rule("MONTHLY", days=_days(m[1])))),
    (_DATES, lambda m: Repetition(_yearly(m))),
    (_BARE_PART, lambda m: Repetition(Rule("DAILY"), part=part_of(m[1]))),
    (_WORKDAYS, _each_workday),
    (rf"(?:(other|second)\s+)?{_NAMES}{_PART}", _each_weekday),
    (_COUNT + _UNIT, _counted),
)

# --- Chinese -------------------------------------------------------------------------------------

_WEEK = "(?:[周週]|星期|礼拜|禮拜)"
_DAY_NAME = "[一二三四五六日天]"
_DAYS_LISTED = rf"{_DAY_NAME}(?:[、,和及跟到至-]?{_WEEK}?{_DAY_NAME})*"
_DAY_NAMES = f"({_DAYS_LISTED})(?![次个個天点點])"
_CHINESE_COUNT = rf"(?:([0-9]{{1,4}}|{NUMERAL}{{1,4}}|半)\s*)?[个個]?(半)?\s*"
_CHINESE_UNIT = "(秒|分钟|分鐘|小时|小時|钟头|鐘頭|天|日|[周週]|星期|礼拜|禮拜|月|季度?|年)"
_CHINESE_EXCEPT = (
    rf"[\s,(]*(?P<led>除了?)?(?:(?P<end>[周週]末)|{_WEEK}(?P<names>{_DAYS_LISTED}))"
    r"(?(led)(?:以外|之外|外)?|除外)\)?"
)
_MONTH_DAYS = rf"({DATE_NUMBER}[日号號](?:[、,和及跟]?{DATE_NUMBER}[日号號])*)"
_NTH_WEEKDAY = rf"的?(?:第([一二三四])|最[后後]一)[个個]{_WEEK}({_DAY_NAME})"
_MONTH_AND_DAY = f"的?{DATE_NUMBER}月{DATE_NUMBER}[日号號]"
_CHINESE_UNITS: Final[dict[str, Frequency]] = {
    **dict.fromkeys(("分钟", "分鐘"), "MINUTELY"),
    **dict.fromkeys(("小时", "小時", "钟头", "鐘頭"), "HOURLY"),
    **dict.fromkeys(("天", "日"), "DAILY"),
    **dict.fromkeys(("周", "週", "星期", "礼拜", "禮拜"), "WEEKLY"),
    **dict.fromkeys(("月", "季", "季度"), "MONTHLY"),
    "年": "YEARLY",
}


def _chinese(reader: Reader) -> Repetition | None:
    found = _first_of(reader, _CHINESE)
    return None if found is None else replace(found, rule=_on_chinese_days(reader, found.rule))


def _chinese_counted(match: re.Match[str]) -> Repetition | None:
    lead, count, half, unit = match.groups()
    if unit == "秒":
        return Repetition(Rule("MINUTELY", 0))
    frequency = _CHINESE_UNITS[unit]
    is_elapsed = frequency in {"MINUTELY", "HOURLY"}
    if half or count == "半":
        return Repetition(Rule("MINUTELY", 30)) if frequency == "HOURLY" else None
    if lead == "隔" and (count or is_elapsed):
        return None  # 隔两天 may be once
    interval = (int(number(count)) if count else 1) * (3 if unit[0] == "季" else 1)
    # 隔: so many days lie in between.
    return Repetition(Rule(frequency, interval + ("隔" in lead and not is_elapsed)))


def _on_chinese_days(reader: Reader, rule: Rule) -> Rule:
    """With the days that stand behind: 每月1号, 每两周的周一."""
    if rule.weekdays:
        return rule
    if rule.frequency == "WEEKLY" and (
        match := reader.take(rf"的?{_WEEK}{_DAY_NAMES}|([一二三四五六])(?![次个個点點十百])")
    ):
        return replace(rule, weekdays=_chinese_weekdays(match[1] or match[2]))
    if rule.frequency == "MONTHLY":
        return _on_chinese_month_days(reader, rule)
    if rule.frequency == "YEARLY" and (match := reader.take(_MONTH_AND_DAY)):
        return replace(rule, months=(int(number(match[1])),), days=(int(number(match[2])),))
    return rule


def _on_chinese_month_days(reader: Reader, rule: Rule) -> Rule:
    if match := reader.take("的?最[后後]一[天日]|[底初]"):
        return replace(rule, days=(1 if match[0] == "初" else -1,))
    if match := reader.take(_NTH_WEEKDAY):
        which = int(number(match[1])) if match[1] else -1
        return replace(rule, weekdays=((which, _chinese_weekdays(match[2])[0][1]),))
    if match := reader.take(f"的?{_MONTH_DAYS}"):
        said = {int(number(each)) for each in compiled(DATE_NUMBER).findall(match[1])}
        return replace(rule, days=tuple(sorted(said)))
    return rule


def _chinese_weekdays(names: str) -> tuple[tuple[int, int], ...]:
    found = compiled(rf"([到至-]?){_WEEK}?({_DAY_NAME})").findall(names)
    return _spread((bool(to), min("一二三四五六日天".index(name), 6)) for to, name in found)


_CHINESE: Final[tuple[tuple[str, Read], ...]] = (
    ("天天", lambda _: Repetition(Rule("DAILY"))),
    ("每?[个個]?工作日", lambda _: Repetition(Rule("WEEKLY", weekdays=WORKDAYS))),
    ("每[逢个個]?[周週]末", lambda _: Repetition(Rule("WEEKLY", weekdays=_WEEKEND))),
    (
        "每[天日]?(早上|早晨|晚上|中午|早|晚)",
        lambda m: Repetition(Rule("DAILY"), part=PARTS[m[1]]),
    ),
    (
        rf"每[逢个個]?{_WEEK}{_DAY_NAMES}",
        lambda m: Repetition(Rule("WEEKLY", weekdays=_chinese_weekdays(m[1]))),
    ),
    (f"(每隔|每|隔){_CHINESE_COUNT}{_CHINESE_UNIT}(?:一次)?", _chinese_counted),
)
