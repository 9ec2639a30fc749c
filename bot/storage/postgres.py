"""The PostgreSQL engine: one database for many nodes.

Every write is a serializable transaction, so it reads and writes as if it were alone, like the one
writer of a file; what collides with another node's is rolled back and run again. A connection that
is lost takes nothing with it: when the answer to a COMMIT is missing, the server is asked what
became of the transaction, by its number, before anything is done once more.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import lru_cache, partial
from typing import Any, Final, TypeVar

import psycopg
import structlog
from psycopg.adapt import Loader
from psycopg.types.numeric import IntDumper
from psycopg.types.string import TextLoader
from psycopg_pool import ConnectionPool, PoolClosed, PoolTimeout

from bot import errors, fencing
from bot.backoff import Backoff
from bot.fencing import Fence
from bot.storage import Row, Transaction, Value, fulltext, memory_tables, schema
from bot.storage.writing import Outcome, Work, Writer, attempt

T = TypeVar("T")

APPLICATION = "confidant"  # what the server calls our connections
OLDEST = 150_000  # PostgreSQL 15
READERS = 4  # connections of a node that read; one more writes
PATIENCE = 15.0  # seconds a piece of work waits for a server that went away
FIRST_RETRY = 0.005  # seconds, after a collision with another node; doubles
LAST_RETRY = 0.5
NUL = "\U0010ffff"  # stands for the one character PostgreSQL keeps in no text; it is none itself
_MIGRATION_LOCK: Final = 0x636F6E6669  # one node migrates, the others wait

_FULLTEXT = (
    "CREATE TABLE IF NOT EXISTS entries_text(entry BIGINT PRIMARY KEY, words tsvector NOT NULL)",
    "CREATE INDEX IF NOT EXISTS entries_text_words ON entries_text USING gin(words)",
)

log = structlog.get_logger(__name__)

Connection = psycopg.Connection[tuple[Any, ...]]
_AWAY = (psycopg.OperationalError, psycopg.InterfaceError)
_COLLISION = (psycopg.errors.SerializationFailure, psycopg.errors.DeadlockDetected)


class _Whole(Loader):
    """A `numeric` as an int: sums of integers are the only ones there are."""

    def load(self, data: Any) -> int:
        return int(bytes(data))


class _Text(TextLoader):
    def load(self, data: Any) -> str | bytes:
        text = super().load(data)
        return text.replace(NUL, "\0") if isinstance(text, str) else text


class Signals:
    """What the writer's transactions tell other nodes; this one has none, see `bot.cluster`.

    `begin` and `finish` are called in each try of a transaction, `finish` right before its COMMIT.
    """

    node = ""

    def begin(self) -> None:
        """A transaction begins; nothing was told in it."""

    def wake(self, tx: PostgresTransaction, key: str) -> None:
        """See `Transaction.wake`."""

    def publish(self, tx: PostgresTransaction, topic: str, name: str, body: str) -> None:
        """See `Transaction.publish`."""

    def finish(self, tx: PostgresTransaction) -> None:
        """All works are done; what is told goes out with the COMMIT."""


class PostgresTransaction:
    """`bot.storage.Transaction` over one connection."""

    __slots__ = ("connection", "signals")
    failures = (*_COLLISION, *_AWAY, psycopg.errors.DiskFull)

    def __init__(self, connection: Connection, signals: Signals) -> None:
        self.connection = connection
        self.signals = signals

    def execute(self, sql: str, parameters: Sequence[Value] = ()) -> list[Row]:
        """Run one statement and return all its rows."""
        given = [p.replace("\0", NUL) if isinstance(p, str) else p for p in parameters]
        cursor = self.connection.execute(_translated(sql), given)  # pyright: ignore[reportArgumentType]
        return cursor.fetchall() if cursor.description is not None else []

    def index_text(self, entry: int, text: str) -> None:
        """Make an entry findable by its words."""
        self.execute(
            "INSERT INTO entries_text(entry, words) VALUES (?, to_tsvector('english', ?))",
            (entry, fulltext.spaced(text)),
        )

    def forget_text(self, entry: int) -> None:
        """Take an entry out of the full-text index."""
        self.execute("DELETE FROM entries_text WHERE entry = ?", (entry,))

    def search_text(
        self, query: str, limit: int, keys: Sequence[str], people: Sequence[str] = ()
    ) -> list[Row]:
        """Entries that match, best first: (entry, score)."""
        match = fulltext.tsquery(query)
        if not match or not (keys or people):
            return []
        marks = [",".join("?" * len(values)) for values in (keys, people)]
        return self.execute(
            f"""SELECT entry, ts_rank(words, query, 32) FROM entries_text
                CROSS JOIN to_tsquery('english', ?) AS query
                JOIN entries ON entries.seq = entry
                JOIN sessions ON sessions.id = entries.session_id
                WHERE words @@ query AND (sessions.key IN ({marks[0]})
                    OR (sessions.chat_type = 'direct' AND sessions.person IN ({marks[1]})))
                ORDER BY 2 DESC, entry DESC LIMIT ?""",
            (match, *keys, *people, limit),
        )

    def note(self, line: str) -> None:
        """No journal: here the database and its backups outlive everything."""
        self.signals.publish(self, "books", "", "")

    @property
    def node(self) -> str:
        """The node that writes."""
        return self.signals.node

    def wake(self, key: str) -> None:
        """Have a node take up the lane of a session key, once this is committed."""
        self.signals.wake(self, key)

    def publish(self, topic: str, name: str = "", body: str = "") -> None:
        """Tell the other nodes something, once this is committed."""
        self.signals.publish(self, topic, name, body)

    def mapped(self, error: Exception) -> Exception:
        """Our error for one of PostgreSQL's; any other as it is."""
        return mapped(error) if isinstance(error, psycopg.Error) else error


