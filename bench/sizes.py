"""Measure what a turn leaves in PostgreSQL, and what a million people would: bytes, by table.

`python -m bench sizes [--quick] [--people N] [--rounds N] [--postgres URL]`. The program itself
answers, in a channel and with a model of its own process: each person writes 25 words in every
round and is told 80. What the first round leaves is told for each person, what the others leave for
each turn. PostgreSQL is that of the tests, or that of the URL, whose user may make databases.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import psycopg

from bench import quiet
from bench.sized import parsed
from bench.table import table
from bot import settings
from bot.agent.models import Request
from bot.app import App, Parts
from bot.channel import Inbound
from bot.testing import InMemoryChannel, ScriptedModel
from tests.fakes.postgres import a_database, a_server

ASKED, TOLD = 25, 80  # words
VOCABULARY = 8_000
LEAST = 1.0  # bytes a turn, of a table that is shown
RATE = 100  # turns a second, of which the estimate is
PEOPLE = 1_000_000
DAY = 86_400  # seconds
YEAR = 365  # days
SETTLED = 120.0  # seconds until what was said is found by its meaning

# What is not for a turn or a person, or is gone once a turn has ended: only its room stays.
_PASSING = ("procrastinate_", "writers", "nodes", "memory_generations")
# A turn adds no row there, and changes one: what old versions of it take is used again.
_CHANGED = ("sessions", "conversations")
# For how many days what a turn leaves there is kept; what is not named here is kept for ever.
_DAYS: Mapping[str, int] = {"inbox": 30, "outbox": 30, "events": 0, "fences": 1}
_SIZES = """SELECT relname, pg_table_size(oid), pg_indexes_size(oid) FROM pg_class
    WHERE relkind = 'r' AND relnamespace = CAST(current_schema() AS regnamespace)"""
_INDEXED = """SELECT (SELECT count(*) FROM entries WHERE kind = 'message')
    <= (SELECT count(*) FROM memory_sources WHERE kind = 'transcript')"""


@dataclass(frozen=True, slots=True)
class Size:
    """How large a table is, in bytes."""

    rows: float
    indexes: float

    @property
    def whole(self) -> float:
        """Both together."""
        return self.rows + self.indexes

    def since(self, before: Size, count: int) -> Size:
        """What came to it since, for each of so many."""
        return Size((self.rows - before.rows) / count, (self.indexes - before.indexes) / count)


@dataclass(frozen=True, slots=True)
class Found:
    """What was measured: bytes by table of a person and of a turn, and of the log a turn."""

    turns: int
    person: Mapping[str, Size]
    turn: Mapping[str, Size]
    log: float
    seconds: float


class Words:
    """Made-up words, as often as words of a language are; the same ones each time."""

    def __init__(self) -> None:
        self._random = random.Random(7)  # noqa: S311 - nothing is to be guessed
        syllables = [a + b for a in "bdfgklmnprstvz" for b in "aeiou"]
        self._words = [
            "".join(self._random.choices(syllables, k=self._random.randint(1, 4)))
            for _ in range(VOCABULARY)
        ]
        self._weights = [1 / rank for rank in range(1, VOCABULARY + 1)]

    def text(self, count: int) -> str:
        """So many of them."""
        return " ".join(self._random.choices(self._words, self._weights, k=count))


class Server:
    """The database, looked at from outside."""

    def __init__(self, url: str) -> None:
        self._connection = psycopg.connect(url, autocommit=True)

    def sizes(self) -> dict[str, Size]:
        """Every table's, once what updates left was freed to be used again."""
        self._connection.execute("VACUUM")
        return {str(name): Size(rows, indexes) for name, rows, indexes in self._rows(_SIZES)}

    def log(self) -> int:
        """Bytes written to the server's log so far."""
        ((position,),) = self._rows("SELECT pg_current_wal_insert_lsn() - CAST('0/0' AS pg_lsn)")
        return int(str(position))

    def is_indexed(self) -> bool:
        """True when all that was said is in the index of memory."""
        return bool(self._rows(_INDEXED)[0][0])

    def close(self) -> None:
        """Disconnect."""
        self._connection.close()

    def _rows(self, sql: str) -> list[tuple[object, ...]]:
        return self._connection.execute(sql).fetchall()  # pyright: ignore[reportArgumentType]


