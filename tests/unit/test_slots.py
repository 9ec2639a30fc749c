"""Who is next at a service that handles only so many requests at once."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bot.agent.models import speed
from bot.agent.models.speed import SEEN, SlotCall, Slots
from bot.errors import ModelPutOff


class Place:
    """Somebody who wants a place, has it until told to leave it, and what became of that."""

    def __init__(self, of: Slots, name: str, log: list[str], *, chore: bool = False) -> None:
        self.leave = asyncio.Event()
        self.call: SlotCall | None = None
        self._slots, self._name, self._log, self._chore = of, name, log, chore
        self.task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        try:
            async with self._slots.taken(chore=self._chore) as self.call:
                self._log.append(self._name)
                await self.leave.wait()
        except ModelPutOff:
            self._log.append(f"{self._name} is put off")


def a_service(limit: int | None = None, **options: float) -> tuple[Slots, list[str]]:
    """The places of a service, and a list of who got one."""
    return Slots(limit, **options), []


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def end(*places: Place) -> None:
    for place in places:
        place.task.cancel()
    await asyncio.gather(*(place.task for place in places), return_exceptions=True)


async def test_any_number_is_asked_at_once_where_nothing_is_limited():
    here, log = a_service(0)
    places = [Place(here, name, log, chore=name == "c") for name in "abc"]
    await settle()
    assert log == ["a", "b", "c"]
    await end(*places)


async def test_people_come_in_their_order_and_before_every_chore():
    here, log = a_service(1, quiet=0)
    first = Place(here, "a", log)
    await settle()
    chore = Place(here, "chore", log, chore=True)
    second, third = Place(here, "b", log), Place(here, "c", log)
    await settle()
    assert log == ["a"]
    for place in (first, second, third):
        place.leave.set()
        await settle()
    assert log == ["a", "b", "c", "chore"]
    await end(chore)


async def test_a_chore_that_runs_is_put_off_for_a_person():
    here, log = a_service(1, quiet=0)
    Place(here, "chore", log, chore=True)
    await settle()
    person = Place(here, "a", log)
    await settle()
    assert log == ["chore", "chore is put off", "a"]
    await end(person)


async def test_no_more_chores_are_put_off_than_people_wait():
    here, log = a_service(2, quiet=0)
    old, young = (Place(here, name, log, chore=True) for name in ("old", "young"))
    await settle()
    person = Place(here, "a", log)
    await settle()
    assert log == ["old", "young", "young is put off", "a"]
    await end(old, young, person)


async def test_between_two_requests_of_a_person_no_chore_begins():
    here, log = a_service(1, quiet=3_600)
    first = Place(here, "a", log)
    await settle()
    chore = Place(here, "chore", log, chore=True)
    first.leave.set()
    await settle()
    second = Place(here, "a again", log)
    await settle()
    second.leave.set()
    await settle()
    assert log == ["a", "a again"]
    await end(chore)


async def test_whoever_gives_up_waiting_takes_no_place():
    here, log = a_service(1, quiet=0)
    first = Place(here, "a", log)
    await settle()
    second, third = Place(here, "b", log), Place(here, "c", log)
    await settle()
    first.leave.set()
    await asyncio.sleep(0)
    await end(second)  # it may have been given the place just now
    await settle()
    assert log[-1] == "c"
    await end(third)


async def test_a_limit_that_is_lifted_lets_everybody_in():
    here, log = a_service(1)
    places = [Place(here, name, log) for name in "abc"]
    await settle()
    here.adopt(0)
    await settle()
    assert log == ["a", "b", "c"]
    await end(*places)


async def test_as_long_as_nothing_is_known_people_are_not_held_back_and_chores_make_way():
    here, log = a_service(quiet=0)
    chore = Place(here, "chore", log, chore=True)
    await settle()
    people = [Place(here, name, log) for name in "ab"]
    await settle()
    assert log == ["chore", "a", "b", "chore is put off"]
    later = Place(here, "later", log, chore=True)
    await settle()
    assert log[-1] != "later"
    for each in people:
        each.leave.set()
        await settle()
    assert log[-1] == "later"
    await end(chore, later)


# --- finding out ----------------------------------------------------------------------------------


async def overlap(here: Slots, *, parallel: bool) -> None:
    """Two requests, one during the other, at a service that answers at once or one by one."""
    log: list[str] = []
    first = Place(here, "a", log)
    await settle()
    assert first.call is not None
    here.spoke(first.call)
    second = Place(here, "b", log)
    await settle()
    if second.call is not None and parallel:
        here.spoke(second.call)
    first.leave.set()
    await settle()
    if not parallel:
        assert second.call is not None
        here.spoke(second.call)
    second.leave.set()
    await settle()


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed, "WAITED", 0.0)


async def test_a_service_that_answers_one_by_one_is_found_out():
    here = Slots()
    for _ in range(SEEN):
        assert here.limit == 0
        await overlap(here, parallel=False)
    assert here.limit == 1


async def test_one_that_answers_two_at_once_is_never_held_back():
    here = Slots()
    await overlap(here, parallel=True)
    for _ in range(SEEN + 1):
        await overlap(here, parallel=False)
    assert here.limit == 0


async def test_what_was_found_out_outlasts_another_configuration_that_does_not_say_it():
    here = Slots()
    for _ in range(SEEN):
        await overlap(here, parallel=False)
    here.adopt(None)
    assert here.limit == 1
    here.adopt(0)
    assert here.limit == 0


async def test_a_service_that_is_too_busy_takes_no_more_at_once_for_a_while(monkeypatch):
    here, log = a_service()
    places = [Place(here, name, log) for name in "abc"]
    await settle()
    assert places[2].call is not None
    assert here.refused(places[2].call)
    await end(places[2])
    fourth = Place(here, "d", log)
    await settle()
    assert (here.limit, log) == (2, ["a", "b", "c"])
    places[0].leave.set()
    await settle()
    assert log[-1] == "d"
    monkeypatch.setattr(speed, "LASTS", -1.0)
    assert fourth.call is not None
    assert here.refused(fourth.call)
    fifth = Place(here, "e", log)
    await settle()
    assert (here.limit, log[-1]) == (0, "e")  # it may take more again
    await end(places[1], fourth, fifth)


async def test_one_that_is_too_busy_although_nothing_else_was_asked_teaches_nothing():
    log: list[str] = []
    for here in (Slots(), Slots(2)):
        first = Place(here, "a", log)
        await settle()
        assert first.call is not None
        assert not here.refused(first.call)
        second = Place(here, "b", log)
        await settle()
        assert second.call is not None
        assert here.refused(second.call) is (here.limit == 1)
        await end(first, second)


@settings(deadline=None)
@given(
    limit=st.integers(1, 3),
    steps=st.lists(
        st.tuples(st.sampled_from(["person", "chore", "leave", "give up"]), st.integers(0, 9)),
        max_size=30,
    ),
)
def test_there_are_never_more_than_allowed_and_nobody_waits_beside_a_free_place(limit, steps):
    async def run() -> None:
        here, log = Slots(limit, quiet=0), []
        places: list[tuple[Place, bool]] = []
        for what, number in steps:
            if what in {"person", "chore"}:
                places.append((Place(here, what, log, chore=what == "chore"), what == "chore"))
            elif places:
                place, _ = places[number % len(places)]
                _ = place.leave.set() if what == "leave" else place.task.cancel()
            await settle()
            there = [(p, chore) for p, chore in places if not p.task.done()]
            inside = [(p, chore) for p, chore in there if p.call is not None]
            waiting = [(p, chore) for p, chore in there if p.call is None]
            assert len(inside) <= limit
            assert not waiting or len(inside) == limit
            if any(not chore for _, chore in waiting):
                assert not any(chore for _, chore in inside)
        for place, _ in places:
            place.task.cancel()
            with suppress(asyncio.CancelledError):
                await place.task

    asyncio.run(run())
