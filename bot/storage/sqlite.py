"""The SQLite engine: one file, one writer thread with group commit, readers beside it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import apsw
import structlog

from bot import errors
from bot.storage import Row, Transaction, Value, files, fulltext, journal, schema
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
# 'text' is not stored again: the entries hold it, the index only points at them.
_FULLTEXT = f"""CREATE VIRTUAL TABLE IF NOT EXISTS entries_text USING fts5(
    text, content = '', contentless_delete = 1,
    tokenize = '{fulltext.TOKENIZER[0]} {" ".join(fulltext.TOKENIZER[1])}')"""

log = structlog.get_logger(__name__)

# After one of these SQLite may have rolled back the whole transaction, so the group fails as one.
_FATAL = (apsw.FullError, apsw.IOError, apsw.CorruptError, apsw.NotADBError, apsw.NoMemError)


class SqliteTransaction:
    """`bot.storage.Transaction` over one connection."""

    __slots__ = ("connection", "has_noted")
    failures = _FATAL

    def __init__(self, connection: apsw.Connection) -> None:
        self.connection = connection
        self.has_noted = False

    def mapped(self, error: Exception) -> Exception:
        """Our error for one of SQLite's; any other as it is."""
        return mapped(error) if isinstance(error, apsw.Error) else error

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

    @property
    def node(self) -> str:
        """There is but one."""
        return ""

    def wake(self, key: str) -> None:
        """The caller does that."""

    def publish(self, topic: str, name: str = "", body: str = "") -> None:
        """Nobody else is there to hear it."""


def _marks(values: Sequence[str]) -> str:
    return ",".join("?" * len(values))


class SqliteDatabase:
    """`bot.storage.Database` in one SQLite file. Make it with `open`."""

    def __init__(self, path: Path, connection: apsw.Connection) -> None:
        self.path = path
        self._tx = SqliteTransaction(connection)
        self._closing = False
        self._data_version = _data_version(self._tx)
        self._writer = Writer(self._commit)
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="confidant-reader")
        self._local = threading.local()
        self._connections = [connection]  # with those of the readers

    @classmethod
    async def open(cls, path: Path) -> SqliteDatabase:
        """Open the file, creating or migrating it.

        Raises:
            StorageCorrupt: it is not a usable database.
            StorageError: a newer version of the program made it, a restore of it is not complete,
                or it cannot be opened.
        """
        files.must_not_be_restoring(path.parent)
        connection = await asyncio.to_thread(_connect_and_migrate, path)
        return cls(path, connection)

    async def write(self, work: Callable[[Transaction], T]) -> T:
        """Run `work` on the writer and return once it is on disk."""
        return await self._writer.write(work)

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
        self._closing = True
        self._writer.stop()
        await asyncio.to_thread(self._finish)

    # --- the writer's thread ---------------------------------------------------------------------

    def _commit(self, works: Sequence[Work]) -> Sequence[Outcome]:
        tx = self._tx
        tx.has_noted = False
        try:
            tx.execute("BEGIN IMMEDIATE")
            outcomes = [attempt(tx, work) for work in works]
            tx.execute("COMMIT")
        except apsw.Error as exc:
            self._roll_back()
            log.warning("storage.write_failed", error=type(exc).__name__, works=len(works))
            raise mapped(exc) from exc
        except BaseException:
            self._roll_back()
            raise
        if tx.has_noted:
            self._follow_journal()
        return outcomes

    def _roll_back(self) -> None:
        with suppress(apsw.Error):
            if self._tx.connection.in_transaction:
                self._tx.execute("ROLLBACK")

    def _follow_journal(self) -> None:
        """Bring the journal's file up to what is committed, before anybody is told of it."""
        try:
            journal.follow(self._tx, journal.file_of(self.path))
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
        self._writer.join()
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
