"""What is kept of a session in memory is never older than what it was told of."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from bot.agent.session_cache import CachedSession, SessionCache
from bot.sessions import store
from bot.sessions.entries import NewEntry
from bot.storage import Transaction
from bot.storage.sqlite import SqliteDatabase
from bot.unit_of_work import UnitOfWork
from tests.support import until

PLACE = store.Place("agent:main:web:dm:ada", "ada", "web", "default", "ada", "", "direct")


class Slow:
    """A database whose answers arrive late."""

    def __init__(self, database: SqliteDatabase) -> None:
        self.database = database
        self.gate = asyncio.Event()
        self.reads = 0

    async def read(self, work: Callable[[Transaction], Any]) -> Any:
        found = await self.database.read(work)
        self.reads += 1
        await self.gate.wait()
        return found


@pytest.fixture
async def slow(tmp_path: Path) -> AsyncIterator[Slow]:
    database = await SqliteDatabase.open(tmp_path / "confidant.db")
    yield Slow(database)
    await database.close()


def begin(tx: Transaction) -> store.Session:
    session, _ = UnitOfWork(tx, 1).current(PLACE)
    said = NewEntry("message", "user", "hello", ({"type": "text", "text": "hello"},))
    store.append(tx, session.id, [said], 1)
    return session


@pytest.mark.parametrize("how", ["forget", "note"])
async def test_what_was_read_before_a_change_is_read_again(slow: Slow, how: str):
    live: Any = SessionCache(slow)  # pyright: ignore[reportArgumentType] - only `read` is used
    session = await slow.database.write(begin)
    reading = asyncio.create_task(live.get(session.id))
    await until(lambda: slow.reads == 1)

    def change(tx: Transaction) -> store.Session:
        store.change(tx, session.id, held=1)
        changed = store.get(tx, session.id)
        assert changed is not None
        return changed

    changed = await slow.database.write(change)
    live.forget(session.id) if how == "forget" else live.note(changed)
    slow.gate.set()
    assert (await reading).session.held == 1
    assert slow.reads == 2


async def test_who_asks_while_it_is_read_gets_the_same(slow: Slow):
    live: Any = SessionCache(slow)  # pyright: ignore[reportArgumentType] - only `read` is used
    session = await slow.database.write(begin)
    reading = [asyncio.create_task(live.get(session.id)) for _ in range(2)]
    await until(lambda: slow.reads == 2)
    slow.gate.set()
    one, other = await asyncio.gather(*reading)
    assert one is other
    assert live.holds(one)


def say(words: str) -> Callable[[Transaction], store.Session]:
    def work(tx: Transaction) -> store.Session:
        session = store.current(tx, PLACE.key)
        assert session is not None
        said = NewEntry("message", "user", words, ({"type": "text", "text": words},))
        store.append(tx, session.id, [said], 2)
        changed = store.get(tx, session.id)
        assert changed is not None
        return changed

    return work


def words_of(live: CachedSession) -> list[str]:
    return [line.message.text for line in live.history.lines]


async def test_what_another_node_said_is_read_although_this_one_knows_a_newer_row(slow: Slow):
    slow.gate.set()
    cache: Any = SessionCache(slow, is_shared=True)  # pyright: ignore[reportArgumentType]
    session = await slow.database.write(begin)
    assert words_of(await cache.get(session.id)) == ["hello"]
    reads = slow.reads
    assert await cache.get(session.id) is await cache.get(session.id)
    assert slow.reads == reads + 2  # only its version, twice
    await slow.database.write(say("from elsewhere"))
    # A command here leaves the row as it is now, with what the other node did to it.
    cache.note(await slow.database.write(lambda tx: store.get(tx, session.id)))
    assert words_of(await cache.get(session.id)) == ["hello", "from elsewhere"]


@pytest.mark.parametrize("comes_between", [False, True])
async def test_a_turn_keeps_what_it_knows_unless_another_node_came_between(
    slow: Slow,
    comes_between: bool,  # noqa: FBT001 - pytest gives it
):
    slow.gate.set()
    cache: Any = SessionCache(slow, is_shared=True)  # pyright: ignore[reportArgumentType]
    session = await slow.database.write(begin)
    live = await cache.get(session.id)
    if comes_between:
        await slow.database.write(say("from elsewhere"))
    is_whole = await slow.database.write(lambda tx: cache.is_up_to_date(tx, live))
    live.session = await slow.database.write(say("a turn"))
    cache.settle(live, is_whole=is_whole)
    assert (await cache.get(session.id) is live) is not comes_between
