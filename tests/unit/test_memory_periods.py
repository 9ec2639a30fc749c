"""Times that questions ask about: what they mean on a day, and that no text is too much."""

from __future__ import annotations

import time
from datetime import date, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.memory import periods
from bot.memory.periods import Period

TODAY = date(2024, 11, 20)  # a Wednesday
DAYS = st.dates(date(1950, 1, 1), date(2090, 12, 31))
PIECES = (
    "between", "from", "to", "and", "since", "before", "after", "the week before", "last", "this",
    "next",
    "May", "march", "spring", "fall", "winter", "year", "years ago", "week", "weekend", "friday",
    "month",
    "two", "a couple of", "999", "31", "29", "02", ".", "/", "-", "2023", "19391",
    "99999999999999999999",
    "in", "of", "christmas", "yesterday", "the day before yesterday", "去年", "前年", "大前年",
    "今年", "上上", "上",
    "下", "个", "周", "末", "月", "年", "前", "以前", "以来", "到", "至", "春天", "冬", "五",
    "十二", "三十一", "日", "昨天",
    "百百", "两", "〇", " ", "\n", "#", "İ", "ſ",
)  # fmt: skip


def when(text: str) -> list[str]:
    """What a text asks about, on a day that is known."""
    return [f"{each.first}/{each.last}" for each in periods.asked(text, TODAY)]


@pytest.mark.parametrize(
    ("text", "first", "last"),
    [
        ("on 12.05.2023?", "2023-05-12", "2023-05-12"),
        ("on 2023-05-12.", "2023-05-12", "2023-05-12"),
        ("May 12th, 2023", "2023-05-12", "2023-05-12"),
        ("13/05/2023", "2023-05-13", "2023-05-13"),
        ("in 05/2023", "2023-05-01", "2023-05-31"),
        ("in 2023-05", "2023-05-01", "2023-05-31"),
        ("in February of 2024", "2024-02-01", "2024-02-29"),
        ("in the spring of 2023", "2023-03-01", "2023-05-31"),
        ("winter 2022", "2022-12-01", "2023-02-28"),
        ("mid-May 2023", "2023-05-01", "2023-05-31"),
        ("what happened in 2023", "2023-01-01", "2023-12-31"),
        ("last May", "2024-05-01", "2024-05-31"),
        ("last December", "2023-12-01", "2023-12-31"),
        ("this November", "2024-11-01", "2024-11-30"),
        ("next May", "2025-05-01", "2025-05-31"),
        ("May last year", "2023-05-01", "2023-05-31"),
        ("last year in May", "2023-05-01", "2023-05-31"),
        ("in May of last year", "2023-05-01", "2023-05-31"),
        ("two years ago in June", "2022-06-01", "2022-06-30"),
        ("in June two years ago", "2022-06-01", "2022-06-30"),
        ("the year before last", "2022-01-01", "2022-12-31"),
        ("last summer", "2024-06-01", "2024-08-31"),
        ("last winter", "2023-12-01", "2024-02-29"),
        ("the week before last", "2024-11-04", "2024-11-10"),
        ("last week", "2024-11-11", "2024-11-17"),
        ("this week", "2024-11-18", "2024-11-24"),
        ("last weekend", "2024-11-16", "2024-11-17"),
        ("last Wednesday", "2024-11-13", "2024-11-13"),
        ("next Wednesday", "2024-11-27", "2024-11-27"),
        ("last month", "2024-10-01", "2024-10-31"),
        ("the month before last", "2024-09-01", "2024-09-30"),
        ("three months ago", "2024-08-01", "2024-08-31"),
        ("two weeks ago", "2024-11-03", "2024-11-09"),
        ("a couple of days ago", "2024-11-18", "2024-11-18"),
        ("in the last 10 days", "2024-11-10", "2024-11-20"),
        ("yesterday", "2024-11-19", "2024-11-19"),
        ("the day before yesterday", "2024-11-18", "2024-11-18"),
        ("last Christmas", "2023-12-24", "2023-12-26"),
        ("between March and May 2024", "2024-03-01", "2024-05-31"),
        ("from November 2022 to February 2023", "2022-11-01", "2023-02-28"),
        ("between November and February 2023", "2022-11-01", "2023-02-28"),
        ("March-May 2024", "2024-03-01", "2024-05-31"),
        ("between 3 May 2023 and 10 May 2023", "2023-05-03", "2023-05-10"),
        ("from 2021 to 2023", "2021-01-01", "2023-12-31"),
        ("since May 2023", "2023-05-01", "2024-11-20"),
        ("before 2023", "1900-01-01", "2022-12-31"),
        ("after 3 May 2023", "2023-05-04", "2024-11-20"),
        ("the week before 9 June 2023", "2023-06-02", "2023-06-08"),
        ("the week after 9 June 2023", "2023-06-10", "2023-06-16"),
        ("去年五月", "2023-05-01", "2023-05-31"),
        ("去年5月3号", "2023-05-03", "2023-05-03"),
        ("前年十二月", "2022-12-01", "2022-12-31"),
        ("今年秋天", "2024-09-01", "2024-11-30"),
        ("2023年春天", "2023-03-01", "2023-05-31"),
        ("2023年5月", "2023-05-01", "2023-05-31"),
        ("2023年5月12日", "2023-05-12", "2023-05-12"),
        ("二〇二三年五月", "2023-05-01", "2023-05-31"),
        ("2023年做了什么", "2023-01-01", "2023-12-31"),
        ("三年前的夏天", "2021-06-01", "2021-08-31"),
        ("上上周", "2024-11-04", "2024-11-10"),
        ("上周", "2024-11-11", "2024-11-17"),
        ("上个星期三", "2024-11-13", "2024-11-13"),
        ("上周末", "2024-11-16", "2024-11-17"),
        ("上个月", "2024-10-01", "2024-10-31"),
        ("上上個月", "2024-09-01", "2024-09-30"),
        ("三个月前", "2024-08-01", "2024-08-31"),
        ("十天前", "2024-11-10", "2024-11-10"),
        ("前天", "2024-11-18", "2024-11-18"),
        ("昨晚", "2024-11-19", "2024-11-19"),
        ("最近十天", "2024-11-10", "2024-11-20"),
        ("2024年2月到5月之间", "2024-02-01", "2024-05-31"),
        ("去年三月至五月", "2023-03-01", "2023-05-31"),
        ("2023年春天以来", "2023-03-01", "2024-11-20"),
        ("2023年5月之前", "1900-01-01", "2023-04-30"),
    ],
)
def test_a_time_is_a_range_of_days(text: str, first: str, last: str):
    assert when(f"what was {text}") == [f"{first}/{last}"]


