"""Background tasks: whatever one fails by, it is logged, counted and begins anew."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from structlog.testing import capture_logs

from bot import app as app_module
from bot import backoff, coordination
from bot.channel.kit.supervisor import Stopped, Supervisor
from bot.coordination import Alone
from bot.errors import StorageError
from bot.sessions import mirror as mirror_module
from bot.sessions.mirror import Mirror
from bot.storage.sqlite import SqliteDatabase
from bot.testing import RecordingEngine
from tests.support import running, until

Work = Callable[[], Awaitable[None]]


@pytest.fixture(autouse=True)
def _at_once(monkeypatch):
    monkeypatch.setattr(backoff, "FIRST", 0.01)


class Fault(Exception):
    """A fault of the program's own."""


# --- one task ------------------------------------------------------------------------------------


async def test_what_fails_is_logged_counted_and_begins_anew(logs):
    begun: list[dict[str, str]] = []
    before = backoff.failures()

    async def work() -> None:
        begun.append(dict(backoff.down()))
        if len(begun) < 4:
            raise Fault

    task = backoff.keep("pigeons", work)
    await until(lambda: backoff.down() == {"pigeons": "Fault"})
    await task
    assert begun == [{}] * 4  # it is down only while it waits
    assert backoff.down() == {}
    assert backoff.failures() == before + 3
    assert [(each["event"], each["task"], each["error"], each["seconds"]) for each in logs] == [
        ("background.failed", "pigeons", "Fault", seconds) for seconds in (0.01, 0.02, 0.04)
    ]


async def test_what_is_cancelled_inside_begins_anew_and_what_is_cancelled_ends():
    times = 0

    async def work() -> None:
        nonlocal times
        times += 1
        if times == 1:
            waited = asyncio.get_running_loop().create_future()
            waited.cancel()
            await waited
        await asyncio.Event().wait()

    task = backoff.keep("pigeons", work)
    await until(lambda: times == 2)
    task.cancel()
    await asyncio.wait({task}, timeout=5)
    assert task.cancelled()
    assert backoff.down() == {}


async def test_an_accounts_task_begins_anew_until_the_account_stops():
    supervisor = Supervisor("pigeon", "default", RecordingEngine(), waiting="in the loft")
    times = 0

    async def work() -> None:
        nonlocal times
        times += 1
        if times < 3:
            raise Fault
        await supervisor.happened(asyncio.Event())

    task = supervisor.keep("pigeon/default", work)
    await until(lambda: times == 3)
    await supervisor.stop()
    assert task.done()
    assert times == 3


async def test_a_task_of_an_account_that_fails_is_logged(logs):
    supervisor = Supervisor("pigeon", "default", RecordingEngine(), waiting="in the loft")

    async def work(error: Exception) -> None:
        raise error

    for error in (Fault(), Stopped()):
        await asyncio.wait({supervisor.spawn(work(error))})
    assert [(each["event"], each["error"]) for each in logs] == [("channel.task.failed", "Fault")]
    await supervisor.stop()


# --- all of a program ----------------------------------------------------------------------------


async def test_each_task_of_a_program_that_dies_begins_anew(tmp_path, monkeypatch, logs):
    """Each is killed as it begins, and the program does everything all the same."""
    begun: Counter[str] = Counter()

    def keep(name: str, work: Work) -> asyncio.Task[None]:
        async def dies_first() -> None:
            begun[name] += 1
            if begun[name] == 1:
                raise Fault
            await work()

        return backoff.keep(name, dies_first)

    monkeypatch.setattr(app_module, "keep", keep)
    async with running(tmp_path) as engine:
        names = set(begun) | set(engine.app._tasks)
        await until(lambda: all(begun[name] >= 2 for name in names))
        assert len(names) >= 9
        assert await engine.ask("hello")
        assert await engine.ask("/remind in 1 hour tea")
        engine.clock.advance(hours=1)
        await engine.app.engine.reminders.wake()
        await engine.channel.wait_until(lambda _: "tea" in engine.sent_to("ada")[-1])
        registry = engine.app.core.metrics.registry
        assert (registry.get_sample_value("confidant_background_failures") or 0) >= len(names)
    failed = [each["task"] for each in logs if each["event"] == "background.failed"]
    assert sorted(failed) == sorted(names)


async def test_a_listener_that_fails_keeps_nobody_from_hearing_of_others(tmp_path, monkeypatch):
    monkeypatch.setattr(coordination, "LOOK_SECONDS", 0.01)
    database = await SqliteDatabase.open(tmp_path / "confidant.db")
    beside = await SqliteDatabase.open(tmp_path / "confidant.db")
    alone, heard = Alone(database), Counter[str]()

    def hears(name: str, error: Exception | None = None) -> coordination.Hear:
        async def hear(_event: Any) -> None:
            heard[name] += 1
            if error is not None and heard[name] == 1:
                raise error

        return hear

    alone.on("books", hears("first", Fault()))
    alone.on("forgotten", hears("second"))
    alone.on("outbox", hears("third", StorageError("away")))
    running_ = backoff.keep("storage.look", alone.run)
    try:
        for times in (1, 2):
            with capture_logs() as logs:
                await beside.write(lambda tx: tx.execute("DELETE FROM meta"))
                await beside.write(
                    lambda tx, n=times: tx.execute(f"INSERT INTO meta VALUES ('{n}', 'x', 1)")
                )
                await until(lambda n=times: heard["second"] >= n and heard["third"] > n)
            events = {each["event"] for each in logs}
            assert ("coordination.hear_failed" in events) is (times == 1)
            assert "background.failed" not in events
    finally:
        running_.cancel()
        await asyncio.gather(running_, return_exceptions=True)
        await database.close()
        await beside.close()


async def test_a_mirror_that_died_writes_again_and_stops_in_time(tmp_path, monkeypatch):
    database = await SqliteDatabase.open(tmp_path / "confidant.db")
    mirror = Mirror(database, tmp_path / "transcripts")
    times = 0
    real = Mirror._write

    async def write(self: Mirror) -> None:
        nonlocal times
        times += 1
        if times != 2:
            raise Fault
        await real(self)

    monkeypatch.setattr(Mirror, "_write", write)
    await mirror.start()
    mirror._pending["s1"] = None
    mirror._wake.set()
    await until(lambda: times == 1)
    mirror._wake.set()
    await until(lambda: times == 2)
    monkeypatch.setattr(mirror_module, "STOP_SECONDS", 0.05)
    mirror._pending["s1"] = None
    await asyncio.wait_for(mirror.stop(), 5)
    await database.close()
