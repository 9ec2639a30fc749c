"""What comes again and again: each of its times once, over restarts, two nodes and a year.

People live in zones whose clocks change; the program is killed before and after it stored what it
sent, and is off for days. What was sent, with what it says went by meanwhile, has to be what
dateutil says of the rules, time by time.
"""
# ruff: noqa: DTZ001 - what stands on a wall clock has no time zone

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar
from zoneinfo import ZoneInfo

import pytest
from dateutil import rrule as oracle

from bot.channel import Address
from bot.config import Config
from bot.gateway.reminders import MOST_MISSED, Reminders
from bot.gateway.tasks import TaskRunner
from bot.identity import Books, ConversationResolver, MessageOrigin, Policy
from bot.scheduler import Scheduler
from bot.sessions import recurrence, repeats
from bot.sessions.recurrence import Series
from bot.sessions.reminders import ReplyTarget
from bot.storage import Database, Transaction
from bot.storage.sqlite import SqliteDatabase
from bot.unit_of_work import Committer
from tests.proofs.rounds import lengths, rounds
from tests.support import FakeClock, core_of
from tests.unit.test_sweep import Nobody

T = TypeVar("T")

HOUR = 3_600_000
DAY = 24 * HOUR
WEEKS = 6  # a year with `make proof`
RULES = {
    "daily": ("Europe/Berlin", "FREQ=DAILY", datetime(2026, 10, 1, 2, 30)),
    "workdays": ("America/New_York", "FREQ=WEEKLY;BYDAY=MO,TU,WE,TH,FR", datetime(2026, 10, 1, 8)),
    "hours": ("Australia/Lord_Howe", "FREQ=HOURLY;INTERVAL=7", datetime(2026, 10, 1, 8)),
    "weeks": ("Africa/Casablanca", "FREQ=WEEKLY;INTERVAL=2;BYDAY=SU", datetime(2026, 10, 4, 2)),
    "months": ("Asia/Gaza", "FREQ=MONTHLY;BYMONTHDAY=1,-1", datetime(2026, 10, 31, 0, 30)),
    "noons": ("Asia/Shanghai", "FREQ=DAILY;BYHOUR=8,12;BYMINUTE=15", datetime(2026, 10, 1, 8)),
}
BEGINS = int(datetime(2026, 10, 15, tzinfo=UTC).timestamp() * 1000)  # before the clocks change


class Killed(Exception):
    """The program ends here."""


class Mortal:
    """A database of a program that may be killed at any write."""

    def __init__(self, database: Database, chance: random.Random) -> None:
        self._database = database
        self._chance = chance

    async def read(self, work: Callable[[Transaction], T]) -> T:
        return await self._database.read(work)

    async def write(self, work: Callable[[Transaction], T]) -> T:
        dies = self._chance.random()

        def run(tx: Transaction) -> T:
            result = work(tx)
            if dies < 0.05:
                raise Killed
            return result

        result = await self._database.write(run)
        if dies > 0.95:
            raise Killed
        return result


@dataclass
class World:
    """Two nodes, one clock, and everything that was said."""

    databases: list[Database]
    chance: random.Random
    clock: FakeClock = field(default_factory=FakeClock)
    said: list[tuple[str, int, int]] = field(default_factory=list)  # what, when, how many times
    last: int = 0
    kills: int = 0

    def node(self, database: Database) -> Reminders:
        """A program that has just been started."""
        config = Config.model_validate(
            {"session": {"timezones": {f"memory:{name}": rule[0] for name, rule in RULES.items()}}}
        )
        nobody: Any = Nobody()
        mortal: Any = Mortal(database, self.chance)
        scheduler = Scheduler(self.clock)
        resolver = ConversationResolver(
            Policy.of(config, ZoneInfo("UTC")),
            Books(paired=frozenset(("memory", "default", name) for name in RULES)),
        )
        return Reminders(
            core_of(mortal, clock=self.clock, resolver=resolver),
            committer=Committer(mortal, nobody, nobody.add, nobody),
            scheduler=scheduler,
        )

    async def wake(self, nodes: list[Reminders]) -> None:
        """Both nodes look at the same time; whichever is killed is started again."""
        while True:
            came = await asyncio.gather(*(each.wake() for each in nodes), return_exceptions=True)
            for number, each in enumerate(came):
                if isinstance(each, Killed):
                    self.kills += 1
                    nodes[number] = self.node(self.databases[number])
                    with suppress(Killed):
                        await nodes[number].retime()
                elif each is not None:
                    raise each
            if not any(isinstance(each, Killed) for each in came):
                return

    async def hear(self) -> None:
        """Take up what was put into the outbox."""
        rows = await self.databases[0].read(
            lambda tx: tx.execute(
                "SELECT id, text FROM outbox WHERE id > ? ORDER BY id", (self.last,)
            )
        )
        for id_, text in rows:
            many = re.search(r"due (\d+) times since", text)
            self.said.append((text.split()[1], self.clock(), int(many[1]) if many else 1))
            self.last = id_


