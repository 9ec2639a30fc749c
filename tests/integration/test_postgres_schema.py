"""Making and changing the tables in PostgreSQL: by whom, beside whom, and what is refused."""

from __future__ import annotations

import asyncio
import re
import secrets
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from bot import __version__
from bot.cluster import takeover
from bot.errors import StorageError
from bot.sessions import store
from bot.sessions.entries import NewEntry
from bot.storage import Transaction, fulltext, months, postgres_schema, schema
from bot.storage.postgres import PostgresDatabase
from bot.storage.postgres_link import examine, once
from bot.storage.postgres_sql import PostgresTransaction, Signals, configure
from bot.unit_of_work import UnitOfWork
from tests.fakes import postgres

ROOT = Path(__file__).resolve().parents[2]
PLACE = store.Place("agent:main:web:dm:ada", "ada", "web", "default", "ada", "", "direct")


# Steps of the last version without a database that is shared: what came after only adds.
@pytest.fixture
def postgres_url(empty_postgres_url: str) -> str:
    """Empty: what is tested is how tables are made."""
    return empty_postgres_url


def talk(tx: Transaction) -> int:
    """What every version does; how many entries there are."""
    session, _ = UnitOfWork(tx, 1).current(PLACE)
    said = NewEntry("message", "user", "hello there", ({"type": "text", "text": "hello there"},))
    store.append(tx, session.id, [said], 1)
    assert tx.search_text("hello", 9, [PLACE.key])
    return len(store.lines(tx, session.id)) - 1


async def opened(url: str, work: Callable[[Transaction], Any] = talk, **options: Any) -> Any:
    database = await PostgresDatabase.open(url, **options)
    try:
        return await database.write(work)
    finally:
        await database.close()


def run(url: str, *statements: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(url, autocommit=True) as connection:
        rows: list[tuple[Any, ...]] = []
        for statement in statements:
            cursor = connection.execute(statement.encode())
            rows = cursor.fetchall() if cursor.description else []
        return rows


# --- steps ----------------------------------------------------------------------------------------


def test_steps_only_add_so_that_the_version_before_can_run_beside():
    # The first one removes what the first tables had from before them.
    assert all(schema.is_additive(step) for step in schema.MIGRATIONS[1:])


@pytest.mark.parametrize(
    ("statement", "adds"),
    [
        ("CREATE TABLE more(id {serial}, note TEXT NOT NULL)", True),
        ("CREATE INDEX more_by_note ON more(note) WHERE note <> ''", True),
        ("ALTER TABLE sessions ADD COLUMN more TEXT", True),
        ("ALTER TABLE sessions ADD COLUMN more TEXT NOT NULL DEFAULT ''", True),
        ("ALTER TABLE sessions ADD COLUMN more TEXT NOT NULL", False),
        ("ALTER TABLE sessions ADD COLUMN more TEXT UNIQUE", False),
        ("CREATE UNIQUE INDEX more_by_note ON more(note)", False),
        ("ALTER TABLE sessions DROP COLUMN model", False),
        ("ALTER TABLE sessions RENAME COLUMN model TO name", False),
        ("DROP TABLE snapshots", False),
        ("UPDATE sessions SET model = ''", False),
    ],
)
def test_what_only_adds(statement, adds):
    assert schema.is_additive([statement]) is adds


def add(patch: pytest.MonkeyPatch, *statements: str) -> None:
    patch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, statements))
    patch.setattr(schema, "VERSION", schema.VERSION + 1)


async def test_this_version_runs_beside_the_next_one_when_that_only_adds(postgres_url, monkeypatch):
    assert await opened(postgres_url) == 1
    running = await PostgresDatabase.open(postgres_url)
    with monkeypatch.context() as patch:
        add(
            patch,
            "CREATE TABLE more(id {serial}, note TEXT NOT NULL)",
            "CREATE INDEX entries_by_role ON entries(role)",
            "ALTER TABLE sessions ADD COLUMN more TEXT NOT NULL DEFAULT ''",
        )
        assert await opened(postgres_url) == 2
    assert await running.write(talk) == 3
    await running.close()
    assert await opened(postgres_url) == 4  # also one that starts now


async def test_a_newer_version_that_does_more_is_refused_in_one_line(postgres_url, monkeypatch):
    await opened(postgres_url)
    with monkeypatch.context() as patch:
        add(patch, "ALTER TABLE sessions ADD COLUMN more TEXT")
        add(patch, "ALTER TABLE sessions DROP COLUMN locale")
        add(patch, "ALTER TABLE sessions ADD COLUMN much_more TEXT")
        await opened(postgres_url, lambda _tx: None)
    newer = rf"version {schema.VERSION + 3}, made by a newer Confidant \({__version__}\)"
    with pytest.raises(StorageError, match=newer) as e:
        await opened(postgres_url)
    assert f"this is {__version__} and knows version {schema.VERSION}" in str(e.value)
    assert "the server's backup from before the upgrade" in str(e.value)
    assert "\n" not in str(e.value)


