"""Rules and their times: from anywhere, over changes of the clock; hostile rules."""
# ruff: noqa: DTZ001 - what stands on a wall clock has no time zone

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from bot.sessions.recurrence import MIN_MINUTES, Rule, Series, TooOften, checked, parse
from bot.sessions.rule_words import described
from tests.unit.test_reset import ZONES

BERLIN = ZoneInfo("Europe/Berlin")
DAY_MS = 86_400_000


def ms(at: datetime) -> int:
    return int(at.timestamp() * 1000)


def coming(series: Series, zone: ZoneInfo, since: int, most: int) -> list[int]:
    """The next times."""
    found: list[int] = []
    at = series.after(since, zone)
    while at is not None and len(found) < most:
        found.append(at)
        at = series.after(at, zone)
    return found


def walls(series: Series, zone: ZoneInfo, since: datetime, most: int) -> list[str]:
    times = coming(series, zone, ms(since), most)
    return [f"{datetime.fromtimestamp(at / 1000, zone):%a %m-%d %H:%M %z}" for at in times]


# --- of any rule ---------------------------------------------------------------------------------

MONTHS = st.lists(st.integers(1, 12), max_size=3, unique=True).map(lambda x: tuple(sorted(x)))
DAYS = st.lists(st.sampled_from([*range(1, 32), -1, -2, -30]), max_size=3, unique=True)
COMMON_DAYS = st.lists(st.sampled_from([*range(1, 29), -1, -2]), max_size=3, unique=True)
HOURS = st.lists(st.integers(0, 23), max_size=3, unique=True).map(lambda x: tuple(sorted(x)))
PLAIN = st.lists(st.tuples(st.just(0), st.integers(0, 6)), max_size=3, unique=True).map(
    lambda x: tuple(sorted(x))
)
NAMED = PLAIN | st.lists(
    st.tuples(st.sampled_from([1, 2, 4, -1]), st.integers(0, 6)), max_size=3, unique=True
).map(lambda x: tuple(sorted(x)))
INTERVALS = st.sampled_from([1, 1, 2, 3, 5, 12, 40])
UNTILS = st.none() | st.datetimes(datetime(2025, 1, 1), datetime(2032, 1, 1))


@st.composite
def rules(draw: st.DrawFn) -> Rule:
    frequency = draw(
        st.sampled_from(["HOURLY", "MINUTELY", "DAILY", "WEEKLY", "MONTHLY", "YEARLY"])
    )
    interval, until = draw(INTERVALS), draw(UNTILS)
    until = until.replace(microsecond=0) if until else None
    if frequency in {"HOURLY", "MINUTELY"}:
        scale = 1 if frequency == "HOURLY" else MIN_MINUTES
        return Rule(frequency, interval * scale, until=until)
    # None that never come, which take longer.
    by_month = frequency in {"MONTHLY", "YEARLY"}
    months, days, weekdays = (), (), draw(NAMED if by_month else PLAIN)
    if by_month and draw(st.booleans()):
        often = frequency == "MONTHLY" and interval == 1
        days, weekdays = tuple(sorted(draw(DAYS if often else COMMON_DAYS))), ()
    if interval == 1:
        months = draw(MONTHS) if not days or max(days) < 29 else ()
    if frequency == "DAILY" and weekdays:
        interval = min(interval, 5)
    if frequency == "YEARLY":
        interval = min(interval, 3)
        months = months or (draw(st.integers(1, 12)),) if days or weekdays else months
    hours = draw(HOURS)
    minutes = (draw(st.integers(0, 59)),) if hours and draw(st.booleans()) else ()
    rule = Rule(frequency, interval, months, days, weekdays, hours, minutes, until)
    try:
        return checked(rule)
    except TooOften:
        return Rule(frequency, interval, months, days, weekdays, until=until)


BEGINS = st.datetimes(datetime(2024, 1, 1), datetime(2031, 1, 1)).map(
    lambda at: at.replace(second=0, microsecond=0)
)


