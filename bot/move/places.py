"""The places things are moved between: a storage folder, and a PostgreSQL."""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import AsyncGenerator, Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

import apsw

from bot.cluster import census
from bot.cluster.extra import needing_extra
from bot.errors import StorageBusy, StorageClosed, StorageError
from bot.invocation import confidant
from bot.move.notes import Files, Notes, Rows
from bot.move.tables import Table
from bot.recovery import TRANSCRIPTS
from bot.sessions import store
from bot.storage import Database, Transaction, files, months, schema
from bot.storage.files import BACKUPS, DATABASE_NAME, LOCK_NAME, DataDirLock
from bot.storage.months import Stored
from bot.storage.sqlite import SqliteDatabase
from bot.storage.sqlite_sql import SqliteTransaction, mapped

T = TypeVar("T")

WORKSPACE = "workspace"


@dataclass(frozen=True, slots=True)
class Place:
    """Where everything is, or is to be.

    Attributes:
        name: what people know it by; it holds no password.
        database: its tables.
        notes: its notes.
        is_shared: many nodes may run on it.
    """

    name: str
    database: Database
    notes: Notes
    is_shared: bool

    @property
    def identity(self) -> str:
        """Another one for each place."""
        return identity_of(self.name)

    def indexed(self, tx: Transaction, after: int, limit: int) -> list[int]:
        """The next entries that are found by their words, by their numbers."""
        column = "entry" if self.is_shared else "rowid"
        rows = tx.execute(
            f"SELECT DISTINCT {column} FROM entries_text WHERE {column} > ? "
            f"ORDER BY {column} LIMIT ?",
            (after, limit),
        )
        return [int(row[0]) for row in rows]

    def lay_out(self, tx: Transaction, found: Stored) -> None:
        """Make room for entries that are to come here, by month where there are months."""
        if self.is_shared:
            months.lay_out(tx, found)

    def settle(self, tx: Transaction) -> None:
        """Let the files of transcripts be as long as what is left of them."""
        if self.is_shared:  # it has none
            return
        for session_id in store.shortened(tx):
            size = sum(len(line.encode()) + 1 for line in store.lines(tx, session_id))
            store.set_mirror_bytes(tx, session_id, size)

    def go_on_behind(self, tx: Transaction, table: Table) -> None:
        """Let the next row of a table have a number above all there are."""
        if self.is_shared and table.serial:  # a file does so by itself
            tx.execute(
                f"SELECT setval(pg_get_serial_sequence('{table.name}', '{table.serial}'), "
                f"(SELECT coalesce(max({table.serial}), 0) + 1 FROM {table.name}), false)"
            )


def identity_of(name: str) -> str:
    """What a place of this name is known by where something was moved from it."""
    return blake2b(name.encode(), digest_size=16).hexdigest()


@asynccontextmanager
async def old_folder(folder: Path, workspace: Path) -> AsyncGenerator[Place]:
    """A storage folder on which no program runs, to be read and not changed by a byte.

    Raises:
        StorageBusy: a program runs on it.
        StorageError: there is nothing in it, or not as this version leaves it.
    """
    with _undisturbed(folder):
        files.must_not_be_erasing(folder)
        database = _StillDatabase(folder / DATABASE_NAME)
        try:
            yield Place(_named(folder), database, Files(workspace), is_shared=False)
        finally:
            await database.close()


@asynccontextmanager
async def new_folder(folder: Path) -> AsyncGenerator[Place]:
    """A storage folder to be filled, with the workspace inside; it is made if it is not there.

    Raises:
        StorageBusy: a program runs on it.
        StorageError: it cannot be used, or somebody has used it without its database.
    """
    left = (folder / TRANSCRIPTS, folder / BACKUPS, folder / WORKSPACE)
    if not (folder / DATABASE_NAME).exists() and any(map(_holds_something, left)):
        raise StorageError(
            f"{folder} holds transcripts, notes or copies of its own. Nothing was changed: "
            "choose another folder."
        )
    with DataDirLock(folder):
        database = await SqliteDatabase.open(folder / DATABASE_NAME)
        try:
            notes = Files(folder / WORKSPACE)
            yield Place(_named(folder), database, notes, is_shared=False)
        finally:
            await database.close()


