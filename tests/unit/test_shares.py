"""Fair shares: who is next, how much of one person's work may wait, what leaves no hole."""

from __future__ import annotations

import asyncio
from collections import Counter, deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.errors import PoolFull
from bot.shares import Budget, Pool, RoundRobin, Share, turns

SHARES = st.builds(
    Share,
    at_once=st.integers(1, 4),
    each=st.integers(1, 4),
    waiting=st.none() | st.integers(0, 3),
)
# What happens: somebody comes, or one of those who are there (by number) is done or gives up.
STEPS = st.lists(st.sampled_from("abc") | st.integers(0, 20), max_size=60)


def owner_of(robin: RoundRobin, ticket: int) -> str:
    return robin._owners[ticket]


@given(SHARES, STEPS)
def test_no_bound_is_ever_exceeded_and_no_place_stays_empty(share, steps):
    robin, running, waiting = RoundRobin(share), dict[int, str](), dict[int, str]()
    for step in steps:
        if isinstance(step, str):
            before = Counter(waiting.values())[step]
            try:
                waiting[robin.enter(step)] = step
            except PoolFull:
                assert share.waiting is not None
                assert before >= share.waiting
        elif running or waiting:
            there = [*running, *waiting]
            ticket = there[step % len(there)]
            robin.leave(ticket)
            running.pop(ticket, waiting.pop(ticket, None))
        for ticket in robin.admit():
            running[ticket] = waiting.pop(ticket)
        each = Counter(running.values())
        assert robin.running == len(running) <= share.at_once
        assert all(number <= share.each for number in each.values())
        if len(running) < share.at_once:  # a place is free only when nobody may have it
            assert all(each[person] >= share.each for person in waiting.values())
        if share.waiting is not None:
            assert all(number <= share.waiting for number in Counter(waiting.values()).values())
    for ticket in (*running, *waiting):
        robin.leave(ticket)
    assert robin.admit() == []
    kept = (robin._owners, robin._ready, robin._held, robin._running)
    assert not any(kept), "somebody who is gone is still kept"


@given(st.lists(st.sampled_from("abcd"), min_size=1, max_size=40))
def test_nobody_comes_twice_before_another_who_waits_comes_once(people):
    robin = RoundRobin(Share(at_once=1, each=1, waiting=None))
    lines: dict[str, deque[int]] = {}
    for person in people:
        lines.setdefault(person, deque()).append(robin.enter(person))
    served: list[str] = []
    while admitted := robin.admit():
        (ticket,) = admitted
        person = owner_of(robin, ticket)
        assert ticket == lines[person].popleft()  # each person's own are in order
        served.append(person)
        robin.leave(ticket)
    assert Counter(served) == Counter(people)
    for start in range(len(served)):
        left = Counter(served[start:])
        first_again = next(
            (n for n in range(start + 1, len(served)) if served[n] == served[start]), len(served)
        )
        # From one of somebody's to their next, everybody who had something waiting was served.
        if first_again < len(served):
            assert set(served[start:first_again]) >= {p for p in left if left[p]}


def test_one_person_has_a_quarter_of_the_turns_and_at_least_one():
    assert [turns(n).each for n in (1, 3, 4, 64)] == [1, 1, 1, 16]


async def test_one_person_cannot_take_the_places_of_others():
    pool, running = Pool(Share(at_once=3, each=2, waiting=None)), list[str]()
    done = asyncio.Event()

    async def work(person: str) -> None:
        async with pool.place(person):
            running.append(person)
            await done.wait()

    async with asyncio.TaskGroup() as group:
        for person in ("eve", "eve", "eve", "eve", "ada", "bob"):
            group.create_task(work(person))
        for _ in range(5):
            await asyncio.sleep(0)
        assert running == ["eve", "eve", "ada"]
        done.set()
    # Bob waited for a place that anybody could have, Eve for one of her own.
    assert running == ["eve", "eve", "ada", "bob", "eve", "eve"]


async def test_one_more_than_may_wait_is_refused_and_the_owner_is_not_spared():
    pool = Pool(Share(at_once=4, each=1, waiting=1))
    async with pool.place("owner"):
        second = asyncio.ensure_future(held(pool, "owner"))
        await asyncio.sleep(0)
        with pytest.raises(PoolFull):
            async with pool.place("owner"):
                pass
        async with pool.place("ada"):  # somebody else's are as free as before
            pass
    await second
    async with pool.place("owner"):
        pass


async def held(pool: Pool, person: str) -> None:
    async with pool.place(person):
        await asyncio.sleep(0)


@pytest.mark.parametrize("given_first", [False, True])
async def test_one_who_gives_up_leaves_no_hole(given_first):
    pool = Pool(Share(at_once=1, each=1, waiting=None))
    async with pool.place("ada"):
        waits = asyncio.ensure_future(held(pool, "eve"))
        after = asyncio.ensure_future(held(pool, "bob"))
        await asyncio.sleep(0)
        if not given_first:
            waits.cancel()
    if given_first:  # it was given the place, and has not begun
        waits.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waits
    async with asyncio.timeout(1):
        await after
        await held(pool, "ada")
    assert pool._waiting == {}


def test_a_budget_is_used_up_by_one_person_alone_and_comes_back():
    now = 0.0
    budget = Budget(60.0, 0.1, lambda: now)
    budget.add("eve", 61.0)
    assert (budget.is_used_up("eve"), budget.is_used_up("ada")) == (True, False)
    now = 11.0
    assert not budget.is_used_up("eve")
