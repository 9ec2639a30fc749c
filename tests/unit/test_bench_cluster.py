"""What the cluster's benchmark makes of its measurements."""

from __future__ import annotations

from bench.cluster import FOUR, ONE, SQLITE, TWO, Found, Size, goals, report


def test_the_goals_are_about_four_nodes_next_to_one_and_postgresql_next_to_sqlite():
    costs = {SQLITE.title: Found(p50=6.0), ONE.title: Found(p50=18.0, statements=13.0, idle=3.5)}
    rates = {
        SQLITE.title: Found(rate=3.9),
        ONE.title: Found(rate=3.8),
        TWO.title: Found(rate=7.5, takeover=4.0),
        FOUR.title: Found(rate=14.0, takeover=6.0),
    }
    linear, statements, idle, added, takeover = goals(costs, rates)
    assert round(linear.value, 2) == 0.92
    assert (statements.value, idle.value) == (13.0, 3.5)
    assert (added.value, takeover.value) == (12.0, 6.0)
    assert all(goal.met for goal in (linear, statements, idle, added, takeover))
    text = report(costs, rates, Size(messages=200, each=3))
    assert "| four nodes on PostgreSQL | 14.00 |" in text
    assert "200 messages one by one" in text


def test_statements_that_were_not_counted_are_no_goal():
    costs = {SQLITE.title: Found(p50=6.0), ONE.title: Found(p50=18.0)}
    rates = {ONE.title: Found(rate=3.8), FOUR.title: Found(rate=14.0)}
    assert not [goal.what for goal in goals(costs, rates) if "statements" in goal.what]
