"""The SQLite engine: one file, one writer thread with group commit, readers beside it."""

from __future__ import annotations

import asyncio
import shlex
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Self, TypeVar

import apsw
import structlog

from bot import __version__, errors
from bot.invocation import confidant
from bot.storage import Transaction, backup, changes, files, fulltext, schema
from bot.storage.changes import ChangeLog, Position
from bot.storage.sqlite_sql import SqliteTransaction, mapped
from bot.storage.writing import Outcome, Work, Writer, attempt

T = TypeVar("T")

BUSY_TIMEOUT_MS = 10_000  # another process (the command line) may hold the write lock this long
READERS = 2

# More is not faster: the system keeps the file in memory.
_CACHE = "PRAGMA cache_size = -1000"
_PRAGMAS = (
    _CACHE,
    "PRAGMA journal_mode = WAL",
    "PRAGMA cache_spill = OFF",  # but a transaction stays in memory until it is committed
    "PRAGMA synchronous = FULL",  # acknowledged means on disk, also when the power goes
    "PRAGMA wal_autocheckpoint = 2000",
    "PRAGMA temp_store = MEMORY",
    "PRAGMA trusted_schema = OFF",
)

log = structlog.get_logger(__name__)


class SqliteDatabase:
    """`bot.storage.Database` in one SQLite file. Make it with `open`.

    What it commits is added to its log of changes, if there is one. It `needs_copy` when that log
    does not lead here from any copy.
    """

    def __init__(self, path: Path, connection: apsw.Connection, *, logs: bool) -> None:
        self.path = path
        self.needs_copy = False
        self._logs = logs
        self._log: ChangeLog | None = None
        self._tx = SqliteTransaction(connection)
        self._closing = False
        self._data_version = _data_version(self._tx)
        self._columns = changes.columns_of(self._tx)
        if logs:
            self._log = ChangeLog.newest(path, changes.position(self._tx).id)
        self._writer = Writer(self._commit)
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="confidant-reader")
        self._local = threading.local()
        self._connections = [connection]  # with those of the readers

    @classmethod
    async def open(cls, path: Path, *, keeps: bool = True, logs: bool = True) -> SqliteDatabase:
        """Open the file, creating or migrating it; with `keeps` after a copy of it.

        Without `logs` no change is counted or logged until `log_from` is called.

        Raises:
            StorageCorrupt: it is not a usable database.
            StorageError: a newer version of the program made it, a restore of it is not complete,
                or it cannot be opened.
        """
        files.must_not_be_restoring(path.parent)
        connection = await asyncio.to_thread(_connect_and_migrate, path, keeps=keeps)
        return cls(path, connection, logs=logs)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def write(self, work: Callable[[Transaction], T]) -> T:
        """Run `work` on the writer and return once it is on disk."""
        return await self._writer.write(work)

    async def read(self, work: Callable[[Transaction], T]) -> T:
        """Run `work` on a snapshot of what is committed, beside the writer."""
        if self._closing:
            raise errors.StorageClosed
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._readers, self._read, work)

    async def log_from(self, removed: Mapping[str, Any], base: Position | None = None) -> None:
        """Begin another file of the log of changes here; with `base` be there first.

        `removed` says what was forgotten and erased for good: see `changes.Part`.

        Raises:
            StorageError: the disk does not take it.
        """

        def work(tx: Transaction) -> None:
            begun = ChangeLog.begin(self.path, changes.position(tx), removed)
            if self._log is not None:
                self._log.close()
            self._log, self._logs = begun, True

        if base is not None:
            await self.write(lambda tx: changes.put(tx, base))
        try:
            await self.write(work)
        except OSError as exc:
            raise errors.StorageError(
                f"The log of changes cannot be begun: {exc.strerror}"
            ) from exc

    async def log_on(self) -> None:
        """Go on with the newest file of the log."""

        def work(tx: Transaction) -> None:
            self._log, self._logs = ChangeLog.newest(self.path, changes.position(tx).id), True

        await self.write(work)

    @property
    def is_log_full(self) -> bool:
        """True when a copy should be made, which begins another file."""
        return self._log is not None and self._log.is_full

    async def changed_outside(self) -> bool:
        """True if another process has written since this was last asked, or since the opening."""
        # The writer's own connection sees this number move for others' commits only.
        version = await self.write(_data_version)
        before, self._data_version = self._data_version, version
        return before != version

    async def close(self) -> None:
        """Commit what is queued, then release the file. Closing twice is harmless."""
        self._closing = True
        self._writer.stop()
        await asyncio.to_thread(self._finish)

    # --- the writer's thread ---------------------------------------------------------------------

    def _commit(self, works: Sequence[Work]) -> Sequence[Outcome]:
        tx, change = self._tx, None
        try:
            tx.execute("BEGIN IMMEDIATE")
            if self._logs:
                with closing(apsw.Session(tx.connection, "main")) as session:
                    session.table_filter(changes.LOGGED.__contains__)
                    outcomes = [attempt(tx, work) for work in works]
                    if data := session.patchset():
                        change = changes.step(tx, data)
            else:
                outcomes = [attempt(tx, work) for work in works]
            tx.execute("COMMIT")
        except apsw.Error as exc:
            _roll_back(tx)
            log.warning("storage.write_failed", error=type(exc).__name__, works=len(works))
            raise mapped(exc) from exc
        except BaseException:
            _roll_back(tx)
            raise
        if change is not None and self._log is not None:
            try:  # before anybody is told that it is done
                self._log.append(change, at_once=changes.is_told(change.data, self._columns))
            except OSError as exc:  # the database has it; the next copy does
                self.needs_copy = True
                log.warning("changes.write_failed", error=type(exc).__name__)
        return outcomes

    # --- the readers' threads --------------------------------------------------------------------

    def _read(self, work: Callable[[Transaction], T]) -> T:
        reader: SqliteTransaction | None = getattr(self._local, "reader", None)
        try:
            if reader is None:
                reader = self._local.reader = _connect(self.path, apsw.SQLITE_OPEN_READONLY)
                self._connections.append(reader.connection)
                reader.execute(_CACHE)
            reader.execute("BEGIN")
            try:
                return work(reader)
            finally:
                reader.execute("COMMIT")
        except apsw.Error as exc:
            raise mapped(exc) from exc

    def _finish(self) -> None:
        self._writer.join()
        self._readers.shutdown(wait=True)
        if self._log is not None:
            self._log.close()
        for connection in reversed(self._connections):  # the writer's last: it tidies up
            try:
                connection.close()
            except apsw.Error as exc:  # all is stored; the next opening tidies up
                log.warning("storage.close_failed", error=type(exc).__name__)


