"""Rules for what comes again and again: read from what people write, and the times they give. Pure.

A rule is a part of RFC 5545's RRULE: what people say, and nothing that takes long to work out.
Days and longer go by the wall clock of a time zone: "at eight" is eight there before and after a
change of the clocks. A time that they skip is as long after the jump as it would have been after
its beginning, and one that comes twice is the first, so each comes once. Minutes and hours go by
what has gone by.

dateutil finds the days. APScheduler's triggers have no end, count no weeks or months from a
beginning, and leave out what a change of the clocks skips.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from typing import Final, Literal, cast, get_args
from zoneinfo import ZoneInfo

from dateutil import rrule
from dateutil.relativedelta import relativedelta

from bot import i18n
from bot.clock import month_of
from bot.sessions.time_words import (
    BETWEEN,
    DATE_NUMBER,
    MONTH,
    NUMERAL,
    PARTS,
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
from bot.sessions.time_words import (
    WEEKDAYS as WEEKDAY_WORDS,
)

MIN_MINUTES = 10  # between two times
MIN_TASK_MINUTES = 60  # … of a task
MAX_INTERVAL = 1_000
MAX_RULE = 200  # characters
_PERIODS: Final = {  # and the most days of one
    "DAILY": (relativedelta(days=1), 1),
    "WEEKLY": (relativedelta(weeks=1), 7),
    "MONTHLY": (relativedelta(months=1), 31),
    "YEARLY": (relativedelta(years=1), 366),
}
_MARGIN = timedelta(days=2)  # more than any change of the clocks

Frequency = Literal["MINUTELY", "HOURLY", "DAILY", "WEEKLY", "MONTHLY", "YEARLY"]

WEEKDAYS: Final = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")
WORKDAYS: Final = ((0, 0), (0, 1), (0, 2), (0, 3), (0, 4))


class TooOften(ValueError):
    """Two times of a rule are less than `MIN_MINUTES` apart."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule of recurrence: every `interval` of the frequency, on what the rest leaves.

    `days` are those of the month, from its end when negative. `weekdays` are pairs: which one of
    the month (from its end when negative; 0: each), and which day of the week from Monday, 0.
    Without `hours` and `minutes` it is the time of day at which it begins. `until` is the last
    moment on the wall clock.
    """

    frequency: Frequency
    interval: int = 1
    months: tuple[int, ...] = ()
    days: tuple[int, ...] = ()
    weekdays: tuple[tuple[int, int], ...] = ()
    hours: tuple[int, ...] = ()
    minutes: tuple[int, ...] = ()
    until: datetime | None = None

    @property
    def is_elapsed(self) -> bool:
        """True if it counts elapsed time, not the time on the clock."""
        return self.frequency in {"MINUTELY", "HOURLY"}

    @property
    def seconds(self) -> int:
        """The time from one occurrence to the next; only when it `is_elapsed`."""
        return self.interval * (60 if self.frequency == "MINUTELY" else 3600)

    @property
    def least_minutes(self) -> int:
        """The least number of minutes between two times."""
        if self.is_elapsed:
            return self.seconds // 60
        minutes = sorted(
            60 * hour + each for hour in self.hours or (0,) for each in self.minutes or (0,)
        )
        following = (*minutes[1:], minutes[0] + 24 * 60)
        return min(later - sooner for sooner, later in zip(minutes, following, strict=True))

    def __str__(self) -> str:
        which = (f"{n or ''}{WEEKDAYS[day]}" for n, day in self.weekdays)
        parts = {
            "FREQ": self.frequency,
            "INTERVAL": "" if self.interval == 1 else str(self.interval),
            "BYMONTH": ",".join(map(str, self.months)),
            "BYMONTHDAY": ",".join(map(str, self.days)),
            "BYDAY": ",".join(which),
            "BYHOUR": ",".join(map(str, self.hours)),
            "BYMINUTE": ",".join(map(str, self.minutes)),
            "UNTIL": f"{self.until:%Y%m%dT%H%M%S}" if self.until else "",
        }
        return ";".join(f"{name}={value}" for name, value in parts.items() if value)


# --- reading -----------------------------------------------------------------------------------

_DAY: Final = re.compile(r"(-1|\+?[1-5])?(MO|TU|WE|TH|FR|SA|SU)", re.ASCII)
_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,4}", re.ASCII)
_UNTIL: Final = re.compile(r"[0-9]{8}(?:T[0-9]{6})?", re.ASCII)


def parse(text: str) -> Rule:
    """The rule of an RRULE, such as "FREQ=WEEKLY;BYDAY=MO,TH;BYHOUR=8;BYMINUTE=0".

    Raises:
        TooOften: it comes too often.
        ValueError: it is no rule that can be kept; its words say why.
    """
    if len(text) > MAX_RULE:
        raise ValueError(f"a rule has at most {MAX_RULE} characters")
    said: dict[str, str] = {}
    for part in text.strip().upper().removeprefix("RRULE:").rstrip(";").split(";"):
        name, is_given, value = part.partition("=")
        if not is_given or not value or name in said:
            raise ValueError(f"{part[:40]!r} is no part of a rule, or is there twice")
        said[name] = value
    frequency = said.pop("FREQ", "")
    if frequency == "SECONDLY":
        raise TooOften(_often())
    if frequency not in get_args(Frequency):
        raise ValueError(f"FREQ must be one of {', '.join(get_args(Frequency))}")
    if said.pop("WKST", "MO") != "MO":
        raise ValueError("weeks begin on Monday here")
    rule = Rule(cast("Frequency", frequency))
    for name, value in said.items():
        read = _READ.get(name)
        if read is None:
            raise ValueError(f"{name[:20]} is not known; known: FREQ, {', '.join(_READ)}")
        rule = read(rule, value)
    return checked(rule)


def checked(rule: Rule) -> Rule:
    """The rule, if it can be kept.

    Raises:
        TooOften: it comes too often.
        ValueError: its parts do not go together; its words say why.
    """
    if rule.is_elapsed and rule.seconds < MIN_MINUTES * 60:
        raise TooOften(_often())
    if not 1 <= rule.interval <= MAX_INTERVAL:
        raise ValueError(f"INTERVAL must be from 1 to {MAX_INTERVAL}")
    if not all(1 <= month <= 12 for month in rule.months):
        raise ValueError("there is no such month")
    if not all(1 <= abs(day) <= 31 for day in rule.days):
        raise ValueError("there is no such day of a month")
    if rule.is_elapsed:
        if rule.months or rule.days or rule.weekdays or rule.hours or rule.minutes:
            raise ValueError(f"{rule.frequency} takes INTERVAL and UNTIL only; use DAILY")
        return rule
    _check_days(rule)
    if rule.minutes and not rule.hours:
        raise ValueError("BYMINUTE needs BYHOUR")
    if rule.least_minutes < MIN_MINUTES:
        raise TooOften(_often())
    return rule


def _check_days(rule: Rule) -> None:
    if rule.days and rule.frequency not in {"MONTHLY", "YEARLY"}:
        raise ValueError("BYMONTHDAY goes with MONTHLY or YEARLY")
    if any(which for which, _ in rule.weekdays) and rule.frequency not in {"MONTHLY", "YEARLY"}:
        raise ValueError("days such as 1MO go with MONTHLY or YEARLY")
    if rule.frequency == "YEARLY" and (rule.days or rule.weekdays) and not rule.months:
        raise ValueError("YEARLY needs BYMONTH with these days; or use MONTHLY")


def _often() -> str:
    return f"that is too often: there must be {MIN_MINUTES} minutes in between"


def _numbers(value: str, low: int, high: int, name: str) -> tuple[int, ...]:
    found = value.split(",")
    if not all(_NUMBER.fullmatch(each) for each in found):
        raise ValueError(f"{name} must be numbers")
    numbers = sorted(set(map(int, found)))
    if numbers[0] < low or numbers[-1] > high or (low < 0 and 0 in numbers):
        raise ValueError(f"{name} must be from {low} to {high}")
    return tuple(numbers)


def _interval(rule: Rule, value: str) -> Rule:
    (interval, *more) = _numbers(value, 1, MAX_INTERVAL, "INTERVAL")
    if more:
        raise ValueError("INTERVAL must be one number")
    return replace(rule, interval=interval)


def _by_day(rule: Rule, value: str) -> Rule:
    found = [_DAY.fullmatch(each) for each in value.split(",")]
    if not all(found):
        raise ValueError("BYDAY must be days such as MO, 1MO or -1FR")
    days = {(int(each[1] or 0), WEEKDAYS.index(each[2])) for each in found if each}
    return replace(rule, weekdays=tuple(sorted(days)))


def _until(rule: Rule, value: str) -> Rule:
    if _UNTIL.fullmatch(value) is None:
        raise ValueError("UNTIL must be a local date, such as 20301224 or 20301224T180000")
    day, _, time = value.partition("T")
    try:
        until = datetime.strptime(f"{day}T{time or '235959'}", "%Y%m%dT%H%M%S")  # noqa: DTZ007
    except ValueError:
        raise ValueError("UNTIL: there is no such date") from None
    return replace(rule, until=until)


_READ: Final[dict[str, Callable[[Rule, str], Rule]]] = {
    "INTERVAL": _interval,
    "BYMONTH": lambda rule, value: replace(rule, months=_numbers(value, 1, 12, "BYMONTH")),
    "BYMONTHDAY": lambda rule, value: replace(rule, days=_numbers(value, -31, 31, "BYMONTHDAY")),
    "BYDAY": _by_day,
    "BYHOUR": lambda rule, value: replace(rule, hours=_numbers(value, 0, 23, "BYHOUR")),
    "BYMINUTE": lambda rule, value: replace(rule, minutes=_numbers(value, 0, 59, "BYMINUTE")),
    "UNTIL": _until,
}


# --- the times ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Series:
    """A rule with where it begins.

    `begins` is on the wall clock, without a zone; of a rule that `is_elapsed` in UTC.
    """

    rule: Rule
    begins: datetime

    def after(self, moment: int, zone: ZoneInfo) -> int | None:
        """The first time that comes after a moment (ms since the epoch), in ms.

        None when there is none, or none for years.
        """
        if self.rule.is_elapsed:
            return self._elapsed(moment, zone)
        best: tuple[int, datetime] | None = None
        wall = datetime.fromtimestamp(moment / 1000, zone).replace(tzinfo=None)
        # What the clocks skip comes later than its place in the order.
        for each in self._walls(wall - _MARGIN):
            if best is not None and each > best[1] + _MARGIN:
                break
            at = int(each.replace(tzinfo=zone).timestamp() * 1000)
            if at > moment and (best is None or at < best[0]):
                best = at, each
        return None if best is None else best[0]

    def count(self, since: int, until: int, zone: ZoneInfo, most: int) -> int:
        """The number of times after `since` and up to `until`; at most `most`."""
        found = 0
        at = self.after(since, zone)
        while found < most and at is not None and at <= until:
            found += 1
            at = self.after(at, zone)
        return found

    def _elapsed(self, moment: int, zone: ZoneInfo) -> int | None:
        step = self.rule.seconds * 1000
        first = int(self.begins.replace(tzinfo=UTC).timestamp() * 1000)
        at = first + max(0, (moment - first) // step + 1) * step
        until = self.rule.until
        wall = datetime.fromtimestamp(at / 1000, zone).replace(tzinfo=None)
        return None if until is not None and wall > until else at

    def _walls(self, since: datetime) -> Iterator[datetime]:
        """The times of the rule on a wall clock, in order, from about `since` on."""
        rule, begins = self.rule, self.begins
        period, days = _PERIODS[rule.frequency]
        passed = max(0, (since - begins).days) // (days * rule.interval) * rule.interval
        start = begins.replace(second=0) + passed * period
        # The calendar repeats every 400 years, and dateutil looks for a rule that never comes up
        # to the year 9999: in its last 400 years that is soon.
        ahead = (date.max.year - start.year) // 400 * 400
        # dateutil wants a numbered day and one without a number both; RFC 5545 either.
        has_numbers = any(n for n, _ in rule.weekdays)
        weekdays = [
            rrule.weekday(day, each)
            for n, day in rule.weekdays
            for each in ((n or None,) if n or not has_numbers else range(1, 6))
        ]
        by_day = rule.frequency in {"DAILY", "WEEKLY"} or weekdays
        for found in rrule.rrule(
            getattr(rrule, rule.frequency),
            start.replace(year=start.year + ahead),
            rule.interval,
            wkst=rrule.MO,
            bymonth=rule.months or (begins.month if rule.frequency == "YEARLY" else None),
            bymonthday=rule.days or (None if by_day else begins.day),
            byweekday=weekdays or None,
            byhour=rule.hours or None,
            byminute=rule.minutes or None,
        ):
            wall = found.replace(year=found.year - ahead)
            if rule.until is not None and wall > rule.until:
                return
            if wall >= begins:
                yield wall


# --- as people read them --------------------------------------------------------------------------


def described(language: str, series: Series) -> str:
    """The rule in words: "every weekday at 08:00"."""
    rule = series.rule
    parts = [_frequency(language, series)]
    if not rule.is_elapsed:
        hours, minutes = rule.hours or (series.begins.hour,), rule.minutes
        times = [
            f"{hour:02}:{minute:02}"
            for hour in hours
            for minute in minutes or (series.begins.minute,)
        ]
        parts.append(i18n.text(language, "repeat.at", times=", ".join(times)))
    if rule.until is not None:
        parts.append(i18n.text(language, "repeat.until", when=f"{rule.until:%Y-%m-%d %H:%M}"))
    return "".join(parts)


def _frequency(language: str, series: Series) -> str:
    rule = series.rule
    if rule.frequency in {"DAILY", "WEEKLY"} and rule.weekdays == WORKDAYS and rule.interval == 1:
        return i18n.text(language, "repeat.workdays")
    words = i18n.text(language, f"repeat.{rule.frequency.lower()}", count=rule.interval)
    names = i18n.text(language, "reminder.days").split()
    which = i18n.text(language, "repeat.which").split()
    if rule.months:
        months = ", ".join(map(str, rule.months))
        words += i18n.text(language, "repeat.months", months=months)
    if rule.days:
        words += _days(language, rule.days)
    weekdays = rule.weekdays
    if rule.frequency == "WEEKLY" and not weekdays:
        weekdays = ((0, series.begins.weekday()),)
    if weekdays:
        # The last one stands at the end of the list, and is reached from there.
        said = [
            i18n.text(language, "repeat.nth", which=which[n - (n > 0)], day=names[day])
            if n
            else names[day]
            for n, day in weekdays
        ]
        words += i18n.text(language, "repeat.weekdays", days=", ".join(said))
    if rule.frequency in {"MONTHLY", "YEARLY"} and not (rule.days or rule.weekdays):
        months = "" if rule.months or rule.frequency == "MONTHLY" else str(series.begins.month)
        words += i18n.text(language, "repeat.months", months=months) if months else ""
        words += i18n.text(language, "repeat.days", days=str(series.begins.day))
    return words


def _days(language: str, days: tuple[int, ...]) -> str:
    if days == (-1,):
        return i18n.text(language, "repeat.last_day")
    # The last one stands behind the others.
    said = sorted(days, key=lambda day: (day < 0, day))
    return i18n.text(language, "repeat.days", days=", ".join(map(str, said)))


# --- as people write them, in English and Chinese -------------------------------------------------


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
    if reader.take(_UNTIL_PHRASE):
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
_UNTIL_PHRASE = r"[\s,]*(?:(?:until|till)\s+|直到|[到至])"

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
            return replace(found, rule=replace(rule, days=_days_named(match[1])))
    if rule.frequency == "YEARLY" and (match := reader.take(rf"\s+on\s+{_DATES}")):
        dated = _yearly(match)
        return replace(found, rule=replace(rule, months=dated.months, days=dated.days))
    return found


def _weekly(names: str) -> Rule:
    found = [
        (bool(match[1]), WEEKDAY_WORDS.index(match[2][:3].lower()))
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
    return Rule("MONTHLY", weekdays=((number_of, WEEKDAY_WORDS.index(name[:3].lower())),))


def _days_named(words: str) -> tuple[int, ...]:
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
    (
        rf"(?:on\s+)?{_NTHS}{_OF_MONTH}",
        lambda m: Repetition(Rule("MONTHLY", days=_days_named(m[1]))),
    ),
)
_AFTER_EVERY: Final[tuple[tuple[str, Read], ...]] = (
    (rf"{_ORDINAL}{_NAME}{_OF_THE_MONTH}", lambda m: Repetition(_monthly_weekday(m[0], m[1]))),
    (rf"{_NTHS}{_OF_THE_MONTH}", lambda m: Repetition(Rule("MONTHLY", days=_days_named(m[1])))),
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
