"""Measure many nodes on one PostgreSQL next to one on SQLite, in one run on one machine.

`python -m bench cluster [--quick] [--postgres URL]`. Every node runs 8 turns at a time with a model
that thinks for 2 s, so that what is measured is how turns are shared out, and not how fast this
machine is; what a turn costs is measured apart, with a model that answers at once. PostgreSQL is
that of the tests, with fsync on, or that of the URL, whose user may make databases; there
statements are not counted.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import psutil
import psycopg
import uvloop

from bench.bots import CONFIDANT, Running, running, server, settings
from bench.load import FIRST_CHAT, SETTLE, People, WrongAnswers
from bench.sized import parsed
from bench.table import Goal, goals_markdown, percentile, table
from tests.fakes.postgres import PostgresServer, a_database
from tests.fakes.telegram_nodes import NodesTelegram

THINKS = 2.0  # seconds
MAX_TURNS = 8  # at the same time, of each node
CHATS_A_TURN = 3  # chats for each turn that can run: none of them has to wait for another's end
START_SECONDS = 60.0
REPLY_SECONDS = 60.0
TAKEOVER_SECONDS = 60.0
LIMIT = 1800.0
QUIET = 12.0  # seconds after which what was said is in the index of memory, and nothing follows
IDLE = 10.0  # seconds in which the statements are counted that come without a turn
OUT = Path(__file__).resolve().parent / "out"


@dataclass(frozen=True, slots=True)
class Setup:
    """Nodes on one database."""

    title: str
    nodes: int
    is_shared: bool = True


SQLITE = Setup("one node on SQLite", 1, is_shared=False)
ONE = Setup("one node on PostgreSQL", 1)
TWO = Setup("two nodes on PostgreSQL", 2)
FOUR = Setup("four nodes on PostgreSQL", 4)
SETUPS = (SQLITE, ONE, TWO, FOUR)


@dataclass(frozen=True, slots=True)
class Size:
    """How much is asked."""

    messages: int  # one by one, answered at once
    each: int  # messages of each chat, of a model that thinks


@dataclass(slots=True)
class Found:
    """What was measured of one setup; 0 is what was not."""

    rate: float = 0.0  # turns a second
    share: float = 0.0  # of the most there can be: a turn in two seconds on each place
    p50: float = 0.0  # milliseconds, one by one, answered at once
    cpu: float = 0.0  # milliseconds of processor time a turn, of all nodes
    server_cpu: float = 0.0  # the same, of the database's server
    statements: float = 0.0  # a turn
    idle: float = 0.0  # statements a second of a node with nothing to do
    takeover: float = 0.0  # seconds
    resident: float = 0.0  # MB of a node
    connections: int = 0  # of all nodes to the server


class Database:
    """The server: its processes' costs, and how many statements it was given."""

    def __init__(self, url: str, own: PostgresServer | None) -> None:
        self.url = url
        self._own = own
        self._counted = 0

    def cpu(self) -> float:
        """Seconds of processor time of its processes so far; 0 when it is not here."""
        if self._own is None or self._own.pid == 0:
            return 0.0
        parent = psutil.Process(self._own.pid)
        total = 0.0
        for process in (parent, *parent.children()):
            with contextlib.suppress(psutil.NoSuchProcess):
                times = process.cpu_times()
                total += times.user + times.system + times.children_user + times.children_system
        return total

    def count(self, *, on: bool) -> None:
        """Have statements counted from now on, or no longer."""
        if self._own is None:
            return
        self._set(f"ALTER SYSTEM SET log_statement = '{'all' if on else 'none'}'")
        self._set("SELECT pg_reload_conf()")

    def counted(self) -> int:
        """Statements since this was last asked."""
        if self._own is None:
            return 0
        log = (self._own.folder / "log").read_text("utf-8", "replace")
        found = log.count(" statement: ") + log.count(" execute ")
        since, self._counted = found - self._counted, found
        return since

    def connections(self) -> int:
        """How many connections there are to it but our own."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            ((count,),) = connection.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' "
                "AND pid <> pg_backend_pid()"
            ).fetchall()
        return int(count)

    def _set(self, statement: str) -> None:
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(statement)  # pyright: ignore[reportArgumentType]


class Nodes:
    """Some nodes that run, and who writes to them."""

    def __init__(self, telegram: NodesTelegram) -> None:
        self.telegram = telegram
        self.people = People(telegram)
        self.programs: list[Running] = []

    @property
    def cpu(self) -> float:
        """Seconds of processor time of all of them."""
        return sum(program.cpu() for program in self.programs)

    async def start(
        self, setup: Setup, database: str, model_url: str, folder: Path, stack: AsyncExitStack
    ) -> None:
        """Start them, and return once they are connected."""
        for number in range(1, setup.nodes + 1):
            place = folder / f"node-{number}"
            place.mkdir()
            url = self.telegram.url_of(number)
            environment = settings(place, url, self.telegram.token, model_url)
            environment |= {
                "CONFIDANT_SESSION__MAX_TURNS": str(MAX_TURNS),
                "CONFIDANT_MEMORY__EMBEDDER__PROVIDER": "none",
                "CONFIDANT_LOG__LEVEL": "warning",
            }
            if setup.is_shared:
                environment["CONFIDANT_STORAGE__URL"] = database
            program = await stack.enter_async_context(
                running(CONFIDANT.command, place, environment)
            )
            self.programs.append(program)
        try:
            await self.telegram.wait_called("getUpdates", within=START_SECONDS)
        except TimeoutError:
            raise WrongAnswers(f"no poll within {START_SECONDS:g} s") from None
        self.people.write(FIRST_CHAT)
        await self.people.answered(START_SECONDS)

    async def one_by_one(self, messages: int) -> list[float]:
        """Milliseconds from each message to its reply."""
        latencies: list[float] = []
        for _ in range(messages):
            await asyncio.sleep(0.02)
            written = self.people.write(FIRST_CHAT)
            latencies.append((await self.people.answered(REPLY_SECONDS) - written) * 1000)
        return latencies

    async def at_once(self, chats: int, each: int) -> float:
        """Seconds from the first message to the last reply when everybody writes."""
        began = time.monotonic()
        for _ in range(each):
            for chat in range(FIRST_CHAT + 1, FIRST_CHAT + 1 + chats):
                self.people.write(chat)
        within = REPLY_SECONDS + each * THINKS * CHATS_A_TURN
        return await self.people.answered(within) - began

    async def takeover(self) -> float:
        """Seconds after the end of the node that is connected until another one is."""
        owner = self.telegram.owner
        began = time.monotonic()
        self.programs[owner - 1].kill()

        def taken() -> bool:
            return any(call.node != owner for call in self.telegram.polls(began))

        try:
            await self.telegram.wait_for(taken, TAKEOVER_SECONDS)
        except TimeoutError:
            raise WrongAnswers(f"nobody took over within {TAKEOVER_SECONDS:g} s") from None
        return next(c.at for c in self.telegram.polls(began) if c.node != owner) - began


async def at_once(setup: Setup, database: Database, size: Size, folder: Path) -> Found:
    """What a turn costs when the model answers at once."""
    found = Found()
    async with AsyncExitStack() as stack:
        model_url, _ = await stack.enter_async_context(server("bench.model_server"))
        nodes = await _started(setup, database, model_url, folder, stack)
        await nodes.one_by_one(size.messages // 5)  # the first ones load what is needed
        cpu, server_cpu = nodes.cpu, database.cpu()
        found.p50 = percentile(await nodes.one_by_one(size.messages), 50)
        await asyncio.sleep(SETTLE)
        found.cpu = (nodes.cpu - cpu) * 1000 / size.messages
        found.resident = statistics.mean(program.resident() for program in nodes.programs)
        if setup.is_shared:
            found.server_cpu = (database.cpu() - server_cpu) * 1000 / size.messages
            found.connections = await asyncio.to_thread(database.connections)
            await _count(nodes, database, size.messages, found)
        await nodes.people.check()
    return found


async def _count(nodes: Nodes, database: Database, messages: int, found: Found) -> None:
    """Count statements with turns, less those that come without one."""
    await asyncio.to_thread(database.count, on=True)
    await asyncio.sleep(QUIET)
    database.counted()
    await asyncio.sleep(IDLE)
    found.idle = database.counted() / IDLE / len(nodes.programs)
    began = time.monotonic()
    await nodes.one_by_one(messages)
    await asyncio.sleep(SETTLE)
    by_itself = found.idle * len(nodes.programs) * (time.monotonic() - began)
    found.statements = max(0.0, database.counted() - by_itself) / messages
    await asyncio.to_thread(database.count, on=False)


async def thinking(setup: Setup, database: Database, size: Size, folder: Path) -> Found:
    """How many turns go through when the model takes its time."""
    found = Found()
    async with AsyncExitStack() as stack:
        model_url, _ = await stack.enter_async_context(server("bench.model_server", str(THINKS)))
        nodes = await _started(setup, database, model_url, folder, stack)
        places = setup.nodes * MAX_TURNS
        turns = places * CHATS_A_TURN * size.each
        cpu, server_cpu = nodes.cpu, database.cpu()
        seconds = await nodes.at_once(places * CHATS_A_TURN, size.each)
        found.rate = turns / seconds
        found.share = found.rate / (places / THINKS)
        found.cpu = (nodes.cpu - cpu) * 1000 / turns
        if setup.is_shared:
            found.server_cpu = (database.cpu() - server_cpu) * 1000 / turns
            found.connections = await asyncio.to_thread(database.connections)
        await nodes.people.check()
        if setup.nodes > 1:
            found.takeover = await nodes.takeover()
    return found


async def _started(
    setup: Setup, database: Database, model_url: str, folder: Path, stack: AsyncExitStack
) -> Nodes:
    telegram = await stack.enter_async_context(NodesTelegram())
    nodes = Nodes(telegram)
    # Not in /tmp: that may be memory, where writing costs nothing.
    place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="data-", dir=folder)))
    url = stack.enter_context(a_database(database.url)) if setup.is_shared else ""
    await nodes.start(setup, url, model_url, place, stack)
    return nodes


async def measure(
    setups: Mapping[str, Setup], database: Database, size: Size, folder: Path
) -> tuple[dict[str, Found], dict[str, Found]]:
    """Costs of a turn by title, and what goes through by title."""
    costs: dict[str, Found] = {}
    rates: dict[str, Found] = {}
    async with asyncio.timeout(LIMIT):
        for title, setup in setups.items():
            if setup.nodes == 1:
                costs[title] = await at_once(setup, database, size, folder)
                print(f"{title}: p50 {costs[title].p50:.1f} ms", file=sys.stderr)
            rates[title] = await thinking(setup, database, size, folder)
            print(f"{title}: {rates[title].rate:.2f} turns/s", file=sys.stderr)
    return costs, rates


def report(costs: Mapping[str, Found], rates: Mapping[str, Found], size: Size) -> str:
    """The tables."""
    first = table(
        (
            "answered at once, one by one",
            "p50",
            "CPU a turn",
            "of PostgreSQL",
            "statements a turn",
            "a second when idle",
            "connections",
            "resident",
        ),
        [
            (
                title,
                f"{each.p50:.1f} ms",
                f"{each.cpu:.1f} ms",
                f"{each.server_cpu:.1f} ms",
                f"{each.statements:.1f}",
                f"{each.idle:.1f}",
                str(each.connections),
                f"{each.resident:.0f} MB",
            )
            for title, each in costs.items()
        ],
    )
    second = table(
        (
            f"thinking {THINKS:g} s, {MAX_TURNS} turns at a time",
            "turns/s",
            "of what can be",
            "CPU a turn",
            "of PostgreSQL",
            "connections",
            "takeover",
        ),
        [
            (
                title,
                f"{each.rate:.2f}",
                f"{each.share:.0%}",
                f"{each.cpu:.1f} ms",
                f"{each.server_cpu:.1f} ms",
                str(each.connections),
                f"{each.takeover:.1f} s" if each.takeover else "",
            )
            for title, each in rates.items()
        ],
    )
    said = (
        f"One run on {os.cpu_count()} processors, Python {platform.python_version()}; "
        f"{size.messages} messages one by one, then {CHATS_A_TURN} chats a place with {size.each} "
        "messages each at once. Every message was answered exactly once.\n"
    )
    return "\n".join((first, second, goals_markdown(goals(costs, rates)), said))


def goals(costs: Mapping[str, Found], rates: Mapping[str, Found]) -> list[Goal]:
    """What is promised of many nodes."""
    one, four = rates[ONE.title], rates[FOUR.title]
    linear = four.rate / (FOUR.nodes * one.rate)
    added = costs[ONE.title].p50 - costs[SQLITE.title].p50
    slowest = max(each.takeover for each in rates.values())
    found = [
        Goal("turns/s of four nodes, of four times one's", linear, 0.9, "×", at_least=True),
        Goal("added to the p50 of SQLite", added, 15.0, "ms"),
        Goal("takeover of a connection", slowest, 10.0, "s"),
    ]
    if costs[ONE.title].statements:
        idle = costs[ONE.title].idle
        found.insert(1, Goal("statements a turn", costs[ONE.title].statements, 14.0, ""))
        found.insert(2, Goal("statements a second of an idle node", idle, 4.0, ""))
    return found


def main() -> int:
    """Measure and print; 1 when a message was not answered exactly once."""
    options = _options()
    options.out.mkdir(parents=True, exist_ok=True)
    size = Size(options.messages, options.each)
    own = None if options.postgres else PostgresServer(options=_SERVER)
    try:
        if own is not None:
            own.start()
        database = Database(options.postgres or (own.admin_url if own else ""), own)
        setups = {setup.title: setup for setup in SETUPS}
        costs, rates = uvloop.run(measure(setups, database, size, options.out))
    except WrongAnswers as wrong:
        print(f"bench: {wrong}", file=sys.stderr)
        return 1
    finally:
        if own is not None:
            own.close()
    text = report(costs, rates, size)
    (options.out / "cluster.md").write_text(text, encoding="utf-8")
    print(text)
    return 0


# As an operator's server: what is stored is on disk. Statements are logged to be counted.
_SERVER = (
    "fsync=on",
    "shared_buffers=128MB",
    "log_min_messages=log",
    "log_checkpoints=off",
    "log_parameter_max_length=0",
)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench cluster", description=__doc__)
    parser.add_argument("--postgres", default="", help="a server whose user may make databases")
    parser.add_argument("--messages", type=int, help="messages written one by one")
    parser.add_argument("--each", type=int, help="messages of each chat at once")
    parser.add_argument("--out", type=Path, default=OUT, help="folder of the tables")
    return parsed(parser, usual={"messages": 200, "each": 3}, small={"messages": 5, "each": 1})


if __name__ == "__main__":
    sys.exit(main())
