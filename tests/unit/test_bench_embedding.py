"""What the benchmark of the embedder makes of its measurements."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bench.embedding import LENGTHS, Cost, passages, report

FAST = Cost(1.5, ((80, 2_000.4, 1_200.6), (300, 800.0, 400.0)), 2.04, 50.4)


def test_each_figure_stands_by_what_it_is_of():
    text = report(FAST)
    assert "| first text | 1.50 s |  |  |" in text
    assert "| passages of 80 characters | 2,000/s | 1,201/CPU s |  |" in text
    assert "| passages of 300 characters | 800/s | 400/CPU s | ≥ 300 |" in text
    assert "| a question | 2.0 ms |  |  |" in text
    assert "| memory | 50 MB |  | ≤ 70 |" in text


def test_a_goal_is_missed_by_being_slow_or_large():
    assert FAST.meets_goals
    assert replace(FAST, rates=FAST.rates[:1]).meets_goals  # not asked for
    assert not replace(FAST, rates=((300, 800.0, 299.0),)).meets_goals
    assert not replace(FAST, memory=71.0).meets_goals


@pytest.mark.parametrize("length", LENGTHS)
def test_passages_are_of_one_length_and_the_same_each_time_and_none_comes_twice(length: int):
    found = passages(length, 40)
    assert len(found) == len(set(found)) == 40
    assert {len(each) for each in found} == {length}
    assert found == passages(length, 40) != passages(length, 40, seed=1)
