"""What holds the event loop is logged while it does, with where it is and nothing of its values."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import threading
import time

import pytest
import structlog
from structlog.testing import capture_logs

from bot import watchdog
from bot.metrics import Metrics
from bot.watchdog import Watchdog, stack_of

SLOWER = re.compile(r"(a+)+$")


@pytest.fixture(autouse=True)
def _soon(monkeypatch):
    monkeypatch.setattr(watchdog, "BEAT_SECONDS", 0.01)
    monkeypatch.setattr(watchdog, "HELD_SECONDS", 0.1)
    monkeypatch.setattr(watchdog, "log", structlog.get_logger())


def held_until(logs: list, count: int = 1) -> None:
    """Hold the loop until somebody has logged that, as what never ends does."""
    until = time.monotonic() + 10
    while len(logs) < count and time.monotonic() < until:
        time.sleep(0.01)


async def test_the_stack_is_logged_while_the_loop_is_held():
    secret = "vermilion"
    with capture_logs() as logs, Watchdog(Metrics()):
        await asyncio.sleep(0.05)
        held_until(logs)
        assert [each["event"] for each in logs] == ["loop.held"]
    assert logs[0]["seconds"] >= 0.1
    assert re.fullmatch(r"tests/unit/test_watchdog.py:\d+ held_until", logs[0]["at"][0])
    assert secret not in str(logs)
    assert "asyncio" not in str(logs[0]["at"])


async def test_a_regular_expression_that_lets_no_thread_run_is_told_of_too():
    with capture_logs() as logs, Watchdog(Metrics()):
        await asyncio.sleep(0.05)
        until = time.monotonic() + 10
        for length in range(20, 40):  # each takes twice as long as the one before
            SLOWER.match("a" * length + "!")
            if logs or time.monotonic() > until:
                break
    assert logs[0]["at"][0].endswith(
        "test_a_regular_expression_that_lets_no_thread_run_is_told_of_too"
    )


async def test_a_program_that_is_waited_for_on_the_loop_is_told_of():
    with capture_logs() as logs, Watchdog(Metrics()):
        await asyncio.sleep(0.05)
        waits = [sys.executable, "-c", "import time; time.sleep(0.5)"]
        subprocess.run(waits, capture_output=True, check=True)  # noqa: ASYNC221 - what must never be
    assert any("subprocess.py" in line for line in logs[0]["at"])


async def test_it_is_counted_and_remembered_for_a_while(monkeypatch):
    metrics = Metrics()
    with Watchdog(metrics) as dog:
        await asyncio.sleep(0.05)
        assert dog.longest() == 0
        time.sleep(0.3)  # noqa: ASYNC251 - what must never happen
        await asyncio.sleep(0.05)
        assert 0.2 < dog.longest() < 5
        monkeypatch.setattr(watchdog, "LATELY_SECONDS", 0.0)
        assert dog.longest() == 0
    assert metrics.registry.get_sample_value("confidant_event_loop_held_seconds_count") == 1


async def test_the_log_has_one_stack_a_minute_and_how_many_were_left_out(monkeypatch):
    with capture_logs() as logs, Watchdog(Metrics()) as dog:
        for _ in range(3):
            await asyncio.sleep(0.05)
            time.sleep(0.3)  # noqa: ASYNC251 - what must never happen
        assert len(logs) == 1
        monkeypatch.setattr(watchdog, "AGAIN_SECONDS", 0.0)
        await asyncio.sleep(0.05)
        held_until(logs, 2)
    assert [each["before"] for each in logs] == [0, 2]
    assert dog.longest() > 0


async def test_a_loop_that_waits_for_work_has_no_stack():
    found: list[list[str]] = []
    ident = threading.get_ident()

    def look() -> None:
        time.sleep(0.05)
        found.append(stack_of(sys._current_frames()[ident]))

    threading.Thread(target=look).start()
    await asyncio.sleep(0.2)
    assert found == [[]]


async def test_its_thread_ends_with_it():
    with Watchdog(Metrics()):
        assert "watchdog" in {thread.name for thread in threading.enumerate()}
    for _ in range(500):
        if "watchdog" not in {thread.name for thread in threading.enumerate()}:
            break
        await asyncio.sleep(0.01)
    else:
        pytest.fail("the thread goes on")