async def measure(url: str, folder: Path, people: int, rounds: int) -> Found:
    """Let people write, and look at what that left."""
    words = Words()

    def answer(_request: Request) -> str:
        return words.text(TOLD)

    given = {
        "CONFIDANT_STORAGE__URL": url,
        "CONFIDANT_STORAGE__DIR": str(folder),
        "CONFIDANT_MEMORY__WORKSPACE": str(folder / "workspace"),
    }
    loaded = settings.load(None, given, folder)
    channel = InMemoryChannel(name="web")
    parts = Parts(channels={"web": channel}, dashboard=False, remote=ScriptedModel(answer))
    server = await asyncio.to_thread(Server, url)
    try:
        async with App(loaded.config, loaded.plugins, parts):
            empty = await asyncio.to_thread(server.sizes)
            began = time.monotonic()
            await _round(channel, words, people, 0)
            known = await _settled(server)
            log = await asyncio.to_thread(server.log)
            for number in range(1, rounds + 1):
                await _round(channel, words, people, number)
                print(f"round {number} of {rounds}", file=sys.stderr)
            log = await asyncio.to_thread(server.log) - log
            seconds = time.monotonic() - began
            after = await _settled(server)
    finally:
        server.close()
    turns = people * rounds
    turn = {name: size.since(known.get(name, Size(0, 0)), turns) for name, size in after.items()}
    first = {name: size.since(empty.get(name, Size(0, 0)), people) for name, size in known.items()}
    # The first round is a turn of everybody, too.
    person = {name: size.since(turn[name], 1) for name, size in first.items()}
    return Found(turns, person, turn, log / turns, seconds)


async def _round(channel: InMemoryChannel, words: Words, people: int, number: int) -> None:
    """Let everybody write once, and wait for the answers."""
    before = len(channel.sent)
    for person in range(people):
        name = f"p{person}"
        text, now = words.text(ASKED), int(time.time() * 1000)
        await channel.push(
            Inbound("web", "default", name, "direct", name, f"{name}-{number}", text, now)
        )
    await channel.wait_until(lambda _: len(channel.sent) >= before + people)


async def _settled(server: Server) -> dict[str, Size]:
    """The sizes, once all that was said is in the index of memory."""
    async with asyncio.timeout(SETTLED):
        while not await asyncio.to_thread(server.is_indexed):  # noqa: ASYNC110 - it is far away
            await asyncio.sleep(1)
    return await asyncio.to_thread(server.sizes)


def report(found: Found, retention: int) -> str:
    """The tables: what was measured, and what that comes to."""
    rows: list[tuple[str, ...]] = []
    total = {"a year": 0.0, "always": 0.0}
    for name, size in sorted(found.turn.items(), key=lambda each: -each[1].whole):
        person = max(0.0, found.person[name].whole) if name in found.person else 0.0
        if (size.whole < LEAST and person < LEAST) or name.startswith(_PASSING):
            continue
        days = retention if name.startswith("memory_") else _DAYS.get(name, YEAR)
        turns = 0.0 if name in _CHANGED else max(0.0, size.whole) * RATE * DAY * days
        total["a year" if days == YEAR else "always"] += turns
        total["always"] += person * PEOPLE
        kept = "for ever" if days == YEAR else f"{days} d" if days else "minutes"
        rows.append(
            (
                name,
                f"{size.rows:.0f}",
                f"{size.indexes:.0f}",
                f"{person:.0f}",
                kept,
                f"{(turns + person * PEOPLE) / 1e9:,.0f} GB",
            )
        )
    heads = ("table", "bytes a turn", "of indexes", "bytes a person", "kept", "comes to in a year")
    log = found.log * RATE
    said = (
        f"{RATE} turns a second ({RATE * DAY / 1e6:.2f} million a day) of {PEOPLE:,} people: "
        f"{total['a year'] / 1e12:.1f} TB more each year, beside {total['always'] / 1e9:.0f} GB "
        f"that stay as they are. The server's log: {found.log / 1000:.1f} kB a turn, "
        f"{log / 1e6:.1f} MB a second, {log * DAY / 1e9:.0f} GB a day.\n"
        f"Measured with {found.turns} turns of {ASKED} and {TOLD} words, "
        f"{found.turns / found.seconds:.1f} a second.\n"
    )
    return f"{table(heads, rows)}\n{said}"


def main() -> int:
    """Measure and print."""
    options = _options()
    quiet.logs()
    with ExitStack() as stack:
        admin = options.postgres or stack.enter_context(a_server())
        url = stack.enter_context(a_database(admin))
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        found = asyncio.run(measure(url, Path(folder), options.people, options.rounds))
    retention = settings.load(None, {}, Path.cwd()).config.memory.retention_days
    print(report(found, retention))
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench sizes", description=__doc__)
    parser.add_argument("--postgres", default="", help="a server whose user may make databases")
    parser.add_argument("--people", type=int, help="people who write")
    parser.add_argument("--rounds", type=int, help="messages of each, after the first")
    return parsed(parser, usual={"people": 500, "rounds": 40}, small={"people": 20, "rounds": 2})


if __name__ == "__main__":
    sys.exit(main())
