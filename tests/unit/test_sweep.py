"""Ending conversations by the scheduler: it makes no difference to anybody's next message."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import apsw
import pytest
import structlog
from hypothesis import given, settings
from hypothesis import strategies as st

from bot.channel import Inbound
from bot.config import Config, ResetPolicy
from bot.errors import StorageFull
from bot.identity import ConversationResolver, Policy
from bot.sessions import inbox, store
from bot.sessions.entries import NewEntry
from bot.sessions.store import Session, TurnCounts
from bot.storage import sqlite
from bot.storage.sqlite_sql import SqliteTransaction
from bot.unit_of_work import Committer, UnitOfWork
from bot.upkeep import resets
from bot.upkeep.resets import Sweeper
from tests.proofs.rounds import rounds
from tests.support import core_of
from tests.unit.test_reset import POLICIES, TIMES

MINUTE = 60_000
HOUR = 60 * MINUTE
DAY = 24 * HOUR
NOON = 1_795_262_400_000  # 2026-11-21 12:00 UTC
UTC = ZoneInfo("UTC")


class MemoryDatabase:
    """A database on the caller's own thread; `reads` counts, `full` makes writes fail."""

    def __init__(self) -> None:
        self.connection = apsw.Connection(":memory:")
        self.tx = SqliteTransaction(self.connection)
        sqlite.migrate(self.tx, Path())
        self.reads = 0
        self.full = False

    async def read(self, work: Callable[[Any], Any]) -> Any:
        self.reads += 1
        return work(self.tx)

    async def write(self, work: Callable[[Any], Any]) -> Any:
        if self.full:
            raise StorageFull
        with self.connection:
            return work(self.tx)


class Nobody:
    """Delivery, mirror and memory that take everything and do nothing."""

    def post(self, letters: Any) -> None: ...
    def add(self, appended: Any) -> None: ...
    def note(self, session: Session) -> None: ...
    def forget(self, session_id: str) -> None: ...


@dataclass
class World:
    """Conversations as the gateway has them, without channels and models."""

    policy: ResetPolicy = field(default_factory=ResetPolicy)
    zone: ZoneInfo = UTC
    database: MemoryDatabase = field(default_factory=MemoryDatabase)
    ended: list[Session] = field(default_factory=list)
    found: list[tuple[int, str | None]] = field(default_factory=list)
    waiting: list[tuple[int, str]] = field(default_factory=list)
    known: list[str] = field(default_factory=list)
    timezones: dict[str, str] = field(default_factory=dict)
    by_type: dict[str, Any] = field(default_factory=dict)
    error: Exception | None = None

    def __post_init__(self) -> None:
        policy = {**self.policy.model_dump(), "by_type": self.by_type}
        data = {"session": {"reset": policy, "timezones": self.timezones}}
        self.resolver = ConversationResolver(Policy.of(Config.model_validate(data), self.zone))
        nobody: Any = Nobody()
        self.committer = Committer(self.database, nobody, nobody.add, nobody)
        core = core_of(self.database, resolver=self.resolver)
        self.sweeper = Sweeper(core, self.committer, self.on_ended)

    async def on_ended(self, session: Session) -> None:
        self.ended.append(session)
        if self.error is not None:
            raise self.error

    def inbound(self, now: int, sender: str = "ada", **changes: Any) -> Inbound:
        number = f"{now}-{len(self.found)}-{len(self.waiting)}"
        made = Inbound("memory", "default", sender, "direct", sender, number, "hi", now)
        return replace(made, **changes)

    async def message(self, now: int, sender: str = "ada", **changes: Any) -> Session:
        """A message is received; its answer is still being written."""
        inbound = self.inbound(now, sender, **changes)
        place = self.resolver.resolve(inbound).place

        def work(unit: UnitOfWork) -> Session:
            row = inbox.store(unit.tx, *inbox.storable(inbound), place.key, now)
            assert row is not None
            session, reason = resets.arrive(unit, self.resolver.now, place, is_command=False)
            inbox.bind(unit.tx, row, session.id)
            self.waiting.append((row, session.id))
            if session.id not in self.known:
                self.known.append(session.id)
            self.found.append((self.known.index(session.id), reason))
            return session

        return (await self.committer.commit(now, work)).result

    async def answer(self, now: int) -> None:
        """The oldest message that waits has its answer."""
        row, session_id = self.waiting.pop(0)

        def work(unit: UnitOfWork) -> None:
            said = [NewEntry("message", "user", "hi"), NewEntry("message", "assistant", "hello")]
            unit.append(session_id, said, TurnCounts(turns=1))
            inbox.done(unit.tx, [row], now)

        await self.committer.commit(now, work)

    async def talk(self, now: int, sender: str = "ada", **changes: Any) -> Session:
        session = await self.message(now, sender, **changes)
        await self.answer(now)
        return session

    async def command(self, now: int, name: str = "status") -> None:
        place = self.resolver.resolve(self.inbound(now)).place

        def work(unit: UnitOfWork) -> None:
            resets.arrive(unit, self.resolver.now, place, is_command=True)
            session, _ = unit.current(place)
            if name == "new":
                unit.start(place, by="new", previous=session, model="")
            elif name == "undo" and session.previous:
                store.point(unit.tx, place.key, session.previous, now)
            after, _ = unit.current(place)
            typed = NewEntry("command", "user", f"/{name}")
            unit.append(after.id, [typed, NewEntry("notice", "assistant", "done")])

        await self.committer.commit(now, work)

    def session(self, id_: str) -> Session:
        session = store.get(self.database.tx, id_)
        assert session is not None
        return session


