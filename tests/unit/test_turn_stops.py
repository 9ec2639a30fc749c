"""`/stop` reaches a turn on whichever node it runs, and says what came of it."""

from __future__ import annotations

from typing import cast

import pytest

from bot.agent import stopping
from bot.agent.stopping import HEARD_MS, TurnStops
from bot.agent.turn import RunningTurns, Turn
from bot.coordination import Event
from tests.fakes.nodes import FakeNode, joined
from tests.support import FakeClock


class Stoppable:
    """A turn that notes that it was stopped."""

    def __init__(self) -> None:
        self.stops = 0

    def stop(self) -> None:
        """Note it."""
        self.stops += 1


class Side:
    """What stops turns on one node, and the turns that run there."""

    def __init__(self, node: FakeNode, clock: FakeClock) -> None:
        self.node, self.running = node, RunningTurns()
        self.stops = TurnStops(self.running, node, clock)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def sides(clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> list[Side]:
    monkeypatch.setattr(stopping, "ANSWER_SECONDS", 0.01)
    return [Side(node, clock) for node in joined(3)]


async def test_a_turn_is_stopped_from_any_node(sides: list[Side]) -> None:
    for asking in sides:
        turn = Stoppable()
        with sides[1].running.running("key", cast("Turn", turn)):
            assert await asking.stops.is_running("key")
            assert not await asking.stops.is_running("another")
            assert turn.stops == 0
            assert await asking.stops.stop("key")
            assert not await asking.stops.stop("another")
        assert turn.stops == 1
        assert not await asking.stops.stop("key")


async def test_nobody_is_asked_about_a_turn_that_runs_here(sides: list[Side]) -> None:
    with sides[0].running.running("key", cast("Turn", Stoppable())):
        assert await sides[0].stops.stop("key")
    assert sides[0].node.told == []


async def test_what_is_heard_late_stops_no_later_turn(sides: list[Side], clock: FakeClock) -> None:
    turn = Stoppable()
    with sides[1].running.running("key", cast("Turn", turn)):
        await sides[1].node.hear(Event("stop", "key", f"stop a1 {clock() - HEARD_MS - 1}"))
        assert turn.stops == 0
        await sides[1].node.hear(Event("stop", "key", f"stop a1 {clock() - HEARD_MS}"))
        assert turn.stops == 1


async def test_a_node_that_reaches_nobody_says_that_nothing_runs(sides: list[Side]) -> None:
    sides[0].node.is_cut_off = True
    assert not await sides[0].stops.stop("key")
    await sides[0].node.hear(Event("stop", "key", "yes a1 5"))  # answers what nobody asks any more
