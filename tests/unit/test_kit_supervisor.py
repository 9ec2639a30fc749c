"""One account at work: brought, stored, stopped, healthy."""

import asyncio
from collections.abc import AsyncIterator, Collection

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.channel import Health, Inbound
from bot.channel.kit import json_access
from bot.channel.kit.intake import Intake
from bot.channel.kit.supervisor import ELSEWHERE, MAX_FAULTS, Backoff, Stopped, Supervisor
from bot.errors import StorageError
from bot.testing import RecordingEngine
from tests.odd import JSON
from tests.support import until

SAID = Inbound("pigeon", "default", "7", "direct", "7", "1", "hello", 5)
KEY = ("pigeon", "default")


class Watched(RecordingEngine):
    """An engine that keeps every report."""

    def __init__(self) -> None:
        super().__init__()
        self.reports: list[tuple[Health, str]] = []

    def report(self, channel: str, account: str, health: Health, detail: str = "") -> None:
        """Keep it."""
        super().report(channel, account, health, detail)
        self.reports.append((health, detail))


@pytest.fixture
def engine() -> Watched:
    return Watched()


@pytest.fixture
async def supervisor(engine: Watched) -> AsyncIterator[Supervisor]:
    found = Supervisor(
        "pigeon", "default", engine, waiting="they wait in the loft", first=0.001, longest=0.002
    )
    yield found
    await found.stop()


def test_waits_grow_until_something_succeeds() -> None:
    backoff = Backoff(1.0, 5.0)
    assert [backoff.next() for _ in range(4)] == [1.0, 2.0, 4.0, 5.0]
    backoff.reset()
    assert backoff.next() == 1.0


# --- storing -------------------------------------------------------------------------------------


async def test_a_message_is_offered_until_it_is_stored(engine, supervisor) -> None:
    engine.failures = 3
    assert await supervisor.receive(SAID)
    assert engine.received == [SAID]
    assert engine.attempts == 4
    first = "New messages cannot be stored; they wait in the loft. Trying again in 0.001 s."
    assert engine.reports[0] == (Health.DEGRADED, first)
    assert engine.reports[-1] == (Health.UP, "")


async def test_it_is_well_again_only_when_nothing_waits(engine, supervisor) -> None:
    stuck, tried = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        tried.set()
        if not stuck.is_set():
            raise StorageError("the disk is full")

    waiting = asyncio.create_task(supervisor.store(work))
    await tried.wait()
    engine.failures = 1
    await supervisor.receive(SAID)
    assert engine.health[KEY][0] is Health.DEGRADED
    stuck.set()
    assert await waiting
    assert engine.health[KEY] == (Health.UP, "")


async def test_a_message_that_is_too_much_for_us_is_dropped_and_counted(engine, supervisor) -> None:
    tries: list[int] = []

    async def fault() -> None:
        tries.append(1)
        raise ValueError("secret words")

    assert not await supervisor.store(fault)
    assert len(tries) == MAX_FAULTS
    assert engine.drops == {"fault": 1}


async def test_a_stop_ends_a_message_that_cannot_be_stored(engine: Watched) -> None:
    patient = Supervisor("pigeon", "default", engine, waiting="they wait", first=60.0)
    engine.failures = 1_000
    waiting = asyncio.create_task(patient.receive(SAID))
    await engine.wait_until(lambda e: e.attempts == 1)
    await patient.stop()
    with pytest.raises(Stopped):
        await waiting
    assert engine.health[KEY][0] is Health.DEGRADED


async def test_what_is_its_own_is_read_until_the_storage_gives_it(engine, supervisor) -> None:
    tries: list[int] = []

    async def read() -> str:
        tries.append(1)
        if len(tries) < 3:
            raise StorageError("the disk is full")
        return "found"

    assert await supervisor.insist("last_seen.failed", read) == "found"
    assert engine.reports == []


# --- tasks and waits -----------------------------------------------------------------------------


async def test_a_stop_waits_for_what_is_being_stored(engine, supervisor) -> None:
    begun, may = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        begun.set()
        await may.wait()
        await engine.receive(SAID)

    supervisor.spawn(work())
    await begun.wait()
    stop = asyncio.create_task(supervisor.stop())
    await asyncio.sleep(0)
    assert not stop.done()
    may.set()
    await stop
    assert engine.received == [SAID]


async def test_nothing_outlives_a_stop(supervisor, monkeypatch) -> None:
    monkeypatch.setattr("bot.channel.kit.supervisor.GRACE", 0.001)
    never, ended = asyncio.Event(), list[str]()

    async def waits(how: str) -> None:
        try:
            if how == "pause":
                await supervisor.pause(60)
            elif how == "happened":
                await supervisor.happened(never)
            elif how == "call":
                await supervisor.unless_stopped(never.wait())
            else:
                await never.wait()
        finally:
            ended.append(how)

    hows = ["pause", "happened", "call", "stubborn"]
    tasks = [supervisor.spawn(waits(how)) for how in hows]
    await asyncio.sleep(0)
    await supervisor.stop()
    assert sorted(ended) == sorted(hows)
    assert all(task.done() for task in tasks)
    for late in (
        supervisor.pause(60),
        supervisor.happened(never),
        supervisor.unless_stopped(never.wait()),
    ):
        with pytest.raises(Stopped):
            await late


