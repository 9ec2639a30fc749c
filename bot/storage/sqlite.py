"""The SQLite engine: one file, one writer thread with group commit, readers beside it.

Everything that waits for the writer is committed together, each in a savepoint of its own, so a
hundred messages cost one flush to disk and a failing one takes none of the others with it.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import apsw
import structlog

from bot import errors
from bot.storage import Row, Transaction, Value, files, fulltext, journal, schema

T = TypeVar("T")

BUSY_TIMEOUT_MS = 10_000  # another process (the command line) may hold the write lock this long
MAX_BATCH = 512  # pieces of work in one commit
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
# 'text' is not stored again: the entries hold it, the index only points at them.
_FULLTEXT = """CREATE VIRTUAL TABLE IF NOT EXISTS entries_text USING fts5(
    text, content = '', contentless_delete = 1,
    tokenize = 'porter unicode61 remove_diacritics 2')"""

log = structlog.get_logger(__name__)

_Job = tuple[Callable[[Transaction], Any], "asyncio.Future[Any]", asyncio.AbstractEventLoop]
_Outcome = tuple[Any, BaseException | None]  # what the work returned, or why it failed


class SqliteTransaction:
    """`bot.storage.Transaction` over one connection."""

    __slots__ = ("connection", "has_noted")

    def __init__(self, connection: apsw.Connection) -> None:
        self.connection = connection
        self.has_noted = False

    def execute(self, sql: str, parameters: Sequence[Value] = ()) -> list[Row]:
        """Run one statement and return all its rows; apsw raises what goes wrong."""
        cursor: Any = self.connection.execute(sql, parameters)  # pyright: ignore[reportUnknownMemberType]
        return cursor.fetchall()

    def index_text(self, entry: int, text: str) -> None:
        """Make an entry findable by its words."""
        self.execute(
            "INSERT INTO entries_text(rowid, text) VALUES (?, ?)", (entry, fulltext.spaced(text))
        )

    def forget_text(self, entry: int) -> None:
        """Take an entry out of the full-text index."""
        self.execute("DELETE FROM entries_text WHERE rowid = ?", (entry,))

    def search_text(
        self, query: str, limit: int, keys: Sequence[str], people: Sequence[str] = ()
    ) -> list[Row]:
        """Entries that match, best first: (entry, score)."""
        match = fulltext.match_query(query)
        if not match or not (keys or people):
            return []
        rows = self.execute(
            f"""SELECT entries_text.rowid, bm25(entries_text) FROM entries_text
                JOIN entries ON entries.seq = entries_text.rowid
                JOIN sessions ON sessions.id = entries.session_id
                WHERE entries_text MATCH ? AND (sessions.key IN ({_marks(keys)})
                    OR (sessions.chat_type = 'direct' AND sessions.person IN ({_marks(people)})))
                ORDER BY bm25(entries_text), entries_text.rowid DESC LIMIT ?""",
            (match, *keys, *people, limit),
        )
        return [(entry, fulltext.score(bm25)) for entry, bm25 in rows]

    def note(self, line: str) -> None:
        """Add a line to the journal."""
        journal.add(self, line)
        self.has_noted = True


def _marks(values: Sequence[str]) -> str:
    return ",".join("?" * len(values))


class SqliteDatabase:
    """`bot.storage.Database` in one SQLite file. Make it with `open`."""

    def __init__(self, path: Path, connection: apsw.Connection) -> None:
        self.path = path
        self._writer = SqliteTransaction(connection)
        self._jobs: deque[_Job] = deque()
        self._wake = threading.Condition()
        self._closing = False
        self._data_version = _data_version(self._writer)
        self._thread = threading.Thread(target=self._run, name="confidant-writer", daemon=True)
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="confidant-reader")
        self._local = threading.local()
        self._connections = [connection]  # with those of the readers
        self._thread.start()

    @classmethod
    async def open(cls, path: Path) -> SqliteDatabase:
        """Open the file, creating or migrating it.

        Raises:
            StorageCorrupt: it is not a usable database.
            StorageError: a newer version of the program made it, or it cannot be opened.
        """
        connection = await asyncio.to_thread(_connect_and_migrate, path)
        return cls(path, connection)

    async def write(self, work: Callable[[Transaction], T]) -> T:
        """Run `work` on the writer and return once it is on disk."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        with self._wake:
            if self._closing:
                raise errors.StorageClosed
            self._jobs.append((work, future, loop))
            self._wake.notify()
        return await future

    async def read(self, work: Callable[[Transaction], T]) -> T:
        """Run `work` on a snapshot of what is committed, beside the writer."""
        if self._closing:
            raise errors.StorageClosed
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._readers, self._read, work)

    async def changed_outside(self) -> bool:
        """Whether another process has written since this was last asked, or since the opening."""
        # The writer's own connection sees this number move for others' commits only.
        version = await self.write(_data_version)
        before, self._data_version = self._data_version, version
        return before != version

    async def close(self) -> None:
        """Commit what is queued, then release the file. Closing twice is harmless."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        await asyncio.to_thread(self._finish)

    # --- the writer's thread ---------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            with self._wake:
                while not self._jobs and not self._closing:
                    self._wake.wait()
                if not self._jobs:
                    return
                batch = [self._jobs.popleft() for _ in range(min(len(self._jobs), MAX_BATCH))]
            try:
                outcomes = self._commit(batch)
            except Exception as exc:
                # Whatever happens here, nobody may wait for an answer that never comes.
                log.exception("storage.writer_failed")
                with suppress(apsw.Error):
                    self._roll_back()
                error = mapped(exc) if isinstance(exc, apsw.Error) else errors.StorageError()
                outcomes = [(None, error)] * len(batch)
            try:
                batch[0][2].call_soon_threadsafe(_settle, batch, outcomes)
            except RuntimeError:  # the loop is gone; what was committed stays committed
                log.warning("storage.caller_gone", works=len(batch))

    def _commit(self, batch: list[_Job]) -> list[_Outcome]:
        writer = self._writer
        writer.has_noted = False
        try:
            writer.execute("BEGIN IMMEDIATE")
            outcomes = [_attempt(writer, work) for work, _, _ in batch]
            writer.execute("COMMIT")
        except apsw.Error as exc:
            self._roll_back()
            log.warning("storage.write_failed", error=type(exc).__name__, works=len(batch))
            return [(None, mapped(exc))] * len(batch)
        if writer.has_noted:
            self._follow_journal()
        return outcomes

    def _roll_back(self) -> None:
        if self._writer.connection.in_transaction:
            self._writer.execute("ROLLBACK")

    def _follow_journal(self) -> None:
        """Bring the journal's file up to what is committed, before anybody is told of it."""
        try:
            journal.follow(self._writer, journal.file_of(self.path))
        except (OSError, apsw.Error) as exc:  # the table has it; the next line or start adds it
            log.warning("journal.write_failed", error=type(exc).__name__)

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
        self._thread.join()
        self._readers.shutdown(wait=True)
        for connection in reversed(self._connections):  # the writer's last: it tidies up
            try:
                connection.close()
            except apsw.Error as exc:  # all is stored; the next opening tidies up
                log.warning("storage.close_failed", error=type(exc).__name__)


