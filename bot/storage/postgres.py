"""The PostgreSQL engine: one database for many nodes.

Every write is a serializable transaction, so it reads and writes as if it were alone, like the one
writer of a file; what collides with another node's is rolled back and run again. A connection that
is lost takes nothing with it: when the answer to a COMMIT is missing, the row that the transaction
left says whether it was done, before anything is done once more.

Nothing outlives a transaction on a connection, so that a pooler may give each one another.
"""

from __future__ import annotations

import asyncio
import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from types import CodeType
from typing import Any, Final, TypeVar

import psycopg
import structlog
from psycopg import errors as pg
from psycopg.conninfo import conninfo_to_dict
from psycopg.sql import SQL, Composable

from bot import errors, fencing
from bot.backoff import Backoff
from bot.clock import system_clock
from bot.fencing import Fence
from bot.storage import Row, Transaction, Value, fulltext, postgres_schema
from bot.storage.postgres_sql import (
    AWAY,
    COLLISION,
    ENDED,
    OUTDATED,
    Connection,
    PostgresTransaction,
    Signals,
    configure,
    mapped,
)
from bot.storage.writing import Outcome, Work, Writer, attempt, attempt_alone

T = TypeVar("T")

APPLICATION = "confidant"  # what the server calls our connections
READERS = 4  # connections of a node that read; one more writes
PATIENCE = 15.0  # seconds a piece of work waits for a server that went away
FIRST_RETRY = 0.005  # seconds, after a collision with another node; doubles
LAST_RETRY = 0.5
PREPARED_AFTER = 3  # uses of a statement on a connection after which the server keeps its plan
START_RETRY = 5.0  # seconds at most between looks for a server that was not there at the start
LOCK_SECONDS = 1  # that a transaction of ours whose COMMIT got no answer may still take
IDLE_SECONDS = 10  # after which a node that stopped within a transaction loses it, and its locks
KEPT_DAYS = 7  # the row of a program that is gone

OPTIONS: Final[dict[str, Any]] = {
    "autocommit": True,
    "prepare_threshold": None,
    "connect_timeout": 5,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,  # ms
}

# Without a sequential scan a small table is read by its index too: one that is read whole collides
# with every write to it.
_BEGIN = f"""BEGIN ISOLATION LEVEL SERIALIZABLE; SET LOCAL enable_seqscan = off;
    SET LOCAL idle_in_transaction_session_timeout = '{IDLE_SECONDS}s';
    UPDATE writers SET batch = {{batch}}, at = now() WHERE id = '{{id}}'
    RETURNING pg_backend_pid()"""
_PRUNE = f"DELETE FROM writers WHERE at < now() - interval '{KEPT_DAYS} days'"
_RESOLVE = f"""BEGIN; SET LOCAL lock_timeout = '{LOCK_SECONDS}s';
    SELECT batch FROM writers WHERE id = '{{id}}' FOR UPDATE"""

log = structlog.get_logger(__name__)


class _Link:
    """A connection of one thread, made again when it is lost."""

    def __init__(self, url: str, options: Mapping[str, Any]) -> None:
        self._url = url
        self._options = options
        self._connection: Connection | None = None

    def connected(self) -> Connection:
        if self._connection is None or self._connection.closed:
            self._connection = psycopg.connect(self._url, **self._options)
            configure(self._connection)
        return self._connection

    def is_lost(self, exc: BaseException) -> bool:
        """True when the server was not reached, or has gone away."""
        connection = self._connection
        return connection is None or connection.closed or isinstance(exc, (*ENDED, OUTDATED))

    def roll_back(self, *, lost: bool) -> None:
        if lost:
            self.drop()
        elif self._connection is not None and self._connection.info.transaction_status:
            with suppress(psycopg.Error):
                self._connection.execute("ROLLBACK")

    def drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(psycopg.Error):
                connection.close()


class _MoreThanOne(BaseException):
    """A read asks for more than one statement, which have to see the same state."""


