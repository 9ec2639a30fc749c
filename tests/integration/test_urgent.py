"""The owner is told in their chat of what cannot wait, once a day at most."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bot.channel import Health
from bot.doctor import storage
from bot.storage import backup, backup_state
from bot.storage.backup_state import BackupState, Record
from bot.testing import ScriptedModel
from tests.fakes.pair import pair
from tests.support import Engine, FakeClock, running, until

HEAD = "I found something that should not wait:"
OWNER: dict[str, Any] = {"owner": ["memory:ada"]}


@asynccontextmanager
async def owned(folder: Path, clock: FakeClock, **sections: Any):
    """An engine whose owner writes as ada."""
    sections = {"session": OWNER, **sections}
    async with running(folder, clock=clock, **sections) as engine:
        yield engine


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """How much room the disk says it has."""
    said = SimpleNamespace(free=50_000_000_000)
    monkeypatch.setattr("shutil.disk_usage", lambda _path: said)
    return said


def notices(engine: Engine, to: str = "ada") -> list[str]:
    return [text for text in engine.sent_to(to) if text.startswith(HEAD)]


async def told(engine: Engine, to: str = "ada") -> Sequence[str]:
    """Look once, and wait for what is told; all of it so far."""
    before = len(engine.channel.sent)
    if await engine.app.urgent.look():
        await engine.channel.wait_sent(before + 1)
    return notices(engine, to)


def down(engine: Engine, account: str = "work", health: Health = Health.DOWN) -> None:
    assert engine.channel.engine is not None
    engine.channel.engine.report("memory", account, health, "secret detail")


async def test_a_disk_that_is_nearly_full_is_told_once_a_day_also_after_a_restart(tmp_path, disk):
    clock = FakeClock()
    async with owned(tmp_path, clock) as engine:
        await engine.ask("hello there")
        assert await told(engine) == []
        disk.free = storage.NO_ROOM - 1
        (notice,) = await told(engine)
        assert "is nearly full: 199 MB are free" in notice
        assert "Make room now." in notice
        assert "hello" not in notice
        clock.advance(hours=23)
        assert len(await told(engine)) == 1
    async with owned(tmp_path, clock) as engine:
        clock.advance(minutes=59)
        assert await told(engine) == []
        clock.advance(minutes=2)
        assert len(await told(engine)) == 1
        clock.advance(seconds=-5)  # another node's clock, or this one mended
        assert len(await told(engine)) == 1
        disk.free = 50_000_000_000
        clock.advance(days=2)
        assert len(await told(engine)) == 1


async def test_an_account_that_is_down_for_an_hour_is_told_and_a_short_while_is_not(tmp_path):
    clock = FakeClock()
    async with owned(tmp_path, clock) as engine:
        await engine.ask("hello")
        down(engine)
        for _ in range(6):
            assert await told(engine) == []
            clock.advance(minutes=9)
    # A restart in between makes no difference: it is down as before.
    async with owned(tmp_path, clock) as engine:
        down(engine)
        assert await told(engine) == []
        clock.advance(minutes=7)
        (notice,) = await told(engine)
        assert "memory/work could not be reached for 61 minutes" in notice
        assert "secret detail" not in notice
        down(engine, health=Health.UP)
        clock.advance(days=1, minutes=1)
        assert len(await told(engine)) == 1
        down(engine)  # for a moment, which is another time
        assert len(await told(engine)) == 1


async def test_backups_that_fail_are_told_after_an_hour(tmp_path):
    clock = FakeClock()
    folder = tmp_path / "gone"
    async with owned(tmp_path, clock, backup={"folder": str(folder)}) as engine:
        await engine.ask("hello")
        database = engine.app.urgent._database

        async def fail(since: int) -> None:
            record = Record(failed_at=clock(), failing_since=since, failure="the disk is gone")
            state = BackupState("x", made=record)
            await database.write(lambda tx: backup_state.write(tx, state, clock()))

        begun = clock()
        await fail(begun)
        assert await told(engine) == []
        clock.advance(minutes=61)
        await fail(begun)
        (notice,) = await told(engine)
        assert f"no backup could be made in {folder}: the disk is gone" in notice


async def test_a_database_whose_copies_are_late_is_told(tmp_path):
    clock = FakeClock()
    async with owned(tmp_path, clock, storage={"backup_hours": 24}) as engine:
        await engine.ask("hello")
        path = tmp_path / "confidant.db"
        made = backup.make(path, 3, clock())
        now = path.stat().st_mtime
        os.utime(made, (now - 60 * 3600, now - 60 * 3600))
        assert await told(engine) == []  # the one that is due may be made just now
        clock.advance(hours=1)
        (notice,) = await told(engine)
        assert "the latest backup is of" in notice


async def test_a_paused_task_is_told_once_and_without_its_words(tmp_path):
    clock = FakeClock()
    async with owned(tmp_path, clock) as engine:
        await engine.ask("hello")
        await engine.ask("/task every day at 9 water the secret plants")
        await engine.app.urgent._database.write(
            lambda tx: tx.execute("UPDATE repeats SET state = 'paused', failures = 3")
        )
        (notice,) = await told(engine)
        assert "1 task is paused after failing three times" in notice
        assert "secret plants" not in notice
        clock.advance(days=3)
        assert len(await told(engine)) == 1


async def test_nobody_but_the_owner_is_told_and_what_nobody_heard_is_told_later(tmp_path, disk):
    clock = FakeClock()
    disk.free = 0
    async with owned(tmp_path, clock) as engine:
        await engine.ask("hello", sender="bob")
        await engine.ask("hello", sender="den", chat="den", chat_type="group", mentions_bot=True)
        assert await engine.app.urgent.look() is False
        await engine.ask("hello")
        assert len(await told(engine)) == 1
        assert notices(engine, "bob") == []
    # Whoever owns it no more is not told either.
    clock.advance(days=2)
    async with owned(tmp_path, clock, session={"owner": ["memory:eve"]}) as engine:
        assert await engine.app.urgent.look() is False


async def test_it_is_told_in_the_language_of_the_chat(tmp_path, disk):
    disk.free = 0
    async with owned(tmp_path, FakeClock()) as engine:
        await engine.ask("你好", locale="zh-Hans")
        assert await engine.app.urgent.look()
        await engine.channel.wait_until(lambda _: "快满了" in engine.sent_to("ada")[-1])


async def test_of_two_nodes_one_tells(postgres_url: str, tmp_path: Path):
    async with pair(postgres_url, tmp_path, ScriptedModel(), session=OWNER) as nodes:
        await nodes.one.say("hello")
        await nodes.answered(1)
        now = int(str(nodes.look("SELECT (extract(epoch FROM now()) * 1000)::bigint")[0][0]))
        nodes.do(
            "INSERT INTO meta(key, value, updated_at) VALUES "
            f"('urgent.down:memory/work', '{now - 2 * 3_600_000} {now}', {now})"
        )
        looks = (nodes.one.app.urgent.look(), nodes.other.app.urgent.look())
        assert sorted(await asyncio.gather(*looks)) == [False, True]
        await until(lambda: any(text.startswith(HEAD) for text in nodes.sent))
        assert not await nodes.one.app.urgent.look()
        assert not await nodes.other.app.urgent.look()
        assert [text.startswith(HEAD) for text in nodes.sent].count(True) == 1
