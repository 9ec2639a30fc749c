"""The two kinds of home for all data: a storage folder or a PostgreSQL, notes as files or rows."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager, closing
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, TypeVar

import apsw
import orjson

from bot.cluster import census
from bot.cluster.extra import needing_extra
from bot.errors import ConfidantError, StorageBusy, StorageClosed, StorageError
from bot.memory import layout
from bot.memory.note_store import FolderNotes
from bot.memory.row_notes import space_of
from bot.recovery import TRANSCRIPTS
from bot.storage import Database, Row, Transaction, files, fulltext, scalar, scalars, sqlite, upsert
from bot.storage.files import DATABASE_NAME, DataDirLock
from bot.storage.records import MOVE, must_be_whole
from bot.storage.sqlite import SqliteDatabase
from bot.storage.sqlite_sql import SqliteTransaction, mapped
from bot.storage.tables import MOVED

if TYPE_CHECKING:
    from bot.storage.postgres_sql import PostgresTransaction

T = TypeVar("T")

WORKSPACE = "workspace"
_SHOWN = 5  # names in a message
_ALL = 1 << 40  # bytes of a note that are read
_MS = 1_000_000  # ns
# However long others take with what is read, the server must not end the transaction meanwhile.
_SNAPSHOT = """BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;
    SET LOCAL idle_in_transaction_session_timeout = 0; SET LOCAL statement_timeout = 0"""


# --- notes ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Note:
    """One note: its path below the workspace, its content, and when it changed (ms)."""

    path: str
    data: bytes
    changed_at: int


class Files:
    """Notes as files of a workspace."""

    def __init__(self, root: Path) -> None:
        self._root = root

    async def paths(self) -> Sequence[str]:
        """The paths of all notes, in order.

        Raises:
            ConfidantError: some cannot be looked at.
        """
        return await asyncio.to_thread(self._paths)

    def _paths(self) -> Sequence[str]:
        if not self._root.is_dir():
            return ()
        refused: dict[str, str] = {}
        try:
            found = FolderNotes(self._root).walk((), layout.is_note, layout.MAX_PARTS, refused)
            paths = sorted(seen.path for seen in found)
        except OSError as exc:
            raise ConfidantError(f"{self._root} cannot be read: {exc.strerror}.") from exc
        if refused:
            names = ", ".join(sorted(refused)[:_SHOWN])
            raise ConfidantError(
                f"These folders of {self._root} cannot be looked into: {names}. Nothing is moved "
                "without them: mend their permissions, or take them out of the workspace."
            )
        return paths

    async def read(self, path: str) -> Note:
        """One of them.

        Raises:
            ConfidantError: it cannot be read.
        """
        try:
            data, seen = await asyncio.to_thread(FolderNotes(self._root).read, path, _ALL)
        except OSError as exc:
            raise ConfidantError(f"The note {path} cannot be read: {exc.strerror}.") from exc
        return Note(path, data, seen.look[0] // _MS)

    async def write(self, note: Note) -> None:
        """Put a note there, in the place of one with its path; it has the time of its last change.

        Raises:
            ConfidantError: it cannot be written.
        """
        path, at = self._root / PurePosixPath(note.path), note.changed_at * _MS
        try:
            # No note has such a name, so what a kill leaves of it is none.
            await asyncio.to_thread(files.put, path, note.data, ".moving", at)
        except OSError as exc:
            raise ConfidantError(
                f"The note {note.path} cannot be written: {exc.strerror}."
            ) from exc

    async def others(self) -> int:
        """The number of files that are no notes, and are not moved."""

        def count() -> int:
            return sum(len(names) for _, _, names in os.walk(self._root)) - len(self._paths())

        return await asyncio.to_thread(count)


class Rows:
    """Notes as rows of the table `notes`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def paths(self) -> Sequence[str]:
        """See `Files.paths`."""
        return await self._database.read(
            lambda tx: scalars(tx, "SELECT path FROM notes ORDER BY path")
        )

    async def read(self, path: str) -> Note:
        """See `Files.read`."""
        rows = await self._database.read(
            lambda tx: tx.execute("SELECT text, changed_at FROM notes WHERE path = ?", (path,))
        )
        if not rows:
            raise StorageError(f"The note {path} has gone meanwhile.")
        return Note(path, str(rows[0][0]).encode(), int(rows[0][1]))

    async def write(self, note: Note) -> None:
        """See `Files.write`."""
        await self._database.write(
            lambda tx: upsert(
                tx,
                "notes",
                path=note.path,
                space=space_of(note.path),
                version=1,
                text=note.data.decode(),
                size=len(note.data),
                made_at=note.changed_at,
                changed_at=note.changed_at,
            )
        )

    async def others(self) -> int:
        """None: there are only rows."""
        return 0


