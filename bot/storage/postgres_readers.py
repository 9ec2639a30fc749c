"""What is read from PostgreSQL, and written beside its writer: threads with a connection each."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from types import CodeType
from typing import Any, TypeVar

import psycopg

from bot import errors
from bot.backoff import Backoff
from bot.storage import Row, Transaction, Value, fulltext
from bot.storage.postgres_link import FIRST_RETRY, LAST_RETRY, PATIENCE, Link
from bot.storage.postgres_sql import Connection, PostgresTransaction, Signals, mapped

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


def _code_of(work: Callable[..., object]) -> CodeType | None:
    """What tells a piece of work from others, whatever it is bound to."""
    while isinstance(work, partial):
        work = work.func
    return getattr(work, "__code__", None)