class PostgresDatabase:
    """`bot.storage.Database` in a PostgreSQL server. Make it with `open`."""

    def __init__(
        self, url: str, signals: Signals | None = None, *, name: str = APPLICATION
    ) -> None:
        """`name` is what the server calls the connections of this program."""
        self._url = url
        self._signals = signals or Signals()
        self._options: dict[str, Any] = {**_OPTIONS, "application_name": name}
        self._connection: Connection | None = None  # the writer's
        self._readers: ConnectionPool[Connection] = ConnectionPool(
            url,
            min_size=1,
            max_size=READERS,
            kwargs=self._options,
            configure=_configure,
            open=False,
            name="confidant",
        )
        self._threads = ThreadPoolExecutor(READERS, thread_name_prefix="confidant-reader")
        self._closing = False
        self._writer = Writer(self._commit)

    @classmethod
    async def open(cls, url: str) -> PostgresDatabase:
        """Connect, and make or migrate the tables; see `start`."""
        database = cls(url)
        await database.start()
        return database

    async def start(
        self, prepare: Callable[[PostgresTransaction], None] = lambda _tx: None
    ) -> None:
        """Connect, and make or migrate the tables; `prepare` makes what else is needed there.

        Raises:
            StorageError: the server cannot be reached, is too old, refuses what is needed, or a
                newer version of the program made the tables.
        """

        def migrate(tx: Transaction) -> None:
            _migrate(tx)
            if isinstance(tx, PostgresTransaction):
                prepare(tx)

        try:
            await self.write(migrate)
            await asyncio.to_thread(self._readers.open)
        except BaseException:
            await self.close()
            raise

    async def write(self, work: Callable[[Transaction], T]) -> T:
        """Run `work` on this node's writer and return once it is on the server's disk.

        It may be run more than once, and has no effect outside of the transaction but its result.

        Raises:
            FenceLost: another node has taken over what this task was to do.
        """
        fence = fencing.current()
        return await self._writer.write(work if fence is None else partial(_fenced, fence, work))

    def write_now(self, work: Callable[[Transaction], T]) -> T:
        """`write` for a thread, which waits; never call it on an event loop."""
        fence = fencing.current()
        return self._writer.write_now(work if fence is None else partial(_fenced, fence, work))

    def read_now(self, work: Callable[[Transaction], T]) -> T:
        """`read` for a thread, which waits; never call it on an event loop."""
        if self._closing:
            raise errors.StorageClosed
        return self._read(work)

    def beside(self) -> PostgresDatabase:
        """Another writer on the same tables, for work that must not hold up this one's.

        It connects when it is first used, and tells other nodes nothing. The caller closes it.
        """
        return PostgresDatabase(self._url, name=str(self._options["application_name"]))

    async def read(self, work: Callable[[Transaction], T]) -> T:
        """Run `work` on a snapshot of what is committed."""
        if self._closing:
            raise errors.StorageClosed
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._read, work)

    async def close(self) -> None:
        """Commit what is queued, then release the connections. Closing twice is harmless."""
        self._closing = True
        self._writer.stop()
        await asyncio.to_thread(self._finish)

    def close_now(self) -> None:
        """`close` for a thread, which waits."""
        self._closing = True
        self._writer.stop()
        self._finish()

    def _finish(self) -> None:
        self._writer.join()
        self._threads.shutdown()
        self._readers.close()
        self._drop()

    # --- the writer's thread ----------------------------------------------------------------------

    def _commit(self, works: Sequence[Work]) -> Sequence[Outcome]:
        deadline = time.monotonic() + PATIENCE
        backoff = Backoff(FIRST_RETRY, LAST_RETRY)
        while True:
            number, outcomes = "", None
            try:
                tx = PostgresTransaction(self._connected(), self._signals)
                number = _begin(tx.connection)
                self._signals.begin()
                outcomes = [attempt(tx, work) for work in works]
                self._signals.finish(tx)
                tx.connection.execute("COMMIT")
            except psycopg.Error as exc:
                lost = self._is_lost()
                if outcomes is not None and lost and self._has_committed(number, deadline):
                    return outcomes
                self._roll_back()
                passing = lost or isinstance(exc, _COLLISION)
                if not passing or time.monotonic() > deadline or (self._closing and lost):
                    log.warning("storage.write_failed", error=type(exc).__name__, works=len(works))
                    raise mapped(exc) from exc
                log.debug("storage.again", error=type(exc).__name__, works=len(works))
                time.sleep(backoff.next())
            except BaseException:
                self._roll_back()
                raise
            else:
                return outcomes

    def _connected(self) -> Connection:
        if self._connection is None or self._connection.closed:
            self._connection = psycopg.connect(self._url, **self._options)
            _configure(self._connection)
        return self._connection

    def _is_lost(self) -> bool:
        """True when the server was not reached, or has gone away."""
        return self._connection is None or bool(self._connection.broken)

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(psycopg.Error):
                connection.close()

    def _roll_back(self) -> None:
        if self._is_lost():
            self._drop()
        elif self._connection is not None:
            with suppress(psycopg.Error):
                self._connection.execute("ROLLBACK")

    def _has_committed(self, number: str, deadline: float) -> bool:
        """What became of a transaction whose COMMIT got no answer.

        Raises:
            StorageError: the server does not come back, or has forgotten it.
        """
        backoff = Backoff(FIRST_RETRY, LAST_RETRY)
        while True:
            try:
                self._drop()
                found = self._connected().execute("SELECT pg_xact_status(%s::xid8)", [number])
                (status,) = found.fetchone() or (None,)
            except _AWAY as exc:
                if time.monotonic() > deadline:
                    raise mapped(exc) from exc
                status = "in progress"
            if status in {"committed", "aborted"}:
                return status == "committed"
            if status is None or time.monotonic() > deadline:
                raise errors.StorageError("The database did not say whether it stored this.")
            time.sleep(backoff.next())

    # --- the readers' threads ---------------------------------------------------------------------

    def _read(self, work: Callable[[Transaction], T]) -> T:
        try:
            with self._readers.connection(timeout=PATIENCE) as connection:
                connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
                try:
                    return work(PostgresTransaction(connection, self._signals))
                finally:
                    with suppress(psycopg.Error):
                        connection.execute("ROLLBACK")
        except (psycopg.Error, PoolTimeout, PoolClosed) as exc:
            raise mapped(exc) from exc


