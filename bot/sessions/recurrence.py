"""Rules for what comes again and again, and the times they give. Pure.

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
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from typing import Final, Literal, cast, get_args
from zoneinfo import ZoneInfo

from dateutil import rrule
from dateutil.relativedelta import relativedelta

from bot import i18n

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