async def test_a_call_ends_with_whoever_waits_for_it(supervisor: Supervisor) -> None:
    never = asyncio.Event()
    task = asyncio.create_task(supervisor.unless_stopped(never.wait()))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


# --- connecting ----------------------------------------------------------------------------------


async def test_a_connection_is_made_again_after_each_failure(engine, supervisor) -> None:
    errors: list[Exception] = [OSError("down"), ValueError("secret"), OSError("down")]
    seen: list[str] = []

    async def serve() -> None:
        if errors:
            raise errors.pop(0)
        supervisor.well("receiving")

    def failed(error: Exception) -> float | None:
        seen.append(type(error).__name__)
        if not isinstance(error, OSError):
            return None
        supervisor.trouble("receiving", Health.DOWN, "It cannot be reached.")
        return 0.0

    await supervisor.supervise(serve, failed)
    assert seen == ["OSError", "ValueError", "OSError"]
    assert engine.reports == [
        (Health.DOWN, "It cannot be reached."),
        (Health.DOWN, "An unexpected fault (ValueError)."),
        (Health.DOWN, "It cannot be reached."),
        (Health.UP, ""),
    ]


async def test_a_platform_that_is_not_there_is_told_of_without_a_word_of_the_channel(
    engine, supervisor
) -> None:
    errors = [ConnectionRefusedError("secret"), TimeoutError("secret")]

    async def serve() -> None:
        if errors:
            raise errors.pop(0)

    await supervisor.supervise(serve)
    assert engine.reports == [
        (Health.DEGRADED, f"It cannot be reached ({name}). Trying again in {delay} s.")
        for name, delay in (("ConnectionRefusedError", "0.001"), ("TimeoutError", "0.002"))
    ]


async def test_a_connection_is_not_made_again_after_the_stop(supervisor: Supervisor) -> None:
    tries: list[int] = []

    async def serve() -> None:
        tries.append(1)
        supervisor.close()
        await supervisor.pause(60)

    await supervisor.supervise(serve, lambda _error: 0.0)
    assert tries == [1]


# --- one node of many ----------------------------------------------------------------------------


