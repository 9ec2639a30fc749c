"""Days and months as people and programs write them."""

from __future__ import annotations

from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.memory import dates
from bot.memory.dates import Named

DAYS = st.dates(date(1900, 1, 1), date(2099, 12, 31))
FORMATS = (
    "%Y-%m-%d", "%Y/%m/%d", "%Y.%m.%d", "%d %B %Y", "%B %d, %Y", "%b %d %Y", "%d %b. %Y",
    "%Y年%m月%d日", "%Y 年 %m 月 %d 号", "%d.%m.%Y", "%d. %m. %Y",
)  # fmt: skip


@given(DAYS, st.sampled_from(FORMATS), st.sampled_from(("", "on ", "昨天（", "x, ")))
def test_a_day_is_read_however_it_is_written(day, written, before):
    text = f"{before}{day.strftime(written)} we went"
    assert dates.named(text) == (Named(day.year, day.month, day.day),)
    assert dates.first_day(text) == day


@pytest.mark.parametrize("text", ["May 2023", "in may of 2023?", "2023年5月", "MAY, 2023"])
def test_a_month_is_a_month(text):
    assert dates.named(text) == (Named(2023, 5, 0),)
    assert dates.first_day(text) is None


@pytest.mark.parametrize(
    "text",
    [
        "", "may I", "2026-13-01", "2026-02-30", "31 February 2026", "12026-01-01", "2026-1-123",
        "1800-01-01", "call 555-2026", "version 2026.1", "1.2026.1.2", "2026.1.2.3", "1.2.3.2026",
        "3.4.20261",
        "marching in 2026", "日月年",
    ],
)  # fmt: skip
def test_what_is_no_day_is_none(text):
    assert dates.first_day(text) is None


def test_days_come_once_and_in_the_order_of_the_text():
    text = "2026-05-03, then 1 May 2026, then 3 May 2026 and June 2026"
    assert dates.named(text) == (Named(2026, 5, 3), Named(2026, 5, 1), Named(2026, 6, 0))


@given(st.text())
def test_any_text_can_be_asked_for_its_days(text):
    for each in dates.named(text):
        assert each.day == 0 or each.as_date()


def test_the_whole_days_of_a_text_are_read_at_once():
    text = "2026-05-03, in June 2026, 3 May 2026 and 4.5.2026, not 31.02.2026"
    assert dates.days(text) == {date(2026, 5, 3), date(2026, 5, 4)}
    assert dates.days("nothing of 12026") == frozenset()
