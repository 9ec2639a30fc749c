"""The PostgreSQL engine: one database for many nodes.

Every write is a serializable transaction, so it reads and writes as if it were alone, like the one
writer of a file; what collides with another node's is rolled back and run again. A connection that
is lost takes nothing with it: when the answer to a COMMIT is missing, the row that the transaction
left says whether it was done, before anything is done once more.

Nothing but the plans of statements outlives a transaction on a connection, and those are kept only
where no pooler may give each one another.
"""

from __future__ import annotations

import asyncio
import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from types import CodeType
from typing import Any, TypeVar

import psycopg
import structlog
from psycopg import errors as pg
from psycopg.sql import SQL, Composable

from bot import errors, fencing
from bot.backoff import Backoff
from bot.clock import system_clock
from bot.fencing import Fence
from bot.storage import Row, Transaction, Value, fulltext, postgres_schema
from bot.storage.postgres_link import (
    APPLICATION,
    FIRST_RETRY,
    LAST_RETRY,
    OPTIONS,
    PATIENCE,
    PREPARED_AFTER,
    Link,
    place_of,
    unusable,
    when_there,
)
from bot.storage.postgres_sql import (
    COLLISION,
    Connection,
    PostgresTransaction,
    Signals,
)
from bot.storage.writing import Outcome, Work, Writer, attempt, attempt_alone

# What is read from PostgreSQL, and written beside its writer: threads with a connection each.

T = TypeVar("T")

READERS = 4  # connections of a node that read; one more writes


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


class Readers:
    """As many connections as threads: a pool would only wait longer for a server to come back."""

    def __init__(
        self, url: str, options: Mapping[str, Any], signals: Signals, words: fulltext.Words
    ) -> None:
        """Connects when something is first read."""
        self._url = url
        self._options = options
        self._signals = signals
        self._words = words
        self._threads = ThreadPoolExecutor(READERS, thread_name_prefix="confidant-reader")
        self._local = threading.local()
        self._links: list[Link] = []
        self._long: set[CodeType] = set()  # reads that need more than one statement
        self._closing = False

    async def read(self, work: Callable[[Transaction], T]) -> T:
        """Run `work` on a snapshot of what is committed; it may be run more than once."""
        return await asyncio.wrap_future(self._submit(self._seen, work))

    def read_now(self, work: Callable[[Transaction], T]) -> T:
        """`read` for a thread, which waits; never call it on an event loop."""
        return self._submit(self._seen, work).result()

    async def write_alone(self, work: Callable[[Transaction], T]) -> T:
        """Run `work`, one statement, as a transaction of its own.

        It is for what may be done twice: if its answer is lost, nothing says whether it was done.
        """
        return await asyncio.wrap_future(self._submit(self._alone, work))

    def stop(self) -> None:
        """Take nothing any more, and try nothing again."""
        self._closing = True

    def close(self) -> None:
        """Wait for what is being read, and disconnect; after `stop`, and not on the loop."""
        self._threads.shutdown()
        for link in self._links:
            link.drop()

    def _submit(
        self,
        do: Callable[[Connection, Callable[[Transaction], T]], T],
        work: Callable[[Transaction], T],
    ) -> Future[T]:
        if self._closing:
            raise errors.StorageClosed
        return self._threads.submit(self._do, do, work)

    def _do(
        self,
        do: Callable[[Connection, Callable[[Transaction], T]], T],
        work: Callable[[Transaction], T],
    ) -> T:
        """Do some work on this thread's connection, again if that is lost."""
        link: Link | None = getattr(self._local, "link", None)
        if link is None:
            link = self._local.link = Link(self._url, self._options)
            self._links.append(link)
        deadline = time.monotonic() + PATIENCE
        backoff = Backoff(FIRST_RETRY, LAST_RETRY)
        while True:
            lost = False
            try:
                return do(link.connected(), work)
            except psycopg.Error as exc:
                lost = link.is_lost(exc)
                if not lost or self._closing or time.monotonic() > deadline:
                    raise unusable(exc, place_of(self._url)) from exc
            finally:
                link.roll_back(lost=lost)
            time.sleep(backoff.next())

    def _alone(self, connection: Connection, work: Callable[[Transaction], T]) -> T:
        return work(PostgresTransaction(connection, self._signals, self._words))

    def _seen(self, connection: Connection, work: Callable[[Transaction], T]) -> T:
        """Run work that reads: with one statement, or in a snapshot that is left open."""
        code = _code_of(work)
        if code not in self._long:
            try:
                return work(_OneStatement(connection, self._signals, self._words))
            except _MoreThanOne:
                if code is not None:
                    self._long.add(code)
        connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        return work(PostgresTransaction(connection, self._signals, self._words))


