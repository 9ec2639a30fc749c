"""Months of what was said in PostgreSQL: made ahead, begun, and dropped when nobody keeps them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest
from typer.testing import CliRunner

from bot.cli.main import cli
from bot.clock import system_clock
from bot.cluster import takeover
from bot.cluster.node import NOTICE_SECONDS, ROUND_SECONDS, Retention
from bot.errors import StorageError
from bot.sessions import artifacts, entries, forgetting, store
from bot.sessions.entries import NewEntry
from bot.storage import Transaction, months
from bot.storage.months import ROOM, Stored
from bot.storage.postgres import PostgresDatabase
from bot.storage.postgres_link import once
from bot.storage.sqlite import SqliteDatabase
from bot.unit_of_work import UnitOfWork
from tests.support import PATIENCE, running, until

PLACE = store.Place("agent:main:web:dm:ada", "ada", "web", "default", "ada", "", "direct")
DAY = 86_400_000


def run(url: str, statement: str, *given: Any) -> list[tuple[Any, ...]]:
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(statement.encode(), given or None)
        return cursor.fetchall() if cursor.description else []


def months_ago(count: int) -> str:
    now = datetime.now(UTC)
    whole = now.year * 12 + now.month - 1 - count
    return f"{whole // 12:04}-{whole % 12 + 1:02}"


def say(tx: Transaction, text: str = "hello there") -> None:
    session, _ = UnitOfWork(tx, system_clock()).current(PLACE)
    said = NewEntry("message", "user", text, ({"type": "text", "text": text},))
    store.append(tx, session.id, [said], system_clock())


def said(tx: Transaction) -> list[str]:
    session = store.current(tx, PLACE.key)
    assert session is not None
    return [entries.parse(line).text for line in store.lines(tx, session.id)[1:]]


async def lay_out(database: PostgresDatabase, *ago: int) -> list[str]:
    """Let there be months so long ago beside this one, with room for 1 000 entries each."""
    names = [*map(months_ago, ago), months_ago(0)]
    await database.write(
        lambda tx: tx.execute(
            "SELECT entries_lay_out(CAST(? AS text[]), CAST(? AS bigint[]), ?)",
            (
                f"{{{','.join(names)}}}",
                f"{{{','.join(str(n * 1000) for n in range(len(names)))}}}",
                ROOM,
            ),
        )
    )
    return names


def go_to(url: str, month: str) -> None:
    """Let what is said from now on be of a month."""
    run(
        url,
        "SELECT setval('entries_number', greatest(lowest, 1), false) FROM entry_months "
        "WHERE month = %s",
        month,
    )


def partitions(url: str, table: str = "entries") -> list[str]:
    rows = run(
        url,
        "SELECT relid::text FROM pg_partition_tree(%s) WHERE isleaf ORDER BY 1",
        table,
    )
    return [row[0] for row in rows]


def part(month: str, table: str = "entries") -> str:
    return f"{table}_{month.replace('-', '_')}"


@pytest.fixture
async def database(postgres_url: str) -> AsyncIterator[PostgresDatabase]:
    opened = PostgresDatabase(postgres_url)
    await opened.start(takeover.prepare)
    yield opened
    await opened.close()


# --- months that come -----------------------------------------------------------------------------


async def test_a_month_is_made_before_it_begins_and_begins_when_it_is_there(database, postgres_url):
    last, this = await lay_out(database, 1)
    run(postgres_url, "DELETE FROM entry_months WHERE month = %s", this)
    for table in ("entries", "entries_text"):
        run(postgres_url, f"DROP TABLE {part(this, table)}")
    run(postgres_url, "UPDATE entry_months SET above = %s", ROOM)
    await database.write(say)
    made = once(postgres_url, months.see_to)
    assert made == [this, months_ago(-1)]
    assert partitions(postgres_url) == [part(last)] + [part(each) for each in made]
    # It was made too late; until every connection knows it, the month before goes on.
    await database.write(say)
    run(postgres_url, "UPDATE entry_months SET made_at = now() - interval '2 minutes'")
    for _ in range(2):
        assert once(postgres_url, months.see_to) == []
        await database.write(say)
    rows = run(postgres_url, "SELECT tableoid::regclass::text FROM entries ORDER BY seq")
    assert [row[0] for row in rows] == [part(last)] * 2 + [part(this)] * 2
    rows = run(postgres_url, "SELECT tableoid::regclass::text FROM entries_text ORDER BY entry")
    words = "entries_text"
    assert [row[0] for row in rows] == [part(last, words)] * 2 + [part(this, words)] * 2
    assert await database.read(said) == ["hello there"] * 4
    assert len(await database.read(lambda tx: tx.search_text("hello", 9, [PLACE.key]))) == 4


async def test_nodes_that_see_to_it_at_once_make_each_month_once(database, postgres_url):
    await lay_out(database, 3)
    found = await asyncio.gather(
        *(asyncio.to_thread(once, postgres_url, months.see_to) for _ in range(4))
    )
    assert sorted(name for each in found for name in each) == [months_ago(-1)]


async def test_a_number_leads_to_one_partition(database, postgres_url):
    await lay_out(database, 3, 2, 1)
    with closing(psycopg.connect(postgres_url)) as connection:
        connection.execute("SET enable_seqscan = off")

        def plan(sql: str) -> str:
            explained = connection.execute(f"EXPLAIN (ANALYZE, COSTS OFF) {sql}".encode())
            lines = [row[0] for row in explained.fetchall()]
            return "\n".join(line for line in lines if "never executed" not in line)

        found = plan("SELECT line FROM entries WHERE seq = 1500")
        assert part(months_ago(2)) in found
        assert all(part(months_ago(n)) not in found for n in (3, 1, 0))
        connection.execute("INSERT INTO hidden VALUES (1500, 0, 0)")
        connection.execute("ANALYZE hidden")
        # In the order of their numbers, and no further than is asked for.
        connection.execute(
            "INSERT INTO entries(seq, id, session_id, kind, role, at, line) "
            "VALUES (3001, 's.1', 's', 'message', 'user', 0, '')"
        )
        found = plan("SELECT line FROM entries WHERE session_id = 's' ORDER BY seq DESC LIMIT 1")
        assert part(months_ago(0)) in found
        assert all(part(months_ago(n)) not in found for n in (3, 2, 1))


async def test_a_session_is_read_from_the_month_on_in_which_it_began(database, postgres_url):
    *older, this = await lay_out(database, 3, 2, 1)
    go_to(postgres_url, older[-1])
    await database.write(say)
    go_to(postgres_url, this)
    await database.write(say)

    def look(tx: Transaction) -> set[str]:
        session = store.current(tx, PLACE.key)
        assert session is not None
        since = session.first_seq
        assert len(store.messages(tx, session.id, 9, f"{session.id}.1", since=since)) == 2
        assert store.hidden_count(tx, session.id, since=since) == 0
        assert store.entry(tx, f"{session.id}.2", since=since) is not None
        locked = tx.execute(
            "SELECT CAST(CAST(relation AS regclass) AS text) FROM pg_locks "
            "WHERE pid = pg_backend_pid() AND locktype = 'relation'"
        )
        return {str(row[0]) for row in locked}

    touched = await database.read(look)
    assert {part(older[-1]), part(this)} <= touched
    assert not touched & {part(month) for month in older[:-1]}


# --- months that go -------------------------------------------------------------------------------


async def test_only_what_is_older_than_is_kept_is_due_and_never_what_goes_on(
    database, postgres_url
):
    names = await lay_out(database, 14, 13, 2, 1)

    async def due(kept: int) -> list[str]:
        return await database.read(lambda tx: months.due(tx, kept))

    assert await due(0) == []
    assert await due(-1) == []
    # On the first of a month, what is one day too old stays for that day.
    assert (await due(13))[:1] == names[:1]
    assert set(await due(3)) == set(names[:2])
    assert names[-2] not in await due(1)
    run(postgres_url, "UPDATE entry_months SET begun_at = NULL WHERE month > %s", names[0])
    assert await due(1) == []  # nobody saw to the others: this one goes on


async def test_how_many_months_are_kept_changes_while_it_looks_and_is_told_before(
    database, postgres_url, monkeypatch, logs
):
    monkeypatch.setattr("bot.cluster.node.FIRST_SECONDS", 0)
    looked = asyncio.Event()

    class Looking(Retention):
        async def look(self) -> float:
            pause = await super().look()
            looked.set()
            return pause

    old, _ = await lay_out(database, 14)

    def told() -> list[str]:
        events = (each["event"] for each in logs)
        return [each for each in events if each in {"retention.due", "retention.dropped"}]

    retention = Looking(postgres_url, database, 0)
    assert await retention.look() == ROUND_SECONDS
    retention.keep(12)
    assert (await retention.look(), told()) == (NOTICE_SECONDS, ["retention.due"])
    retention.keep(24)  # thought better of it: nothing is dropped
    assert (await retention.look(), told()) == (ROUND_SECONDS, ["retention.due"])
    retention.keep(12)
    assert await retention.look() == NOTICE_SECONDS  # told again, as it is another wish
    retention.keep(0)
    looked.clear()
    task = asyncio.create_task(retention.run())
    await asyncio.wait_for(looked.wait(), PATIENCE)
    retention.keep(12)  # while it waits for an hour
    await until(lambda: told().count("retention.due") == 3)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert "retention.dropped" not in told()
    assert old in {each.name for each in await database.read(months.listed)}


async def test_a_month_is_told_then_dropped_with_all_that_is_large(database, postgres_url, logs):
    old, this = await lay_out(database, 14)
    go_to(postgres_url, old)
    for text in ("the code is 4711", "forget this"):
        await database.write(lambda tx, text=text: say(tx, text))
    session = await database.read(lambda tx: store.current(tx, PLACE.key))
    await database.write(
        lambda tx: (
            forgetting.forget_all(tx, [f"{session.id}.2"], 1),
            tx.execute("INSERT INTO artifacts VALUES ('a-1', ?, 'x', 1, 'long')", (session.id,)),
            tx.execute(
                "INSERT INTO artifacts VALUES ('a-2', ?, 'x', ?, 'long')",
                (session.id, system_clock()),
            ),
        )
    )
    go_to(postgres_url, this)
    await database.write(lambda tx: say(tx, "and now"))
    before = await database.read(lambda tx: store.version(tx, session.id))

    keeps = Retention(postgres_url, database, 0)
    assert await keeps.look() == ROUND_SECONDS
    drops = Retention(postgres_url, database, 12)
    assert await drops.look() == NOTICE_SECONDS
    assert len(await database.read(said)) == 3
    assert await drops.look() == ROUND_SECONDS
    assert await drops.look() == ROUND_SECONDS
    told = [each for each in logs if each["event"].startswith("retention.")]
    assert [each["event"] for each in told] == [
        "retention.made",
        "retention.due",
        "retention.dropped",
        "retention.cleared",
    ]
    assert told[1]["months"] == [old]
    assert (told[2]["month"], told[2]["entries"], told[2]["sessions"]) == (old, 2, 1)
    assert "4711" not in repr(logs)

    assert await database.read(said) == ["and now"]
    assert await database.read(lambda tx: store.version(tx, session.id)) > before
    assert await database.read(lambda tx: tx.search_text("code", 9, [PLACE.key])) == []
    assert await database.read(lambda tx: artifacts.ids_of(tx, [PLACE.key])) == ["a-2"]
    assert partitions(postgres_url, "entries_text")[0] == part(this, "entries_text")
    for table in ("hidden", "forgotten"):
        assert run(postgres_url, f"SELECT count(*) FROM {table}") == [(0,)]
    (gone, _) = await database.read(months.listed)
    assert (gone.name, gone.is_dropped) == (old, True)
    await database.write(lambda tx: say(tx, "once more"))
    (*_, last) = await database.read(lambda tx: store.lines(tx, session.id))
    assert entries.parse(last).id == f"{session.id}.4"


async def test_of_two_nodes_one_drops_each_month(database, postgres_url, logs):
    old = (await lay_out(database, 16, 15, 14))[:3]
    nodes = [Retention(postgres_url, database, 12) for _ in range(2)]
    for node in nodes:
        await node.look()
    await asyncio.gather(*(node.look() for node in nodes))
    dropped = [each["month"] for each in logs if each["event"] == "retention.dropped"]
    assert sorted(dropped) == old
    assert partitions(postgres_url)[0] == part(months_ago(0))


async def test_who_reads_a_month_for_long_holds_up_its_drop_and_nobody_else(database, postgres_url):
    old, this = await lay_out(database, 14)
    go_to(postgres_url, this)
    drops = Retention(postgres_url, database, 12)
    await drops.look()
    with psycopg.connect(postgres_url) as dump:
        dump.execute("SELECT count(*) FROM entries")
        with pytest.raises(StorageError, match="LockNotAvailable"):
            await drops.look()
        await database.write(say)
        assert part(old) in partitions(postgres_url)
    await drops.look()
    assert part(old) not in partitions(postgres_url)


async def test_only_who_may_delete_entries_may_drop_their_months(database, postgres_url):
    await lay_out(database, 14)
    run(postgres_url, "CREATE ROLE stranger_of_months")
    try:
        run(postgres_url, "GRANT SELECT ON ALL TABLES IN SCHEMA public TO stranger_of_months")
        with closing(psycopg.connect(postgres_url, autocommit=True)) as connection:
            connection.execute("SET SESSION AUTHORIZATION stranger_of_months")
            for statement in (
                "SELECT entries_drop_month(1)",
                "SELECT entries_next_months(1)",
                "SELECT entries_lay_out('{2000-01}', '{0}', 9)",
                "SELECT entries_add_month('2000-01', -9, -1)",
            ):
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    connection.execute(statement.encode())
    finally:
        run(postgres_url, "DROP OWNED BY stranger_of_months")
        run(postgres_url, "DROP ROLE stranger_of_months")


async def test_nothing_is_laid_out_anew_where_something_is_stored(database, postgres_url):
    await database.write(say)
    with pytest.raises(StorageError, match="ObjectInUse"):
        await database.write(lambda tx: months.lay_out(tx, Stored()))
    assert await database.read(said) == ["hello there"]


# --- people ---------------------------------------------------------------------------------------


@pytest.mark.usefixtures("logs_stay")
async def test_a_conversation_goes_on_when_its_beginning_is_dropped(
    tmp_path: Path, postgres_url, monkeypatch
):
    storage = {"url": postgres_url}
    database = await PostgresDatabase.open(postgres_url)
    old, this = await lay_out(database, 14)
    go_to(postgres_url, old)
    monkeypatch.setattr("bot.memory.transcripts.EVERY_SECONDS", 0.1)
    connection = psycopg.connect(postgres_url, autocommit=True)

    def told() -> tuple[Any, ...]:
        """Of what is found by its meaning: how much there is of a dropped month, and of 4711."""
        found = connection.execute(
            "SELECT count(*) FILTER (WHERE NOT EXISTS (SELECT FROM entries WHERE id = name)), "
            "count(*) FILTER (WHERE body LIKE '%4711%') FROM memory_sources "
            "JOIN memory_chunks ON memory_chunks.source = memory_sources.id "
            "WHERE kind = 'transcript'"
        )
        return found.fetchone() or ()

    async with running(tmp_path, storage=storage) as engine:
        await engine.ask("the code of my bike is 4711")
        await until(lambda: told() == (0, 2))
        await engine.ask_each("/new", "my cat is called Tom")
        go_to(postgres_url, this)
        await engine.ask("what was it?")
        assert "Tom" in repr(engine.model.requests[-1])
        drops = Retention(postgres_url, database, 12)
        await drops.look()
        await drops.look()
        await until(lambda: told() == (0, 0))
        assert await engine.ask("and the code of my bike?") == "You said: and the code of my bike?"
        request = repr(engine.model.requests[-1])
        assert "what was it?" in request
        assert "Tom" not in request
        assert "4711" not in request
        assert "4711" not in await engine.ask("/undo")  # to a conversation of which all is gone
        assert await engine.ask("go on") == "You said: go on"
        assert "4711" not in repr(engine.model.requests[-1])
        await engine.ask("/new")
        assert await engine.ask("the code?") == "You said: the code?"
        assert "4711" not in repr(engine.model.requests[-1])
    ids = [row[0] for row in run(postgres_url, "SELECT id FROM sessions ORDER BY started_at, id")]
    texts = [await shown(tmp_path, postgres_url, "sessions", "show", id_) for id_ in ids]
    assert sum("deleted by month" in text for text in texts) == 2
    assert all("4711" not in text or "the code of my bike?" in text for text in texts)
    connection.close()
    await database.close()


async def shown(folder: Path, url: str, *arguments: str) -> str:
    """What a command prints."""
    env = {
        "HOME": str(folder),
        "CONFIDANT_STORAGE__URL": url,
        "CONFIDANT_STORAGE__KEEP_MONTHS": "12",
    }
    done = await asyncio.to_thread(CliRunner().invoke, cli, list(arguments), env=env)
    return done.output


@pytest.mark.usefixtures("logs_stay")
async def test_doctor_says_what_will_be_dropped_and_what_was(database, tmp_path, postgres_url):
    first, second, this = await lay_out(database, 15, 14)
    go_to(postgres_url, second)
    await database.write(say)
    go_to(postgres_url, this)
    out = await shown(tmp_path, postgres_url, "doctor")
    assert f"✓ conversations are kept for 12 months besides this one: {this}, 0 entries, " in out
    assert f"! about to be deleted for good: {first} – {second}, 1 entry, 0." in out
    drops = Retention(postgres_url, database, 12)
    await drops.look()
    await drops.look()
    out = await shown(tmp_path, postgres_url, "doctor")
    assert f"; deleted so far: {first} – {second}" in out
    assert "deleted for good" not in out


async def test_a_storage_folder_has_no_months(tmp_path: Path):
    await (await SqliteDatabase.open(tmp_path / "confidant.db")).close()
    with closing(apsw.Connection(str(tmp_path / "confidant.db"))) as connection:
        found = {str(row[0]) for row in connection.execute("SELECT name FROM sqlite_schema")}
    assert "entries" in found
    assert not any("month" in name or name.startswith("entries_2") for name in found)