async def test_a_step_that_fails_leaves_everything_as_it_was(postgres_url, monkeypatch):
    await opened(postgres_url)
    with monkeypatch.context() as patch:
        add(patch, "CREATE TABLE more(id {serial})", "DROP TABLE not_there")
        with pytest.raises(StorageError):
            await opened(postgres_url)
    assert await opened(postgres_url) == 2
    assert run(postgres_url, "SELECT to_regclass('more')") == [(None,)]


async def test_programs_that_start_at_once_on_an_empty_database_all_come_up(postgres_url):
    async def start() -> PostgresDatabase:
        database = PostgresDatabase(postgres_url)
        await database.start(takeover.prepare)
        return database

    found = await asyncio.gather(*(start() for _ in range(4)))
    assert await found[0].write(talk) == 1
    await asyncio.gather(*(each.close() for each in found))
    versions = run(postgres_url, "SELECT version FROM schema_versions ORDER BY version")
    assert versions == [(n,) for n in range(schema.BASELINE, schema.VERSION + 1)]


# --- what is refused ------------------------------------------------------------------------------


async def test_an_old_server_is_refused(postgres_url, monkeypatch):
    monkeypatch.setattr(postgres_schema, "OLDEST", 990_000)
    with pytest.raises(StorageError, match=r"This is PostgreSQL \d+, and Confidant needs 99"):
        await opened(postgres_url)
    assert run(postgres_url, "SELECT to_regclass('writers')") == [(None,)]
    assert "needs 99" in examine(postgres_url, "").problems[0]


async def test_two_clusters_do_not_share_a_database(postgres_url):
    await opened(postgres_url)  # unnamed
    await opened(postgres_url, cluster="anna")  # named from now on
    await opened(postgres_url, cluster="anna")
    for other, said in (("berta", 'cluster is "berta"'), ("", "cluster is not set")):
        with pytest.raises(StorageError, match=f'belongs to the cluster "anna".*{said}'):
            await opened(postgres_url, cluster=other)
        assert "two databases" in examine(postgres_url, other).problems[0]
    assert examine(postgres_url, "anna").problems == ()


def transaction(connection: psycopg.Connection[Any]) -> PostgresTransaction:
    configure(connection)
    return PostgresTransaction(connection, Signals(), fulltext.Words())


# --- roles ----------------------------------------------------------------------------------------


@pytest.fixture
def roles(postgres_admin_url: str) -> Iterator[tuple[str, str, str]]:
    """Two roles and their database, made to the letter of the docs: URLs, and the admin's there."""
    page = (ROOT / "docs/cluster.md").read_text()
    blocks = re.findall(r"```sql\n(.*?)```", page, re.DOTALL)
    name = f"confidant_{secrets.token_hex(4)}"
    first, then = (re.sub(r"\bconfidant", name, block) for block in blocks)
    run(postgres_admin_url, *filter(str.strip, first.split(";")))
    there = postgres.with_database(postgres_admin_url, name)
    run(there, *filter(str.strip, then.split(";")))
    facts = conninfo_to_dict(there)
    at = f"{facts['host']}:{facts['port']}/{name}"
    yield f"postgresql://{name}_owner@{at}", f"postgresql://{name}@{at}", there
    run(postgres_admin_url, f"DROP DATABASE {name} WITH (FORCE)")
    run(postgres_admin_url, f"DROP ROLE {name}", f"DROP ROLE {name}_owner")


async def started(url: str) -> PostgresDatabase:
    database = PostgresDatabase(url)
    await database.start(takeover.prepare)
    return database


async def test_one_role_migrates_and_another_runs(roles, monkeypatch):
    owner, runner, _ = roles
    with pytest.raises(StorageError, match="may not make or change tables") as told:
        await started(runner)
    assert "GRANT USAGE, CREATE ON SCHEMA public TO" in str(told.value)
    assert "GRANT USAGE, CREATE" in examine(runner, "").problems[0]
    await (await started(owner)).close()
    running = await started(runner)
    assert await running.write(talk) == 1
    await running.write(lambda tx: takeover.register(tx, "a", "1"))
    assert examine(runner, "").problems == ()
    with monkeypatch.context() as patch:
        add(patch, "ALTER TABLE sessions ADD COLUMN more TEXT")
        with pytest.raises(StorageError, match="may not make or change tables"):
            await started(runner)
        await (await started(owner)).close()
        await (await started(runner)).close()
    assert await running.write(talk) == 2
    await running.close()