def expected(name: str, until: int) -> list[int]:
    """When dateutil says it is due."""
    zone, text, begins = RULES[name]
    is_elapsed = "HOURLY" in text
    rule = oracle.rrulestr(text, dtstart=begins)
    found = {
        int(wall.replace(tzinfo=UTC if is_elapsed else ZoneInfo(zone)).timestamp() * 1000)
        for wall in rule.between(begins, datetime(2027, 12, 1), inc=True)
    }
    return sorted(at for at in found if BEGINS < at <= until)


@pytest.fixture(params=["sqlite", "postgres"])
async def databases(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """The same database, opened by two programs."""
    if request.param == "sqlite":
        found: list[Database] = [await SqliteDatabase.open(tmp_path / "c.db") for _ in range(2)]
    else:
        from bot.storage.postgres import PostgresDatabase

        url = request.getfixturevalue("postgres_url")
        found = [await PostgresDatabase.open(url) for _ in range(2)]
    yield found
    for database in found:
        await database.close()


@pytest.mark.slow
@lengths("weeks", 2, WEEKS)
async def test_each_time_is_said_once(databases: list[Database], weeks: int):
    weeks = min(weeks, 52)
    chance = random.Random(7)  # noqa: S311
    world = World(databases, chance)
    world.clock.now = BEGINS
    for name, (zone, text, begins) in RULES.items():
        origin = MessageOrigin("memory", "default", name, "direct", name)
        address = Address("memory", "default", name)
        target = ReplyTarget(
            f"agent:main:memory:dm:{name}", f"memory:{name}", address, "en", origin
        )
        series = Series(recurrence.parse(text), begins)
        await databases[0].write(
            lambda tx, t=target, n=name, s=series, z=zone: repeats.add(
                tx, t, n, s, zone=ZoneInfo(z), now=BEGINS
            )
        )
    nodes = [world.node(each) for each in databases]
    end = BEGINS + weeks * 7 * DAY
    while world.clock() < end:
        due_at = await databases[0].read(repeats.next_due)
        assert due_at is not None
        off = chance.choice([*(0,) * 60, HOUR, HOUR, 2 * DAY, 9 * DAY])
        world.clock.now = min(max(due_at + off, world.clock()), end)
        await world.wake(nodes)
        await world.hear()
    for name in RULES:
        said = [(at, count) for what, at, count in world.said if what == name]
        wanted = expected(name, end)
        assert sum(count for _, count in said) == len(wanted), name
        position = 0
        for at, count in said:
            assert count <= MOST_MISSED + 1
            due = wanted[position : position + count]
            position += count
            assert due[-1] <= at  # all that went by are told of …
            assert position == len(wanted) or wanted[position] > at  # … and none to come
    print(
        f"\n{weeks} weeks: {sum(c for *_, c in world.said)} times, {len(world.said)} said, "
        f"{world.kills} kills"
    )


async def test_each_run_of_a_task_is_begun_once_at_most(databases: list[Database]):
    """Two nodes claim what is due at the same time, and are killed before and after they did."""
    chance = random.Random(3)  # noqa: S311
    clock = FakeClock(BEGINS)
    nobody: Any = Nobody()
    nodes: list[TaskRunner] = []
    for each in databases:
        mortal: Any = Mortal(each, chance)
        nodes.append(
            TaskRunner(
                core_of(mortal, clock=clock, metrics=nobody),
                committer=Committer(mortal, nobody, nobody.add, nobody),
                requests=nobody,
                commits=nobody,
                toolbox=nobody,
                notes=nobody,
                running=nobody,
                scheduler=nobody,
                heartbeats=nobody,
            )
        )
    origin = MessageOrigin("web", "default", "owner", "direct", "owner")
    target = ReplyTarget(
        "agent:main:web:dm:owner", "main", Address("web", "default", "owner"), "en", origin
    )
    series = Series(recurrence.parse("FREQ=HOURLY"), datetime(2026, 10, 15))
    await databases[0].write(
        lambda tx: repeats.add(
            tx, target, "x", series, zone=ZoneInfo("UTC"), now=BEGINS, kind="task"
        )
    )
    begun: list[int] = []
    for _ in range(rounds(40)):
        clock.now += HOUR
        commits = (node._committer.commit(clock(), node._claim) for node in nodes)
        for came in await asyncio.gather(*commits, return_exceptions=True):
            if isinstance(came, Killed):
                continue
            if isinstance(came, BaseException):
                raise came
            if came.result is not None:
                begun.append(came.result.repeat.due_at)
    assert len(begun) == len(set(begun))
    assert len(begun) > rounds(30)
    runs = await databases[0].read(
        lambda tx: tx.execute("SELECT due_at FROM repeat_runs ORDER BY due_at")
    )
    assert {due_at for (due_at,) in runs} >= set(begun[-5:])
