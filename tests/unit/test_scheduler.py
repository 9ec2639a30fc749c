from __future__ import annotations

import asyncio

import pytest
import structlog

from bot import scheduler as module
from bot.scheduler import Scheduler
from tests.support import FakeClock


@pytest.fixture
async def scheduler():
    made = Scheduler(FakeClock())
    yield made
    await made.close()


class Bell:
    """A job that counts how often it is woken."""

    def __init__(self) -> None:
        self.rung = 0
        self.changed = asyncio.Condition()

    async def __call__(self) -> None:
        async with self.changed:
            self.rung += 1
            self.changed.notify_all()

    async def wait(self, count: int = 1) -> None:
        async with self.changed:
            await self.changed.wait_for(lambda: self.rung >= count)


async def test_a_job_is_woken_again_and_again(scheduler):
    bell = Bell()
    scheduler.every("bell", 0.01, bell, first=0)
    await scheduler.start()
    await bell.wait(3)


async def test_a_job_is_woken_once_when_its_time_comes(scheduler):
    bell = Bell()
    await scheduler.start()
    scheduler.once("bell", scheduler.clock() + 20, bell)
    await bell.wait()


async def test_what_was_asked_for_before_the_start_is_woken_after_it(scheduler):
    bell, late = Bell(), Bell()
    scheduler.once("bell", scheduler.clock() + 1, bell)
    scheduler.once("late", scheduler.clock() - 10**9, late)  # slept through
    assert bell.rung == late.rung == 0
    await scheduler.start()
    await bell.wait()
    await late.wait()
    assert late.rung == 1


async def test_another_time_takes_the_place_of_the_one_before(scheduler):
    first, second = Bell(), Bell()
    await scheduler.start()
    scheduler.once("bell", scheduler.clock() + 86_400_000, first)
    scheduler.once("bell", scheduler.clock(), second)
    await second.wait()
    assert first.rung == 0


async def test_the_furthest_time_can_be_planned(scheduler):
    await scheduler.start()
    scheduler.once("bell", scheduler.clock() + 6 * 366 * 86_400_000, Bell())


async def test_a_job_that_fails_is_told_counted_and_woken_again():
    failed: list[str] = []
    scheduler = Scheduler(FakeClock(), failed.append)
    bell = Bell()

    async def job() -> None:
        await bell()
        raise RuntimeError("Ada is allergic to peanuts")

    with structlog.testing.capture_logs() as logs:
        scheduler.every("bell", 0.01, job, first=0)
        await scheduler.start()
        await bell.wait(2)
        await scheduler.close()
    assert failed[:2] == ["bell", "bell"]
    assert logs[0] == {
        "event": "job.failed",
        "log_level": "error",
        "job": "bell",
        "error": "RuntimeError",
    }
    assert "peanuts" not in str(logs)


async def test_a_job_never_overlaps_itself_and_missed_times_are_one(scheduler, caplog):
    caplog.set_level("ERROR")
    running, most, bell, others = 0, 0, Bell(), Bell()

    async def job() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await others.wait(3)
        running -= 1
        await bell()

    scheduler.every("slow", 0.005, job, first=0)
    scheduler.every("other", 0.02, others)
    await scheduler.start()
    await bell.wait()
    assert most == 1


async def test_a_wake_for_a_moment_comes_also_while_the_one_before_is_running(scheduler):
    bell = Bell()

    async def job() -> None:
        await bell()
        if bell.rung == 1:  # what is due next has become due meanwhile
            scheduler.once("bell", scheduler.clock(), job)

    await scheduler.start()
    scheduler.once("bell", scheduler.clock(), job)
    async with asyncio.timeout(60):
        await bell.wait(2)


async def test_closing_waits_for_what_runs_and_wakes_nobody_after():
    scheduler = Scheduler(FakeClock())
    started, go, bell = asyncio.Event(), asyncio.Event(), Bell()

    async def job() -> None:
        started.set()
        await go.wait()
        await bell()

    scheduler.every("bell", 60, job, first=0)
    await scheduler.start()
    await started.wait()
    closing = asyncio.create_task(scheduler.close())
    await asyncio.sleep(0)
    scheduler.once("late", scheduler.clock(), bell)
    go.set()
    await closing
    assert bell.rung == 1
    await scheduler.close()
    await scheduler.start()  # after the end nothing begins


async def test_what_does_not_finish_is_cancelled_in_silence(monkeypatch, caplog):
    monkeypatch.setattr(module, "STOP_GRACE", 0.01)
    scheduler = Scheduler(FakeClock())
    started = asyncio.Event()

    async def job() -> None:
        started.set()
        await asyncio.Event().wait()

    scheduler.every("bell", 60, job, first=0)
    await scheduler.start()
    await started.wait()
    with structlog.testing.capture_logs() as logs:
        await scheduler.close()
    assert (logs, caplog.records) == ([], [])


async def test_closing_during_the_start_is_harmless():
    scheduler = Scheduler(FakeClock())
    starting = asyncio.create_task(scheduler.start())
    await asyncio.sleep(0)
    await scheduler.close()
    await starting
