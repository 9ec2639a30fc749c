"""What keeping a conversation within its window costs: `python -m bench context`.

A real engine answers in a conversation whose transcript has 1 000 entries, and 100 000; other sizes
are arguments: `python -m bench context 1000`. What it does for the window alone is timed in each
turn, where it happens: how full it is, whether to shorten, tell, save or summarise, adding what was
said, and the counters of the row. The model reports its usage, as a service does.

Of the longer transcripts all but the latest 1 000 entries are summarised, as they would be.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import AsyncGenerator, Callable
from functools import wraps
from pathlib import Path
from typing import Any

from bench import quiet
from bench.sized import parsed
from bot.agent.model_limits import LimitsResolver
from bot.agent.models import Reply, Request, TextDelta, Usage
from bot.app import App, Parts
from bot.channel import ChannelConfig, ChannelPlugin, Inbound
from bot.clock import system_clock
from bot.context.history import History
from bot.gateway.commits import TurnRecorder
from bot.gateway.requests import Requests
from bot.recovery import TRANSCRIPTS
from bot.sessions import compactions, store
from bot.sessions.compactions import Compaction
from bot.sessions.entries import NewEntry
from bot.settings import config_model
from bot.storage.files import DATABASE_NAME
from bot.storage.sqlite import SqliteDatabase
from bot.testing import InMemoryChannel, ScriptedModel
from bot.unit_of_work import UnitOfWork
from bot.upkeep.active_session import ActiveSession
from bot.upkeep.upkeep import Upkeep

SIZES = (1_000, 100_000)
GOAL_MS = 0.5  # a turn
LIVE = 1_000  # entries that are not summarised
TURNS, FIRST = 300, 30  # turns that are timed, and turns before them that are not
BATCH = 1_000
ADA = "agent:main:memory:dm:ada"
DAYS_AGO = 60 * 86_400_000  # ms: no longer indexed by their meaning
SAID = "the boats in the harbour are red and blue and green, and white on Sundays " * 5

# Where the bookkeeping of a turn happens; in the program, and in the thread that writes.
TIMED: tuple[tuple[Any, str], ...] = (
    (LimitsResolver, "of"),
    (LimitsResolver, "learn"),
    (ActiveSession, "fill"),
    (Upkeep, "due"),
    (Upkeep, "begin_due"),
    (Requests, "_prune"),
    (TurnRecorder, "_used"),
    (TurnRecorder, "_notice"),
    (History, "extend"),
    (UnitOfWork, "refresh"),
    (store, "change"),
)


class Open(ChannelConfig):
    """A channel anybody may use."""

    dm_policy: Any = "open"
    allow_from: tuple[str, ...] = ("*",)


class Reporting(ScriptedModel):
    """It says little, and that the window is half full."""

    async def stream(self, request: Request) -> AsyncGenerator[TextDelta | Reply]:
        async for event in super().stream(request):
            if isinstance(event, Reply):
                yield Reply(event.message, "end", Usage(input_tokens=60_000, output_tokens=20))
            else:
                yield event


class Stopwatch:
    """Adds up the time within functions; one within another counts once."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._lock = threading.Lock()
        self._within = threading.local()

    def put_in(self) -> None:
        for owner, name in TIMED:
            inner = getattr(owner, name)
            is_async = asyncio.iscoroutinefunction(inner)
            setattr(owner, name, self._waited(inner) if is_async else self._timed(inner))

    def _timed(self, inner: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(inner)
        def outer(*given: Any, **named: Any) -> Any:
            if getattr(self._within, "it", False):
                return inner(*given, **named)
            self._within.it = True
            started = time.perf_counter()
            try:
                return inner(*given, **named)
            finally:
                self._add(time.perf_counter() - started)
                self._within.it = False

        return outer

    def _waited(self, inner: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(inner)
        async def outer(*given: Any, **named: Any) -> Any:
            started = time.perf_counter()
            try:
                return await inner(*given, **named)
            finally:
                self._add(time.perf_counter() - started)

        return outer

    def _add(self, seconds: float) -> None:
        with self._lock:
            self.seconds += seconds


async def prepare(folder: Path, entries: int) -> None:
    """Store a conversation with so many entries."""
    database = await SqliteDatabase.open(folder / DATABASE_NAME)
    then = system_clock() - DAYS_AGO
    place = store.Place(ADA, "memory:ada", "memory", "default", "ada", "", "direct")
    session, _ = await database.write(lambda tx: UnitOfWork(tx, then).current(place))
    kept = ""
    for first in range(0, entries, BATCH):
        if first == entries - LIVE and first:
            kept = f"{session.id}.{first + 1}"
        news = [message(number) for number in range(first, min(first + BATCH, entries))]
        await database.write(lambda tx, news=news: store.append(tx, session.id, news, then))
    if kept:
        made = compactions.entry_of(Compaction("- Boats.", kept, 100_000, entries - LIVE))
        done = await database.write(lambda tx: store.append(tx, session.id, [made], then))
        await database.write(lambda tx: compactions.apply(tx, session.id, done.ids[0], 60_000))
    await database.close()


def message(number: int) -> NewEntry:
    words = f"{number}: {SAID}"
    return NewEntry(
        "message",
        "assistant" if number % 2 else "user",
        words,
        ({"type": "text", "text": words},),
        "" if number % 2 else f"old-{number}",
    )


async def measure(entries: int, watch: Stopwatch, turns: int) -> tuple[list[float], list[float]]:
    """The bookkeeping and the whole time of each turn, in ms."""
    channel = InMemoryChannel()
    plugins = {"memory": ChannelPlugin("memory", Open, lambda _config: channel)}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        await prepare(folder, entries)
        config = config_model(plugins).model_validate(
            {
                "storage": {"dir": folder, "backup_hours": 0},
                "session": {"reset": {"mode": "none"}},
                "memory": {"embedder": {"provider": "none"}, "watch": False},
            }
        )
        parts = Parts(remote=Reporting(), channels={"memory": channel}, dashboard=False)
        async with App(config, plugins, parts):
            await mirrored(folder, entries)
            books: list[float] = []
            whole: list[float] = []
            for number in range(FIRST + turns):
                before, started = watch.seconds, time.perf_counter()
                await channel.push(inbound(number))
                await channel.wait_sent(number + 1)
                await asyncio.sleep(0)
                whole.append((time.perf_counter() - started) * 1000)
                books.append((watch.seconds - before) * 1000)
    return books[FIRST:], whole[FIRST:]


async def mirrored(folder: Path, entries: int) -> None:
    """Wait until the transcript's file is written."""
    size = -1
    while not (found := list((folder / TRANSCRIPTS).rglob("*.jsonl"))) or (
        size != found[0].stat().st_size or size < entries * len(SAID)
    ):
        size = found[0].stat().st_size if found else -1
        await asyncio.sleep(0.2)


def inbound(number: int) -> Inbound:
    return Inbound(
        channel="memory",
        account="default",
        chat="ada",
        chat_type="direct",
        sender="ada",
        message_id=f"new-{number}",
        text=f"{number}: {SAID}",
        sent_at=system_clock(),
        locale="en",
    )


def main() -> int:
    """Measure and print; 1 when the goal was missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sizes", nargs="*", type=int, metavar="ENTRIES")
    parser.add_argument("--turns", type=int, help="how many are timed")
    small = {"sizes": (200,), "turns": 20}
    asked = parsed(parser, {"sizes": SIZES, "turns": TURNS}, small)
    quiet.logs()
    watch = Stopwatch()
    watch.put_in()
    print("| entries | bookkeeping p50 | p95 | of the whole turn p50 | goal | met |")
    print("|---|---|---|---|---|---|")
    missed = False
    for size in asked.sizes:
        books, whole = asyncio.run(measure(size, watch, asked.turns))
        middle = statistics.median(books)
        high = statistics.quantiles(books, n=20)[18]
        missed = missed or middle > GOAL_MS
        print(
            f"| {size} | {middle:.3f} ms | {high:.3f} ms | {statistics.median(whole):.2f} ms "
            f"| {GOAL_MS} ms | {'yes' if middle <= GOAL_MS else '**no**'} |"
        )
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
