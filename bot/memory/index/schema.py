"""The index file: its tables, its generations, and connections to it.

A generation is one whole set of rows, in tables whose names end in its number; "@" stands for that
ending in SQL. Searches read the live one. A rebuild fills another one beside it; then one
transaction makes that live and drops all others, so nothing that reads has rows to leave out. What
an interrupted rebuild has filled is gone on with. All of it can be made again from the notes and
from what was said.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import apsw

from bot.memory.embed import Embedder, Identity
from bot.memory.index import engine
from bot.memory.index.engine import Generation
from bot.storage import Row, Value, files, fulltext

NAME = "index.db"
_LOCK = "index.lock"  # held by the program that builds a generation
FORMAT = 6  # raise it when the tables change: a file of another format is made anew
BUSY_TIMEOUT_MS = 2_000  # a program that holds the file locked for longer is not waited for
READER_BUSY_TIMEOUT_MS = 500  # a search must not wait long
SCOPE_MARK = "\ue001"  # begins a partition's token, so that no word of a note is one

_PRAGMAS = (
    "PRAGMA auto_vacuum = INCREMENTAL",  # what a rebuild needed goes back to the disk
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = NORMAL",  # what a power cut takes is found again from the notes
    "PRAGMA cache_size = -1000",  # more is not faster: the system keeps the file in memory
    "PRAGMA temp_store = MEMORY",
    "PRAGMA trusted_schema = OFF",
    "PRAGMA secure_delete = ON",  # what is forgotten must not stay in free pages
)
_READER_PRAGMAS = (
    "PRAGMA query_only = ON",
    "PRAGMA cache_size = -1000",
    "PRAGMA temp_store = MEMORY",
    "PRAGMA trusted_schema = OFF",
)

# A number is never given twice. `epoch` moves when chunks get vectors later than others after them.
_GENERATIONS = """CREATE TABLE IF NOT EXISTS generations(
    id INTEGER PRIMARY KEY AUTOINCREMENT, is_live INTEGER NOT NULL DEFAULT 0,
    chunker INTEGER NOT NULL, provider TEXT NOT NULL, model TEXT NOT NULL, endpoint TEXT NOT NULL,
    dims INTEGER NOT NULL DEFAULT 0, epoch INTEGER NOT NULL DEFAULT 0)"""
# `name` is a note's path below the workspace, or a document's id; only documents keep their text.
# In `chunks`, what a scan reads stands before what it does not; an id is never used again, so a
# reader that knows the chunks up to one id need only ask for later ones.
_TABLES = (
    """CREATE TABLE partitions@(
        id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE,
        chunks INTEGER NOT NULL DEFAULT 0, length INTEGER NOT NULL DEFAULT 0)""",
    """CREATE TABLE sources@(
        id INTEGER PRIMARY KEY, kind TEXT NOT NULL, partition INTEGER NOT NULL,
        name TEXT NOT NULL, space TEXT NOT NULL, path TEXT NOT NULL,
        hash BLOB NOT NULL, mtime INTEGER NOT NULL, size INTEGER NOT NULL, inode INTEGER NOT NULL,
        at INTEGER NOT NULL, problem TEXT NOT NULL, text TEXT)""",
    "CREATE UNIQUE INDEX sources_name@ ON sources@(kind, partition, name)",
    """CREATE TABLE chunks@(
        id INTEGER PRIMARY KEY AUTOINCREMENT, source INTEGER NOT NULL, partition INTEGER NOT NULL,
        start_line INTEGER NOT NULL, end_line INTEGER NOT NULL, day INTEGER,
        length INTEGER NOT NULL, signs BLOB, vectors BLOB,
        heading TEXT NOT NULL, body TEXT NOT NULL)""",
    "CREATE INDEX chunks_source@ ON chunks@(source)",
    "CREATE INDEX chunks_day@ ON chunks@(partition, day)",
    "CREATE INDEX chunks_added@ ON chunks@(partition, id)",
    "CREATE INDEX chunks_without_vectors@ ON chunks@(id) WHERE vectors IS NULL",
    f"""CREATE VIRTUAL TABLE chunks_text@ USING fts5(
        scope, heading, body, content = '', contentless_delete = 1,
        tokenize = '{fulltext.TOKENIZER[0]} {" ".join(fulltext.TOKENIZER[1])}')""",
)
_NAMES = ("chunks_text", "chunks", "sources", "partitions")


def tables(generation: Generation, sql: str) -> str:
    """SQL about a generation's own tables, and that of the generations."""
    return sql.replace("generations@", "generations").replace("@", f"_{generation.id}")