def _data_version(tx: Transaction) -> int:
    return int(tx.execute("PRAGMA data_version")[0][0])


def mapped(exc: apsw.Error) -> errors.StorageError:
    """Our error for one of SQLite's."""
    if isinstance(exc, apsw.FullError):
        return errors.StorageFull()
    if isinstance(exc, apsw.CorruptError | apsw.NotADBError):
        return errors.StorageCorrupt()
    if isinstance(exc, apsw.IOError):
        return errors.StorageError("The disk failed while the database was reading or writing.")
    if isinstance(exc, apsw.ReadOnlyError | apsw.CantOpenError | apsw.PermissionsError):
        return errors.StorageError("The database file cannot be written: check its permissions.")
    if isinstance(exc, apsw.BusyError | apsw.LockedError):
        return errors.StorageError("Another process kept the database locked for too long.")
    return errors.StorageError(f"The database refused: {type(exc).__name__}.")


# After one of these SQLite may have rolled back the whole transaction, so the batch fails as one.
_BATCH_FATAL = (apsw.FullError, apsw.IOError, apsw.CorruptError, apsw.NotADBError, apsw.NoMemError)


def _attempt(writer: SqliteTransaction, work: Callable[[Transaction], Any]) -> _Outcome:
    writer.execute("SAVEPOINT work")
    try:
        result = work(writer)
    except _BATCH_FATAL:
        raise
    except Exception as exc:  # noqa: BLE001 - it goes to whoever asked, the batch goes on
        writer.execute("ROLLBACK TO work")
        writer.execute("RELEASE work")
        if isinstance(exc, StopIteration):  # no future takes one
            return None, RuntimeError("the work raised StopIteration")
        return None, mapped(exc) if isinstance(exc, apsw.Error) else exc
    writer.execute("RELEASE work")
    return result, None


def _settle(batch: Sequence[_Job], outcomes: Sequence[_Outcome]) -> None:
    for (_, future, _), (result, error) in zip(batch, outcomes, strict=True):
        if future.done():  # its caller was cancelled; the work itself is committed
            continue
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)


def _connect(path: Path, flags: int) -> SqliteTransaction:
    connection = apsw.Connection(str(path), flags=flags, statementcachesize=200)
    connection.set_busy_timeout(BUSY_TIMEOUT_MS)
    return SqliteTransaction(connection)


def _connect_and_migrate(path: Path) -> apsw.Connection:
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with suppress(OSError):  # SQLite says better what is wrong
            files.create(path)
        writer = _connect(path, apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE)
        try:
            for pragma in _PRAGMAS:
                writer.execute(pragma)
            _migrate(writer)
        except BaseException:
            writer.connection.close()
            raise
    except apsw.Error as exc:
        raise mapped(exc) from exc
    except OSError as exc:
        raise errors.StorageError(f"cannot use {path.parent}: {exc.strerror}") from exc
    return writer.connection


def _migrate(tx: SqliteTransaction) -> None:
    """Bring the tables to the current version, in one transaction.

    Raises:
        StorageError: a newer version of the program made this file.
    """
    with tx.connection:
        tx.execute(
            "CREATE TABLE IF NOT EXISTS schema_versions("
            "version BIGINT PRIMARY KEY, applied_at TEXT NOT NULL)"
        )
        current = int(tx.execute("SELECT max(version) FROM schema_versions")[0][0] or 0)
        if current > schema.VERSION:
            raise errors.StorageError(
                f"The database has version {current}, made by a newer Confidant; this one knows "
                f"version {schema.VERSION}. Nothing was changed: start the newer one again."
            )
        for version in range(current + 1, schema.VERSION + 1):
            for statement in schema.MIGRATIONS[version - 1]:
                tx.execute(statement.replace("{serial}", "INTEGER PRIMARY KEY"))
            tx.execute("INSERT INTO schema_versions VALUES (?, datetime('now'))", (version,))
        tx.execute(_FULLTEXT)
