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
from structlog.testing import capture_logs

from bot.identity.view import folder_name
from bot.memory.search import Findings, Hit
from tests.support import running, until

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


@pytest.mark.proof
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


LONG = 60_000  # characters of a message


@pytest.mark.parametrize(
    "piece", ["word{} ", "a.a.", "*_", "2024-01-01 ", "- remember {}\n", "((", "中", "\u0301"]
)
async def test_a_long_message_never_blocks_the_loop(tmp_path, piece):
    """Also as the first of a conversation where much was said before, and when it is summed up."""
    count = LONG // len(piece.format(10_000))
    text = "".join(piece.format(number) for number in range(count))

    async def measure(attempt: int) -> float:
        async with running(tmp_path / str(attempt)) as engine:
            for number in range(20):
                await engine.ask(f"word{number} " * 500)
            async with lagging(time.thread_time) as lags:
                for said in (text, "/new", text, "/compact", f"/memory forget {text[:200]}"):
                    await engine.ask(said)
        return max(lags)

    assert 0 < await best(measure, BOUND) <= BOUND


async def test_the_program_itself_sees_what_holds_its_loop(tmp_path):
    async with running(tmp_path) as engine:
        with capture_logs() as logs:
            time.sleep(2.0)  # noqa: ASYNC251 - what must never happen
            await until(lambda: engine.app.watchdog.longest() > 1.0)
    held = [each for each in logs if each["event"] == "loop.held"]
    assert "tests/integration/test_loop_lag.py" in str(held[0]["at"])


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


@pytest.mark.proof
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