def must_be_text(notes: Sequence[Note]) -> None:
    """Make sure that notes can be rows.

    Raises:
        ConfidantError: some are no text.
    """
    bad: list[str] = []
    for note in notes:
        try:
            note.data.decode()
        except UnicodeDecodeError:
            bad.append(note.path)
    if bad:
        names = ", ".join(bad[:_SHOWN]) + (", …" if len(bad) > _SHOWN else "")
        raise ConfidantError(
            f"These notes are not written in UTF-8, which a database asks for: {names}. Nothing "
            "was moved: save them as UTF-8, or take them out of the workspace."
        )


# --- places ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Home:
    """One home for all data.

    Attributes:
        name: what people know it by; it holds no password.
        database: its tables.
        notes: its notes.
        is_shared: many nodes may run on it.
    """

    name: str
    database: Database
    notes: Files | Rows
    is_shared: bool

    @property
    def identity(self) -> str:
        """Another one for each place."""
        return identity_of(self.name)


def identity_of(name: str) -> str:
    """The id of a place of this name where something was moved from it."""
    return blake2b(name.encode(), digest_size=16).hexdigest()


@asynccontextmanager
async def folder(path: Path, workspace: Path | None = None) -> AsyncGenerator[Home]:
    """A storage folder on which no program runs, with a workspace.

    Without a workspace it is to be filled, with one inside, and is made if it is not there.

    Raises:
        StorageBusy: a program runs on it.
        StorageError: it cannot be used; there is nothing in it, or, when it is to be filled,
            somebody has used it without its database.
    """
    is_there = (path / DATABASE_NAME).exists()
    if workspace is not None and not is_there:
        raise StorageError(f"There is no database in {path}: nothing can be moved.")
    left = (path / TRANSCRIPTS, path / files.BACKUPS, path / WORKSPACE)
    if not is_there and any(map(_holds_something, left)):
        raise StorageError(
            f"{path} holds transcripts, notes or copies of its own. Nothing was changed: "
            "choose another folder."
        )
    with DataDirLock(path):
        files.must_not_be_erasing(path)
        async with await SqliteDatabase.open(path / DATABASE_NAME) as database:
            notes = Files(workspace or path / WORKSPACE)
            yield Home(str(path.resolve()), database, notes, is_shared=False)  # noqa: ASYNC240


@asynccontextmanager
async def server(url: str, node_timeout: float) -> AsyncGenerator[Home]:
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
        await must_be_still(database, database.place, node_timeout)
        yield Home(database.place, database, Rows(database), is_shared=True)
    finally:
        await database.close()


@asynccontextmanager
async def server_now(url: str, cluster: str) -> AsyncGenerator[Home]:
    """Everything on a server as it is at this moment, read in one transaction; nodes may run on it.

    Raises:
        StorageError: it cannot be reached, has no tables or newer ones, or is another cluster's.
        ConfigError: the extra for it is not installed.
    """
    with needing_extra():
        import psycopg  # noqa: PLC0415 - its packages are an extra

        from bot.storage import postgres_link, postgres_schema  # noqa: PLC0415

    def connected() -> PostgresTransaction:
        with ExitStack() as undoing:
            try:
                connection = psycopg.connect(url, **postgres_link.OPTIONS)
                undoing.callback(connection.close)
                postgres_link.configure(connection)
                signals = postgres_link.Signals()
                tx = postgres_link.PostgresTransaction(connection, signals, fulltext.Words())
                connection.execute(_SNAPSHOT)
                postgres_schema.check_made(tx)
                postgres_schema.check_cluster(tx, cluster)
                must_be_whole(tx)
            except psycopg.Error as exc:
                raise postgres_link.unusable(exc, postgres_link.place_of(url)) from exc
            undoing.pop_all()
        return tx

    database = ReadOnly()
    try:
        await database.begin(connected)
        yield Home(postgres_link.place_of(url), database, Rows(database), is_shared=True)
    finally:
        await database.close()


async def must_be_still(database: Database, name: str, node_timeout: float) -> None:
    """Make sure that no node runs on a server.

    Raises:
        StorageBusy: some do.
    """
    if alive := await database.read(lambda tx: census.alive(tx, node_timeout)):
        nodes = "node" if alive == 1 else "nodes"
        raise StorageBusy(f"Confidant runs on {name} ({alive} {nodes}). Stop all nodes first.")


