"""The statistics and the table of `make bench`."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.table import (
    Measured,
    busy_note,
    goals,
    goals_markdown,
    markdown,
    medians,
    percentile,
)

FLOOR = Measured(
    cold_start=1.0,
    first_message=0.1,
    p50=5.0,
    p95=8.0,
    turns_per_second=400.0,
    cpu=2.0,
    resident=110.0,
    telegram_busy=0.2,
    model_busy=0.1,
)
ENGINE = replace(FLOOR, cold_start=0.5, p50=7.5, turns_per_second=300.0, cpu=3.0, resident=120.0)
FLOORS = {"floor": FLOOR}


@pytest.mark.parametrize(
    ("percent", "expected"), [(0, 1), (50, 5), (51, 6), (90, 9), (95, 10), (100, 10)]
)
def test_a_percentile_is_the_smallest_value_that_covers_so_many(percent, expected):
    assert percentile([3, 1, 2, 10, 9, 8, 7, 4, 5, 6], percent) == expected


def test_no_values_have_no_percentile():
    with pytest.raises(ValueError, match="no values"):
        percentile([], 50)


@given(st.lists(st.floats(0, 1e6), min_size=1), st.integers(0, 100))
def test_a_percentile_is_one_of_the_values_and_covers_enough_of_them(values, percent):
    found = percentile(values, percent)
    assert found in values
    assert sum(value <= found for value in values) * 100 >= percent * len(values)


def test_each_figure_has_its_own_median():
    rounds = [
        replace(FLOOR, p50=1.0, cpu=9.0),
        replace(FLOOR, p50=2.0, cpu=7.0),
        replace(FLOOR, p50=30.0, cpu=8.0),
    ]
    assert medians(rounds) == replace(FLOOR, p50=2.0, cpu=8.0)


def test_goals_compare_with_the_floor():
    whole = replace(FLOOR, p50=4.0, turns_per_second=400.0)
    checked = goals(ENGINE, {"floor": FLOOR, "other floor": whole}, ENGINE)
    ratios = [0.75, 2.5, 0.75, 3.5]
    assert [goal.value for goal in checked] == [*ratios, 3.0, 0.5, 0.1, 120.0, 120.0]
    assert [goal.what.rpartition("the ")[2] for goal in checked[:4]] == [
        *("floor", "floor"),
        *("other floor", "other floor"),
    ]
    assert all(goal.met for goal in checked)


def test_without_a_measurement_by_words_alone_its_goal_is_left_out():
    assert goals(ENGINE, FLOORS) == goals(ENGINE, FLOORS, ENGINE)[:-1]


@pytest.mark.parametrize(
    "change",
    [
        {"turns_per_second": 259.0},
        {"p50": 9.1},
        {"cpu": 5.1},
        {"cold_start": 1.6},
        {"first_message": 0.4},
        {"resident": 231.0},
    ],
)
def test_a_goal_that_is_missed_is_told(change):
    checked = goals(replace(ENGINE, **change), FLOORS, ENGINE)
    assert [goal.met for goal in checked].count(False) == 1
    assert goals_markdown(checked).count("**no**") == 1


def test_the_table_has_a_row_for_each_and_the_engines_ratios():
    lines = markdown({"floor": FLOOR, "engine": ENGINE}, "engine").splitlines()
    assert [line.split(" | ")[0] for line in lines] == [
        "| ",
        "| ---",
        "| floor",
        "| engine",
        "| engine ÷ floor",
    ]
    assert lines[2] == ("| floor | 1.00 s | 0.10 s | 5.0 ms | 8.0 ms | 400 | 2.0 ms | 110 MB |")
    assert lines[4].startswith("| engine ÷ floor | 0.50 | 1.00 | 1.50 | 1.00 | 0.75 | 1.50 | 1.09")
    assert len({line.count("|") for line in lines}) == 1


def test_busy_servers_are_told_and_a_bottleneck_is_warned_of():
    assert busy_note({"floor": FLOOR}).endswith("of one processor, fake model 10%.")
    assert "bottleneck" in busy_note({"floor": replace(FLOOR, model_busy=0.9)})
