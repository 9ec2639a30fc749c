"""The PostgreSQL engine when connections, answers or the server are lost, or it is crowded."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress

import psycopg
import pytest

from bot.errors import StorageAway, StorageClosed, StorageError
from bot.storage import Transaction, insist, postgres
from bot.storage.postgres import PostgresDatabase
from tests.fakes.postgres import PostgresServer
from tests.fakes.tcp_proxy import TcpProxy
from tests.support import until


def put(key: str) -> Callable[[Transaction], str]:
    """Work that can be seen to have been done twice."""

    def work(tx: Transaction) -> str:
        tx.execute(
            "INSERT INTO meta(key, value, updated_at) VALUES (?, '', 1) "
            "ON CONFLICT(key) DO UPDATE SET updated_at = meta.updated_at + 1",
            (key,),
        )
        return key

    return work


def stored(tx: Transaction) -> list[tuple[str, int]]:
    return [(row[0], row[1]) for row in tx.execute("SELECT key, updated_at FROM meta ORDER BY key")]


@pytest.fixture
def proxy(postgres_url: str) -> Iterator[TcpProxy]:
    with TcpProxy.before(postgres_url) as proxy:
        yield proxy


@pytest.fixture
async def database(proxy: TcpProxy, postgres_url: str) -> AsyncIterator[PostgresDatabase]:
    database = await PostgresDatabase.open(proxy.url(postgres_url))
    yield database
    proxy.mend()
    await database.close()


async def test_a_connection_lost_before_a_batch_is_made_anew(database, proxy):
    await database.write(put("a"))
    assert await database.read(stored) == [("a", 1)]
    proxy.drop()
    assert await database.write(put("b")) == "b"
    proxy.drop()
    assert await database.read(stored) == [("a", 1), ("b", 1)]


async def test_a_connection_lost_in_the_middle_of_a_batch_has_it_run_again_whole(database, proxy):
    runs: list[str] = []

    def work(tx: Transaction) -> str:
        put("first half")(tx)
        runs.append("")
        if len(runs) == 1:
            proxy.drop()
        return put("second half")(tx)

    assert await database.write(work) == "second half"
    assert len(runs) == 2
    assert await database.read(stored) == [("first half", 1), ("second half", 1)]


@pytest.mark.parametrize("done", [True, False])
async def test_a_commit_without_an_answer_is_done_exactly_once(database, proxy, done, logs):
    await database.write(put("before"))
    proxy.lose_answer(b"COMMIT", done=done)
    assert await asyncio.wait_for(database.write(put("a")), 60) == "a"
    assert proxy.lost == 1
    assert [log["committed"] for log in logs if log["event"] == "storage.resolved"] == [done]
    assert await database.read(stored) == [("a", 1), ("before", 1)]


async def test_a_commit_without_an_answer_is_not_given_up_while_the_server_is_away(
    database, proxy, monkeypatch
):
    monkeypatch.setattr("bot.storage.postgres.PATIENCE", 0.0)
    proxy.lose_answer(b"COMMIT", done=True, cut=True)
    writing = asyncio.create_task(insist(database, put("a")))
    await asyncio.to_thread(proxy.refused, 3)
    assert not writing.done()
    proxy.mend()
    assert await asyncio.wait_for(writing, 60) == "a"
    assert await database.read(stored) == [("a", 1)]


async def test_a_transaction_that_hangs_before_its_commit_is_ended_and_done_again(
    database, proxy, postgres_url
):
    # The COMMIT is on its way for ever: the server still has the transaction open.
    other = TcpProxy.before(postgres_url)
    with other:
        second = await PostgresDatabase.open(other.url(postgres_url))
        other.hold_back(b"COMMIT")
        writing = asyncio.create_task(second.write(put("a")))
        await until(lambda: other.held > 0)
        other.forget_held()
        assert await asyncio.wait_for(writing, 60) == "a"
        assert await database.read(stored) == [("a", 1)]
        await second.close()


async def test_what_waits_for_a_server_that_stays_away_is_told_and_may_be_tried_again(
    database, proxy, monkeypatch
):
    monkeypatch.setattr("bot.storage.postgres.PATIENCE", 0.2)
    monkeypatch.setattr("bot.storage.postgres.PATIENCE", 0.2)
    proxy.cut()
    why = rf"127.0.0.1:{proxy.port}/confidant_\w+ cannot be used: \w+"
    with pytest.raises(StorageAway, match=why):
        await database.write(put("a"))
    with pytest.raises(StorageAway, match=why):
        await database.read(stored)
    trying = asyncio.create_task(insist(database, put("b")))
    proxy.mend()
    assert await asyncio.wait_for(trying, 60) == "b"
    assert await database.read(stored) == [("b", 1)]


async def test_it_closes_also_while_the_server_is_away(database, proxy):
    await database.write(put("a"))
    proxy.cut()
    writing = asyncio.create_task(database.write(put("b")))
    await asyncio.sleep(0)
    await asyncio.wait_for(database.close(), 30)
    with pytest.raises(StorageError):
        await writing
    with pytest.raises(StorageClosed):
        await database.write(put("c"))


async def test_a_node_that_stopped_within_a_transaction_loses_it(
    database, postgres_url, monkeypatch
):
    idle = postgres._BEGIN.replace(f"{postgres.IDLE_SECONDS}s", "1s")
    assert idle != postgres._BEGIN
    monkeypatch.setattr(postgres, "_BEGIN", idle)
    go, runs = threading.Event(), []

    def slow(tx: Transaction) -> None:
        put("a")(tx)
        runs.append("")
        assert go.wait(30)

    writing = asyncio.create_task(database.write(slow))
    await until(lambda: len(runs) == 1)
    with psycopg.connect(postgres_url, autocommit=True) as look:
        sql = "SELECT count(*) FROM pg_stat_activity WHERE state = 'idle in transaction'"
        async with asyncio.timeout(60):
            while look.execute(sql).fetchone() != (0,):  # noqa: ASYNC110 - it has no event
                await asyncio.sleep(0.02)
    go.set()
    await asyncio.wait_for(writing, 60)
    assert len(runs) == 2
    assert await database.read(stored) == [("a", 1)]


async def test_a_connection_the_server_ends_is_made_anew(database, postgres_url):
    end = (
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE application_name = 'confidant' AND datname = current_database()"
    )
    for key in "abc":
        with psycopg.connect(postgres_url, autocommit=True) as admin:
            admin.execute(end)
        reading = database.read(stored)
        assert await database.write(put(key)) == key
        await reading
    assert await database.read(stored) == [("a", 1), ("b", 1), ("c", 1)]


@asynccontextmanager
async def two(url: str) -> AsyncIterator[tuple[PostgresDatabase, PostgresDatabase]]:
    one, other = await asyncio.gather(PostgresDatabase.open(url), PostgresDatabase.open(url))
    try:
        yield one, other
    finally:
        await asyncio.gather(one.close(), other.close())


async def test_two_that_collide_lose_nothing_and_double_nothing(postgres_url):
    keys = ["one", "other"]

    def move(first: str, second: str) -> Callable[[Transaction], None]:
        """Read one and raise the other: of two at once one must not have seen the other's."""

        def work(tx: Transaction) -> None:
            rows = tx.execute("SELECT updated_at FROM meta WHERE key = ?", (first,))
            tx.execute(
                "UPDATE meta SET updated_at = updated_at + 1, value = ? WHERE key = ?",
                (str(rows[0][0]), second),
            )
            tx.execute("INSERT INTO forgotten(seq, at) SELECT count(*) + 1, 1 FROM forgotten")

        return work

    async with two(postgres_url) as (one, other):
        await one.write(lambda tx: [put(key)(tx) for key in keys] and None)
        works = [(one, move("one", "other")), (other, move("other", "one"))] * 40
        await asyncio.gather(*(insist(database, work) for database, work in works))
        assert await one.read(stored) == [("one", 41), ("other", 41)]
        numbers = await other.read(lambda tx: tx.execute("SELECT seq FROM forgotten ORDER BY seq"))
        assert numbers == [(n,) for n in range(1, 81)]


