"""Handing what was said to the memory index, while people forget."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

import pytest

from bot.identity.view import MemoryView
from bot.memory import transcripts
from bot.memory.search import Document
from bot.memory.transcripts import TranscriptFeed
from bot.sessions import forgetting, store
from bot.sessions.entries import NewEntry
from bot.storage import Transaction
from bot.storage.sqlite import SqliteDatabase
from bot.unit_of_work import UnitOfWork

T = TypeVar("T")
NOW = 1_795_262_400_000
DAY_MS = 86_400_000
PLACE = store.Place("agent:main:web:dm:ada", "ada", "web", "default", "ada", "", "direct")
VIEW = MemoryView("people/ada", (PLACE.key,), private=True, people=("ada",))


class SlowIndex:
    """An index in memory; `meanwhile` happens while documents are on their way to it."""

    def __init__(self) -> None:
        self.documents: dict[tuple[str, str], str] = {}
        self.meanwhile: Callable[[Transaction], object] | None = None
        self.database: SqliteDatabase | None = None
        self.generation = "index-1.db"

    async def add_documents(self, documents: Iterable[Document]) -> None:
        if self.meanwhile is not None and self.database is not None:
            await self.database.write(self.meanwhile)
        self.documents |= {(each.partition, each.id): each.text for each in documents}

    async def remove_documents(self, documents: Iterable[tuple[str, str]]) -> None:
        for each in documents:
            self.documents.pop(each, None)

    async def document_ids(self) -> frozenset[tuple[str, str]]:
        return frozenset(self.documents)


def said(*texts: str, at: int = NOW) -> Callable[[Transaction], object]:
    def work(tx: Transaction) -> None:
        session, _ = UnitOfWork(tx, at).current(PLACE)
        store.append(tx, session.id, [NewEntry("message", "user", text) for text in texts], at)

    return work


async def test_what_is_forgotten_on_its_way_to_the_index_is_taken_out_again(tmp_path: Path):
    database = await SqliteDatabase.open(tmp_path / "confidant.db")
    index = SlowIndex()
    index.database = database
    index.meanwhile = lambda tx: forgetting.forget_in(tx, VIEW, "peanuts", NOW)
    await database.write(said("allergic to peanuts", "lives in Lyon"))
    feed = TranscriptFeed(database, index, 30, lambda: NOW)
    await feed.follow()
    assert list(index.documents.values()) == ["lives in Lyon"]
    await database.close()


async def test_what_is_older_than_the_days_to_keep_is_taken_out(tmp_path: Path):
    database = await SqliteDatabase.open(tmp_path / "confidant.db")
    index, now = SlowIndex(), [NOW]
    await database.write(said("old"))
    feed = TranscriptFeed(database, index, 30, lambda: now[0])
    await feed.follow()
    await database.write(said("new", at=NOW + 29 * DAY_MS))
    now[0] += 31 * DAY_MS
    await feed.reconcile()
    await feed.follow()
    assert list(index.documents.values()) == ["new"]
    await database.close()


async def test_what_was_said_comes_back_after_a_rebuild_that_lost_it(tmp_path: Path):
    database = await SqliteDatabase.open(tmp_path / "confidant.db")
    index = SlowIndex()
    await database.write(said("allergic to peanuts", "lives in Lyon"))
    feed = TranscriptFeed(database, index, 30, lambda: NOW)
    await feed.look()
    whole = dict(index.documents)
    assert len(whole) == 2
    index.documents.clear()
    await feed.look()
    assert index.documents == {}  # nothing says that anything is missing
    index.generation = "index-2.db"
    await feed.look()
    assert index.documents == whole
    await database.close()


class CountedReads:
    """A database that counts how often it is read."""

    def __init__(self, database: SqliteDatabase) -> None:
        self.reads = 0
        self._database = database
        self.write = database.write

    async def read(self, work: Callable[[Transaction], T]) -> T:
        self.reads += 1
        return await self._database.read(work)


async def test_what_is_too_old_is_walked_past_once_however_much_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(transcripts, "WALK", 4)
    database = await SqliteDatabase.open(tmp_path / "confidant.db")
    counted, index, now = CountedReads(database), SlowIndex(), [NOW]
    await database.write(said(*(f"old {number}" for number in range(40))))
    await database.write(said("new", "newer", at=NOW + 31 * DAY_MS))
    now[0] += 31 * DAY_MS

    async def look(days: int = 30) -> int:
        before = counted.reads
        await TranscriptFeed(counted, index, days, lambda: now[0]).look()
        return counted.reads - before

    first, second = await look(), await look()
    assert first > 40 / 4
    assert second < 8
    assert list(index.documents.values()) == ["new", "newer"]
    # What is added there from elsewhere, out of the order of time, comes later and is found.
    await database.write(said("from a backup", at=NOW + 20 * DAY_MS))
    assert await look() < 8
    assert len(index.documents) == 3
    # More days than before: all of it again.
    assert await look(days=40) > 40 / 4
    assert len(index.documents) == 43
    # What was forgotten meanwhile is seen, too.
    await database.write(lambda tx: forgetting.forget_in(tx, VIEW, "newer", now[0]))
    await look()
    assert await look() < 8
    assert sorted(index.documents.values()) == ["from a backup", "new"]
    await database.close()


async def test_where_numbers_are_others_nothing_is_walked_past(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(transcripts, "WALK", 4)
    database = await SqliteDatabase.open(tmp_path / "confidant.db")
    index = SlowIndex()
    await database.write(said(*(f"old {number}" for number in range(20)), at=NOW - 31 * DAY_MS))
    await TranscriptFeed(database, index, 30, lambda: NOW).look()
    await database.write(lambda tx: tx.execute("DELETE FROM entries"))
    await database.write(said("now first", *(f"more {number}" for number in range(20))))
    await TranscriptFeed(database, index, 30, lambda: NOW).look()
    assert len(index.documents) == 21
    await database.close()
