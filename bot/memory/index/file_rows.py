"""The index file: how it is opened, begun empty and written."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

import apsw
import structlog

from bot.memory import chunking, words
from bot.memory.chunking import Passage
from bot.memory.embed import Embedder, identity
from bot.memory.index import note_files
from bot.memory.index.engine import Chunks, Packed, Rows, Store, Writing, header_of
from bot.memory.index.queries import (
    FORMAT,
    HEADER,
    NAME,
    SCOPE_MARK,
    FileReader,
    connect,
    inode,
    remove,
    run,
)
from bot.memory.note_store import NoteStore
from bot.memory.search import Counts, Forgotten
from bot.storage import Row, Value, fulltext, marks

T = TypeVar("T")

# Errors that a new file repairs: the old one is damaged, missing, or of the wrong kind.
REPAIRABLE = (
    apsw.CorruptError,
    apsw.NotADBError,
    apsw.SQLError,
    apsw.CantOpenError,
    apsw.IOError,
    apsw.ReadOnlyError,
)

_LOCK = "index.lock"  # held by the program that builds the index, or makes what is missing

# `name` is a note's path below the workspace, or a document's id; only documents keep their text.
# In `chunks`, what a scan reads stands before what it does not; an id is never used again, so a
# reader that knows the chunks up to one id need only ask for later ones. `filled` is the last chunk
# that got vectors; `epoch` moves when one before it does.
_TABLES = (
    """CREATE TABLE memory_index(
        id INTEGER PRIMARY KEY, is_live INTEGER NOT NULL, chunker INTEGER NOT NULL,
        provider TEXT NOT NULL, model TEXT NOT NULL, endpoint TEXT NOT NULL,
        dims INTEGER NOT NULL, epoch INTEGER NOT NULL, filled INTEGER NOT NULL)""",
    """CREATE TABLE memory_partitions(
        id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE,
        chunks INTEGER NOT NULL DEFAULT 0, length INTEGER NOT NULL DEFAULT 0)""",
    """CREATE TABLE memory_sources(
        id INTEGER PRIMARY KEY, kind TEXT NOT NULL, partition INTEGER NOT NULL,
        name TEXT NOT NULL, space TEXT NOT NULL, path TEXT NOT NULL,
        hash BLOB NOT NULL, mtime INTEGER NOT NULL, size INTEGER NOT NULL, inode INTEGER NOT NULL,
        at INTEGER NOT NULL, problem TEXT NOT NULL, text TEXT)""",
    "CREATE UNIQUE INDEX memory_sources_name ON memory_sources(kind, partition, name)",
    """CREATE TABLE memory_chunks(
        id INTEGER PRIMARY KEY AUTOINCREMENT, source INTEGER NOT NULL, partition INTEGER NOT NULL,
        start_line INTEGER NOT NULL, end_line INTEGER NOT NULL, day INTEGER,
        length INTEGER NOT NULL, signs BLOB, vectors BLOB,
        heading TEXT NOT NULL, body TEXT NOT NULL)""",
    "CREATE INDEX memory_chunks_source ON memory_chunks(source)",
    "CREATE INDEX memory_chunks_day ON memory_chunks(partition, day)",
    "CREATE INDEX memory_chunks_added ON memory_chunks(partition, id)",
    "CREATE INDEX memory_chunks_without_vectors ON memory_chunks(id) WHERE vectors IS NULL",
    f"""CREATE VIRTUAL TABLE memory_chunks_text USING fts5(
        scope, heading, body, content = '', contentless_delete = 1,
        tokenize = '{fulltext.TOKENIZER[0]} {" ".join(fulltext.TOKENIZER[1])}')""",
)

log = structlog.get_logger(__name__)


def _begin(connection: apsw.Connection, embedder: Embedder) -> None:
    """Make the tables in an empty file.

    Raises:
        apsw.NotADBError: it is of another format.
    """
    ((version,),) = run(connection, "PRAGMA user_version")
    if version not in {0, FORMAT}:
        raise apsw.NotADBError("an index file of another format")
    if not version:
        for statement in _TABLES:
            run(connection, statement)
        made = (chunking.VERSION, *identity(embedder))
        run(connection, "INSERT INTO memory_index VALUES (1, 0, ?, ?, ?, ?, 0, 0, 0)", made)
        run(connection, f"PRAGMA user_version = {FORMAT}")


class FileStore(Store, Writing):
    """The index file, open for writing, whether in a transaction or not; used by one thread."""

    table = "memory_index"
    read_header = HEADER

    def __init__(self, path: Path, embedder: Embedder) -> None:
        """Open it, or make an empty one.

        Raises:
            apsw.Error: it is damaged, of another format, or cannot be written.
        """
        self.path = path
        self._connection = connect(path, writing=True)
        try:
            self._inode = inode(path)
            self._connection.transaction_mode = "IMMEDIATE"
            with self._connection:
                _begin(self._connection, embedder)
            self._tokenize = fulltext.tokenizer(self._connection)
            functions: Any = self._connection
            functions.create_scalar_function("folded", fulltext.folded, 1, deterministic=True)
        except BaseException:
            self._connection.close()
            raise

    def close(self) -> None:
        """Release the file."""
        self._connection.close()

    def is_there(self) -> bool:
        """False when the file was removed, or another one stands in its place."""
        return inode(self.path) == self._inode

    def run(self, sql: str, parameters: Sequence[Value] = ()) -> list[Row]:
        """See `Tables.run`."""
        return run(self._connection, sql, parameters)

    def commit(self, work: Callable[[FileStore], T]) -> T:
        """See `Store.commit`; here it is run once."""
        with self._connection:
            return work(self)
        raise AssertionError  # what goes wrong is raised within

    def finish(self) -> None:
        """See `Store.finish`; what is not needed any more goes back to the disk."""
        super().finish()
        with suppress(apsw.BusyError, apsw.LockedError):  # the space is used again all the same
            self.run("PRAGMA incremental_vacuum")
            self.run("PRAGMA wal_checkpoint(TRUNCATE)")

    def forget(
        self, paths: Sequence[str], texts: Sequence[str], partitions: Sequence[str]
    ) -> tuple[Forgotten, list[str]]:
        """See `Store.forget`; nothing is left in the file or its log either."""
        found = super().forget(paths, texts, partitions)
        self.run("INSERT INTO memory_chunks_text(memory_chunks_text) VALUES ('optimize')")
        self.run("PRAGMA wal_checkpoint(TRUNCATE)")
        return found

    def counts(self) -> Counts:
        """See `Store.counts`; with the `size` of the file and its log, in bytes."""
        size = sum(each.stat().st_size for each in self.path.parent.glob(f"{self.path.name}*"))
        return replace(super().counts(), size=size)

    # --- in a transaction -------------------------------------------------------------------------

    def _add_partition(self, name: str) -> list[Row]:
        return self.run("INSERT INTO memory_partitions(name) VALUES (?) RETURNING id", (name,))

    def _put_chunks(self, source: int, partition: int, chunks: Chunks) -> int:
        return sum(self._put_chunk((source, partition), *each) for each in chunks)

    def _put_chunk(self, place: tuple[int, int], passage: Passage, packed: Packed | None) -> int:
        """Store a chunk of a (source, partition); how many words it has."""
        text, heading = words.indexed(passage.body), words.indexed(passage.heading)
        length = len(self._tokenize(text)) + len(self._tokenize(heading))
        self.run(
            """INSERT INTO memory_chunks(source, partition, start_line, end_line, day, length,
                   vectors, signs, heading, body) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)""",
            (
                *(*place, passage.start_line, passage.end_line),
                *(passage.day.toordinal() if passage.day else None, length),
                *((packed.vectors, packed.signs) if packed else (None, None)),
                *(passage.heading, passage.body),
            ),
        )
        identifier = self._connection.last_insert_rowid()
        self.run(
            "INSERT INTO memory_chunks_text(rowid, scope, heading, body) VALUES (?, ?, ?, ?)",
            (identifier, f"{SCOPE_MARK}{place[1]}", heading, text),
        )
        if packed is not None:
            self._filled(identifier)
        return length

    def _put_vectors(self, chunk: int, partition: int, packed: Packed) -> None:
        sql = "UPDATE memory_chunks SET vectors = ?, signs = ? WHERE id = ?"
        self.run(sql, (packed.vectors, packed.signs, chunk))
        self._filled(chunk)

    def _filled(self, chunk: int) -> None:
        """Note that a chunk has vectors: readers that keep signs ask only for later ones."""
        sql = "UPDATE memory_index SET epoch = epoch + (filled > ?), filled = max(filled, ?)"
        self.run(sql, (chunk, chunk))

    def _clear(self, chunks: Sequence[int]) -> None:
        of_chunks = f"memory_chunks SET vectors = NULL, signs = NULL WHERE id IN ({marks(chunks)})"
        self.run(f"UPDATE {of_chunks}", chunks)
        self.run("UPDATE memory_index SET epoch = epoch + 1, filled = 0")

    def _unindex(self, chunks: Sequence[int]) -> None:
        for identifier in chunks:
            self.run("DELETE FROM memory_chunks_text WHERE rowid = ?", (identifier,))

    def _holding(self, texts: Sequence[str], partitions: Sequence[str]) -> Iterable[int]:
        found = (
            self.run(
                f"""SELECT DISTINCT c.source FROM memory_chunks c
                    JOIN memory_partitions p ON p.id = c.partition
                    WHERE p.name IN ({marks(partitions)}) AND instr(folded(c.body), ?) > 0""",
                (*partitions, text),
            )
            for text in texts
        )
        return (int(row[0]) for rows in found for row in rows)


class FileRows(Rows):
    """`Rows` in a file; used by one thread, but for `reader` and what is asked of it.

    `broken` says that the file was found damaged.
    """

    def __init__(self, notes: NoteStore, folder: Path, embedder: Embedder) -> None:
        super().__init__(embedder)
        self.path = folder / NAME
        self._notes = notes
        self._file: FileStore | None = None
        self._opened = 0  # how often
        self._turn: int | None = None  # held while this program builds

    @property
    def are_there(self) -> bool:
        """True if there is a file that can be read."""
        opened = self._file
        return opened is not None and opened.is_there()

    def need_attention(self) -> bool:
        """True if the file is damaged or gone, or its vectors have another length."""
        return self.broken or self.outdated or not self.are_there

    def can_repair(self, error: Exception) -> bool:
        """Note what is wrong with the file; True if a new one repairs it."""
        if not isinstance(error, REPAIRABLE):
            return False
        self.broken = True
        log.warning("memory.index_rebuilt", reason=type(error).__name__)
        return True

    def close(self) -> None:
        """Release the file."""
        opened, self._file = self._file, None
        if opened is not None:
            opened.close()

    def take_turn(self) -> bool:
        """See `Rows.take_turn`; a lock beside the file says whose it is."""
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        lock = os.open(self.path.parent / _LOCK, flags, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            return False
        self._turn = lock
        return True

    def end_turn(self) -> None:
        """Give it back."""
        turn, self._turn = self._turn, None
        if turn is not None:
            os.close(turn)

    def store(self) -> FileStore:
        """See `Rows.store`; a damaged file is replaced by an empty one."""
        known = self._file
        if self.broken or not self.are_there:
            self.close()
            if self.broken and (known is None or known.is_there()):  # else another one is there
                remove(self.path)
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._notes.make()
            known = self._file = FileStore(self.path, self._embedder)
            self._opened += 1
            self.generation = str(self._opened)
            self.broken = False
        assert known is not None  # noqa: S101 - it is there
        return known

    def known(self) -> FileStore | None:
        """See `Rows.known`."""
        return self._file

    def reader(self) -> FileReader:
        """See `Rows.reader`."""
        return FileReader(self.path)


# How an index file is, as somebody sees who does not use it and changes nothing in it.

State = Literal["none", "damaged", "other", "building", "ready"]


@dataclass(frozen=True, slots=True)
class Health:
    """An index file.

    `state` is "other" for a file of another version, which is replaced, and "building" while not
    every note was in it. `behind` counts the notes that are not in it as they are now.
    """

    state: State
    behind: int = 0


def file_health(folder: Path, notes: NoteStore) -> Health:
    """Look at the index in a folder; for a thread.

    Raises:
        OSError: the notes cannot be looked through.
    """
    path = folder / NAME
    if not path.exists():
        return Health("none")
    try:
        with closing(connect(path, writing=False)) as connection:
            return _look(connection, notes)
    except (apsw.BusyError, apsw.LockedError):
        return Health("building")
    except apsw.Error:
        return Health("damaged")


def _look(connection: apsw.Connection, notes: NoteStore) -> Health:
    if run(connection, "PRAGMA user_version")[0][0] != FORMAT:
        return Health("other")
    if run(connection, "PRAGMA quick_check(1)") != [("ok",)]:
        return Health("damaged")
    current = header_of(run(connection, HEADER))
    if current is None or not current.is_live:
        return Health("building")
    notes_there = "SELECT name, id, mtime, size, inode FROM memory_sources WHERE kind = 'memory'"
    rows = run(connection, notes_there)
    known = {name: note_files.Known(number, (*look,)) for name, number, *look in rows}
    changed, gone = note_files.differences(notes, known, {})
    return Health("ready", len(changed) + len(gone))
