"""Writing a generation of the index as rows of a database that many nodes share."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

from bot.memory import chunking, words
from bot.memory.chunking import Passage
from bot.memory.index import note_files
from bot.memory.index.engine import Generation, Packed, SourceRow, Store
from bot.memory.index.note_files import Note
from bot.memory.note_store import NoteStore
from bot.memory.row_notes import RowNotes, seen_of
from bot.memory.search import Counts, Forgotten
from bot.memory.words import Tokenize
from bot.storage import Row, SharedDatabase, Transaction, Value, fulltext, marks

T = TypeVar("T")

LOOK_AT_ALL = 240.0  # seconds after which all notes are compared, and not only late changes
MARGIN_MS = 600_000  # how far apart the clocks of nodes, and how long their transactions, may be
_ROWS = 200  # chunks in one statement


class Looks:
    """A node's comparisons of notes with the index, from one sync to the next."""

    def __init__(self) -> None:
        self._generation = 0
        self._all_at = 0.0  # monotonic
        self._newest = 0  # change of a note that was looked at, in ms since the epoch

    def differences(self, tx: Transaction, generation: int) -> tuple[list[Note], list[int]]:
        """See `RowStore.differences`."""
        now = time.monotonic()
        is_whole = generation != self._generation or now - self._all_at >= LOOK_AT_ALL
        since = 0 if is_whole else self._newest - MARGIN_MS
        of_notes = (
            "SELECT 1 FROM memory_sources s JOIN memory_partitions p ON p.id = s.partition"
            " WHERE p.generation = ? AND s.kind = 'memory' AND s.name = n.path"
        )
        changed = tx.execute(
            f"""SELECT n.path, n.changed_at, n.size, n.version FROM notes n
                WHERE n.changed_at >= ? AND NOT EXISTS ({of_notes} AND s.size = n.size
                    AND s.inode = n.version AND s.mtime = n.changed_at * 1000000)
                ORDER BY n.path""",
            (since, generation),
        )
        gone: list[int] = []
        if is_whole:
            rows = tx.execute(
                """SELECT s.id FROM memory_sources s JOIN memory_partitions p ON p.id = s.partition
                   WHERE p.generation = ? AND s.kind = 'memory'
                       AND NOT EXISTS (SELECT 1 FROM notes n WHERE n.path = s.name)""",
                (generation,),
            )
            gone = [int(row[0]) for row in rows]
            self._generation, self._all_at = generation, now
        newest = tx.execute("SELECT coalesce(max(changed_at), 0) FROM notes")[0][0]
        self._newest = max(self._newest, int(newest))
        return note_files.notes_of(seen_of(*row) for row in changed), gone


class RowStore(Store):
    """The writing side of one generation in a shared database."""

    bare_column = "vectors"

    def __init__(
        self,
        database: SharedDatabase,
        writer: SharedDatabase,
        generation: Generation,
        tokenize: Tokenize,
        looks: Looks,
    ) -> None:
        """Read in `database`, write with `writer`."""
        super().__init__(generation)
        self._looks = looks
        self._database = database
        self._writer = writer
        self._tokenize = tokenize

    def commit(self, work: Callable[[StoreWriting], T]) -> T:
        """Do something in one transaction; it may be run more than once."""
        return self._writer.write_now(
            lambda tx: work(StoreWriting(tx, self.generation, self._tokenize))
        )

    def dims(self) -> int:
        """The length of the vectors; 0 until there are any."""
        rows = self.run("SELECT dims FROM memory_generations WHERE id = ?", (self.generation.id,))
        return int(rows[0][0]) if rows else 0

    def fit(self, dims: int) -> None:
        """See `Store.fit`."""
        first = "UPDATE memory_generations SET dims = ? WHERE id = ? AND dims = 0"
        self.commit(lambda each: each.run(first, (dims, self.generation.id)))

    def differences(
        self, notes: NoteStore, refused: dict[str, str]
    ) -> tuple[list[Note], list[int]]:
        """See `Store.differences`.

        Where notes are rows beside it, the database compares them: all of them now and then, else
        only those that were changed of late.
        """
        if not isinstance(notes, RowNotes):
            return super().differences(notes, refused)
        return self._database.read_now(lambda tx: self._looks.differences(tx, self.generation.id))

    def remove(self, sources: Iterable[int]) -> None:
        """Take sources out."""
        gone = tuple(sources)
        self.commit(lambda each: [each.remove(source) for source in gone])

    def forget(
        self, paths: Sequence[str], texts: Sequence[str], partitions: Sequence[str]
    ) -> tuple[Forgotten, list[str]]:
        """Remove notes by path, and every source in some partitions that holds one of the texts.

        All generations lose them. Also the texts that their vectors were of.
        """
        return self.commit(lambda each: each.forget(paths, texts, partitions))

    def run(self, sql: str, parameters: Sequence[Value] = ()) -> list[Row]:
        """See `Store.run`."""
        own = f"(SELECT * FROM memory_partitions WHERE generation = {self.generation.id})"
        named = re.sub(r"(sources|chunks)@", r"memory_\1", sql.replace("partitions@", own))
        return self._database.read_now(lambda tx: tx.execute(named, parameters))

    def counts(self) -> Counts:
        """See `Store.counts`; with the `size` of all generations, in bytes."""
        size = self.run(
            "SELECT sum(pg_total_relation_size(name::regclass)) FROM unnest(ARRAY['memory_sources',"
            " 'memory_chunks', 'memory_signs', 'memory_partitions', 'memory_embeddings']) AS name",
        )
        return replace(super().counts(), size=size[0][0])


