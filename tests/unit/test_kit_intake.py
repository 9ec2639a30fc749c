"""What an account is brought is stored in order, after what was missed, and nothing grows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection

import pytest

from bot.channel.kit.intake import Intake
from bot.channel.kit.supervisor import Stopped, Supervisor
from bot.testing import RecordingEngine
from tests.support import until


class Platform:
    """Chats with a history of numbered messages, and what of them was stored."""

    def __init__(self) -> None:
        self.engine = RecordingEngine()
        self.supervisor = Supervisor("pigeon", "default", self.engine, waiting="they wait")
        self.intake = Intake[str](self.supervisor, read=self.read, store=self.store)
        self.history: dict[str, list[int]] = {}
        self.stored: list[tuple[str, str]] = []
        self.readings: list[tuple[str, int]] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.faults = 0

    async def read(self, chat: str, after: int) -> Collection[int]:
        """Store what was said after a message."""
        self.readings.append((chat, after))
        await self.gate.wait()
        if self.faults:
            self.faults -= 1
            raise ValueError("secret words")
        missed = [number for number in self.history.get(chat, ()) if number > after]
        self.stored += [(chat, str(number)) for number in missed]
        return missed

    async def store(self, chat: str, event: str) -> None:
        """Store an event."""
        await self.gate.wait()
        self.stored.append((chat, event))

    def say(self, chat: str, number: int) -> None:
        """Somebody writes."""
        self.history.setdefault(chat, []).append(number)
        self.intake.offer(chat, str(number), number)


@pytest.fixture
async def platform() -> AsyncIterator[Platform]:
    found = Platform()
    yield found
    await found.supervisor.stop()


async def idle(platform: Platform) -> None:
    await until(lambda: platform.intake.is_idle)


async def test_events_of_a_chat_are_stored_in_order(platform: Platform) -> None:
    for number in range(1, 9):
        platform.say("a", number)
    assert not platform.intake.is_idle
    platform.intake.release({})
    await idle(platform)
    assert platform.stored == [("a", str(number)) for number in range(1, 9)]
    assert platform.intake.waiting == 0


async def test_what_was_missed_comes_first_and_once(platform: Platform) -> None:
    platform.history["a"] = [1, 2, 3]
    platform.say("a", 4)
    platform.intake.offer("a", "an edit of 2")
    platform.intake.release({"a": 1})
    await platform.intake.settled("a")
    assert platform.stored[:3] == [("a", "2"), ("a", "3"), ("a", "4")]
    await idle(platform)
    assert platform.stored[3:] == [("a", "an edit of 2")]
    assert platform.intake.waiting == 0


async def test_chats_do_not_wait_for_each_other(platform: Platform) -> None:
    platform.intake.release({})
    platform.gate.clear()
    platform.intake.read_back("a", 0, wait=60.0)
    platform.gate.set()
    platform.say("b", 1)
    await platform.intake.settled("b")
    await until(lambda: platform.stored == [("b", "1")])


async def test_whoever_asks_waits_until_a_chat_is_read(platform: Platform) -> None:
    platform.gate.clear()
    settled = asyncio.create_task(platform.intake.settled("a"))
    even = asyncio.create_task(platform.intake.caught_up())
    platform.intake.release({"a": 1, "b": 1})
    await until(lambda: len(platform.readings) == 2)
    assert not settled.done()
    platform.gate.set()
    await settled
    await even
    assert sorted(platform.readings) == [("a", 1), ("b", 1)]


async def test_a_chat_is_read_from_the_earliest_message(platform: Platform) -> None:
    platform.intake.read_back("a", 5)
    platform.intake.read_back("a", 3)
    platform.intake.read_back("a", 7)
    platform.intake.release({})
    await idle(platform)
    assert platform.readings == [("a", 3)]


async def test_what_finds_no_room_is_read_from_the_history(
    platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bot.channel.kit.intake.MAX_LANE", 3)
    for number in range(1, 10):
        platform.say("a", number)
    assert platform.intake.waiting == 3
    platform.intake.release({})
    await idle(platform)
    assert platform.stored == [("a", str(number)) for number in range(1, 10)]
    assert platform.readings == [("a", 3)]
    assert platform.engine.drops == {"overflow": 6}


async def test_all_chats_together_have_an_end(
    platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bot.channel.kit.intake.MAX_WAITING", 10)
    for chat in range(100):
        platform.say(f"{chat}", 1)
    assert platform.intake.waiting == 10
    platform.intake.release({})
    await idle(platform)
    assert len(platform.stored) == 100


async def test_a_history_that_cannot_be_read_does_not_silence_its_chat(platform: Platform) -> None:
    platform.faults = 1
    platform.say("a", 1)
    platform.intake.release({"a": 0})
    await idle(platform)
    assert platform.stored == [("a", "1")]
    assert platform.engine.drops == {"fault": 1}


async def test_a_stop_lets_go_of_whoever_waits(platform: Platform) -> None:
    platform.say("a", 1)
    waiting = asyncio.create_task(platform.intake.settled("a"))
    await asyncio.sleep(0)
    await platform.supervisor.stop()
    with pytest.raises(Stopped):
        await waiting
    assert platform.stored == []
    assert platform.intake.waiting == 0