@pytest.mark.parametrize(
    "text",
    [
        "", "may I", "march on", "31.02.2024", "2024-13-01", "13月", "year 19391", "12023-05-01",
        "5.6.20234",
        "version 3.11.2024", "v 3.11.2024", "1.3.11.2024", "tel. 12.05.2023", "0431 12.05.2023",
        "12.05.2023.17", "$2023", "in 2023 euros", "for 2023元", "555-2023-05-12", "+2023-05-12",
        "晚上周航读什么", "三个月", "第五年级", "prices fall", "spring water", "0000-00-00",
        "in 99999 years",
    ],
)  # fmt: skip
def test_what_is_part_of_something_else_is_no_time(text: str):
    assert when(text) == []


def test_a_month_without_a_year_is_that_of_any_of_the_last_years():
    found = periods.asked("in May", TODAY)
    assert len(found) == periods.YEARS_BACK
    assert found[0] == Period(date(2024, 5, 1), date(2024, 5, 31))
    assert periods.asked("十二月", TODAY)[0].first == date(2023, 12, 1)  # this year's has not begun


def test_a_date_with_slashes_may_be_read_in_two_ways():
    assert when("3/4/2023") == ["2023-03-04/2023-03-04", "2023-04-03/2023-04-03"]


def test_several_times_are_all_asked_about():
    assert when("last May or in spring 2023") == ["2024-05-01/2024-05-31", "2023-03-01/2023-05-31"]


@given(st.one_of(st.text(), st.lists(st.sampled_from(PIECES)).map(" ".join)), DAYS)
def test_any_text_names_times_that_begin_before_they_end(text: str, today: date):
    for each in periods.asked(text, today):
        assert each.first <= each.last


@given(st.lists(st.sampled_from(PIECES)).map("".join), DAYS)
def test_any_text_without_spaces_does_too(text: str, today: date):
    for each in periods.asked(text, today):
        assert each.first <= each.last


@pytest.mark.parametrize(
    "piece", ["1 ", "2023年", "May ", "between ", "the week before ", " ", "上", "9"]
)
def test_a_hostile_text_takes_no_longer_than_a_long_one(piece: str):
    began = time.process_time()
    periods.asked(piece * 200_000, TODAY)
    assert time.process_time() - began < 0.5


@given(DAYS, st.integers(0, 800), st.integers(-1000, 1000))
def test_nearer_days_are_never_worth_less(first: date, length: int, away: int):
    period = Period(first, first + timedelta(days=length))
    day = first + timedelta(days=away)
    farther = day + timedelta(days=1 if day > period.last else -1)
    assert 0 <= period.closeness(day) <= periods.NEAR
    if day < period.first or day > period.last:
        assert period.closeness(farther) < period.closeness(day)
    inside = 0 <= away <= length
    is_told = length == 0 and 0 < away <= periods.TOLD_WITHIN
    assert period.nearness(day) == (1.0 if inside else periods.TOLD_LATER if is_told else 0.0)