class _OneStatement(PostgresTransaction):
    """A read of one statement, which is a transaction by itself: there is nothing to begin or end.

    Most reads are one, and each statement is a way to the server and back.
    """

    def __init__(self, connection: Connection, signals: Signals, words: fulltext.Words) -> None:
        super().__init__(connection, signals, words)
        self._is_spent = False

    def execute(self, sql: str, parameters: Sequence[Value] = ()) -> list[Row]:
        only_reads = sql.lstrip().startswith("SELECT")
        if self._is_spent or not only_reads:
            raise _MoreThanOne
        self._is_spent = True
        return super().execute(sql, parameters)


class PostgresDatabase:
    """`bot.storage.Database` in a PostgreSQL server. Make it with `open`."""

    def __init__(
        self,
        url: str,
        signals: Signals | None = None,
        *,
        name: str = APPLICATION,
        prepares: bool = False,
    ) -> None:
        """`name` is what the server calls the connections of this program.

        With `prepares` the server keeps the plans of statements, half of its work: where no pooler
        gives each transaction another process of it.

        Raises:
            StorageError: the URL is none.
        """
        self._url = url
        self.place = place_of(url)
        self._signals = signals or Signals()
        self._words = fulltext.Words()
        self._prepares = prepares
        self._options = options = {**OPTIONS, "application_name": name}
        if prepares:
            options["prepare_threshold"] = PREPARED_AFTER
        self._id = secrets.token_hex(8)
        self._batch = 0  # the number of the last transaction that was begun
        self.reruns = 0  # transactions that collided with others' or lost their connection
        self._link = _Link(url, options)  # the writer's
        # As many connections as threads: a pool would only wait longer for a server to come back.
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="confidant-reader")
        self._local = threading.local()
        self._reading: list[_Link] = []
        self._long: set[CodeType] = set()  # reads that need more than one statement
        self._closing = False
        self._writer = Writer(self._commit)

    @classmethod
    async def open(
        cls,
        url: str,
        *,
        cluster: str = "",
        wait: bool = False,
    ) -> PostgresDatabase:
        """Connect, and make or migrate the tables; see `start`."""
        database = cls(url)
        await database.start(cluster=cluster, wait=wait)
        return database

    async def start(
        self,
        prepare: Callable[[PostgresTransaction], None] = lambda _tx: None,
        *,
        cluster: str = "",
        wait: bool = False,
        migrates: bool = True,
    ) -> None:
        """Connect, and make or migrate the tables; `prepare` makes what else is needed there.

        `prepare` may be run more than once; without `migrates` it only looks, and nothing is made.
        With `wait`, a server that is not there is told of at once, and waited for as long as it
        takes.

        Raises:
            StorageNotMade: the tables are missing or older, and it was not to migrate them.
            StorageError: the server cannot be reached, is too old, refuses what is needed, a newer
                version of the program made the tables, or they are another cluster's.
        """

        def make(tx: PostgresTransaction) -> None:
            if migrates:
                postgres_schema.migrate(tx)
            prepare(tx)
            postgres_schema.check_rights(tx)
            if migrates:
                postgres_schema.belongs(tx, cluster, system_clock())
            else:
                postgres_schema.check_cluster(tx, cluster)

        begin = partial(self._begin_using, make)
        try:
            await (when_there(self.place, begin) if wait else asyncio.to_thread(begin))
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
        return self._readers.submit(self._beside_writer, self._seen, work).result()

    def beside(self) -> PostgresDatabase:
        """Another writer on the same tables, for work that must not hold up this one's.

        It connects when it is first used, and tells other nodes nothing. The caller closes it.
        """
        name = str(self._options["application_name"])
        return PostgresDatabase(self._url, name=name, prepares=self._prepares)

    async def read(self, work: Callable[[Transaction], T]) -> T:
        """Run `work` on a snapshot of what is committed; it may be run more than once."""
        if self._closing:
            raise errors.StorageClosed
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._readers, self._beside_writer, self._seen, work)

    async def write_alone(self, work: Callable[[Transaction], T]) -> T:
        """Run `work`, one statement, as a transaction of its own and not behind the writer's.

        It is for what may be done twice: if its answer is lost, nothing says whether it was done.
        """
        if self._closing:
            raise errors.StorageClosed
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._readers, self._beside_writer, self._alone, work)

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
        self._readers.shutdown()
        for link in (*self._reading, self._link):
            link.drop()

    def _begin_using(self, make: Callable[[PostgresTransaction], None]) -> None:
        """Make what is missing, and the row that tells this program's transactions."""
        try:
            connection = self._link.connected()
            with connection.transaction():
                make(PostgresTransaction(connection, self._signals, self._words))
            connection.execute(_PRUNE.encode())
            self._enlist(connection)
        except psycopg.Error as exc:
            raise unusable(exc, self.place) from exc

    def _enlist(self, connection: Connection) -> None:
        connection.execute(
            "INSERT INTO writers(id, batch) VALUES (%s, 0) ON CONFLICT(id) DO NOTHING", [self._id]
        )

    # --- the writer's thread ----------------------------------------------------------------------

    def _commit(self, works: Sequence[Work]) -> Sequence[Outcome]:
        deadline = time.monotonic() + PATIENCE
        backoff = Backoff(FIRST_RETRY, LAST_RETRY)
        while True:
            pid, outcomes = 0, None
            try:
                tx = PostgresTransaction(self._link.connected(), self._signals, self._words)
                pid = self._begin(tx.connection)
                self._signals.begin()
                if len(works) == 1:  # which most are, and every statement is a way to the server
                    outcomes = [attempt_alone(tx, works[0])]
                    if outcomes[0][1] is not None:
                        tx.connection.execute("ROLLBACK")
                        return outcomes
                else:
                    outcomes = [attempt(tx, work) for work in works]
                _end(tx.connection, self._signals.ending())
            except psycopg.Error as exc:
                lost = self._link.is_lost(exc)
                if outcomes is not None and lost and self._has_committed(pid):
                    return outcomes
                self._link.roll_back(lost=lost)
                passing = lost or isinstance(exc, COLLISION)
                if not passing or time.monotonic() > deadline or (self._closing and lost):
                    log.warning("storage.write_failed", error=type(exc).__name__, works=len(works))
                    raise mapped(exc) from exc
                self.reruns += 1
                log.debug("storage.again", error=type(exc).__name__, works=len(works))
                time.sleep(backoff.next())
            except BaseException:
                self._link.roll_back(lost=False)
                raise
            else:
                return outcomes

    def _begin(self, connection: Connection) -> int:
        """Begin to write; the number of the server's process that does it."""
        self._batch += 1
        statements = _BEGIN.format(batch=self._batch, id=self._id)
        while True:
            row = _last_row(connection, statements)
            if row is not None:
                return int(row[0])
            # It is the first time, or the database was restored from an older backup.
            connection.execute("ROLLBACK")
            self._enlist(connection)

    def _has_committed(self, pid: int) -> bool:
        """What became of a transaction whose COMMIT got no answer; `pid` is whose it was there.

        Until that is known nothing else is written, however long it takes: to give up would be to
        have it done twice, or not at all. The number of a transaction (`pg_xact_status`) would not
        tell: a server that crashed may give it to another one.

        Raises:
            StorageError: the database is closed before the server is back.
        """
        backoff = Backoff(FIRST_RETRY, LAST_RETRY)
        while True:
            self._link.drop()
            try:
                connection = self._link.connected()
                try:
                    # It waits for the transaction, if that is not over yet.
                    row = _last_row(connection, _RESOLVE.format(id=self._id))
                except pg.LockNotAvailable:
                    connection.execute("ROLLBACK")
                    connection.execute("SELECT pg_terminate_backend(%s)", [pid])
                    continue
                connection.execute("ROLLBACK")
            except psycopg.Error as exc:
                if self._closing:
                    raise mapped(exc) from exc
                log.debug("storage.resolving", error=type(exc).__name__)
                time.sleep(backoff.next())
            else:
                is_done = row is not None and row[0] == self._batch
                log.info("storage.resolved", committed=is_done)
                return is_done

    # --- the readers' threads ---------------------------------------------------------------------

    def _beside_writer(
        self,
        do: Callable[[Connection, Callable[[Transaction], T]], T],
        work: Callable[[Transaction], T],
    ) -> T:
        """Do some work on this thread's connection, again if that is lost."""
        link: _Link | None = getattr(self._local, "link", None)
        if link is None:
            link = self._local.link = _Link(self._url, self._options)
            self._reading.append(link)
        deadline = time.monotonic() + PATIENCE
        backoff = Backoff(FIRST_RETRY, LAST_RETRY)
        while True:
            lost = False
            try:
                return do(link.connected(), work)
            except psycopg.Error as exc:
                lost = link.is_lost(exc)
                if not lost or self._closing or time.monotonic() > deadline:
                    raise mapped(exc) from exc
            finally:
                link.roll_back(lost=lost)
            time.sleep(backoff.next())

    def _alone(self, connection: Connection, work: Callable[[Transaction], T]) -> T:
        return work(PostgresTransaction(connection, self._signals, self._words))

    def _seen(self, connection: Connection, work: Callable[[Transaction], T]) -> T:
        """What some work reads: with one statement, or in a snapshot that is left open."""
        code = _code_of(work)
        if code not in self._long:
            try:
                return work(_OneStatement(connection, self._signals, self._words))
            except _MoreThanOne:
                if code is not None:
                    self._long.add(code)
        connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        return work(PostgresTransaction(connection, self._signals, self._words))