class IndexFile:
    """The file, open for writing; used by one thread at a time."""

    def __init__(self, path: Path) -> None:
        """Open it, or make an empty one.

        Raises:
            apsw.Error: it is damaged, of another format, or cannot be written.
        """
        self.path = path
        self.connection = connect(path, writing=True)
        try:
            self._inode = inode(path)
            self.connection.transaction_mode = "IMMEDIATE"
            with self.connection:
                _check_format(self.connection)
                run(self.connection, f"PRAGMA user_version = {FORMAT}")
                run(self.connection, _GENERATIONS)
            self.tokenize = fulltext.tokenizer(self.connection)
            functions: Any = self.connection
            functions.create_scalar_function("folded", fulltext.folded, 1, deterministic=True)
        except BaseException:
            self.connection.close()
            raise

    def close(self) -> None:
        """Release the file."""
        self.connection.close()

    def is_there(self) -> bool:
        """False when the file was removed, or another one stands in its place."""
        return inode(self.path) == self._inode

    def live(self) -> Generation | None:
        """The generation that searches read, if there is one."""
        return live(self.connection)

    def begin(self, embedder: Embedder, outdated: int) -> Generation:
        """A generation to fill: one that was begun this way and is not `outdated`, or a new one."""
        *made, _ = which = engine.filling_for(embedder, outdated)
        with self.connection:
            if found := generations(self.connection, engine.FILLING, which):
                return found[0]
            sql = (
                "INSERT INTO generations(chunker, provider, model, endpoint) VALUES (?, ?, ?, ?) "
                "RETURNING id"
            )
            (row,) = run(self.connection, sql, made)
            (begun,) = generations(self.connection, "id = ?", row)
            for statement in _TABLES:
                run(self.connection, tables(begun, statement))
            return begun
        raise AssertionError  # what goes wrong is raised within

    def has(self, generation: int) -> bool:
        """False when another program has dropped it."""
        return bool(generations(self.connection, "id = ?", (generation,)))

    def put_live(self, generation: int) -> None:
        """Let searches read a generation from now on, and drop all others.

        Raises:
            apsw.SQLError: another program has dropped it.
        """
        with self.connection:
            if not self.has(generation):
                raise apsw.SQLError("no such generation")
            run(self.connection, "UPDATE generations SET is_live = (id = ?)", (generation,))
            self.drop_unfinished()
        with suppress(apsw.BusyError, apsw.LockedError):  # the space is used again all the same
            run(self.connection, "PRAGMA incremental_vacuum")
            run(self.connection, "PRAGMA wal_checkpoint(TRUNCATE)")

    def drop_unfinished(self) -> None:
        """Drop every generation but the live one."""
        with self.connection:
            run(self.connection, "DELETE FROM generations WHERE NOT is_live")
            kept = {str(row[0]) for row in run(self.connection, "SELECT id FROM generations")}
            for (name,) in run(
                self.connection, "SELECT name FROM sqlite_schema WHERE type = 'table'"
            ):
                table, _, number = str(name).rpartition("_")
                if table in _NAMES and number.isdecimal() and number not in kept:
                    run(self.connection, f"DROP TABLE {name}")

    def remove(self) -> None:
        """Close and remove the file, which is damaged; one in its place is left alone."""
        is_ours = self.is_there()
        self.close()
        if is_ours:
            remove(self.path)


def _check_format(connection: apsw.Connection) -> None:
    if run(connection, "PRAGMA user_version")[0][0] not in {0, FORMAT}:
        raise apsw.NotADBError("an index file of another format")


def live(connection: apsw.Connection) -> Generation | None:
    """The generation that searches read, if there is one."""
    found = generations(connection, "is_live")
    return found[0] if found else None


def generations(
    connection: apsw.Connection, which: str, parameters: Sequence[Value] = ()
) -> list[Generation]:
    """The generations that a condition names, in their order."""
    rows = run(
        connection,
        "SELECT id, is_live, chunker, provider, model, endpoint, dims, epoch FROM generations"
        f" WHERE {which} ORDER BY id",
        parameters,
    )
    return [
        Generation(
            *(int(row[0]), bool(row[1]), int(row[2])),
            Identity(str(row[3]), str(row[4]), str(row[5])),
            *(int(row[6]), int(row[7])),
        )
        for row in rows
    ]


def inode(path: Path) -> int:
    """The inode of the file at a path; 0 when there is none."""
    try:
        return path.stat().st_ino
    except OSError:
        return 0


def remove(path: Path) -> None:
    """Remove a database file with its logs."""
    for suffix in ("", "-wal", "-shm", "-journal"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def claim(folder: Path) -> int | None:
    """Take the right to build in a folder, until `os.close`; None while another program has it.

    Raises:
        OSError: the folder cannot be used.
    """
    file = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        return None
    return file


def connect(path: Path, *, writing: bool) -> apsw.Connection:
    """A connection to the file.

    Raises:
        apsw.Error: the file cannot be opened or is no database.
    """
    if writing:
        with suppress(OSError):  # SQLite says better what is wrong
            files.create(path)
    flags = apsw.SQLITE_OPEN_READWRITE | (apsw.SQLITE_OPEN_CREATE if writing else 0)
    connection = apsw.Connection(str(path), flags=flags, statementcachesize=100)
    try:
        connection.set_busy_timeout(BUSY_TIMEOUT_MS if writing else READER_BUSY_TIMEOUT_MS)
        for pragma in _PRAGMAS if writing else _READER_PRAGMAS:
            run(connection, pragma)
    except BaseException:
        connection.close()
        raise
    return connection


def run(connection: apsw.Connection, sql: str, parameters: Sequence[Value] = ()) -> list[Row]:
    """Run one statement and return all its rows; apsw raises what goes wrong."""
    cursor: Any = connection.execute(sql, parameters)  # pyright: ignore[reportUnknownMemberType]
    return cursor.fetchall()
