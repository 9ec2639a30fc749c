"""The index file: its generations as they come and go, and how one is written."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, TypeVar

import apsw
import structlog

from bot.memory import words
from bot.memory.chunking import Passage
from bot.memory.embed import Embedder
from bot.memory.index import note_files, schema
from bot.memory.index.engine import Chunks, Generation, Packed, Rows, SourceRow, Store, Writing
from bot.memory.index.queries import FileReader
from bot.memory.index.schema import SCOPE_MARK, IndexFile, run
from bot.memory.note_store import NoteStore
from bot.memory.search import Building, Counts, Forgotten
from bot.storage import Row, Value, marks

T = TypeVar("T")

# What a new file mends: one that is damaged, missing, or not what it should be.
MENDED = (
    apsw.CorruptError,
    apsw.NotADBError,
    apsw.SQLError,
    apsw.CantOpenError,
    apsw.IOError,
    apsw.ReadOnlyError,
)

log = structlog.get_logger(__name__)


class FileStore(Store, Writing):
    """The writing side of one generation of the index file, whether in a transaction or not."""

    def __init__(self, file: IndexFile, generation: Generation) -> None:
        super().__init__(generation)
        self._file = file
        self._connection = file.connection

    def run(self, sql: str, parameters: Sequence[Value] = ()) -> list[Row]:
        """See `Store.run`."""
        return run(self._connection, schema.tables(self.generation, sql), parameters)

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
        self.path = folder / schema.NAME
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

    def can_mend(self, error: Exception) -> bool:
        """Note what is wrong with the file; True when another one, or other rows, mend it."""
        if isinstance(error, MENDED):
            self.broken = not self._are_superseded()
            log.warning("memory.index_rebuilt", reason=type(error).__name__)
            return True
        return super().can_mend(error)

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
        self._turn = schema.claim(self.path.parent)
        return self._turn is not None

    def end_turn(self) -> None:
        """Give it back."""
        turn, self._turn = self._turn, None
        if turn is not None:
            os.close(turn)

    def fitting(self) -> Store | None:
        """See `Rows.fitting`; a file that is damaged or gone is made anew first."""
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
        return () if opened is None else schema.generations(opened.connection, which, parameters)

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
            schema.remove(self.path)
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

    `state` is "other" for a file of another version, which is made anew, and "building" while no
    generation of it is whole. `behind` counts the notes that are not in it as they are now.
    """

    state: State
    behind: int = 0


def file_health(folder: Path, notes: NoteStore) -> Health:
    """Look at the index in a folder; for a thread.

    Raises:
        OSError: the notes cannot be looked through.
    """
    path = folder / schema.NAME
    if not path.exists():
        return Health("none")
    try:
        with closing(schema.connect(path, writing=False)) as connection:
            return _look(connection, notes)
    except (apsw.BusyError, apsw.LockedError):
        return Health("building")
    except apsw.Error:
        return Health("damaged")


def _look(connection: apsw.Connection, notes: NoteStore) -> Health:
    if run(connection, "PRAGMA user_version")[0][0] != schema.FORMAT:
        return Health("other")
    if run(connection, "PRAGMA quick_check(1)") != [("ok",)]:
        return Health("damaged")
    live = schema.live(connection)
    if live is None:
        return Health("building")
    notes_there = "SELECT name, id, mtime, size, inode FROM sources@ WHERE kind = 'memory'"
    rows = run(connection, schema.tables(live, notes_there))
    known = {name: note_files.Known(number, (*look,)) for name, number, *look in rows}
    changed, gone = note_files.differences(notes, known, {})
    return Health("ready", len(changed) + len(gone))