async def test_two_that_lock_each_other_out_are_both_done(postgres_url):
    def both(first: str, second: str) -> Callable[[Transaction], None]:
        return lambda tx: (put(first)(tx), put(second)(tx), None)[-1]

    async with two(postgres_url) as (one, other):
        await one.write(both("a", "b"))
        works = [(one, both("a", "b")), (other, both("b", "a"))] * 20
        await asyncio.gather(*(insist(database, work) for database, work in works))
        assert await one.read(stored) == [("a", 41), ("b", 41)]


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    """One that can be killed."""
    server = PostgresServer(options=("fsync=off",))
    server.start()
    yield server
    server.close()


@pytest.mark.proof
async def test_a_server_that_is_killed_and_comes_back_has_everything_once(server):
    database = await PostgresDatabase.open(server.admin_url)
    keys = [f"k{n:03}" for n in range(150)]

    async def writes(some: list[str]) -> None:
        for key in some:
            await insist(database, put(key))

    writing = asyncio.gather(*(writes(keys[n::3]) for n in range(3)))
    for _ in range(2):
        before = len(await database.read(stored))
        while len(await database.read(stored)) < min(before + 20, 140):
            pass
        await asyncio.to_thread(server.kill)
        await asyncio.to_thread(server.start)
    await asyncio.wait_for(writing, 120)
    assert await database.read(stored) == [(key, 1) for key in keys]
    await database.close()