@given(rules(), BEGINS, ZONES, st.integers(0, 10**6), st.integers(0, 10**6))
def test_the_next_time_is_later_and_the_same_from_anywhere_before_it(
    rule, begins, zone, minutes, more
):
    series = Series(rule, begins)
    since = ms(begins.replace(tzinfo=zone)) + minutes * 60_000
    first = series.after(since, zone)
    assume(first is not None)
    assert first is not None
    assert first > since
    assert series.after(since + more % (first - since), zone) == first
    second = series.after(first, zone)
    assert second is None or second > first


@given(rules(), BEGINS, ZONES)
def test_no_two_times_are_closer_than_the_least(rule, begins, zone):
    times = coming(Series(rule, begins), zone, ms(begins.replace(tzinfo=zone)), 50)
    # Where a day is put on another one by a change of the clocks two times may come together.
    close = [b - a for a, b in pairwise(times) if b - a < MIN_MINUTES * 60_000]
    assert len(close) <= 2


# --- changes of the clock, by hand ---------------------------------------------------------------


def test_at_eight_is_eight_before_and_after_a_change():
    series = Series(parse("FREQ=DAILY"), datetime(2026, 3, 28, 8, 0))
    assert walls(series, BERLIN, datetime(2026, 3, 28, tzinfo=BERLIN), 2) == [
        "Sat 03-28 08:00 +0100",
        "Sun 03-29 08:00 +0200",
    ]


def test_a_skipped_time_comes_after_the_jump_and_a_double_one_once():
    series = Series(parse("FREQ=DAILY"), datetime(2026, 3, 28, 2, 30))
    assert walls(series, BERLIN, datetime(2026, 3, 29, tzinfo=BERLIN), 2) == [
        "Sun 03-29 03:30 +0200",
        "Mon 03-30 02:30 +0200",
    ]
    assert walls(series, BERLIN, datetime(2026, 10, 25, tzinfo=BERLIN), 2) == [
        "Sun 10-25 02:30 +0200",
        "Mon 10-26 02:30 +0100",
    ]


def test_every_two_hours_is_two_hours_whatever_the_clocks_say():
    series = Series(parse("FREQ=HOURLY;INTERVAL=2"), datetime(2026, 3, 28, 23, 0))
    assert walls(series, BERLIN, datetime(2026, 3, 28, 23, tzinfo=BERLIN), 3) == [
        "Sun 03-29 00:00 +0100",
        "Sun 03-29 03:00 +0200",
        "Sun 03-29 05:00 +0200",
    ]


@pytest.mark.parametrize(
    ("rule", "begins", "zone", "times"),
    [
        ("FREQ=DAILY;BYHOUR=2,3", datetime(2026, 3, 28, 2), BERLIN,
         ["Sat 03-28 03:00 +0100", "Sun 03-29 03:00 +0200", "Mon 03-30 02:00 +0200"]),
        ("FREQ=YEARLY", datetime(2024, 2, 29, 8), BERLIN,
         ["Tue 02-29 08:00 +0100", "Sun 02-29 08:00 +0100", "Fri 02-29 08:00 +0100"]),
        ("FREQ=MONTHLY;BYMONTHDAY=13;BYDAY=FR", datetime(2026, 1, 1, 8), BERLIN,
         ["Fri 02-13 08:00 +0100", "Fri 03-13 08:00 +0100", "Fri 11-13 08:00 +0100"]),
        ("FREQ=DAILY", datetime(2011, 12, 28, 8), ZoneInfo("Pacific/Apia"),
         ["Thu 12-29 08:00 -1000", "Sat 12-31 08:00 +1400", "Sun 01-01 08:00 +1400"]),
        ("FREQ=WEEKLY;INTERVAL=2;BYDAY=MO,TH", datetime(2026, 1, 7, 8), BERLIN,
         ["Thu 01-08 08:00 +0100", "Mon 01-19 08:00 +0100", "Thu 01-22 08:00 +0100"]),
        ("FREQ=MONTHLY;INTERVAL=5;BYDAY=-1SU", datetime(2026, 1, 25, 8), BERLIN,
         ["Sun 06-28 08:00 +0200", "Sun 11-29 08:00 +0100", "Sun 04-25 08:00 +0200"]),
        ("FREQ=YEARLY;BYMONTH=3,9;BYMONTHDAY=-1", datetime(2026, 5, 1, 8, 0, 7), BERLIN,
         ["Wed 09-30 08:00 +0200", "Wed 03-31 08:00 +0200", "Thu 09-30 08:00 +0200"]),
    ],
)  # fmt: skip
def test_the_times_of_a_rule(rule, begins, zone, times):
    since = begins.replace(hour=2 if begins.hour == 2 else 8, minute=1, tzinfo=zone)
    assert walls(Series(parse(rule), begins), zone, since, 3) == times