async def when_there(place: str, do: Callable[[], T]) -> T:
    """Do something in a thread; a server that is not there is told of at once, and waited for.

    `do` may be run more than once.
    """
    backoff = Backoff(LAST_RETRY, START_RETRY)
    is_told = False
    while True:
        try:
            done = await asyncio.to_thread(do)
        except errors.StorageAway as exc:
            if not is_told:
                log.warning("storage.waiting", server=place, reason=str(exc))
                is_told = True
            await asyncio.sleep(backoff.next())
        else:
            if is_told:
                log.info("storage.reached", server=place)
            return done


def place_of(url: str, option: str = "url") -> str:
    """What a URL names, as people are told of it: never with its password.

    Raises:
        StorageError: it is none.
    """
    try:
        facts = conninfo_to_dict(url)
    except psycopg.ProgrammingError:  # what it says may hold the password
        facts = {}
    if not url.startswith(("postgresql://", "postgres://")) or not facts:
        raise errors.StorageError(
            f"[storage] {option} is not the URL of a PostgreSQL: write one such as "
            "postgresql://user:password@host:5432/database; nothing was tried."
        ) from None
    host, port = facts.get("host", "localhost"), facts.get("port", "5432")
    return f"{host}:{port}/{facts.get('dbname', facts.get('user', ''))}"