async def test_a_server_that_is_not_there_at_the_start_is_told_and_waited_for(
    postgres_url, proxy, monkeypatch, logs
):
    monkeypatch.setattr("bot.storage.postgres.LAST_RETRY", 0.01)
    url = proxy.url(postgres_url).replace("postgres@", "postgres:very-secret@")
    proxy.cut()
    with pytest.raises(StorageAway, match=rf"127.0.0.1:{proxy.port}/confidant_") as told:
        await PostgresDatabase.open(url)
    opening = asyncio.create_task(PostgresDatabase.open(url, wait=True))
    await asyncio.to_thread(proxy.refused, 3)
    assert not opening.done()
    proxy.mend()
    await (await asyncio.wait_for(opening, 60)).close()
    events = [log["event"] for log in logs if log["event"].startswith("storage.")]
    assert events == ["storage.waiting", "storage.reached"]
    assert "very-secret" not in f"{told.value}{logs}"


@pytest.mark.parametrize(
    "url",
    [
        "",
        "mysql://me:very-secret@localhost/db",
        "postgresql://me:very-secret@localhost/db?nonsense=1",
        "postgresql://me:very-secret@[localhost/db",
        "host=localhost password=very-secret",
    ],
)
async def test_a_url_that_is_none_is_told_without_its_password(url):
    with pytest.raises(StorageError, match="not the URL of a PostgreSQL") as told:
        await PostgresDatabase.open(url, wait=True)
    assert "very-secret" not in str(told.value)


async def test_what_goes_on_after_a_statement_that_failed_is_not_taken_for_done(database):
    def work(tx: Transaction) -> str:
        put("a")(tx)
        with suppress(psycopg.Error):  # the server has given up the transaction by then
            tx.execute("SELECT 1 / 0")
        return "done"

    with pytest.raises(StorageError):
        await database.write(work)
    await database.write(put("b"))
    assert await database.read(stored) == [("b", 1)]


def plans(tx: Transaction) -> int:
    """How many plans the server keeps for the connection that asks."""
    return int(tx.execute("SELECT count(*) FROM pg_prepared_statements")[0][0])


@pytest.mark.parametrize("prepares", [True, False])
async def test_plans_are_kept_where_that_is_asked_for(postgres_url, prepares):
    database = PostgresDatabase(postgres_url, prepares=prepares)
    await database.start()
    try:
        for _ in range(5):
            await database.write(put("a"))
        assert (await database.write(plans) > 0) is prepares
    finally:
        await database.close()


async def test_a_plan_of_before_a_table_was_changed_is_made_anew(postgres_url):
    database = PostgresDatabase(postgres_url, prepares=True)
    await database.start()

    def columns(tx: Transaction) -> int:
        return len(tx.execute("SELECT * FROM meta WHERE key = 'a'")[0])

    try:
        for _ in range(5):
            await database.write(put("a"))
            assert await database.write(columns) == 3
            # In a thread of the readers' own each: all of them have the plan.
            reads = await asyncio.gather(*(database.read(columns) for _ in range(20)))
            assert set(reads) == {3}
        with psycopg.connect(postgres_url) as other:  # a newer version begins
            other.execute("ALTER TABLE meta ADD COLUMN more TEXT")
        assert await database.write(columns) == 4
        reads = await asyncio.gather(*(database.read(columns) for _ in range(20)))
        assert set(reads) == {4}
    finally:
        await database.close()