async def test_the_role_that_runs_has_months_made_and_dropped_and_may_make_no_table(roles):
    owner, runner, there = roles
    await (await started(owner)).close()
    running = await started(runner)
    old = "SELECT entries_lay_out('{2001-02}', '{0}', 1000)"
    await running.write(lambda tx: tx.execute(old))
    made = once(runner, months.see_to)
    assert len(made) == 1 + months.AHEAD
    run(there, "UPDATE entry_months SET made_at = made_at - interval '2 minutes'")
    assert once(runner, months.see_to) == []
    assert await running.write(talk) == 1
    dropped = once(runner, lambda tx: months.drop(tx, 12))
    assert dropped is not None
    assert dropped.month == "2001-02"
    assert await running.write(talk) == 2
    with pytest.raises(StorageError, match="permission denied"):
        await running.write(lambda tx: tx.execute("CREATE TABLE mine(id BIGINT)"))
    await running.close()
    # Who was granted rights on the tables there were then needs none on those of new months.
    name = conninfo_to_dict(runner)["user"]
    for table in run(owner, "SELECT relid::text FROM pg_partition_tree('entries') WHERE isleaf"):
        run(owner, f"REVOKE ALL ON {table[0]} FROM {name}")
    running = await started(runner)
    assert await running.write(talk) == 3
    await running.close()


async def test_nobodys_own_table_takes_the_place_of_one_of_ours(roles):
    owner, runner, _ = roles
    await (await started(owner)).close()
    with closing(psycopg.connect(runner, autocommit=True)) as connection:
        connection.execute("CREATE TEMP TABLE entry_months(LIKE entry_months INCLUDING ALL)")
        connection.execute(
            "INSERT INTO entry_months(month, lowest, above, begun_at) "
            "VALUES ('2001-01', 0, 1, now()), ('2001-02', 1, 2, now())"
        )
        assert connection.execute("SELECT entries_due_months(1)").fetchall() == []


async def test_a_right_that_is_missing_is_named_with_the_statement_that_mends_it(roles):
    owner, runner, there = roles
    await (await started(owner)).close()
    name = conninfo_to_dict(runner)["user"]
    run(there, f"REVOKE UPDATE ON inbox, outbox FROM {name}")
    with pytest.raises(StorageError, match="may not read and write these tables: inbox, outbox"):
        await started(runner)
    (problem,) = examine(runner, "").problems
    mend = problem.partition("Have their owner run: ")[2]
    run(owner, *filter(str.strip, mend.split(";")))
    running = await started(runner)
    assert await running.write(talk) == 1
    run(there, f"REVOKE SELECT ON sessions FROM {name}")
    with pytest.raises(StorageError, match="permission denied for table sessions"):
        await running.write(talk)
    await running.close()


# --- poolers --------------------------------------------------------------------------------------

_STATE = re.compile(
    r"\b(PREPARE|LISTEN|DECLARE|TEMP|TEMPORARY|LOAD|DISCARD)\b|(^|;)\s*SET (?!LOCAL\b)"
    r"|pg_(try_)?advisory_lock",
    re.IGNORECASE,
)


@pytest.fixture
def telling() -> Iterator[postgres.PostgresServer]:
    """A server that logs every statement."""
    server = postgres.PostgresServer(
        options=("log_min_messages=log", "log_statement=all", "log_line_prefix=%p|")
    )
    server.start()
    yield server
    server.close()


async def test_nothing_outlives_a_transaction_on_a_connection(telling):
    database = await started(telling.admin_url)
    await asyncio.gather(*(database.write(talk) for _ in range(5)))
    await database.read(lambda tx: tx.search_text("hello", 9, [PLACE.key]))
    with pytest.raises(StorageError):
        await database.write(lambda tx: tx.execute("SELECT nothing"))
    await database.close()
    said: defaultdict[str, list[str]] = defaultdict(list)
    log = (telling.folder / "log").read_text().replace("\n\t", " ")
    for line in log.splitlines():
        found = re.match(r"(\d+)\|LOG:  (?:statement|execute ([^:]+)): (.*)", line)
        if found:
            assert found[2] in {None, "<unnamed>"}  # a prepared statement has a name
            said[found[1]].append(found[3])
    outside: set[str] = set()
    for statements in said.values():
        within = False
        for statement in statements:
            begins = statement.startswith("BEGIN")
            if not within and not begins:
                outside.add(statement)
            within = (within or begins) and statement not in {"COMMIT", "ROLLBACK"}
    everything = [
        statement
        for statements in said.values()
        for statement in statements
        # Of functions: variables are theirs alone, and settings end with them.
        if not statement.startswith(("-- Procrastinate Schema", "CREATE FUNCTION"))
    ]
    assert len(everything) > 100
    assert [statement for statement in everything if _STATE.search(statement)] == []
    # Each of these is a transaction of its own, whichever connection it comes on.
    assert {statement.split()[0] for statement in outside} <= {"INSERT", "DELETE", "SELECT"}
