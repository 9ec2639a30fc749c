"""Writing a generation of the index file: sources, chunks, words and vectors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from bot.memory import chunking, layout, words
from bot.memory.chunking import Passage
from bot.memory.index import note_files
from bot.memory.index.engine import Known, Packed, SourceRow, is_first
from bot.memory.index.schema import SCOPE_MARK, VECTORS, Generation, IndexFile, run
from bot.memory.note_store import NoteStore, Seen
from bot.memory.search import Counts, Forgotten, Source
from bot.storage import Row, Value, fulltext, marks

T = TypeVar("T")

KINDS = "count(*) FILTER (WHERE kind = 'memory'), count(*) FILTER (WHERE kind = 'transcript')"


class FileStore:  # the tables of an index are one thing to write
    """The writing side of one generation; used by one thread at a time."""

    def __init__(self, file: IndexFile, generation: Generation) -> None:
        self.generation = generation
        self.has_vec = file.has_vec
        self._file = file
        self._connection = file.connection

    def commit(self, work: Callable[[FileStore], T]) -> T:
        """See `Store.commit`; here it is run once."""
        with self._connection:
            return work(self)
        raise AssertionError  # what goes wrong is raised within

    def dims(self) -> int:
        """How long the vectors are; 0 until there are any."""
        rows = self._run("SELECT dims FROM generations WHERE id = ?", (self.generation.id,))
        return int(rows[0][0]) if rows else 0

    def fit(self, dims: int) -> None:
        """Make the first vectors' length the index's, and hold it to that.

        Raises:
            DimsChanged: it has vectors of another length.
        """
        if is_first(dims, self.dims()):
            with self._connection:
                sql = "UPDATE generations SET dims = ? WHERE id = ?"
                self._run(sql, (dims, self.generation.id))
                self._make_vectors(dims)

    def counts(self) -> Counts:
        """How much there is of what."""
        return counts_of(
            self._run(f"SELECT {KINDS} FROM sources@")[0],
            self._run("SELECT name, chunks FROM partitions@ WHERE chunks > 0"),
            self._run("SELECT name, problem FROM sources@ WHERE problem != ''"),
            bare=self._run("SELECT count(*) FROM chunks@ WHERE bits IS NULL")[0][0],
            dims=self.dims(),
        )

    # --- sources ----------------------------------------------------------------------------------

    def sources(self, kind: Source) -> dict[tuple[str, str], Known]:
        """Every source of a kind, by partition and name."""
        rows = self._run(
            """SELECT p.name, s.name, s.id, s.mtime, s.size, s.inode
               FROM sources@ s JOIN partitions@ p ON p.id = s.partition WHERE s.kind = ?""",
            (kind,),
        )
        return known_of(rows)

    def differences(
        self, notes: NoteStore, refused: dict[str, str]
    ) -> tuple[list[Seen], list[int]]:
        """See `Store.differences`."""
        known = {name: each for (_, name), each in self.sources("memory").items()}
        return note_files.differences(notes, known, refused)

    def documents(self) -> list[SourceRow]:
        """Every document with its text."""
        rows = self._run(
            """SELECT p.name, s.name, s.space, s.path, s.hash, s.mtime, s.size, s.inode, s.at,
                      s.problem, s.text FROM sources@ s JOIN partitions@ p ON p.id = s.partition
               WHERE s.kind = 'transcript'"""
        )
        return [SourceRow("transcript", *row) for row in rows]

    def put(self, source: SourceRow, chunks: Sequence[tuple[Passage, Packed | None]]) -> None:
        """Store a source with its chunks and their vectors, in the place of what it was before.

        One that another program has stored just so meanwhile is left as it is.
        """
        self._run("INSERT OR IGNORE INTO partitions@(name) VALUES (?)", (source.partition,))
        named = self._run("SELECT id FROM partitions@ WHERE name = ?", (source.partition,))
        partition = int(named[0][0])
        old = self._run(
            "SELECT id, hash, mtime, size, inode, at, problem FROM sources@"
            " WHERE kind = ? AND partition = ? AND name = ?",
            (source.kind, partition, source.name),
        )
        for identifier, *before in old:
            if (*before,) == source.look:
                return
            self._remove(int(identifier))
        self._run(
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

    def text_of(self, name: str) -> str | None:
        """See `Store.text_of`."""
        for source, hashed in self._run(
            "SELECT id, hash FROM sources@ WHERE kind = 'memory' AND name = ?", (name,)
        ):
            chunks = self._run(
                "SELECT start_line, end_line, body FROM chunks@ WHERE source = ? ORDER BY id",
                (source,),
            )
            return note_files.restored(chunks, bytes(hashed))
        return None

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
            rows = self._run(
                f"""SELECT DISTINCT c.source FROM chunks@ c JOIN partitions@ p ON p.id = c.partition
                    WHERE p.name IN ({marks(partitions)}) AND instr(folded(c.body), ?) > 0""",
                (*partitions, folded),
            )
            wanted.update(int(row[0]) for row in rows)
        of_vectors = [
            text
            for source in wanted
            for row in self._run("SELECT heading, body FROM chunks@ WHERE source = ?", (source,))
            for text in chunking.windows_of(str(row[0]), str(row[1]))
        ]

        def work(_: FileStore) -> list[bool]:
            self._file.drop_unfinished()  # what is being built may hold them too
            return [each for source in wanted for each in self._remove(source)]

        removed = self.commit(work)
        self._run("INSERT INTO chunks_text@(chunks_text@) VALUES ('optimize')")
        self._run("PRAGMA wal_checkpoint(TRUNCATE)")
        documents = len(wanted & {known.id for known in said.values()})
        return Forgotten(len(removed), sum(removed), documents), of_vectors

    # --- vectors ----------------------------------------------------------------------------------

    def bare(self, limit: int) -> dict[int, tuple[str, ...]]:
        """Chunks that have no vectors yet, and the texts to make them of."""
        rows = self._run(
            "SELECT id, heading, body FROM chunks@ WHERE bits IS NULL LIMIT ?", (limit,)
        )
        return {int(r[0]): chunking.windows_of(str(r[1]), str(r[2])) for r in rows}

    def set_vectors(self, chunk: int, packed: Packed | None, problem: str) -> None:
        """Give a chunk its vectors, if there are any, and say what is wrong with its note."""
        if problem:
            self._run(
                "UPDATE sources@ SET problem = ? WHERE problem = '' AND kind = 'memory' "
                "AND id = (SELECT source FROM chunks@ WHERE id = ?)",
                (problem, chunk),
            )
        rows = self._run("SELECT partition FROM chunks@ WHERE id = ?", (chunk,))
        if packed is not None and rows:
            self._run(
                "UPDATE chunks@ SET bits = ?, vectors = ?, signs = ? WHERE id = ?",
                (*packed, chunk),
            )
            self._put_bits(chunk, int(rows[0][0]), packed.bits)
            # Readers that keep signs know only of later chunks; this is none.
            self._run(
                "UPDATE generations SET epoch = epoch + 1 WHERE id = ?", (self.generation.id,)
            )

    def rebuild_vectors(self) -> None:
        """Fill the vector table from the chunks, when it was written without sqlite-vec."""
        dims = self.dims()
        if not self.has_vec or not dims:
            return
        self._make_vectors(dims)
        stored = {row[0] for row in self._run("SELECT rowid FROM chunks_vectors@")}
        rows = self._run("SELECT id, partition, bits FROM chunks@ WHERE bits IS NOT NULL")
        if stored == {row[0] for row in rows}:  # ids are never used again
            return
        self._run("DELETE FROM chunks_vectors@")
        for identifier, partition, bits in rows:
            self._put_bits(int(identifier), int(partition), bits)

    # ----------------------------------------------------------------------------------------------

    def _put_chunk(self, place: tuple[int, int], passage: Passage, packed: Packed | None) -> int:
        """Store a chunk of a (source, partition); how many words it has."""
        text, heading = words.indexed(passage.body), words.indexed(passage.heading)
        length = len(self._file.tokenize(text)) + len(self._file.tokenize(heading))
        self._run(
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
        self._run(
            "INSERT INTO chunks_text@(rowid, scope, heading, body) VALUES (?, ?, ?, ?)",
            (identifier, f"{SCOPE_MARK}{place[1]}", heading, text),
        )
        if packed is not None:
            self._put_bits(identifier, place[1], packed.bits)
        return length

    def _put_bits(self, chunk: int, partition: int, bits: bytes) -> None:
        if self.has_vec:
            self._run(
                "INSERT INTO chunks_vectors@(rowid, partition, bits) VALUES (?, ?, vec_bit(?))",
                (chunk, partition, bits),
            )

    def _make_vectors(self, dims: int) -> None:
        if self.has_vec:
            self._run(VECTORS.replace("{bits}", str(-(-dims // 8) * 8)))

    def _remove(self, source: int) -> list[bool]:
        """Take a source out; for each of its chunks, whether it had vectors."""
        rows = self._run(
            "SELECT id, partition, length, bits IS NOT NULL FROM chunks@ WHERE source = ?",
            (source,),
        )
        for identifier, partition, length, has_vectors in rows:
            self._run("DELETE FROM chunks_text@ WHERE rowid = ?", (identifier,))
            if has_vectors and self.has_vec:
                self._run("DELETE FROM chunks_vectors@ WHERE rowid = ?", (identifier,))
            self._count(int(partition), -1, -int(length))
        self._run("DELETE FROM chunks@ WHERE source = ?", (source,))
        self._run("DELETE FROM sources@ WHERE id = ?", (source,))
        return [bool(row[3]) for row in rows]

    def _count(self, partition: int, chunks: int, length: int) -> None:
        self._run(
            "UPDATE partitions@ SET chunks = chunks + ?, length = length + ? WHERE id = ?",
            (chunks, length, partition),
        )

    def _run(self, sql: str, parameters: Sequence[Value] = ()) -> list[Row]:
        return run(self._connection, self.generation.tables(sql), parameters)


def counts_of(
    kinds: Row,
    partitions: Iterable[Row],
    problems: Iterable[Row],
    *,
    bare: int,
    dims: int,
    size: int = 0,
) -> Counts:
    """How much there is: sources by `KINDS`, chunks of partitions, those that have no vectors."""
    spaces = Counter[str]()
    for name, chunks in partitions:
        spaces[layout.space_of(name)] += chunks
    return Counts(
        files=kinds[0],
        documents=kinds[1],
        chunks=spaces.total(),
        vectors=spaces.total() - bare,
        dims=dims,
        size=size,
        spaces=dict(spaces),
        problems=dict(problems),
    )


def known_of(rows: Iterable[Row]) -> dict[tuple[str, str], Known]:
    """Sources as they are asked for: partition, name, id, and how the note looked."""
    return {(r[0], r[1]): Known(r[2], (r[3], r[4], r[5])) for r in rows}
