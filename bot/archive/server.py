"""Backups of a PostgreSQL, which are those of a storage folder: what is there is moved into one.

All of it is read in one transaction, so it is of one moment whatever the nodes write meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

from bot.clock import Clock
from bot.cluster.extra import needing_extra
from bot.errors import StorageClosed
from bot.move import places
from bot.move.moving import Move
from bot.move.notes import Rows
from bot.move.places import Place
from bot.storage import Transaction
from bot.storage.meta import MOVE, must_be_whole

with needing_extra():
    import psycopg

    from bot.storage import fulltext, postgres_schema
    from bot.storage.postgres_link import OPTIONS, place_of, unusable
    from bot.storage.postgres_sql import PostgresTransaction, Signals, configure, mapped

T = TypeVar("T")

# However long others take with what is read, the server must not end the transaction meanwhile.
_BEGIN = """BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;
    SET LOCAL idle_in_transaction_session_timeout = 0; SET LOCAL statement_timeout = 0"""


async def copied(url: str, cluster: str, folder: Path, clock: Clock) -> None:
    """Make an empty folder a storage folder with everything that a server has, notes as files.

    Raises:
        StorageError: the server cannot be used, or the disk does not take it.
        ConfidantError: a note cannot be written.
    """
    async with _now(url, cluster) as source, places.new_folder(folder) as target:
        await Move(source, target, clock, lambda _told: None).run()
        # It is nothing that was moved, but what was there.
        await target.database.write(
            lambda tx: tx.execute("DELETE FROM meta WHERE substr(key, 1, ?) = ?", (len(MOVE), MOVE))
        )


@asynccontextmanager
async def _now(url: str, cluster: str) -> AsyncGenerator[Place]:
    """Everything on a server as it is at this moment; nodes may run on it.

    Raises:
        StorageError: it cannot be reached, has no tables or newer ones, or is another cluster's.
    """
    database = _Snapshot(url)
    try:
        await database.begin(cluster)
        yield Place(place_of(url), database, Rows(database), is_shared=True)
    finally:
        await database.close()


class _Snapshot:
    """`bot.storage.Database` as it was when this began; nothing can be written."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="confidant-snapshot")
        self._tx: PostgresTransaction | None = None

    async def begin(self, cluster: str) -> None:
        """Connect; what is committed until then is seen.

        Raises:
            StorageError: see `_now`.
        """
        await asyncio.get_running_loop().run_in_executor(self._thread, self._begin, cluster)

    def _begin(self, cluster: str) -> None:
        try:
            connection = psycopg.connect(self._url, **OPTIONS)
            configure(connection)
            self._tx = PostgresTransaction(connection, Signals(), fulltext.Words())
            connection.execute(_BEGIN)
            postgres_schema.check_made(self._tx)
            postgres_schema.check_cluster(self._tx, cluster)
            must_be_whole(self._tx)
        except psycopg.Error as exc:
            raise unusable(exc, place_of(self._url)) from exc

    async def write(self, work: Callable[[Transaction], T]) -> T:
        """Never.

        Raises:
            StorageClosed: always.
        """
        raise StorageClosed("What is backed up is not written to.")

    async def read(self, work: Callable[[Transaction], T]) -> T:
        """Run `work`."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._read, work)

    def _read(self, work: Callable[[Transaction], T]) -> T:
        if self._tx is None:
            raise StorageClosed
        try:
            return work(self._tx)
        except psycopg.Error as exc:
            raise mapped(exc) from exc

    async def close(self) -> None:
        """Disconnect."""
        self._thread.shutdown()
        if self._tx is not None:
            self._tx.connection.close()