class ReadOnly:
    """`bot.storage.Database` over one connection, in a thread of its own; it only reads."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="confidant-snapshot")
        self._tx: SqliteTransaction | PostgresTransaction | None = None

    async def begin(self, connect: Callable[[], SqliteTransaction | PostgresTransaction]) -> None:
        """Connect; what is committed until then is seen.

        Raises:
            StorageError: that failed.
        """
        try:
            self._tx = await asyncio.get_running_loop().run_in_executor(self._thread, connect)
        except apsw.Error as exc:
            raise mapped(exc) from exc

    async def read(self, work: Callable[[Transaction], T]) -> T:
        """Run `work`."""
        tx = self._tx
        if tx is None:
            raise StorageClosed
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, work, tx)
        except Exception as exc:
            raise tx.mapped(exc) from exc

    async def write(self, work: Callable[[Transaction], T]) -> T:
        """Never.

        Raises:
            StorageClosed: always.
        """
        raise StorageClosed("What is only read is not written to.")

    async def close(self) -> None:
        """Disconnect."""
        self._thread.shutdown()
        if self._tx is not None:
            self._tx.connection.close()


def _holds_something(path: Path) -> bool:
    if path.is_dir():
        return any(path.iterdir())
    return path.exists() and path.stat().st_size > 0


# The rows of each table, read and written in the same way on both engines.
#
# Which tables there are is in `bot.storage.tables`; their columns are asked of a database itself.

AT_ONCE = 200  # rows that are read or written together
# What is said in a database about itself: how far a move is, and which cluster it belongs to.
_OWN_META = f"substr(key, 1, {len(MOVE)}) <> '{MOVE}' AND key <> 'cluster'"
_SIZE = 16  # bytes of a digest
_NUL = "\U0010ffff"  # what PostgreSQL keeps in the place of the one character it cannot

Key = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Digest:
    """The number of rows of a table, and their checksum in whatever order."""

    rows: int = 0
    sum: int = 0

    def of(self, rows: Iterable[Row]) -> Digest:
        """With some more rows."""
        count, total = self.rows, self.sum
        for row in rows:
            line = orjson.dumps([_canonical(value) for value in row])
            count += 1
            total += int.from_bytes(blake2b(line, digest_size=_SIZE).digest())
        return Digest(count, total % (1 << 8 * _SIZE))

    def __str__(self) -> str:
        return f"{self.sum:0{2 * _SIZE}x}"


@dataclass(frozen=True, slots=True)
class TableRows:
    """The rows of one table; `serial` is the column that numbers them, or empty."""

    name: str
    columns: tuple[str, ...]
    key: tuple[str, ...]
    serial: str

    def page(self, tx: Transaction, after: Key | None) -> list[Row]:
        """The next rows behind a key, in the order of their keys."""
        conditions = [_OWN_META] if self.name == "meta" else []
        names = ", ".join(self.key)
        if after is not None:
            conditions.append(f"({names}) > ({', '.join('?' * len(after))})")
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        return tx.execute(
            f"SELECT {', '.join(self.columns)} FROM {self.name}{where} ORDER BY {names} LIMIT ?",
            (*(after or ()), AT_ONCE),
        )

    def last(self, tx: Transaction) -> Key | None:
        """The key of the last row, if there is any."""
        where = f" WHERE {_OWN_META}" if self.name == "meta" else ""
        order = ", ".join(f"{name} DESC" for name in self.key)
        rows = tx.execute(
            f"SELECT {', '.join(self.key)} FROM {self.name}{where} ORDER BY {order} LIMIT 1"
        )
        return rows[0] if rows else None

    def key_of(self, row: Row) -> Key:
        """The key of a row."""
        return tuple(row[self.columns.index(name)] for name in self.key)

    def count(self, tx: Transaction) -> int:
        """The number of rows, with those of `meta` that are about the database itself."""
        return scalar(tx, f"SELECT count(*) FROM {self.name}")

    def put(self, tx: Transaction, rows: Sequence[Row]) -> None:
        """Add rows."""
        marks = f"({', '.join('?' * len(self.columns))})"
        tx.execute(
            f"INSERT INTO {self.name}({', '.join(self.columns)}) "
            f"VALUES {', '.join([marks] * len(rows))}",
            [value for row in rows for value in row],
        )

    def clear(self, tx: Transaction) -> None:
        """Remove all rows."""
        where = f" WHERE {_OWN_META}" if self.name == "meta" else ""
        tx.execute(f"DELETE FROM {self.name}{where}")


@cache
def all_tables() -> tuple[TableRows, ...]:
    """All tables that a backup holds and a move copies, by name."""
    with closing(apsw.Connection(":memory:")) as connection:
        tx = SqliteTransaction(connection)
        sqlite.migrate(tx, Path(), keeps=False)
        return tuple(_all(tx))


def _all(tx: Transaction) -> Iterator[TableRows]:
    for table in sorted(MOVED, key=lambda each: each.name):
        found = tx.execute("SELECT name, type, pk FROM pragma_table_info(?)", (table.name,))
        # Every other number is a BIGINT.
        serial = next((str(name) for name, kind, pk in found if pk and kind == "INTEGER"), "")
        yield TableRows(table.name, tuple(str(row[0]) for row in found), table.key, serial)


def _canonical(value: object) -> object:
    """A value as both engines have it, for JSON."""
    if isinstance(value, str):
        return value.replace(_NUL, "\0")
    return {"bytes": value.hex()} if isinstance(value, bytes) else value
