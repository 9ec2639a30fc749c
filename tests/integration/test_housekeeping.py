"""What is done beside the work, over a real database."""

from __future__ import annotations

import asyncio

import pytest

from bot import housekeeping
from bot.channel import Inbound
from bot.config import StorageConfig
from bot.identity import Place
from bot.sessions import compactions, inbox, store
from bot.sessions.compactions import Snapshot
from bot.storage import Transaction, backup
from bot.storage.sqlite import SqliteDatabase
from tests.fakes.brain import query
from tests.support import FakeClock, until


@pytest.mark.parametrize("hours", [0, 24])
async def test_what_is_over_is_pruned_also_where_no_backups_are_made(tmp_path, monkeypatch, hours):
    monkeypatch.setattr(housekeeping, "FIRST_BACKUP_SECONDS", 0)
    path, clock = tmp_path / "confidant.db", FakeClock()
    database = await SqliteDatabase.open(path)
    inbound = Inbound("memory", "default", "ada", "direct", "ada", "m1", "hello", clock())
    message, body = inbox.storable(inbound)
    row = await database.write(lambda tx: inbox.store(tx, message, body, "key", clock()))
    assert row is not None
    await database.write(lambda tx: inbox.done(tx, [row], clock()))
    clock.advance(days=31)
    config = StorageConfig(backup_hours=hours)
    task = asyncio.create_task(housekeeping.keep_copies(config, database, clock))
    await until(lambda: not query(tmp_path, "SELECT 1 FROM inbox"))
    await until(lambda: bool(backup.newest_first(path, clock())) or not hours)
    assert bool(backup.newest_first(path, clock())) is bool(hours)
    task.cancel()
    await database.close()


async def test_what_requests_began_with_goes_with_conversations_nobody_goes_on_with(tmp_path):
    database, now = await SqliteDatabase.open(tmp_path / "confidant.db"), 1_000

    def begin(tx: Transaction) -> None:
        for name, at in (("old", 5), ("new", now)):
            place = Place(name, "ada", "memory", "default", "ada", "", "direct")
            session, _ = store.start(tx, place, at, by="first")
            for view, text in (("own", name), ("all", "shared")):
                compactions.keep(tx, session.id, view, Snapshot(text, "[]"), at)

    await database.write(begin)
    await housekeeping.drop_prefixes(database, now)
    await database.close()
    assert query(tmp_path, "SELECT count(*) FROM prefixes") == [(2,)]
    assert query(tmp_path, "SELECT text FROM prefix_texts ORDER BY text") == [
        ("[]",),
        ("new",),
        ("shared",),
    ]