@asynccontextmanager
async def server(url: str, node_timeout: float) -> AsyncGenerator[Place]:
    """A PostgreSQL on which no node runs; its tables are made if they are not there.

    Raises:
        StorageBusy: nodes run on it.
        StorageError: it cannot be used; the message says what to do.
        ConfigError: the extra for it is not installed.
    """
    with needing_extra():
        from bot.cluster import takeover  # noqa: PLC0415 - its packages are an extra
        from bot.storage.postgres import PostgresDatabase  # noqa: PLC0415
    database = PostgresDatabase(url)
    # All that nodes need, too: their own role may not make it.
    await database.start(takeover.prepare)
    try:
        if alive := await database.read(lambda tx: census.alive(tx, node_timeout)):
            raise StorageBusy(
                f"Confidant runs on {database.place} ({alive} "
                f"{'node' if alive == 1 else 'nodes'}). Stop all nodes first."
            )
        yield Place(database.place, database, Rows(database), is_shared=True)
    finally:
        await database.close()


class _StillDatabase:
    """`bot.storage.Database` over a file that nobody has open; nothing can be written."""

    def __init__(self, path: Path) -> None:
        """Open a file.

        Raises:
            StorageError: it is not there, was not closed, or another version made it.
        """
        if not path.exists():
            raise StorageError(f"There is no database in {path.parent}: nothing can be moved.")
        if _holds_something(path.with_name(f"{path.name}-wal")):
            raise StorageError(
                f"The program on {path.parent} was killed. Start `{confidant('run')}` once more "
                "and stop it, so that its database is whole; then move it."
            )
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="confidant-reader")
        try:
            # Immutable: SQLite makes no files beside it, and takes no locks.
            name = f"file:{quote(str(path.resolve()))}?immutable=1"
            flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
            self._connection = apsw.Connection(name, flags=flags)
            self._tx = SqliteTransaction(self._connection)
            rows = self._tx.execute("SELECT max(version) FROM schema_versions")
        except apsw.Error as exc:
            raise mapped(exc) from exc
        version = int(rows[0][0] or 0)
        if version != schema.VERSION:
            self._connection.close()
            schema.must_be_known(version, str(path.parent))
            whose = "a newer" if version > schema.VERSION else "an older"
            what = (
                "Move it with that one."
                if version > schema.VERSION
                else f"Start `{confidant('run')}` of this version once and stop it; then move it."
            )
            raise StorageError(
                f"The database in {path.parent} has version {version}, made by {whose} Confidant; "
                f"this one writes version {schema.VERSION}. Nothing was changed. {what}"
            )

    async def write(self, work: Callable[[Transaction], T]) -> T:
        """Never.

        Raises:
            StorageClosed: always.
        """
        raise StorageClosed("What is moved from is not written to.")

    async def read(self, work: Callable[[Transaction], T]) -> T:
        """Run `work`."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._read, work)

    def _read(self, work: Callable[[Transaction], T]) -> T:
        try:
            return work(self._tx)
        except apsw.Error as exc:
            raise mapped(exc) from exc

    async def close(self) -> None:
        """Release the file."""
        self._thread.shutdown()
        self._connection.close()


@contextmanager
def _undisturbed(folder: Path) -> Generator[None]:
    """Keep programs away from a storage folder without writing anything into it.

    Raises:
        StorageBusy: one runs on it.
    """
    try:
        file = os.open(folder / LOCK_NAME, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:  # none ever ran here
        yield
        return
    except OSError as exc:
        raise StorageError(f"{folder} cannot be used: {exc.strerror}.") from exc
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError as exc:
            raise StorageBusy(f"Confidant runs on {folder}. Stop it first.") from exc
        yield
    finally:
        os.close(file)


def _named(folder: Path) -> str:
    return str(folder.resolve())


def _holds_something(path: Path) -> bool:
    if path.is_dir():
        return any(path.iterdir())
    return path.exists() and path.stat().st_size > 0
