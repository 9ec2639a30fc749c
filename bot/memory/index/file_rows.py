"""The index file: its generations as they come and go, and how one is written."""

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

from bot.memory import words
from bot.memory.chunking import Passage
from bot.memory.embed import Embedder
from bot.memory.index import note_files
from bot.memory.index.engine import (
    FILLING,
    Chunks,
    Generation,
    Packed,
    Rows,
    SourceRow,
    Store,
    Writing,
    filling_for,
)
from bot.memory.index.queries import (
    FORMAT,
    NAME,
    SCOPE_MARK,
    FileReader,
    connect,
    generations,
    inode,
    live,
    remove,
    run,
    tables,
)
from bot.memory.note_store import NoteStore
from bot.memory.search import Building, Counts, Forgotten
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

_LOCK = "index.lock"  # held by the program that builds a generation

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

log = structlog.get_logger(__name__)


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
        *made, _ = which = filling_for(embedder, outdated)
        with self.connection:
            if found := generations(self.connection, FILLING, which):
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


class FileStore(Store, Writing):
    """The writing side of one generation of the index file, whether in a transaction or not."""

    def __init__(self, file: IndexFile, generation: Generation) -> None:
        super().__init__(generation)
        self._file = file
        self._connection = file.connection

    def run(self, sql: str, parameters: Sequence[Value] = ()) -> list[Row]:
        """See `Store.run`."""
        return run(self._connection, tables(self.generation, sql), parameters)

    def commit(self, work: Callable[[FileStore], T]) -> T:
        """See `Store.commit`; here it is run once."""
        with self._connection:
            return work(self)
        raise AssertionError  # what goes wrong is raised within

    def fit(self, dims: int) -> None:
        """See `Store.fit`."""
        self.run("UPDATE generations@ SET dims = ? WHERE id = ?", (dims, self.generation.id))

    def forget(
        self, paths: Sequence[str], texts: Sequence[str], partitions: Sequence[str]
    ) -> tuple[Forgotten, list[str]]:
        """See `Store.forget`; nothing is left in the file or its log either."""
        self._file.drop_unfinished()  # what is being built may hold them too
        found = super().forget(paths, texts, partitions)
        self.run("INSERT INTO chunks_text@(chunks_text@) VALUES ('optimize')")
        self.run("PRAGMA wal_checkpoint(TRUNCATE)")
        return found

    def counts(self) -> Counts:
        """See `Store.counts`; with the `size` of the file and its log, in bytes."""
        path = self._file.path
        size = sum(each.stat().st_size for each in path.parent.glob(f"{path.name}*"))
        return replace(super().counts(), size=size)

    # --- in a transaction -------------------------------------------------------------------------

    def _add_partition(self, name: str) -> list[Row]:
        return self.run("INSERT INTO partitions@(name) VALUES (?) RETURNING id", (name,))

    def _put_chunks(self, source: int, partition: int, chunks: Chunks) -> int:
        return sum(self._put_chunk((source, partition), *each) for each in chunks)

    def _put_chunk(self, place: tuple[int, int], passage: Passage, packed: Packed | None) -> int:
        """Store a chunk of a (source, partition); how many words it has."""
        text, heading = words.indexed(passage.body), words.indexed(passage.heading)
        length = len(self._file.tokenize(text)) + len(self._file.tokenize(heading))
        self.run(
            """INSERT INTO chunks@(source, partition, start_line, end_line, day, length, vectors,
                   signs, heading, body) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)""",
            (
                *(*place, passage.start_line, passage.end_line),
                *(passage.day.toordinal() if passage.day else None, length),
                *((packed.vectors, packed.signs) if packed else (None, None)),
                *(passage.heading, passage.body),
            ),
        )
        identifier = self._connection.last_insert_rowid()
        self.run(
            "INSERT INTO chunks_text@(rowid, scope, heading, body) VALUES (?, ?, ?, ?)",
            (identifier, f"{SCOPE_MARK}{place[1]}", heading, text),
        )
        return length

    def _put_vectors(self, chunk: int, partition: int, packed: Packed) -> None:
        sql = "UPDATE chunks@ SET vectors = ?, signs = ? WHERE id = ?"
        self.run(sql, (packed.vectors, packed.signs, chunk))
        # Readers that keep signs know only of later chunks; this is none.
        self.run("UPDATE generations@ SET epoch = epoch + 1 WHERE id = ?", (self.generation.id,))

    def _unindex(self, chunks: Sequence[int]) -> None:
        for identifier in chunks:
            self.run("DELETE FROM chunks_text@ WHERE rowid = ?", (identifier,))

    def _holding(self, texts: Sequence[str], partitions: Sequence[str]) -> Iterable[int]:
        found = (
            self.run(
                f"""SELECT DISTINCT c.source FROM chunks@ c JOIN partitions@ p ON p.id = c.partition
                    WHERE p.name IN ({marks(partitions)}) AND instr(folded(c.body), ?) > 0""",
                (*partitions, text),
            )
            for text in texts
        )
        return (int(row[0]) for rows in found for row in rows)