def _roll_back(tx: SqliteTransaction) -> None:
    with suppress(apsw.Error):
        if tx.connection.in_transaction:
            tx.execute("ROLLBACK")


def _data_version(tx: Transaction) -> int:
    return int(tx.execute("PRAGMA data_version")[0][0])


def _connect(path: Path, flags: int) -> SqliteTransaction:
    connection = apsw.Connection(str(path), flags=flags, statementcachesize=200)
    connection.set_busy_timeout(BUSY_TIMEOUT_MS)
    return SqliteTransaction(connection)


def _connect_and_migrate(path: Path, *, keeps: bool = True) -> apsw.Connection:
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with suppress(OSError):  # SQLite says better what is wrong
            files.create(path)
        writer = _connect(path, apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE)
        try:
            for pragma in _PRAGMAS:
                writer.execute(pragma)
            migrate(writer, path, keeps=keeps)
        except BaseException:
            writer.connection.close()
            raise
    except apsw.Error as exc:
        raise mapped(exc) from exc
    except OSError as exc:
        raise errors.StorageError(f"cannot use {path.parent}: {exc.strerror}") from exc
    return writer.connection


def compact(path: Path) -> None:
    """Rewrite a database, so that nothing is left on free pages or in its full-text index.

    Raises:
        StorageError: somebody else uses it, or the disk is full; it is as it was.
    """
    tx = _connect(path, apsw.SQLITE_OPEN_READWRITE)
    try:
        tx.execute("PRAGMA secure_delete = ON")
        tx.execute("INSERT INTO entries_text(entries_text) VALUES ('optimize')")
        tx.execute("VACUUM")
        ((busy, *_),) = tx.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        if busy:
            raise errors.StorageError("Another process kept the database locked for too long.")
    except apsw.Error as exc:
        raise mapped(exc) from exc
    finally:
        tx.connection.close()


# --- its tables -----------------------------------------------------------------------------------


_VERSIONS = """CREATE TABLE IF NOT EXISTS schema_versions(
    version BIGINT PRIMARY KEY, applied_at TEXT NOT NULL, program TEXT NOT NULL DEFAULT '')"""
# 'text' is not stored again: the entries hold it, the index only points at them.
FULLTEXT = f"""CREATE VIRTUAL TABLE IF NOT EXISTS entries_text USING fts5(
    text, content = '', contentless_delete = 1,
    tokenize = '{fulltext.TOKENIZER[0]} {" ".join(fulltext.TOKENIZER[1])}')"""


def migrate(tx: SqliteTransaction, database: Path, *, keeps: bool = True) -> None:
    """Bring the tables to the current version, in one transaction; with `keeps` after a copy.

    Raises:
        StorageError: a newer version of the program made this file, or one from before the first
            tables, or it cannot be copied; nothing was changed.
    """
    if _known(tx, database) == schema.VERSION:
        return
    tx.execute("BEGIN IMMEDIATE")  # so that the copy has all that was ever written before
    try:
        current = _known(tx, database)
        if keeps and current not in {0, schema.VERSION}:
            backup.keep(database, current)
        _step(tx, current)
        tx.execute("COMMIT")
    except BaseException:
        _roll_back(tx)
        raise


def _step(tx: SqliteTransaction, current: int) -> None:
    tx.execute(_VERSIONS)
    for version, step in schema.steps(current):
        for statement in step:
            tx.execute(statement.replace("{serial}", "INTEGER PRIMARY KEY"))
        tx.execute(
            "INSERT INTO schema_versions(version, applied_at, program) "
            "VALUES (?, datetime('now'), ?)",
            (version, __version__),
        )
    tx.execute(FULLTEXT)
    tx.execute(changes.TABLE)
    tx.execute(changes.FIRST)


def _known(tx: SqliteTransaction, database: Path) -> int:
    """The version of the tables; 0 while there are none.

    Raises:
        StorageError: it is newer than this program, or too old for it.
    """
    current, program = backup.version_of(tx)
    schema.must_be_known(current, str(database.parent))
    if current <= schema.VERSION:
        return current
    copies = backup.before_upgrades(database)
    fitting = next((each for each in copies if backup.number_of(each) <= schema.VERSION), None)
    if fitting is not None:
        restore = confidant(f"restore {shlex.quote(str(fitting))}")
        back = f"the copy from before the upgrade with `{restore}`"
    else:
        back = "a backup from before the upgrade; there is no copy of then any more"
    raise errors.StorageError(
        f"{database.parent} has tables of version {current}, made by a newer Confidant"
        f"{f' ({program})' if program else ''}; this is {__version__} and knows version "
        f"{schema.VERSION}. Nothing was changed: start the newer one again, or go back to {back}."
    )
