"""Writing a generation of the index as rows of a database that many nodes share."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

from bot.memory import words
from bot.memory.index import note_files
from bot.memory.index.engine import Chunks, Generation, Packed, Store, Writing
from bot.memory.index.note_files import Note
from bot.memory.note_store import NoteStore
from bot.memory.row_notes import RowNotes, seen_of
from bot.memory.search import Counts
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

    def run(self, sql: str, parameters: Sequence[Value] = ()) -> list[Row]:
        """See `Store.run`."""
        named = tables(self.generation, sql)
        return self._database.read_now(lambda tx: tx.execute(named, parameters))

    def commit(self, work: Callable[[Writing], T]) -> T:
        """See `Store.commit`."""
        return self._writer.write_now(
            lambda tx: work(RowWriting(tx, self.generation, self._tokenize))
        )

    def fit(self, dims: int) -> None:
        """See `Store.fit`."""
        first = "UPDATE generations@ SET dims = ? WHERE id = ? AND dims = 0"
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

    def counts(self) -> Counts:
        """See `Store.counts`; with the `size` of all generations, in bytes."""
        size = self.run(
            "SELECT sum(pg_total_relation_size(name::regclass)) FROM unnest(ARRAY['memory_sources',"
            " 'memory_chunks', 'memory_signs', 'memory_partitions', 'memory_embeddings']) AS name",
        )
        return replace(super().counts(), size=size[0][0])


class RowWriting(Writing):
    """A transaction on a generation."""

    def __init__(self, tx: Transaction, generation: Generation, tokenize: Tokenize) -> None:
        self._tx = tx
        self._generation = generation
        self._tokenize = tokenize

    def run(self, sql: str, parameters: Sequence[Value] = ()) -> list[Row]:
        """See `Writing.run`."""
        return self._tx.execute(tables(self._generation, sql), parameters)

    def _add_partition(self, name: str) -> list[Row]:
        return self.run(
            """INSERT INTO partitions@(generation, name, chunks, length)
               VALUES (?, ?, 0, 0) RETURNING id""",
            (self._generation.id, name),
        )

    def _put_vectors(self, chunk: int, partition: int, packed: Packed) -> None:
        self.run("UPDATE chunks@ SET vectors = ? WHERE id = ?", (packed.vectors, chunk))
        self._put_signs([(chunk, partition, packed.mean)])

    def _unindex(self, chunks: Sequence[int]) -> None:
        if chunks:
            self.run(f"DELETE FROM signs@ WHERE chunk IN ({marks(chunks)})", chunks)

    def _holding(self, texts: Sequence[str], partitions: Sequence[str]) -> Iterable[int]:
        """See `Writing`: of every generation, as all of them lose it."""
        rows = self.run(
            "SELECT c.source, c.body FROM chunks@ c JOIN memory_partitions p"
            f" ON p.id = c.partition WHERE p.name IN ({marks(partitions)})",
            tuple(partitions),
        )
        bodies = ((int(source), fulltext.folded(str(body))) for source, body in rows)
        return (source for source, body in bodies if any(text in body for text in texts))

    def _put_chunks(self, source: int, partition: int, chunks: Chunks) -> int:
        return sum(
            self._put_some(source, partition, chunks[at : at + _ROWS])
            for at in range(0, len(chunks), _ROWS)
        )

    def _put_some(self, source: int, partition: int, chunks: Chunks) -> int:
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
            "INSERT INTO chunks@(source, partition, start_line, end_line, day, length,"
            f" vectors, heading, body, words) VALUES {', '.join([one] * len(chunks))} RETURNING id",
            values,
        )
        self._put_signs(
            [
                (int(row[0]), partition, packed.mean)
                for row, (_, packed) in zip(rows, chunks, strict=True)
                if packed is not None
            ]
        )
        return total

    def _put_signs(self, rows: Sequence[tuple[int, int, bytes]]) -> None:
        if rows:
            self.run(
                "INSERT INTO signs@(chunk, partition, signs) VALUES "
                + ", ".join(["(?, ?, ?::varbit)"] * len(rows))
                + " ON CONFLICT(chunk) DO UPDATE SET signs = excluded.signs",
                [value for *place, mean in rows for value in (*place, signs_of(mean))],
            )


def tables(generation: Generation, sql: str) -> str:
    """SQL about the shared tables; what is read of partitions are a generation's own."""
    own = f"(SELECT * FROM memory_partitions WHERE generation = {generation.id})"
    return re.sub(r"(\w+)@", r"memory_\1", re.sub("(FROM|JOIN) partitions@", rf"\1 {own}", sql))


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
