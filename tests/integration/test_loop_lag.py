"""The event loop is never held up: whoever waits for a reply holds up nobody else."""

from __future__ import annotations

import asyncio
import gc
import logging
import math
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bot.identity.view import folder_name
from bot.memory.search import Findings, Hit
from tests.support import running

CHATS = 50
MESSAGES = 4  # of each
BOUND = 0.25  # seconds; a healthy engine stays below a tenth of it
SCHEDULED = Path("/proc/thread-self/schedstat")
TRIES = 3  # a busy machine holds up one of them; code that blocks holds up each


@pytest.fixture(autouse=True)
def _only_our_own_garbage():
    """Looking through what other tests left takes longer than anything measured here."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


async def best(measure: Callable[[int], Awaitable[float]], wanted: float) -> float:
    """The least of a few measurements; none is made after one that is as short as it has to be."""
    least = math.inf
    for attempt in range(TRIES):
        least = min(least, await measure(attempt))
        if least <= wanted:
            break
    return least


async def test_two_hundred_messages_of_fifty_chats_never_block_the_loop(tmp_path):
    async def measure(attempt: int) -> float:
        return await longest_lag(tmp_path / str(attempt))

    assert 0 < await best(measure, BOUND) <= BOUND


async def longest_lag(folder) -> float:
    async with running(folder) as engine, lagging() as lags:
        people = [f"p{n}" for n in range(CHATS)]
        for number in range(MESSAGES):
            text = f"message {number} " + "with some words to it, " * 20
            await asyncio.gather(*(engine.say(text, sender=person) for person in people))
        await engine.channel.wait_sent(CHATS * MESSAGES)
    return max(lags)


@pytest.mark.slow
async def test_notes_of_eight_megabytes_never_block_the_loop(tmp_path):
    async def measure(attempt: int) -> float:
        return await lag_of_long_notes(tmp_path / str(attempt))

    assert 0 < await best(measure, BOUND) <= BOUND


async def lag_of_long_notes(folder) -> float:
    """The most work of the loop's own thread in one go, whatever else the machine has to do."""
    space = folder / "workspace" / "people" / folder_name("memory:ada")
    (space / "memory").mkdir(parents=True)
    line = "- 12:00 the harbour has a number, and so on and so forth <!-- {} -->\n"
    untrusted, own = line.format("untrusted"), line.format("owner")
    # Longer than what is indexed, so that nothing else is at work; the first 8 MB are read.
    long = untrusted + own * (8_100_000 // len(own))
    for name in ("MEMORY.md", "memory/2026-11-21.md", "memory/harbour.md"):
        (space / name).write_text(long)
    hit = Hit(f"people/{space.name}", "memory/harbour.md", 1, 9, 0.9, own * 9, "memory")
    async with running(folder, searcher=Finding(hit)) as engine, lagging(time.thread_time) as lags:
        assert await engine.ask("what number does the harbour have?") != ""
        shown = engine.model.requests[0]
        assert "harbour" in shown.system
        assert "harbour" in str(shown.messages[0])
        assert "the harbour has a number" in await engine.ask("/whosees harbour has a number")
        assert "the harbour has a number" in await engine.ask("/memory forget harbour has a number")
    return max(lags)


async def test_a_step_that_sleeps_is_seen():
    async with lagging() as lags:
        await asyncio.sleep(0)
        time.sleep(BOUND)  # noqa: ASYNC251 - what must never happen
        await asyncio.sleep(0.02)
    assert max(lags) > BOUND * 0.9


@dataclass
class Finding:
    """A searcher that always finds the same."""

    hit: Hit

    async def search(
        self, query: str, partitions: Sequence[str], limit: int, /, **_when: Any
    ) -> Findings:
        return Findings((self.hit,), "words")


def waited_for_a_processor() -> float:
    """How long this thread could have gone on while others had the processors, in seconds."""
    try:
        return int(SCHEDULED.read_text().split()[1]) / 1e9
    except OSError:  # not Linux: what others take counts as ours
        return 0.0


@asynccontextmanager
async def lagging(clock: Callable[[], float] | None = None) -> AsyncIterator[list[float]]:
    """How late many short sleeps were by a clock, in seconds.

    If none is given it is the loop's, less what the loop only waited for a processor.
    """
    loop = asyncio.get_running_loop()
    now = clock or (lambda: loop.time() - waited_for_a_processor())
    pause = 0.0 if clock else 0.005  # a clock of work stands still meanwhile
    lags: list[float] = []

    async def beat() -> None:
        while True:
            before = now()
            await asyncio.sleep(0.005)
            lags.append(now() - before - pause)

    heart = asyncio.create_task(beat())
    yield lags
    heart.cancel()


@pytest.mark.slow
async def test_no_step_of_ours_is_slow_by_asyncios_own_measure(tmp_path, caplog):
    async def measure(attempt: int) -> float:
        caplog.clear()
        waited = waited_for_a_processor()
        await with_slow_steps_logged(tmp_path / str(attempt), caplog)
        waited = waited_for_a_processor() - waited  # asyncio's clock goes on meanwhile
        told = [re.search(r"took (\d+\.\d+)", record.getMessage()) for record in caplog.records]
        return max((float(match[1]) - waited for match in told if match), default=0.0)

    assert await best(measure, 0.0) <= 0.0


async def with_slow_steps_logged(folder, caplog) -> None:
    loop = asyncio.get_running_loop()
    loop.slow_callback_duration = BOUND
    loop.set_debug(True)
    try:
        with caplog.at_level(logging.WARNING, logger="asyncio"):
            async with running(folder) as engine:
                for number in range(MESSAGES):
                    says = [engine.say(f"m{number}", sender=f"p{n}") for n in range(CHATS)]
                    await asyncio.gather(*says)
                await engine.channel.wait_sent(CHATS * MESSAGES)
    finally:
        loop.set_debug(False)