# --- the scheduler and the next message agree ----------------------------------------------------


@pytest.fixture
def world() -> World:
    return World()


ENDING = st.one_of(
    st.builds(ResetPolicy, at_hour=st.integers(0, 23), idle_minutes=st.just(0)),
    st.builds(ResetPolicy, at_hour=st.integers(0, 23), idle_minutes=st.integers(1, 1000)),
    st.builds(ResetPolicy, mode=st.just("idle"), idle_minutes=st.integers(1, 60)),
    st.builds(ResetPolicy, mode=st.just("idle"), idle_minutes=st.integers(60, 1000)),
)
GAPS = st.one_of(
    st.integers(0, 59 * MINUTE),
    st.integers(HOUR, 5 * HOUR),
    st.integers(8 * HOUR, 30 * HOUR),
    st.sampled_from([HOUR - 1, HOUR, HOUR + 1, DAY, 3 * DAY]),
)
ACTIONS = st.sampled_from(["message"] * 4 + ["status"] * 2 + ["new", "undo"])
DELAYS = st.one_of(st.just(0), st.integers(0, 10 * MINUTE), st.integers(0, 3 * HOUR))
SWEEPS = st.lists(st.floats(0, 1), max_size=3)  # where in the time before an action
HISTORIES = st.lists(st.tuples(GAPS, ACTIONS, DELAYS, SWEEPS), min_size=2, max_size=12)


async def live_through(world: World, start: int, history: Any, *, swept: bool) -> None:
    """Let everything happen in its order; answers come in the order of their messages."""
    events: list[tuple[int, int, str]] = []
    now = answered = start
    for gap, action, delay, sweeps in history:
        if swept:
            events += [(now + int(gap * part), 0, "sweep") for part in sweeps]
        now += gap
        events.append((now, 1, action))
        if action == "message":
            answered = max(answered, now + delay)
            events.append((answered, 2, "answer"))
    for at, _, action in sorted(events):
        if action == "sweep":
            await world.sweeper.sweep(at)
        elif action == "message":
            await world.message(at)
        elif action == "answer":
            await world.answer(at)
        else:
            await world.command(at, action)


@pytest.mark.slow
@settings(max_examples=rounds(150, few=40))
@given(ENDING | POLICIES, TIMES, HISTORIES)
def test_the_next_message_finds_the_same_with_any_sweeps_and_with_none(policy, when, history):
    start, zone = when
    alone, swept = World(policy, zone), World(policy, zone)
    asyncio.run(live_through(alone, start, history, swept=False))
    asyncio.run(live_through(swept, start, history, swept=True))
    assert swept.found == alone.found
    if policy.mode == "none":
        assert not swept.ended
        assert all(reset is None for _, reset in swept.found)