_OPTIONS: Final[dict[str, Any]] = {"autocommit": True, "prepare_threshold": None}


def _fenced(fence: Fence, work: Callable[[Transaction], T], tx: Transaction) -> T:
    """Do some work if its fence still counts; whoever takes it over waits until that is committed.

    Raises:
        FenceLost: it does not.
    """
    row = (fence.name, fence.epoch)
    if not tx.execute("SELECT 1 FROM fences WHERE name = ? AND epoch = ? FOR SHARE", row):
        raise errors.FenceLost
    return work(tx)


def _configure(connection: Connection) -> None:
    connection.adapters.register_loader("numeric", _Whole)
    connection.adapters.register_loader("text", _Text)
    connection.adapters.register_dumper(bool, IntDumper)


def _begin(connection: Connection) -> str:
    """Begin to write; the transaction's number."""
    cursor = connection.execute(
        "BEGIN ISOLATION LEVEL SERIALIZABLE; SELECT pg_current_xact_id()::text"
    )
    cursor.nextset()
    (number,) = cursor.fetchone() or ("",)
    return str(number)


def _migrate(tx: Transaction) -> None:
    """Bring the tables to the current version; one node at a time.

    Raises:
        StorageError: the server is too old, or a newer version of the program made the tables.
    """
    found = int(tx.execute("SELECT current_setting('server_version_num')")[0][0])
    if found < OLDEST:
        raise errors.StorageError(
            f"This is PostgreSQL {found // 10_000}, and Confidant needs {OLDEST // 10_000} or "
            "newer. Nothing was changed."
        )
    tx.execute("SELECT pg_advisory_xact_lock(?)", (_MIGRATION_LOCK,))
    tx.execute(
        "CREATE TABLE IF NOT EXISTS schema_versions("
        "version BIGINT PRIMARY KEY, applied_at TEXT NOT NULL)"
    )
    current = int(tx.execute("SELECT coalesce(max(version), 0) FROM schema_versions")[0][0])
    if current > schema.VERSION:
        raise errors.StorageError(
            f"The database has version {current}, made by a newer Confidant; this one knows "
            f"version {schema.VERSION}. Nothing was changed: start the newer one again."
        )
    for version in range(current + 1, schema.VERSION + 1):
        for statement in schema.MIGRATIONS[version - 1]:
            tx.execute(_spelled(statement))
        tx.execute("INSERT INTO schema_versions VALUES (?, now()::text)", (version,))
    for statement in _FULLTEXT:
        tx.execute(statement)
    for statement in memory_tables.STATEMENTS:
        tx.execute(_spelled(statement))


def _spelled(statement: str) -> str:
    """A migration as PostgreSQL spells it; texts are compared byte by byte, as SQLite does."""
    statement = statement.replace("{serial}", "BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY")
    return re.sub(r"\bTEXT\b", 'TEXT COLLATE "C"', statement)


@lru_cache(maxsize=1_000)
def _translated(sql: str) -> str:
    """A statement with psycopg's marks, and nothing PostgreSQL would not take."""
    return re.sub(r"\bIN \(\)", "IN (NULL)", sql.replace("%", "%%").replace("?", "%s"))


def mapped(exc: Exception) -> errors.StorageError:
    """Our error for one of PostgreSQL's."""
    if isinstance(exc, psycopg.errors.DiskFull):
        return errors.StorageFull()
    if isinstance(exc, PoolClosed):
        return errors.StorageClosed()
    if isinstance(exc, _AWAY) and getattr(exc, "sqlstate", None) is None:
        return errors.StorageError("The database server cannot be reached. It is tried again.")
    return errors.StorageError(f"The database refused: {type(exc).__name__}.")
