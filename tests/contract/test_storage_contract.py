"""What every `Database` promises, whichever engine is behind it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import psycopg
import pytest

from bot.errors import StorageClosed, StorageError
from bot.storage import Database, Transaction, postgres
from bot.storage.postgres import PostgresDatabase
from tests.fakes.brain import change
from tests.support import beside

Look = Callable[[str], list[tuple[object, ...]]]


@dataclass
class Bench:
    """A database, and a look at it from outside: another connection, as another process has."""

    database: Database
    look: Look

    def stored(self) -> list[str]:
        rows = self.look("SELECT key FROM meta ORDER BY updated_at")
        return [str(row[0]) for row in rows]


@pytest.fixture(params=["sqlite", "postgres"])
async def bench(request, tmp_path):
    if request.param == "postgres":
        url: str = request.getfixturevalue("postgres_url")
        database = await PostgresDatabase.open(url)

        def look(sql: str) -> list[tuple[object, ...]]:
            with psycopg.connect(url, autocommit=True) as connection:
                cursor = connection.execute(sql)  # pyright: ignore[reportArgumentType]
                return cursor.fetchall() if cursor.description else []

        yield Bench(database, look)
        await database.close()
        return
    async with beside(tmp_path) as database:
        yield Bench(database, partial(change, tmp_path))


def put(key: str, order: int = 0) -> Callable[[Transaction], str]:
    def work(tx: Transaction) -> str:
        tx.execute("INSERT INTO meta(key, value, updated_at) VALUES (?, '', ?)", (key, order))
        return key

    return work


@dataclass
class Held:
    """A piece of work that holds the writer until it is let go."""

    begun: threading.Event = field(default_factory=threading.Event)
    go: threading.Event = field(default_factory=threading.Event)

    def __call__(self, tx: Transaction) -> None:
        self.begun.set()
        assert self.go.wait(10)


async def held(bench: Bench) -> tuple[Held, asyncio.Task[None]]:
    """Keep the writer busy, so that whatever is written now is committed as one group."""
    work = Held()
    task = asyncio.create_task(bench.database.write(work))
    assert await asyncio.to_thread(work.begun.wait, 10)
    return work, task


async def queued(bench: Bench, works: list[Callable[[Transaction], object]]):
    tasks = [asyncio.create_task(bench.database.write(work)) for work in works]
    await asyncio.sleep(0)  # each has put its work into the queue when it first waits
    return tasks


async def test_a_write_that_returned_is_seen_from_outside(bench):
    assert await bench.database.write(put("a")) == "a"
    assert bench.stored() == ["a"]


async def test_the_result_and_the_error_of_the_work_reach_the_caller(bench):
    assert await bench.database.write(lambda tx: tx.execute("SELECT 1 + 1")) == [(2,)]

    def fails(tx: Transaction) -> None:
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        await bench.database.write(fails)


async def test_sql_that_is_wrong_is_told_as_a_storage_error_in_writing_and_reading(bench):
    for offer in (bench.database.write, bench.database.read):
        with pytest.raises(StorageError):
            await offer(lambda tx: tx.execute("SELECT nothing FROM nowhere"))
    await bench.database.write(put("still works"))


async def test_work_that_fails_is_rolled_back_whole(bench):
    def fails(tx: Transaction) -> None:
        put("half")(tx)
        raise RuntimeError

    with pytest.raises(RuntimeError):
        await bench.database.write(fails)
    assert bench.stored() == []


@pytest.mark.parametrize("error", [RuntimeError, StorageError, StopIteration, KeyError])
async def test_a_failing_piece_of_a_group_takes_no_other_with_it(bench, error):
    def fails(tx: Transaction) -> None:
        put("half", 99)(tx)
        raise error

    def breaks_a_constraint(tx: Transaction) -> None:
        put("other half", 99)(tx)
        put("a", 99)(tx)

    work, holding = await held(bench)
    tasks = await queued(bench, [put("a", 1), fails, put("b", 2), breaks_a_constraint, put("c", 3)])
    work.go.set()
    await holding
    results = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 60)
    assert [type(r) is str for r in results] == [True, False, True, False, True]
    assert bench.stored() == ["a", "b", "c"]


async def test_works_are_committed_in_the_order_they_were_asked_for(bench):
    work, holding = await held(bench)
    seen: list[int] = []

    def noted(number: int) -> Callable[[Transaction], None]:
        return lambda tx: (seen.append(number), put(f"k{number}", len(seen))(tx))[0]

    tasks = await queued(bench, [noted(n) for n in range(50)])
    work.go.set()
    await asyncio.gather(holding, *tasks)
    assert seen == list(range(50))
    assert bench.stored() == [f"k{n}" for n in range(50)]


async def test_callers_resume_in_the_order_of_their_commits(bench):
    resumed: list[int] = []

    async def one(number: int) -> None:
        await bench.database.write(put(f"k{number}", number))
        resumed.append(number)

    await asyncio.gather(*(one(n) for n in range(100)))
    assert resumed == list(range(100))


async def test_a_thousand_writes_at_once_are_all_stored(bench):
    works = [put(f"k{n}", n) for n in range(1000)]
    results = await asyncio.gather(*(bench.database.write(work) for work in works))
    assert results == [f"k{n}" for n in range(1000)]
    assert bench.stored() == results


async def test_readers_run_beside_the_writer_and_each_other(bench):
    await bench.database.write(put("before"))
    work, holding = await held(bench)
    count = "SELECT count(*) FROM meta"
    reads = [bench.database.read(lambda tx: tx.execute(count)[0][0]) for _ in range(20)]
    assert await asyncio.wait_for(asyncio.gather(*reads), 60) == [1] * 20
    work.go.set()
    await holding


async def test_a_read_sees_one_snapshot_however_long_it_takes(bench):
    begun, go = threading.Event(), threading.Event()

    def twice(tx: Transaction) -> tuple[int, int]:
        first = tx.execute("SELECT count(*) FROM meta")[0][0]
        begun.set()
        assert go.wait(10)
        return first, tx.execute("SELECT count(*) FROM meta")[0][0]

    reading = asyncio.create_task(bench.database.read(twice))
    await asyncio.to_thread(begun.wait, 10)
    await bench.database.write(put("meanwhile"))
    go.set()
    first, second = await reading  # of before or after what was written meanwhile
    assert first == second
    assert await bench.database.read(lambda tx: tx.execute("SELECT count(*) FROM meta")) == [(1,)]


async def test_a_read_after_a_write_sees_it(bench):
    for number in range(50):
        await bench.database.write(put(f"k{number}", number))
        count = await bench.database.read(lambda tx: tx.execute("SELECT count(*) FROM meta")[0][0])
        assert count == number + 1


async def test_nothing_can_be_written_while_reading(bench, monkeypatch):
    monkeypatch.setattr(postgres, "PATIENCE", 0.1)  # a server that is read-only may recover
    with pytest.raises(StorageError):
        await bench.database.read(put("sneaked in"))
    assert bench.stored() == []


async def test_writers_and_readers_at_once_never_see_half_a_transaction(bench):
    def pair(number: int) -> Callable[[Transaction], None]:
        def work(tx: Transaction) -> None:
            put(f"left{number}", number)(tx)
            put(f"right{number}", number)(tx)

        return work

    async def count() -> int:
        rows = await bench.database.read(lambda tx: tx.execute("SELECT count(*) FROM meta"))
        return rows[0][0]

    writes = [bench.database.write(pair(n)) for n in range(100)]
    counts = [count() for _ in range(100)]
    results = await asyncio.gather(*(x for both in zip(writes, counts, strict=True) for x in both))
    assert all(found % 2 == 0 for found in results[1::2])
    assert await count() == 200


async def test_a_cancelled_caller_leaves_the_work_stored_whole_or_not_at_all(bench):
    def pair(tx: Transaction) -> None:
        put("left", 1)(tx)
        put("right", 2)(tx)

    work, holding = await held(bench)
    cancelled, kept = await queued(bench, [pair, put("after", 3)])
    cancelled.cancel()
    work.go.set()
    await holding
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    assert await kept == "after"
    assert bench.stored() in (["left", "right", "after"], ["after"])


async def test_many_cancelled_callers_hang_nobody(bench):
    works = [put(f"k{n}", n) for n in range(300)]
    tasks = [asyncio.create_task(bench.database.write(work)) for work in works]
    await asyncio.sleep(0)
    for task in tasks[::3]:
        task.cancel()
    results = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 60)
    done = {result for result in results if isinstance(result, str)}
    assert {f"k{n}" for n in range(300) if n % 3} <= done
    assert done <= set(bench.stored())


async def test_after_close_nothing_is_taken(bench):
    await bench.database.close()
    with pytest.raises(StorageClosed):
        await bench.database.write(put("late"))
    with pytest.raises(StorageClosed):
        await bench.database.read(lambda tx: tx.execute("SELECT 1"))
    assert bench.stored() == []


async def test_close_commits_what_is_queued(bench):
    work, holding = await held(bench)
    tasks = await queued(bench, [put(f"k{n}", n) for n in range(600)])
    closing = asyncio.create_task(bench.database.close())
    await asyncio.sleep(0)
    work.go.set()
    await asyncio.gather(holding, closing, *tasks)
    assert len(bench.stored()) == 600


async def test_closing_twice_or_at_once_is_harmless(bench):
    await asyncio.gather(bench.database.close(), bench.database.close())
    await bench.database.close()


async def test_close_waits_for_a_read_that_is_running(bench):
    begun, go = threading.Event(), threading.Event()

    def slow(tx: Transaction) -> list[tuple[object, ...]]:
        begun.set()
        assert go.wait(10)
        return tx.execute("SELECT 1")

    reading = asyncio.create_task(bench.database.read(slow))
    await asyncio.to_thread(begun.wait, 10)
    closing = asyncio.create_task(bench.database.close())
    await asyncio.sleep(0)
    go.set()
    assert await reading == [(1,)]
    await closing


async def test_text_comes_back_as_it_was(bench):
    for text in ("", "\x00", "a\x00b", "\u2028\u2029\x85", "😀", "e\u0301", "\ufeff", "'; --"):
        back = await bench.database.write(lambda tx, t=text: tx.execute("SELECT ?", (t,)))
        assert back == [(text,)]