def test_months_without_the_day_are_left_out_and_the_last_day_is_in_each():
    at = datetime(2026, 1, 1, tzinfo=BERLIN)
    thirty_first = Series(parse("FREQ=MONTHLY;BYMONTHDAY=31"), datetime(2026, 1, 31, 8))
    assert [each[4:9] for each in walls(thirty_first, BERLIN, at, 3)] == ["01-31", "03-31", "05-31"]
    last = Series(parse("FREQ=MONTHLY;BYMONTHDAY=-1"), datetime(2026, 1, 31, 8))
    assert [each[4:9] for each in walls(last, BERLIN, at, 3)] == ["01-31", "02-28", "03-31"]


def test_a_day_with_a_number_and_one_without_both_come():
    either = Series(parse("FREQ=MONTHLY;BYDAY=MO,1TU"), datetime(2026, 6, 1, 8))
    found = walls(either, BERLIN, datetime(2026, 6, 1, tzinfo=BERLIN), 6)
    assert [each[4:9] for each in found] == [
        *("06-01", "06-02", "06-08", "06-15", "06-22", "06-29"),
    ]


@pytest.mark.parametrize("day", ["30", "-30"])
def test_a_rule_that_never_comes_is_given_up_soon(day):
    never = Series(parse(f"FREQ=MONTHLY;BYMONTH=2;BYMONTHDAY={day}"), datetime(2026, 1, 1, 8))
    assert never.after(ms(datetime(2026, 6, 1, tzinfo=UTC)), BERLIN) is None


def test_what_never_comes_or_is_over_has_no_next_time():
    never = Series(parse("FREQ=MONTHLY;INTERVAL=12;BYMONTHDAY=31"), datetime(2026, 2, 1, 8))
    assert never.after(0, BERLIN) is None
    over = Series(parse("FREQ=DAILY;UNTIL=20260105"), datetime(2026, 1, 1, 8))
    assert len(coming(over, BERLIN, 0, 100)) == 5
    last_year = Series(Rule("YEARLY", 1000), datetime(9998, 1, 1, 8))
    assert last_year.after(ms(datetime(9998, 6, 1, tzinfo=UTC)), BERLIN) is None


def test_times_that_went_by_are_counted_up_to_a_bound():
    series = Series(parse("FREQ=DAILY"), datetime(2026, 1, 1, 8))
    since = ms(datetime(2026, 1, 1, 8, tzinfo=BERLIN))
    assert series.count(since, since + 3 * DAY_MS, BERLIN, 100) == 3
    assert series.count(since, since + 300 * DAY_MS, BERLIN, 100) == 100
    assert series.count(since, since, BERLIN, 100) == 0


# --- rules as text -------------------------------------------------------------------------------


@given(rules())
def test_a_rule_is_read_as_it_was_written(rule):
    assert parse(str(rule)) == rule
    assert parse(f"rrule:{str(rule).lower()};") == rule


@given(rules(), BEGINS)
def test_every_rule_can_be_told(rule, begins):
    for language in ("en", "zh"):
        assert described(language, Series(rule, begins)).strip()


