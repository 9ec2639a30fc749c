"""Handing what was said to the memory index, while people forget."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from bot.identity.view import MemoryView
from bot.memory.search import Document
from bot.memory.transcripts import TranscriptFeed
from bot.sessions import forgetting, store
from bot.sessions.entries import NewEntry
from bot.storage import Transaction
from bot.storage.sqlite import SqliteDatabase
from bot.unit_of_work import UnitOfWork

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
