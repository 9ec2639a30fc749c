"""Which month something stored counts to."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bot.clock import DAY_MS
from bot.storage import months
from bot.storage.months import Stored
from tests.support import NOON

TODAY = NOON // DAY_MS  # 2026-11-21
ANY_DAY = st.integers(-(10**12), 10**12) | st.integers(TODAY - 400, TODAY + 400)


def days_of(days: list[int]) -> Stored:
    """Entries with the numbers 1, 2, …, each of a day."""
    lowest: dict[int, int] = {}
    for number, day in enumerate(days, start=1):
        lowest.setdefault(day, number)
    return Stored(tuple(lowest.items()), len(days))


def test_nothing_stored_is_this_month():
    assert months.first_numbers(Stored(), NOON) == [("2026-11", 0)]


def test_each_month_begins_with_its_first_entry():
    days = [TODAY - 62, TODAY - 61, TODAY - 31, TODAY - 30, TODAY]
    assert months.first_numbers(days_of(days), NOON) == [
        ("2026-09", 0),
        ("2026-10", 3),
        ("2026-11", 5),
    ]


def test_a_clock_that_was_wrong_for_a_while_lets_nothing_go_too_soon():
    past, future = 0, 10**9
    days = [TODAY - 62, past, TODAY - 61, TODAY - 31, past, TODAY]
    assert [number for _, number in months.first_numbers(days_of(days), NOON)] == [0, 4, 6]
    assert months.first_numbers(days_of([TODAY - 62, future, TODAY]), NOON) == [
        ("2026-09", 0),
        ("2026-11", 2),
    ]


@given(st.lists(ANY_DAY, max_size=40))
def test_no_entry_is_of_a_month_before_its_own_or_before_that_of_an_earlier_one(days: list[int]):
    begins = months.first_numbers(days_of(days), NOON)
    assert begins[0][1] <= 0
    assert begins[-1][0] == "2026-11"
    names, numbers = [name for name, _ in begins], [number for _, number in begins]
    assert names == sorted(set(names))
    assert numbers == sorted(set(numbers))
    latest = ""
    for number, day in enumerate(days, start=1):
        latest = max(latest, months.name_of(min(day * DAY_MS, NOON)))
        assert max(name for name, first in begins if first <= number) == latest


def test_when_a_month_is_over():
    assert months.end_of("2026-10") == 1_793_491_200_000  # 2026-11-01
    assert months.end_of("2026-12") == 1_798_761_600_000  # 2027-01-01