@pytest.mark.parametrize(
    "text",
    [
        *("FREQ=SECONDLY", "FREQ=SECONDLY;INTERVAL=86400", "FREQ=MINUTELY"),
        *("FREQ=MINUTELY;INTERVAL=9", "FREQ=DAILY;BYHOUR=8;BYMINUTE=0,5"),
        "FREQ=DAILY;BYHOUR=0,23;BYMINUTE=0,55",
        "FREQ=DAILY;BYHOUR=1,2,3;BYMINUTE=0,20,29,40",
    ],
)
def test_what_comes_too_often_is_refused(text):
    with pytest.raises(TooOften, match="10 minutes"):
        parse(text)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "is no part of a rule"),
        ("FREQ", "is no part of a rule"),
        ("FREQ=", "is no part of a rule"),
        ("FREQ=DAILY;FREQ=DAILY", "twice"),
        ("FREQ=FORTNIGHTLY", "FREQ must be one of"),
        ("INTERVAL=2", "FREQ must be one of"),
        ("FREQ=DAILY\nDTSTART:20200101", "FREQ must be one of"),
        ("FREQ=DAILY;COUNT=3", "COUNT is not known"),
        ("FREQ=DAILY;BYSETPOS=1", "BYSETPOS is not known"),
        ("FREQ=DAILY;BYSECOND=1", "BYSECOND is not known"),
        ("FREQ=DAILY;BYEASTER=0", "BYEASTER is not known"),
        ("FREQ=WEEKLY;WKST=SU", "Monday"),
        ("FREQ=DAILY;INTERVAL=0", "from 1 to 1000"),
        ("FREQ=DAILY;INTERVAL=-1", "from 1 to 1000"),
        ("FREQ=DAILY;INTERVAL=1001", "from 1 to 1000"),
        ("FREQ=DAILY;INTERVAL=1,2", "one number"),
        ("FREQ=DAILY;INTERVAL=99999999999999", "must be numbers"),
        ("FREQ=DAILY;INTERVAL=٣", "must be numbers"),
        ("FREQ=DAILY;BYHOUR=24", "from 0 to 23"),
        ("FREQ=DAILY;BYHOUR=1;BYMINUTE=60", "from 0 to 59"),
        ("FREQ=DAILY;BYMINUTE=30", "needs BYHOUR"),
        ("FREQ=MONTHLY;BYMONTHDAY=0", "from -31 to 31"),
        ("FREQ=MONTHLY;BYMONTHDAY=32", "from -31 to 31"),
        ("FREQ=DAILY;BYMONTHDAY=1", "MONTHLY or YEARLY"),
        ("FREQ=DAILY;BYDAY=1MO", "MONTHLY or YEARLY"),
        ("FREQ=MONTHLY;BYDAY=6MO", "such as MO"),
        ("FREQ=MONTHLY;BYDAY=-2MO", "such as MO"),
        ("FREQ=WEEKLY;BYDAY=MONDAY", "such as MO"),
        ("FREQ=YEARLY;BYDAY=MO", "needs BYMONTH"),
        ("FREQ=HOURLY;BYDAY=MO", "INTERVAL and UNTIL only"),
        ("FREQ=DAILY;UNTIL=20300231", "no such date"),
        ("FREQ=DAILY;UNTIL=20300101T000000Z", "local date"),
        ("FREQ=DAILY;UNTIL=tomorrow", "local date"),
        ("FREQ=DAILY;" + "X" * 1_000_000, "at most 200"),
    ],
)
def test_what_is_no_rule_to_keep_is_refused_with_a_reason(text, why):
    with pytest.raises(ValueError, match=why):
        parse(text)


@given(st.text(max_size=250))
def test_whatever_is_given_is_a_rule_or_refused(text):
    try:
        rule = parse(text)
    except ValueError:
        return
    assert parse(str(rule)) == rule