class StoreWriting:
    """A transaction on a generation; see `bot.memory.index.engine.StoreWriting`."""

    def __init__(self, tx: Transaction, generation: Generation, tokenize: Tokenize) -> None:
        self.run = tx.execute
        self._generation = generation
        self._tokenize = tokenize

    def put(self, source: SourceRow, chunks: Sequence[tuple[Passage, Packed | None]]) -> None:
        """Store a source with its chunks and their vectors, in the place of what it was before.

        One that another node has stored just so meanwhile is left as it is.
        """
        partition = self._partition(source.partition)
        for identifier, *before in self.run(
            "SELECT id, hash, mtime, size, inode, at, problem FROM memory_sources"
            " WHERE partition = ? AND kind = ? AND name = ?",
            (partition, source.kind, source.name),
        ):
            if (bytes(before[0]), *before[1:]) == source.look:
                return
            self.remove(int(identifier))
        rows = self.run(
            """INSERT INTO memory_sources(kind, partition, name, space, path, hash, mtime, size,
                   inode, at, problem, text) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
               RETURNING id""",
            source.row(partition),
        )
        length = 0
        for at in range(0, len(chunks), _ROWS):
            length += self._put_chunks(int(rows[0][0]), partition, chunks[at : at + _ROWS])
        self._count(partition, len(chunks), length)

    def set_vectors(self, chunk: int, packed: Packed | None, problem: str) -> None:
        """Give a chunk its vectors, if there are any, and say what is wrong with its note."""
        if problem:
            self.run(
                "UPDATE memory_sources SET problem = ? WHERE problem = '' AND kind <> 'transcript' "
                "AND id = (SELECT source FROM memory_chunks WHERE id = ?)",
                (problem, chunk),
            )
        rows = self.run("SELECT partition FROM memory_chunks WHERE id = ?", (chunk,))
        if packed is not None and rows:
            self.run("UPDATE memory_chunks SET vectors = ? WHERE id = ?", (packed.vectors, chunk))
            self._put_signs([(chunk, int(rows[0][0]), packed.bits)])

    def remove(self, source: int) -> list[bool]:
        """Take a source out; for each of its chunks, whether it had vectors."""
        rows = self.run(
            "SELECT partition, length, vectors IS NOT NULL FROM memory_chunks WHERE source = ?",
            (source,),
        )
        self.run(
            "DELETE FROM memory_signs WHERE chunk IN "
            "(SELECT id FROM memory_chunks WHERE source = ?)",
            (source,),
        )
        self.run("DELETE FROM memory_chunks WHERE source = ?", (source,))
        self.run("DELETE FROM memory_sources WHERE id = ?", (source,))
        if rows:
            self._count(int(rows[0][0]), -len(rows), -sum(int(row[1]) for row in rows))
        return [bool(row[2]) for row in rows]

    def forget(
        self, paths: Sequence[str], texts: Sequence[str], partitions: Sequence[str]
    ) -> tuple[Forgotten, list[str]]:
        """See `RowStore.forget`."""
        wanted: set[int] = set()
        if paths:
            named = f"kind = 'memory' AND name IN ({marks(paths)})"
            rows = self.run(f"SELECT id FROM memory_sources WHERE {named}", paths)
            wanted.update(int(row[0]) for row in rows)
        folded = [each for each in map(fulltext.folded, texts) if each]
        if folded and partitions:
            rows = self.run(
                "SELECT c.source, c.body FROM memory_chunks c JOIN memory_partitions p"
                f" ON p.id = c.partition WHERE p.name IN ({marks(partitions)})",
                tuple(partitions),
            )
            for source, body in rows:
                text = fulltext.folded(str(body))
                if any(each in text for each in folded):
                    wanted.add(int(source))
        of_vectors: list[str] = []
        removed: list[bool] = []
        documents = 0
        for source in sorted(wanted):
            for heading, body in self.run(
                "SELECT heading, body FROM memory_chunks WHERE source = ?", (source,)
            ):
                of_vectors += chunking.windows_of(str(heading), str(body))
            rows = self.run(
                """SELECT s.kind, p.generation FROM memory_sources s
                   JOIN memory_partitions p ON p.id = s.partition WHERE s.id = ?""",
                (source,),
            )
            gone = self.remove(source)
            if rows and rows[0][1] == self._generation.id:
                removed += gone
                documents += rows[0][0] == "transcript"
        return Forgotten(len(removed), sum(removed), documents), of_vectors

    # ----------------------------------------------------------------------------------------------

    def _partition(self, name: str) -> int:
        key = (self._generation.id, name)
        ask = "SELECT id FROM memory_partitions WHERE generation = ? AND name = ?"
        rows = self.run(ask, key) or self.run(
            """INSERT INTO memory_partitions(generation, name, chunks, length)
               VALUES (?, ?, 0, 0) RETURNING id""",
            key,
        )
        return int(rows[0][0])

    def _put_chunks(
        self, source: int, partition: int, chunks: Sequence[tuple[Passage, Packed | None]]
    ) -> int:
        """Store chunks of a source; how many words they have."""
        values: list[Value] = []
        total = 0
        for passage, packed in chunks:
            heading = self._tokenize(words.indexed(passage.heading))
            body = self._tokenize(words.indexed(passage.body))
            length = len(heading) + len(body)
            total += length
            values += (
                *(source, partition, passage.start_line, passage.end_line),
                *(passage.day.toordinal() if passage.day else None, length),
                *(packed.vectors if packed else None, passage.heading, passage.body),
                words_of(partition, heading, body),
            )
        one = "(?, ?, ?, ?, ?::bigint, ?, ?::bytea, ?, ?, ?::tsvector)"
        rows = self.run(
            "INSERT INTO memory_chunks(source, partition, start_line, end_line, day, length,"
            f" vectors, heading, body, words) VALUES {', '.join([one] * len(chunks))} RETURNING id",
            values,
        )
        self._put_signs(
            [
                (int(row[0]), partition, packed.bits)
                for row, (_, packed) in zip(rows, chunks, strict=True)
                if packed is not None
            ]
        )
        return total

    def _put_signs(self, rows: Sequence[tuple[int, int, bytes]]) -> None:
        if rows:
            self.run(
                "INSERT INTO memory_signs(chunk, partition, signs) VALUES "
                + ", ".join(["(?, ?, ?::varbit)"] * len(rows))
                + " ON CONFLICT(chunk) DO UPDATE SET signs = excluded.signs",
                [value for *place, bits in rows for value in (*place, signs_of(bits))],
            )

    def _count(self, partition: int, chunks: int, length: int) -> None:
        self.run(
            "UPDATE memory_partitions SET chunks = chunks + ?, length = length + ? WHERE id = ?",
            (chunks, length, partition),
        )


def mark_of(partition: int) -> str:
    """The token in a chunk's words that marks its partition; no note has it."""
    return f"'\ue001{partition}'"


def words_of(partition: int, heading: Sequence[str], body: Sequence[str]) -> str:
    """A chunk's words, with where each is, as PostgreSQL reads a tsvector."""
    # A line's end stands between the two, so no phrase spans them.
    return " ".join((mark_of(partition), *fulltext.tsvectors((*heading, words.NEW_LINE, *body))))


def signs_of(bits: bytes) -> str:
    """Signs as PostgreSQL spells a bit string."""
    return "".join(f"{byte:08b}" for byte in bits)