def _code_of(work: Callable[..., object]) -> CodeType | None:
    """The code of a piece of work, whatever it is bound to."""
    while isinstance(work, partial):
        work = work.func
    return getattr(work, "__code__", None)


LOCK_SECONDS = 1  # that a transaction of ours whose COMMIT got no answer may still take
IDLE_SECONDS = 10  # after which a node that stopped within a transaction loses it, and its locks
KEPT_DAYS = 7  # the row of a program that is gone

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
        self.prepare_threshold = PREPARED_AFTER if prepares else None
        self._options = options = {
            **OPTIONS,
            "application_name": name,
            "prepare_threshold": self.prepare_threshold,
        }
        self._id = secrets.token_hex(8)
        self._batch = 0  # the number of the last transaction that was begun
        self.reruns = 0  # transactions that collided with others' or lost their connection
        self._link = Link(url, options)  # the writer's
        self._readers = Readers(url, options, self._signals, self._words)
        self._closing = False
        self._writer = Writer(self._commit)

    @classmethod
    async def open(cls, url: str, *, cluster: str = "", wait: bool = False) -> PostgresDatabase:
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
        return self._readers.read_now(work)

    def beside(self) -> PostgresDatabase:
        """Another writer on the same tables, for work that must not hold up this one's.

        It connects when it is first used, and tells other nodes nothing. The caller closes it.
        """
        name, prepares = str(self._options["application_name"]), self.prepare_threshold is not None
        return PostgresDatabase(self._url, name=name, prepares=prepares)

    async def read(self, work: Callable[[Transaction], T]) -> T:
        """Run `work` on a snapshot of what is committed; it may be run more than once."""
        return await self._readers.read(work)

    async def write_alone(self, work: Callable[[Transaction], T]) -> T:
        """Run `work`, one statement, as a transaction of its own and not behind the writer's.

        It is for what may be done twice: if its answer is lost, nothing says whether it was done.
        """
        return await self._readers.write_alone(work)

    async def close(self) -> None:
        """Commit what is queued, then release the connections. Closing twice is harmless."""
        self._stop()
        await asyncio.to_thread(self._finish)

    def close_now(self) -> None:
        """`close` for a thread, which waits."""
        self._stop()
        self._finish()

    def _stop(self) -> None:
        self._closing = True
        self._readers.stop()
        self._writer.stop()

    def _finish(self) -> None:
        self._writer.join()
        self._readers.close()
        self._link.drop()

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
                    raise unusable(exc, self.place) from exc
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
        """The fate of a transaction whose COMMIT got no answer; `pid` is whose it was there.

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
                    raise unusable(exc, self.place) from exc
                log.debug("storage.resolving", error=type(exc).__name__)
                time.sleep(backoff.next())
            else:
                is_done = row is not None and row[0] == self._batch
                log.info("storage.resolved", committed=is_done)
                return is_done


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


def _fenced(fence: Fence, work: Callable[[Transaction], T], tx: Transaction) -> T:
    """Do some work if its fence still counts; whoever takes it over waits until that is committed.

    Raises:
        FenceLost: it does not.
    """
    row = (fence.name, fence.epoch)
    if not tx.execute("SELECT 1 FROM fences WHERE name = ? AND epoch = ? FOR SHARE", row):
        raise errors.FenceLost
    return work(tx)