@pytest.mark.slow
@settings(max_examples=rounds(50, few=20))
@given(ENDING, TIMES, HISTORIES)
def test_a_sweep_finds_all_that_the_next_message_would(policy, when, history):
    start, zone = when
    world = World(policy, zone)
    asyncio.run(live_through(world, start, history, swept=True))
    now = start + 400 * DAY
    asyncio.run(world.sweeper.sweep(now))
    before = {each.id: each.ended_by for each in store.all_sessions(world.database.tx)}
    session = asyncio.run(world.message(now))
    if session.previous and session.started_at == now:
        assert before[session.previous] in {"daily", "idle"}


# --- what a sweep does ---------------------------------------------------------------------------


async def test_what_is_over_is_closed_once_and_saved(world, logs):
    talked = await world.talk(NOON)
    assert await world.sweeper.sweep(NOON + 15 * HOUR) == 0  # 03:00
    assert await world.sweeper.sweep(NOON + 16 * HOUR) == 1
    assert await world.sweeper.sweep(NOON + 17 * HOUR) == 0
    assert [each.id for each in world.ended] == [talked.id]
    assert (world.ended[0].ended_by, world.ended[0].ended_at) == ("daily", NOON + 16 * HOUR)
    assert world.session(talked.id).ended_by == "daily"
    assert logs == [
        {
            "event": "session.ended",
            "log_level": "info",
            "reason": "daily",
            "channel": "memory",
            "session": talked.id,
        }
    ]


async def test_the_message_after_it_begins_anew_and_undo_opens_the_old_one_again(world):
    first = await world.talk(NOON)
    await world.sweeper.sweep(NOON + 20 * HOUR)
    second = await world.talk(NOON + 21 * HOUR)
    assert (second.started_by, second.previous) == ("daily", first.id)
    await world.command(NOON + 21 * HOUR, "undo")
    assert world.session(first.id).ended_by == ""
    assert world.session(second.id).ended_by == "left"
    back = await world.talk(NOON + 22 * HOUR)
    assert back.id == first.id
    await world.sweeper.sweep(NOON + 2 * DAY)
    assert [each.id for each in world.ended] == [first.id, first.id]


async def test_a_conversation_that_was_left_is_never_swept(world):
    await world.talk(NOON)
    await world.command(NOON, "new")
    assert await world.sweeper.sweep(NOON + 10 * DAY) == 0


async def test_one_without_an_answer_yet_is_never_swept(world):
    await world.message(NOON)
    assert await world.sweeper.sweep(NOON + 10 * DAY) == 0


async def test_whoever_waits_for_an_answer_is_not_silent():
    world = World(ResetPolicy(mode="idle", idle_minutes=1))
    await world.talk(NOON)
    await world.message(NOON + 1)
    assert await world.sweeper.sweep(NOON + HOUR) == 0
    await world.answer(NOON + HOUR)
    assert await world.sweeper.sweep(NOON + HOUR) == 0
    assert await world.sweeper.sweep(NOON + HOUR + MINUTE) == 1


async def test_a_message_that_waits_over_the_hour_is_not_followed_by_a_reset(world):
    first = await world.talk(NOON)
    await world.message(NOON + 16 * HOUR - MINUTE)  # at 03:59; its answer takes a while
    assert (await world.message(NOON + 16 * HOUR + MINUTE)).id == first.id


async def test_somebody_who_wrote_in_between_keeps_the_conversation(monkeypatch, world):
    talked = await world.talk(NOON)
    original = world.database.read

    async def read(work: Callable[[Any], Any]) -> Any:
        found = await original(work)
        await world.command(NOON + 15 * HOUR + 30 * MINUTE)
        return found

    monkeypatch.setattr(world.database, "read", read)
    assert await world.sweeper.sweep(NOON + 16 * HOUR + 10 * MINUTE) == 0
    assert world.session(talked.id).ended_by == ""


async def test_a_command_after_the_hour_does_not_keep_the_conversation(world):
    first = await world.talk(NOON)
    await world.command(NOON + 17 * HOUR)
    assert (await world.talk(NOON + 17 * HOUR + MINUTE)).id != first.id


async def test_saving_that_fails_stops_nobody_elses(logs):
    world = World(error=RuntimeError("Ada is allergic to peanuts"))
    await world.talk(NOON, "ada")
    await world.talk(NOON, "bob")
    assert await world.sweeper.sweep(NOON + DAY) == 2
    failed = [each for each in logs if each["event"] == "session.end_failed"]
    assert [each["error"] for each in failed] == ["RuntimeError"] * 2
    assert "peanuts" not in str(logs)


