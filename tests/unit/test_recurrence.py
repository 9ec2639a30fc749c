"""Rules and their times: against dateutil from the very beginning, over changes of the clock."""
# ruff: noqa: DTZ001 - what stands on a wall clock has no time zone

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise, takewhile
from zoneinfo import ZoneInfo

import pytest
from dateutil import rrule as oracle
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from bot.sessions.recurrence import MIN_MINUTES, Rule, Series, TooOften, checked, parse
from bot.sessions.rule_words import described
from tests.proofs.rounds import rounds
from tests.unit.test_reset import ZONES

BERLIN = ZoneInfo("Europe/Berlin")
DAY_MS = 86_400_000
LONGEST = 3 * 365 * DAY_MS  # looked ahead
MOST = 30  # times that are compared


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


# --- against dateutil ----------------------------------------------------------------------------

MONTHS = st.lists(st.integers(1, 12), max_size=3, unique=True).map(lambda x: tuple(sorted(x)))
DAYS = st.lists(st.sampled_from([*range(1, 32), -1, -2, -30]), max_size=3, unique=True)
COMMON_DAYS = st.lists(st.sampled_from([*range(1, 29), -1, -2]), max_size=3, unique=True)
HOURS = st.lists(st.integers(0, 23), max_size=3, unique=True).map(lambda x: tuple(sorted(x)))
PLAIN = st.lists(st.tuples(st.just(0), st.integers(0, 6)), max_size=3, unique=True).map(
    lambda x: tuple(sorted(x))
)
# Of days in one rule with a number and without one dateutil wants both, where the RFC wants either.
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
    # None that never come: dateutil looks for them up to the year 9999.
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


def expected(series: Series, zone: ZoneInfo, since: int) -> list[int]:
    """What dateutil says up to `LONGEST`: its wall times as moments, each once, in order."""
    rule = series.rule
    said = oracle.rrule(
        getattr(oracle, rule.frequency),
        dtstart=series.begins,
        interval=rule.interval,
        bymonth=rule.months or None,
        bymonthday=rule.days or None,
        byweekday=[oracle.weekday(day, n or None) for n, day in rule.weekdays] or None,
        byhour=rule.hours or None,
        byminute=rule.minutes or None,
    )
    end = datetime.fromtimestamp((since + LONGEST) / 1000, UTC).replace(tzinfo=None)
    found: set[int] = set()
    for wall in takewhile(lambda wall: wall < end + timedelta(days=3), said):
        at = ms(wall.replace(tzinfo=UTC if rule.is_elapsed else zone))
        local = wall
        if rule.is_elapsed:
            local = datetime.fromtimestamp(at / 1000, zone).replace(tzinfo=None)
        if since < at <= since + LONGEST and (rule.until is None or local <= rule.until):
            found.add(at)
        if len(found) > MOST + 5:  # a change of the clocks puts few of them in another order
            break
    return sorted(found)[:MOST]


@settings(max_examples=rounds(400, few=120), deadline=None)
@given(rules(), BEGINS, ZONES, st.integers(-400, 1200))
@example(Rule("DAILY", hours=(2,), minutes=(30,)), datetime(2026, 3, 27, 2, 30), BERLIN, 0)
@example(Rule("DAILY", hours=(2, 3)), datetime(2026, 3, 27, 2, 30), BERLIN, 0)
@example(Rule("MONTHLY", days=(31,)), datetime(2026, 1, 31, 8, 0), BERLIN, 5)
@example(Rule("YEARLY", months=(2,), days=(29,)), datetime(2024, 2, 29, 8, 0), BERLIN, 900)
@example(Rule("MONTHLY", days=(13,), weekdays=((0, 4),)), datetime(2026, 1, 1, 8, 0), BERLIN, 0)
@example(Rule("HOURLY", 2), datetime(2026, 3, 28, 8, 0), BERLIN, 0)
@example(Rule("DAILY"), datetime(2011, 12, 28, 8, 0), ZoneInfo("Pacific/Apia"), 0)
def test_the_times_are_those_of_dateutil(rule, begins, zone, days_later):
    series = Series(rule, begins)
    if rule.is_elapsed:  # dateutil counts each of them
        days_later %= 20
    since = ms(begins.replace(tzinfo=UTC)) + days_later * DAY_MS
    found = [at for at in coming(series, zone, since, MOST) if at <= since + LONGEST]
    assert found == expected(series, zone, since)


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