def unusable(exc: psycopg.Error, place: str) -> errors.StorageError:
    """Our error for what goes wrong before anything could be done at a server."""
    is_away = isinstance(exc, AWAY) and getattr(exc, "sqlstate", None) is None
    if not is_away and not isinstance(exc, ENDED):
        return mapped(exc)
    return errors.StorageAway(f"The database server at {place} cannot be used: {_reason(exc)}.")


def _code_of(work: Callable[..., object]) -> CodeType | None:
    """What tells a piece of work from others, whatever it is bound to."""
    while isinstance(work, partial):
        work = work.func
    return getattr(work, "__code__", None)


def _end(connection: Connection, ending: Composable) -> None:
    """Commit; what the transaction ends with goes to the server together with that.

    Raises:
        InFailedSqlTransaction: a statement had failed, and some work went on: it is all undone.
    """
    cursor = connection.execute(ending + SQL("COMMIT"))
    while cursor.nextset():
        pass
    if cursor.statusmessage != "COMMIT":
        raise pg.InFailedSqlTransaction


def _last_row(connection: Connection, statements: str) -> Row | None:
    """The first row of the last of several statements, which go to the server together."""
    cursor = connection.execute(statements.encode())
    while cursor.nextset():
        pass
    return cursor.fetchone()


def _reason(exc: psycopg.Error) -> str:
    """What a server, or the way to it, says of a connection that it refuses; no secret is in it."""
    lines = [line.strip() for line in str(exc).splitlines() if line.strip()]
    first = lines[0] if lines else type(exc).__name__
    return first.rpartition("failed: ")[2].removeprefix("FATAL:").strip().rstrip(".")


def _fenced(fence: Fence, work: Callable[[Transaction], T], tx: Transaction) -> T:
    """Do some work if its fence still counts; whoever takes it over waits until that is committed.

    Raises:
        FenceLost: it does not.
    """
    row = (fence.name, fence.epoch)
    if not tx.execute("SELECT 1 FROM fences WHERE name = ? AND epoch = ? FOR SHARE", row):
        raise errors.FenceLost
    return work(tx)
