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

from bot.memory import chunking, words
from bot.memory.chunking import Passage
from bot.memory.embed import Embedder, identity
from bot.memory.index import note_files, schema
from bot.memory.index.engine import DimsChanged, Packed, SourceRow, Store
from bot.memory.index.queries import FileReader
from bot.memory.index.schema import (
    EXTENSION_ERRORS,
    SCOPE_MARK,
    VECTORS,
    Extension,
    Generation,
    IndexFile,
    run,
)
from bot.memory.note_store import NoteStore
from bot.memory.search import BEING_BUILT, Building, Counts, Forgotten, Probe
from bot.storage import Row, Value, fulltext, marks

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


class FileStore(Store):  # the tables of an index are one thing to write
    """The writing side of one generation of the index file."""

    bare_column = "bits"

    def __init__(self, file: IndexFile, generation: Generation) -> None:
        super().__init__(generation)
        self._tables = generation.tables
        self.has_vec = file.has_vec
        self._file = file
        self._connection = file.connection

    def commit(self, work: Callable[[FileStore], T]) -> T:
        """See `Store.commit`; here it is run once."""
        with self._connection:
            return work(self)
        raise AssertionError  # what goes wrong is raised within

    def dims(self) -> int:
        """The length of the vectors; 0 until there are any."""
        rows = self.run("SELECT dims FROM generations WHERE id = ?", (self.generation.id,))
        return int(rows[0][0]) if rows else 0

    def fit(self, dims: int) -> None:
        """See `Store.fit`."""
        with self._connection:
            sql = "UPDATE generations SET dims = ? WHERE id = ?"
            self.run(sql, (dims, self.generation.id))
            self._make_vectors(dims)

    # --- sources ----------------------------------------------------------------------------------

    def put(self, source: SourceRow, chunks: Sequence[tuple[Passage, Packed | None]]) -> None:
        """Store a source with its chunks and their vectors, in the place of what it was before.

        One that another program has stored just so meanwhile is left as it is.
        """
        self.run("INSERT OR IGNORE INTO partitions@(name) VALUES (?)", (source.partition,))
        named = self.run("SELECT id FROM partitions@ WHERE name = ?", (source.partition,))
        partition = int(named[0][0])
        old = self.run(
            "SELECT id, hash, mtime, size, inode, at, problem FROM sources@"
            " WHERE kind = ? AND partition = ? AND name = ?",
            (source.kind, partition, source.name),
        )
        for identifier, *before in old:
            if (*before,) == source.look:
                return
            self._remove(int(identifier))
        self.run(
            """INSERT INTO sources@(kind, partition, name, space, path, hash, mtime, size, inode,
                   at, problem, text) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)""",
            source.row(partition),
        )
        identifier = self._connection.last_insert_rowid()
        count, length = 0, 0
        for passage, packed in chunks:
            length += self._put_chunk((identifier, partition), passage, packed)
            count += 1
        self._count(partition, count, length)

    def remove(self, sources: Iterable[int]) -> None:
        """Take sources out."""
        with self._connection:
            for source in sources:
                self._remove(source)

    def forget(
        self, paths: Sequence[str], texts: Sequence[str], partitions: Sequence[str]
    ) -> tuple[Forgotten, list[str]]:
        """Remove notes by path, and every source in some partitions that holds one of the texts.

        Nothing of them is left in the file or its log. Also the texts that their vectors were of.
        """
        notes, said = self.sources("memory"), self.sources("transcript")
        wanted = {known.id for (_, name), known in notes.items() if name in paths}
        for folded in filter(None, map(fulltext.folded, texts)):
            rows = self.run(
                f"""SELECT DISTINCT c.source FROM chunks@ c JOIN partitions@ p ON p.id = c.partition
                    WHERE p.name IN ({marks(partitions)}) AND instr(folded(c.body), ?) > 0""",
                (*partitions, folded),
            )
            wanted.update(int(row[0]) for row in rows)
        of_vectors = [
            text
            for source in wanted
            for row in self.run("SELECT heading, body FROM chunks@ WHERE source = ?", (source,))
            for text in chunking.windows_of(str(row[0]), str(row[1]))
        ]

        def work(_: FileStore) -> list[bool]:
            self._file.drop_unfinished()  # what is being built may hold them too
            return [each for source in wanted for each in self._remove(source)]

        removed = self.commit(work)
        self.run("INSERT INTO chunks_text@(chunks_text@) VALUES ('optimize')")
        self.run("PRAGMA wal_checkpoint(TRUNCATE)")
        documents = len(wanted & {known.id for known in said.values()})
        return Forgotten(len(removed), sum(removed), documents), of_vectors

    # --- vectors ----------------------------------------------------------------------------------

    def set_vectors(self, chunk: int, packed: Packed | None, problem: str) -> None:
        """Give a chunk its vectors, if there are any, and say what is wrong with its note."""
        if problem:
            self.run(
                "UPDATE sources@ SET problem = ? WHERE problem = '' AND kind <> 'transcript' "
                "AND id = (SELECT source FROM chunks@ WHERE id = ?)",
                (problem, chunk),
            )
        rows = self.run("SELECT partition FROM chunks@ WHERE id = ?", (chunk,))
        if packed is not None and rows:
            self.run(
                "UPDATE chunks@ SET bits = ?, vectors = ?, signs = ? WHERE id = ?",
                (*packed, chunk),
            )
            self._put_bits(chunk, int(rows[0][0]), packed.bits)
            # Readers that keep signs know only of later chunks; this is none.
            self.run("UPDATE generations SET epoch = epoch + 1 WHERE id = ?", (self.generation.id,))

    def rebuild_vectors(self) -> None:
        """Fill the vector table from the chunks, when it was written without sqlite-vec."""
        dims = self.dims()
        if not self.has_vec or not dims:
            return
        self._make_vectors(dims)
        stored = {row[0] for row in self.run("SELECT rowid FROM chunks_vectors@")}
        rows = self.run("SELECT id, partition, bits FROM chunks@ WHERE bits IS NOT NULL")
        if stored == {row[0] for row in rows}:  # ids are never used again
            return
        self.run("DELETE FROM chunks_vectors@")
        for identifier, partition, bits in rows:
            self._put_bits(int(identifier), int(partition), bits)

    # ----------------------------------------------------------------------------------------------

    def _put_chunk(self, place: tuple[int, int], passage: Passage, packed: Packed | None) -> int:
        """Store a chunk of a (source, partition); how many words it has."""
        text, heading = words.indexed(passage.body), words.indexed(passage.heading)
        length = len(self._file.tokenize(text)) + len(self._file.tokenize(heading))
        self.run(
            """INSERT INTO chunks@(source, partition, start_line, end_line, day, length, bits,
                   vectors, signs, heading, body) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)""",
            (
                *(*place, passage.start_line, passage.end_line),
                *(passage.day.toordinal() if passage.day else None, length),
                *(packed or (None, None, None)),
                *(passage.heading, passage.body),
            ),
        )
        identifier = self._connection.last_insert_rowid()
        self.run(
            "INSERT INTO chunks_text@(rowid, scope, heading, body) VALUES (?, ?, ?, ?)",
            (identifier, f"{SCOPE_MARK}{place[1]}", heading, text),
        )
        if packed is not None:
            self._put_bits(identifier, place[1], packed.bits)
        return length

    def _put_bits(self, chunk: int, partition: int, bits: bytes) -> None:
        if self.has_vec:
            self.run(
                "INSERT INTO chunks_vectors@(rowid, partition, bits) VALUES (?, ?, vec_bit(?))",
                (chunk, partition, bits),
            )

    def _make_vectors(self, dims: int) -> None:
        if self.has_vec:
            self.run(VECTORS.replace("{bits}", str(-(-dims // 8) * 8)))

    def _remove(self, source: int) -> list[bool]:
        """Take a source out; for each of its chunks, whether it had vectors."""
        rows = self.run(
            "SELECT id, partition, length, bits IS NOT NULL FROM chunks@ WHERE source = ?",
            (source,),
        )
        for identifier, partition, length, has_vectors in rows:
            self.run("DELETE FROM chunks_text@ WHERE rowid = ?", (identifier,))
            if has_vectors and self.has_vec:
                self.run("DELETE FROM chunks_vectors@ WHERE rowid = ?", (identifier,))
            self._count(int(partition), -1, -int(length))
        self.run("DELETE FROM chunks@ WHERE source = ?", (source,))
        self.run("DELETE FROM sources@ WHERE id = ?", (source,))
        return [bool(row[3]) for row in rows]

    def _count(self, partition: int, chunks: int, length: int) -> None:
        self.run(
            "UPDATE partitions@ SET chunks = chunks + ?, length = length + ? WHERE id = ?",
            (chunks, length, partition),
        )

    def run(self, sql: str, parameters: Sequence[Value] = ()) -> list[Row]:
        """See `Store.run`."""
        return run(self._connection, self._tables(sql), parameters)


class FileRows:  # they share what is known of the file
    """`bot.memory.index.engine.Rows` in a file; used by one thread, but for `reader` and `probe`.

    `broken` says that the file was found damaged.
    """

    def __init__(
        self, notes: NoteStore, folder: Path, embedder: Embedder, extension: Extension
    ) -> None:
        self.path = folder / schema.NAME
        self.broken = False
        self.generation = ""  # another one after each rebuild, by whatever program
        self._notes = notes
        self._embedder = embedder
        self._extension = extension
        self._file: IndexFile | None = None
        self._opened = 0  # how often a file was
        self._turn: int | None = None  # held while this program builds
        self._at_work = 0  # the generation that is written to, or was last
        self.outdated = 0  # the generation whose vectors have another length than the embedder's
        self._saved: list[SourceRow] = []  # the documents of one that is given up
        self._known: Counts | None = None  # what is in the file, or was

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
        if isinstance(error, DimsChanged):
            self.outdated = self._at_work
        elif isinstance(error, MENDED):
            self.broken = not self._are_superseded()
            log.warning("memory.index_rebuilt", reason=type(error).__name__)
        else:
            return False
        return True

    def tidy(self) -> None:
        """Open the file at the start, without what earlier programs left."""
        opened = self._opened_file()
        if (live := opened.live()) is not None:
            FileStore(opened, live).commit(FileStore.rebuild_vectors)

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

    def fitting(self) -> FileStore | None:
        """The live rows, or None when there are none or others have to be made."""
        opened = self._opened_file()
        live = opened.live()
        if (
            live is None
            or live.id == self.outdated
            or not live.is_made_by(identity(self._embedder))
        ):
            return None
        self.outdated = 0
        return self._store(opened, live)

    def begin(self) -> tuple[FileStore, list[SourceRow]]:
        """Rows to fill, and the documents that were in the live ones."""
        opened = self._opened_file()
        self._save(opened)
        begun = opened.begin(chunking.VERSION, identity(self._embedder), self.outdated)
        return self._store(opened, begun), self._saved

    def put_live(self, store: Store) -> None:
        """Let searches read what was built."""
        self._opened_file().put_live(store.generation.id)
        self.outdated, self._saved = 0, []
        self.generation = f"{self._opened}.{store.generation.id}"

    def live(self) -> FileStore | None:
        """The rows that searches read; None while there are none that can be written to."""
        if self._file is None or self.need_attention():
            return None
        live = self._file.live()
        return self._store(self._file, live) if live is not None else None

    def count(self, *, is_well: bool) -> tuple[Counts | None, str]:
        """The contents in numbers, and what is missing; before the first rows if all is well.

        While the file is made anew it is what it held before.
        """
        live = self._file.live() if self._file is not None else None
        if self._file is not None and live is not None:
            size = sum(p.stat().st_size for p in self.path.parent.glob(f"{self.path.name}*"))
            self._known = replace(FileStore(self._file, live).counts(), size=size)
            if not self._file.has_vec and self._embedder.provider != "none":
                return self._known, "sqlite-vec cannot be loaded: a slower way is used"
        elif self._known is None and is_well:
            return None, BEING_BUILT
        return self._known, ""

    def building(self) -> Building | None:
        """See `Rows.building`."""
        opened = self._file
        if opened is None:
            return None
        live, made = opened.live(), identity(self._embedder)
        is_usable = live is not None and live.id != self.outdated
        usable = live if is_usable else None
        if usable is not None and usable.is_made_by(made):
            return None
        filling = opened.filling(chunking.VERSION, made, self.outdated)
        done = FileStore(opened, filling).counts().files if filling is not None else 0
        before = FileStore(opened, live).counts() if live is not None else self._known
        return Building(
            done,
            max(done, before.files if before is not None else 0),
            beside=live is not None,
            by_meaning=usable is not None and usable.embedder == made,
        )

    def reader(self) -> FileReader:
        """See `Rows.reader`."""
        return FileReader(self.path, self._extension)

    def probe(self) -> Probe:
        """Check that sqlite-vec can be loaded here."""
        with closing(apsw.Connection(":memory:")) as connection:
            try:
                self._extension(connection)
                ((version,),) = run(connection, "SELECT vec_version()")
            except EXTENSION_ERRORS as error:
                why = f"sqlite-vec cannot be loaded: {type(error).__name__}"
                return Probe(ok=False, detail=why)
            return Probe(ok=True, detail=f"sqlite-vec {version}")

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
            self._file = IndexFile(self.path, self._extension)
            self._opened += 1
            self._at_work = 0
            self.broken = False
        return self._file

    def _store(self, opened: IndexFile, generation: Generation) -> FileStore:
        self._at_work = generation.id
        if generation.is_live:
            self.generation = f"{self._opened}.{generation.id}"
        return FileStore(opened, generation)

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
        connection, has_vec = schema.connect(path, writing=False, extension=schema.load_vec)
        try:
            return _look(connection, notes, has_vec=has_vec)
        finally:
            connection.close()
    except (apsw.BusyError, apsw.LockedError):
        return Health("building")
    except apsw.Error:
        return Health("damaged")


def _look(connection: apsw.Connection, notes: NoteStore, *, has_vec: bool) -> Health:
    if run(connection, "PRAGMA user_version")[0][0] != schema.FORMAT:
        return Health("other")
    # Without sqlite-vec its tables cannot be asked, and would count as damaged.
    if has_vec and run(connection, "PRAGMA quick_check(1)") != [("ok",)]:
        return Health("damaged")
    live = schema.live(connection)
    if live is None:
        return Health("building")
    notes_there = "SELECT name, id, mtime, size, inode FROM sources@ WHERE kind = 'memory'"
    rows = run(connection, live.tables(notes_there))
    known = {name: note_files.Known(number, (*look,)) for name, number, *look in rows}
    changed, gone = note_files.differences(notes, known, {})
    return Health("ready", len(changed) + len(gone))