async def test_a_full_disk_leaves_it_to_the_next_sweep(world):
    await world.talk(NOON)
    world.database.full = True
    with pytest.raises(StorageFull):
        await world.sweeper.sweep(NOON + DAY)
    assert not world.ended
    world.database.full = False
    assert await world.sweeper.sweep(NOON + DAY + MINUTE) == 1


async def test_each_ends_at_the_hour_of_its_own_person():
    zones = {"memory:ada": "Asia/Shanghai", "memory:bob": "America/New_York"}
    world = World(timezones=zones)
    for sender in ("ada", "bob", "cy"):
        await world.talk(NOON, sender)
    ends: dict[str, int] = {}
    for hour in range(1, 30):
        before = len(world.ended)
        await world.sweeper.sweep(NOON + hour * HOUR)
        ends |= {session.person: hour for session in world.ended[before:]}
    # 04:00 in Shanghai is 20:00 UTC, in New York 09:00.
    assert ends == {"memory:ada": 8, "memory:cy": 16, "memory:bob": 21}


async def test_rooms_live_where_the_program_does_whoever_writes():
    world = World(timezones={"memory:ada": "Asia/Shanghai"})
    room = {"chat": "room", "chat_type": "group"}
    first = await world.talk(NOON, "ada", **room)
    assert (await world.talk(NOON + 10 * HOUR, "ada", **room)).id == first.id
    assert (await world.talk(NOON + 20 * HOUR, "ada", **room)).id != first.id


async def test_a_type_that_never_ends_is_left_alone():
    world = World(by_type={"group": {"mode": "none"}})
    await world.talk(NOON, "ada", chat="room", chat_type="group")
    await world.talk(NOON, "ada")
    assert await world.sweeper.sweep(NOON + 3 * DAY) == 1
    assert world.ended[0].chat_type == "direct"


async def test_where_nothing_ends_nothing_is_asked():
    world = World(ResetPolicy(mode="none"))
    await world.talk(NOON)
    assert await world.sweeper.sweep(NOON + DAY) == 0
    assert world.database.reads == 0


async def test_a_sweep_is_one_query_that_an_index_answers(monkeypatch):
    monkeypatch.setattr(resets, "BATCH", 7)
    world = World()
    for number in range(50):
        await world.talk(NOON, f"p{number}")
    for number in range(20):
        await world.talk(NOON + 16 * HOUR, f"late{number}")
    world.database.reads = 0
    assert await world.sweeper.sweep(NOON + 16 * HOUR + MINUTE) == 50
    assert world.database.reads == 1
    cut = "turns > 0 AND ended_by = '' AND last_user_at <= 5 AND (last_user_at <= 4 OR 1)"
    plan = world.database.tx.execute(
        "EXPLAIN QUERY PLAN SELECT id FROM sessions JOIN conversations "
        f"ON conversations.key = sessions.key AND session_id = id WHERE {cut}"
    )
    assert "sessions_open" in str(plan)


# --- a clock that jumps ---------------------------------------------------------------------------


@pytest.mark.parametrize("is_swept", [True, False])
@pytest.mark.parametrize("days", [2, 40, 400])
async def test_after_a_clock_was_ahead_and_came_back_the_daily_reset_comes(
    days: int, *, is_swept: bool
):
    world = World()
    await world.talk(NOON)
    await world.talk(NOON + days * DAY)  # the clock is ahead, and a conversation begins
    with structlog.testing.capture_logs() as logs:
        if is_swept:
            await world.sweeper.sweep(NOON + HOUR)
    assert [each["sessions"] for each in logs if each["event"].endswith("brought_back")] == (
        [1] if is_swept else []
    )
    kept = await world.talk(NOON + 2 * HOUR)
    assert kept.last_user_at <= NOON + 2 * HOUR
    assert world.found[-1] == (1, None)
    await world.sweeper.sweep(NOON + DAY)
    assert [each.id for each in world.ended][-1:] == [kept.id]
    await world.talk(NOON + DAY)
    assert world.found[-1] == (2, "daily")


async def test_a_clock_that_is_a_little_ahead_changes_nothing(world):
    session = await world.talk(NOON + 5 * MINUTE)
    await world.sweeper.sweep(NOON)
    assert world.session(session.id).last_user_at == NOON + 5 * MINUTE
    assert not store.is_ahead(world.database.tx, NOON)