class FileRows(Rows):
    """`Rows` in a file; used by one thread, but for `reader` and `probe`.

    `broken` says that the file was found damaged.
    """

    def __init__(self, notes: NoteStore, folder: Path, embedder: Embedder) -> None:
        super().__init__(embedder)
        self.path = folder / NAME
        self._notes = notes
        self._file: IndexFile | None = None
        self._turn: int | None = None  # held while this program builds
        self._saved: list[SourceRow] = []  # the documents of one that is given up

    @property
    def are_there(self) -> bool:
        """True if there is a file that can be read."""
        opened = self._file
        return opened is not None and opened.is_there()

    def need_attention(self) -> bool:
        """True if the file is damaged or gone, or a rebuild is due."""
        return self.broken or bool(self.outdated) or not self.are_there

    def can_repair(self, error: Exception) -> bool:
        """Note what is wrong with the file; True if a new file or a rebuild repairs it."""
        if isinstance(error, REPAIRABLE):
            self.broken = not self._are_superseded()
            log.warning("memory.index_rebuilt", reason=type(error).__name__)
            return True
        return super().can_repair(error)

    def tidy(self) -> None:
        """Open the file at the start, without what earlier programs left."""
        self._opened_file()

    def close(self) -> None:
        """Release the file."""
        opened, self._file = self._file, None
        if opened is not None:
            opened.close()

    def take_turn(self) -> bool:
        """Take the right to build; False while another program has it."""
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._turn = claim(self.path.parent)
        return self._turn is not None

    def end_turn(self) -> None:
        """Give it back."""
        turn, self._turn = self._turn, None
        if turn is not None:
            os.close(turn)

    def fitting(self) -> Store | None:
        """See `Rows.fitting`; a damaged or missing file is replaced first."""
        self._opened_file()
        return super().fitting()

    def begin(self) -> tuple[Store, list[SourceRow]]:
        """Rows to fill, and the documents that were in the live ones."""
        opened = self._opened_file()
        self._save(opened)
        return self._at(opened.begin(self._embedder, self.outdated)), self._saved

    def put_live(self, store: Store) -> None:
        """Let searches read what was built."""
        self._opened_file().put_live(store.generation.id)
        self.outdated, self._saved = 0, []
        self.generation = f"{self._opened}.{store.generation.id}"

    def building(self) -> Building | None:
        """See `Rows.building`."""
        return super().building() if self._file is not None else None

    def reader(self) -> FileReader:
        """See `Rows.reader`."""
        return FileReader(self.path)

    def _generations(self, which: str, parameters: Sequence[Value] = ()) -> Sequence[Generation]:
        opened = self._file
        return () if opened is None else generations(opened.connection, which, parameters)

    def _store(self, generation: Generation) -> FileStore:
        assert self._file is not None  # noqa: S101 - it has this generation
        return FileStore(self._file, generation)

    def _opened_file(self) -> IndexFile:
        """The file that is there; a damaged one is replaced by an empty one."""
        known = self._file
        if known is not None and (self.broken or not known.is_there()):
            self._save(known)
            self._file = None
            known.remove()
        elif known is None and self.broken:
            remove(self.path)
        if self._file is None:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._notes.make()
            self._file = IndexFile(self.path)
            self._opened += 1
            self._at_work = 0
            self.broken = False
        return self._file

    def _save(self, opened: IndexFile) -> None:
        """Keep the documents of an index that is given up, as far as it can still be read."""
        try:
            live = opened.live()
            self._saved = FileStore(opened, live).documents() if live is not None else self._saved
        except apsw.Error as error:  # what was said is added again from the transcripts
            log.warning("memory.documents_unread", error=type(error).__name__)

    def _are_superseded(self) -> bool:
        """True if another program has built other rows, and dropped those that were at work."""
        try:
            opened = self._file
            return (
                opened is not None
                and opened.is_there()
                and self._at_work > 0
                and not opened.has(self._at_work)
            )
        except apsw.Error:
            return False


# How an index file is, as somebody sees who does not use it and changes nothing in it.

State = Literal["none", "damaged", "other", "building", "ready"]


@dataclass(frozen=True, slots=True)
class Health:
    """An index file.

    `state` is "other" for a file of another version, which is replaced, and "building" while no
    generation of it is whole. `behind` counts the notes that are not in it as they are now.
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
    current = live(connection)
    if current is None:
        return Health("building")
    notes_there = "SELECT name, id, mtime, size, inode FROM sources@ WHERE kind = 'memory'"
    rows = run(connection, tables(current, notes_there))
    known = {name: note_files.Known(number, (*look,)) for name, number, *look in rows}
    changed, gone = note_files.differences(notes, known, {})
    return Health("ready", len(changed) + len(gone))
