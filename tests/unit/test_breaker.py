"""A model that failed is spared, and always asked again."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bot.agent.models.breaker import FIRST_PAUSE, LONGEST_PAUSE, LONGEST_WAIT, PROBE, Breaker

times = st.floats(0, 10_000)
waits = st.floats(0, 1e9)
# What happens to one model: seconds later, it is asked (and then fails after some, or works).
events = st.lists(st.tuples(times, st.sampled_from(["asked", "failed", "worked"]), waits))


def after(happened: list[tuple[float, str, float]]) -> tuple[Breaker, float]:
    breaker, now = Breaker(), 0.0
    for later, what, wait in happened:
        now += later
        if what == "asked":
            breaker = breaker if breaker.is_open(now) else breaker.asked(now)
        else:
            breaker = breaker.failed(now, wait) if what == "failed" else Breaker()
    return breaker, now


@given(events, waits)
def test_what_fails_is_spared_at_least_as_long_as_it_asks_for(happened, wait):
    breaker, now = after(happened)
    failed = breaker.failed(now, wait)
    assert failed.is_open(now)
    assert not now or failed.is_open(now + min(wait, LONGEST_WAIT) * 0.999)


@given(events)
def test_it_is_always_asked_again(happened):
    breaker, now = after(happened)
    assert not breaker.is_open(now + max(LONGEST_PAUSE, LONGEST_WAIT, PROBE) + 1)


@given(events)
def test_while_nobody_knows_only_one_request_finds_out(happened):
    breaker, now = after(happened)
    asked = breaker.asked(now)
    assert asked.is_open(now) == bool(breaker.failures)
    assert Breaker().asked(now) == Breaker()


def test_many_that_fail_together_count_as_one_failure():
    breaker = Breaker()
    for _ in range(20):
        breaker = breaker.failed(100.0)
    assert breaker.failures == 1
    assert not breaker.is_open(100.0 + FIRST_PAUSE)


def test_it_is_spared_longer_each_time():
    breaker, now, pauses = Breaker(), 0.0, list[float]()
    for _ in range(8):
        breaker = breaker.asked(now).failed(now)
        pauses.append(breaker.until - now)
        now = breaker.until
    assert pauses[:3] == [30.0, 60.0, 120.0]
    assert pauses[-1] == LONGEST_PAUSE