class Listening:
    """A connection that stands until it is broken off, and counts itself."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor
        self.seen: list[str] = []
        self.up = asyncio.Event()

    async def begin(self) -> None:
        """Count it."""
        self.seen.append("begin")

    def end(self) -> None:
        """Count it."""
        self.seen.append("end")

    async def serve(self) -> None:
        """Stand until the account is lost."""
        self.seen.append("serve")
        self._supervisor.well("receiving")
        self.up.set()
        await self._supervisor.happened(asyncio.Event())


async def test_an_account_is_listened_to_again_each_time_it_is_this_nodes(
    engine, supervisor
) -> None:
    listening = Listening(supervisor)
    supervisor.spawn(supervisor.listen(listening.serve, begin=listening.begin, end=listening.end))
    beside = supervisor.spawn(supervisor.happened(asyncio.Event()))
    await listening.up.wait()
    listening.up.clear()
    engine.take_away()
    await until(lambda: engine.health[KEY] == (Health.UP, ELSEWHERE))
    assert beside.done()
    assert not engine.owned
    engine.free.set()
    await listening.up.wait()
    assert listening.seen == ["begin", "serve", "end", "begin", "serve"]
    assert engine.reports == [
        (Health.UP, ""),
        (Health.UP, ELSEWHERE),
        (Health.STARTING, ""),
        (Health.UP, ""),
    ]


async def test_what_is_being_stored_is_stored_before_another_node_listens(
    engine, supervisor
) -> None:
    begun, may = asyncio.Event(), asyncio.Event()

    async def slow() -> None:
        begun.set()
        await may.wait()
        await engine.receive(SAID)

    supervisor.spawn(supervisor.listen(lambda: supervisor.happened(asyncio.Event())))
    supervisor.spawn(slow())
    await begun.wait()
    engine.take_away()
    await until(supervisor.stopping.is_set)
    assert engine.owned
    may.set()
    await until(lambda: not engine.owned)
    assert engine.received == [SAID]


async def test_who_waits_for_an_account_says_so_and_can_stop(
    engine, supervisor, monkeypatch
) -> None:
    monkeypatch.setattr("bot.channel.kit.supervisor.ELSEWHERE_AFTER", 0.0)
    engine.take_away()
    listening = Listening(supervisor)
    task = supervisor.spawn(supervisor.listen(listening.serve))
    await until(lambda: engine.health.get(KEY) == (Health.UP, ELSEWHERE))
    await supervisor.stop()
    assert task.done()
    assert listening.seen == []


async def test_an_account_that_stops_while_it_is_lost_does_not_come_back(
    engine, supervisor
) -> None:
    listening = Listening(supervisor)
    task = supervisor.spawn(supervisor.listen(listening.serve))
    await listening.up.wait()
    next(iter(engine.owned.values())).set()
    await supervisor.stop()
    assert task.done()
    assert listening.seen == ["serve"]
    assert supervisor.stopping.is_set()


async def test_a_work_of_one_node_is_begun_anew_and_ends_nothing_else(
    engine, monkeypatch, supervisor
) -> None:
    monkeypatch.setattr("bot.channel.kit.supervisor.ELSEWHERE_AFTER", 0.0)
    monkeypatch.setattr("bot.channel.kit.supervisor.GRACE", 0.001)
    seen, beside = list[str](), supervisor.spawn(supervisor.happened(asyncio.Event()))

    async def work() -> None:
        seen.append("work")
        try:
            await asyncio.Event().wait()
        finally:
            seen.append("end")

    engine.take_away()
    supervisor.spawn(supervisor.alone(work, lambda: seen.append("elsewhere")))
    await until(lambda: seen == ["elsewhere"])
    engine.free.set()
    await until(lambda: seen[-1] == "work")
    engine.take_away()
    await until(lambda: seen[-1] == "end")
    engine.free.set()
    await until(lambda: seen[-1] == "work")
    assert not beside.done()


async def test_what_a_work_of_one_node_fails_with_is_told(engine, supervisor) -> None:
    async def work() -> None:
        raise OSError("down")

    with pytest.raises(OSError, match="down"):
        await supervisor.alone(work)
    assert not engine.owned


# --- health --------------------------------------------------------------------------------------


async def test_the_worst_is_told_and_only_when_it_changes(engine, supervisor) -> None:
    supervisor.trouble("rights", Health.UP, "It may not read along.")
    supervisor.trouble("sending", Health.DEGRADED, "It is slow.")
    supervisor.trouble("receiving", Health.DOWN, "It is gone.")
    supervisor.trouble("sending", Health.DEGRADED, "It is slower.")
    supervisor.well("receiving")
    supervisor.well("receiving")
    supervisor.well("sending")
    supervisor.well("rights")
    assert engine.reports == [
        (Health.UP, "It may not read along."),
        (Health.DEGRADED, "It is slow."),
        (Health.DOWN, "It is gone."),
        (Health.DEGRADED, "It is slower."),
        (Health.UP, "It may not read along."),
        (Health.UP, ""),
    ]


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


async def test_what_finds_no_room_is_read_from_the_history(platform, monkeypatch) -> None:
    monkeypatch.setattr("bot.channel.kit.intake.MAX_LANE", 3)
    for number in range(1, 10):
        platform.say("a", number)
    assert platform.intake.waiting == 3
    platform.intake.release({})
    await idle(platform)
    assert platform.stored == [("a", str(number)) for number in range(1, 10)]
    assert platform.readings == [("a", 3)]
    assert platform.engine.drops == {"overflow": 6}


async def test_all_chats_together_have_an_end(platform, monkeypatch) -> None:
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


@given(st.dictionaries(st.sampled_from(["a", "b"]), JSON))
def test_nothing_is_an_error(parent: json_access.Json) -> None:
    assert isinstance(json_access.mapping(parent.get("a")), dict)
    assert json_access.child(parent, "a") == json_access.mapping(parent.get("a"))
    assert all(isinstance(each, dict) for each in json_access.children(parent, "a", 3))
    number = json_access.integer(parent, "a")
    assert number is None or abs(number) <= 1 << 63
    found = json_access.text(parent, "a")
    assert "\0" not in found
    assert len(json_access.label(found).encode()) <= 4 * json_access.MAX_LABEL
    assert "\n" not in json_access.label(found)


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        (b'{"a": "\xff"}', {"a": "\ufffd"}),
        (b'"\\ud83d"', "\ud83d"),
        ("[1]", [1]),
        (b"1" * 30, pytest.approx(int("1" * 30))),
    ],
)
def test_broken_texts_are_read_all_the_same(raw: bytes | str, value: object) -> None:
    assert json_access.parse_json(raw) == value


@pytest.mark.parametrize("raw", [b"", b"{", b"[" * 100_000, "nul"])
def test_what_is_no_json_says_so(raw: bytes | str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  # it is all that is promised
        json_access.parse_json(raw)


def test_names_stay_on_one_line_and_emoji_whole() -> None:
    assert json_access.label(" A\n[b]\u202e\u200b👩‍👩‍👧 ") == "A (b) 👩‍👩‍👧"
    assert json_access.is_blank(" \u200b")
    assert not json_access.is_blank(" x")
