"""Writing an index file: sources, chunks, words and vectors, each change in one transaction."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import apsw

from bot.memory import forgetting, layout, words
from bot.memory.embed import Identity
from bot.memory.index import schema
from bot.memory.index.connection import Extension, connect, run, tokenizer
from bot.memory.index.values import Source
from bot.storage import Row


@dataclass(frozen=True, slots=True)
class SourceRow:
    """A note or a document, as the index knows it."""

    kind: Source
    partition: str
    name: str
    space: str
    path: str
    hash: bytes
    mtime: int = 0
    size: int = 0
    inode: int = 0
    at: int = 0
    problem: str = ""
    text: str | None = None


class Known(NamedTuple):
    """A source that is in the index, and how its file looked: (mtime, size, inode)."""

    id: int
    look: tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class ChunkRow:
    """A chunk to store; `bits` and `vectors` are empty when there is no vector for it."""

    start_line: int
    end_line: int
    day: int | None
    heading: str
    body: str
    bits: bytes | None
    vectors: bytes | None


@dataclass(frozen=True, slots=True)
class Bare:
    """A chunk that still lacks its vectors."""

    id: int
    heading: str
    body: str


@dataclass(frozen=True, slots=True)
class Counts:
    """How much there is of what; `spaces` counts chunks, `problems` says why by path."""

    files: int
    chunks: int
    documents: int
    vectors: int
    spaces: dict[str, int]
    problems: dict[str, str]


class Store:
    """The writing side of one index file; used by one thread at a time."""

    def __init__(self, path: Path, connection: apsw.Connection, *, has_vec: bool) -> None:
        self.path = path
        self.has_vec = has_vec
        self._connection = connection
        self._tokenize = tokenizer(connection)
        functions: Any = connection
        functions.create_scalar_function("folded", forgetting.folded, 1, deterministic=True)
        self._partitions: dict[str, int] = {}

    @classmethod
    def create(cls, path: Path, extension: Extension, identity: Identity, chunker: int) -> Store:
        """A new, empty index file that is not complete yet.

        Raises:
            apsw.Error: it cannot be written.
        """
        connection, has_vec = connect(path, writing=True, extension=extension)
        try:
            with connection:
                for statement in schema.TABLES:
                    run(connection, statement)
            store = cls(path, connection, has_vec=has_vec)
            with connection:
                store.set_meta(
                    format=str(schema.FORMAT),
                    chunker=str(chunker),
                    provider=identity.provider,
                    model=identity.model,
                    endpoint=identity.endpoint,
                    dims="0",
                )
        except BaseException:
            connection.close()
            raise
        return store

    @classmethod
    def open(cls, path: Path, extension: Extension) -> Store:
        """An existing index file.

        Raises:
            apsw.Error: it is missing, damaged or locked.
        """
        if not path.is_file():
            raise apsw.CantOpenError("the index file is missing")
        connection, has_vec = connect(path, writing=True, extension=extension)
        try:
            run(connection, "SELECT count(*) FROM partitions")
            return cls(path, connection, has_vec=has_vec)
        except BaseException:
            connection.close()
            raise

    def close(self) -> None:
        """Release the file."""
        self._connection.close()

    @property
    def transaction(self) -> apsw.Connection:
        """Everything done in `with store.transaction:` is committed at its end, or not at all."""
        return self._connection

    # --- what is known about the file itself ------------------------------------------------------

    def meta(self) -> dict[str, str]:
        """Its identity, and the time of its last sync."""
        return {str(k): str(v) for k, v in self._run("SELECT key, value FROM meta")}

    def set_meta(self, **values: str) -> None:
        """Note something about the file."""
        for key, value in values.items():
            self._run("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, value))

    def set_dims(self, dims: int) -> None:
        """Make room for vectors of this length."""
        self.set_meta(dims=str(dims))
        if self.has_vec:
            self._run(schema.VECTORS.format(bits=-(-dims // 8) * 8))

    def counts(self) -> Counts:
        """How much there is of what."""
        files, documents = self._run(
            "SELECT count(*) FILTER (WHERE kind = 'memory'),"
            " count(*) FILTER (WHERE kind = 'transcript') FROM sources"
        )[0]
        spaces: dict[str, int] = {}
        for name, chunks in self._run("SELECT name, chunks FROM partitions WHERE chunks > 0"):
            space = layout.space_of(str(name))
            spaces[space] = spaces.get(space, 0) + int(chunks)
        bare = self._run("SELECT count(*) FROM chunks WHERE bits IS NULL")[0][0]
        total = sum(spaces.values())
        problems = self._run("SELECT name, problem FROM sources WHERE problem != ''")
        return Counts(
            files=int(files),
            chunks=total,
            documents=int(documents),
            vectors=total - int(bare),
            spaces=spaces,
            problems={str(name): str(problem) for name, problem in problems},
        )

    # --- sources ----------------------------------------------------------------------------------

    def sources(self, kind: Source) -> dict[tuple[str, str], Known]:
        """Every source of a kind, by partition and name."""
        rows = self._run(
            """SELECT p.name, s.name, s.id, s.mtime, s.size, s.inode
               FROM sources s JOIN partitions p ON p.id = s.partition WHERE s.kind = ?""",
            (kind,),
        )
        return {(r[0], r[1]): Known(r[2], (r[3], r[4], r[5])) for r in rows}

    def documents(self) -> list[SourceRow]:
        """Every document with its text."""
        rows = self._run(
            """SELECT p.name, s.name, s.space, s.path, s.hash, s.mtime, s.size, s.inode, s.at,
                      s.problem, s.text FROM sources s JOIN partitions p ON p.id = s.partition
               WHERE s.kind = 'transcript'"""
        )
        return [SourceRow("transcript", *row) for row in rows]

    def put(self, source: SourceRow, chunks: Iterable[ChunkRow]) -> None:
        """Store a source with its chunks, in the place of what it was before."""
        partition = self._partition(source.partition)
        old = self._run(
            "SELECT id FROM sources WHERE kind = ? AND partition = ? AND name = ?",
            (source.kind, partition, source.name),
        )
        for row in old:
            self.remove(int(row[0]))
        self._run(
            """INSERT INTO sources(kind, partition, name, space, path, hash, mtime, size, inode, at,
                   problem, text) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)""",
            (
                *(source.kind, partition, source.name, source.space, source.path, source.hash),
                *(source.mtime, source.size, source.inode, source.at, source.problem, source.text),
            ),
        )
        identifier = self._connection.last_insert_rowid()
        count, length = 0, 0
        for chunk in chunks:
            length += self._put_chunk(identifier, partition, chunk)
            count += 1
        self._count(partition, count, length)

    def remove(self, source: int) -> tuple[int, int]:
        """Take a source out; returns how many chunks and vectors went with it."""
        rows = self._run(
            "SELECT id, partition, length, bits IS NOT NULL FROM chunks WHERE source = ?", (source,)
        )
        for identifier, partition, length, has_vectors in rows:
            self._run("DELETE FROM chunks_text WHERE rowid = ?", (identifier,))
            if has_vectors and self.has_vec:
                self._run(f"DELETE FROM {schema.VECTORS_TABLE} WHERE rowid = ?", (identifier,))
            self._count(int(partition), -1, -int(length))
        self._run("DELETE FROM chunks WHERE source = ?", (source,))
        self._run("DELETE FROM sources WHERE id = ?", (source,))
        return len(rows), sum(bool(row[3]) for row in rows)

    def bodies(self, source: int) -> list[tuple[str, str]]:
        """The heading and text of a source's chunks."""
        return [
            (str(r[0]), str(r[1]))
            for r in self._run("SELECT heading, body FROM chunks WHERE source = ?", (source,))
        ]

    def holding(self, text: str, partitions: Sequence[str]) -> list[int]:
        """The sources in these partitions with a chunk that holds a text, by forgetting's rule."""
        wanted = forgetting.folded(text)
        if not wanted:
            return []
        marks = ",".join("?" * len(partitions))
        rows = self._run(
            f"""SELECT DISTINCT c.source FROM chunks c JOIN partitions p ON p.id = c.partition
                WHERE p.name IN ({marks}) AND instr(folded(c.body), ?) > 0""",
            (*partitions, wanted),
        )
        return [int(row[0]) for row in rows]

    # --- vectors ----------------------------------------------------------------------------------

    def bare(self, limit: int) -> list[Bare]:
        """Chunks that have no vectors yet."""
        rows = self._run(
            "SELECT id, heading, body FROM chunks WHERE bits IS NULL LIMIT ?", (limit,)
        )
        return [Bare(int(r[0]), str(r[1]), str(r[2])) for r in rows]

    def set_problem(self, chunk: int, problem: str) -> None:
        """Say what is wrong with the note a chunk is a part of."""
        self._run(
            "UPDATE sources SET problem = ? WHERE problem = '' AND kind = 'memory' "
            "AND id = (SELECT source FROM chunks WHERE id = ?)",
            (problem, chunk),
        )

    def set_vectors(self, chunk: int, bits: bytes, vectors: bytes) -> None:
        """Give a chunk its vectors."""
        rows = self._run("SELECT partition FROM chunks WHERE id = ?", (chunk,))
        for row in rows:
            self._run(
                "UPDATE chunks SET bits = ?, vectors = ? WHERE id = ?", (bits, vectors, chunk)
            )
            self._put_bits(chunk, int(row[0]), bits)
            # Readers that keep signs know only of later chunks; these are not.
            self.set_meta(epoch=str(chunk))

    def rebuild_vectors(self) -> None:
        """Fill the vector table from the chunks, when it was written without sqlite-vec."""
        dims = int(self.meta().get("dims", "0"))
        if not self.has_vec or not dims:
            return
        self.set_dims(dims)
        stored = {row[0] for row in self._run(f"SELECT rowid FROM {schema.VECTORS_TABLE}")}
        rows = self._run("SELECT id, partition, bits FROM chunks WHERE bits IS NOT NULL")
        if stored == {row[0] for row in rows}:  # ids are never used again
            return
        self._run(f"DELETE FROM {schema.VECTORS_TABLE}")
        for identifier, partition, bits in rows:
            self._put_bits(int(identifier), int(partition), bits)

    def scrub(self) -> None:
        """Leave nothing of what was removed in the file or its log."""
        self._run("INSERT INTO chunks_text(chunks_text) VALUES ('optimize')")
        self._run("PRAGMA wal_checkpoint(TRUNCATE)")

    # ----------------------------------------------------------------------------------------------

    def _put_chunk(self, source: int, partition: int, chunk: ChunkRow) -> int:
        text = words.indexed(chunk.body)
        heading = words.indexed(chunk.heading)
        length = len(self._tokenize(text)) + len(self._tokenize(heading))
        self._run(
            """INSERT INTO chunks(source, partition, start_line, end_line, day, length, bits,
                   vectors, heading, body) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)""",
            (
                *(source, partition, chunk.start_line, chunk.end_line, chunk.day, length),
                *(chunk.bits, chunk.vectors, chunk.heading, chunk.body),
            ),
        )
        identifier = self._connection.last_insert_rowid()
        self._run(
            "INSERT INTO chunks_text(rowid, scope, heading, body) VALUES (?, ?, ?, ?)",
            (identifier, scope_token(partition), heading, text),
        )
        if chunk.bits is not None:
            self._put_bits(identifier, partition, chunk.bits)
        return length

    def _put_bits(self, chunk: int, partition: int, bits: bytes) -> None:
        if self.has_vec:
            self._run(
                f"INSERT INTO {schema.VECTORS_TABLE}(rowid, partition, bits)"
                " VALUES (?, ?, vec_bit(?))",
                (chunk, partition, bits),
            )

    def _partition(self, name: str) -> int:
        known = self._partitions.get(name)
        if known is None:
            self._run("INSERT OR IGNORE INTO partitions(name) VALUES (?)", (name,))
            known = int(self._run("SELECT id FROM partitions WHERE name = ?", (name,))[0][0])
            self._partitions[name] = known
        return known

    def _count(self, partition: int, chunks: int, length: int) -> None:
        self._run(
            "UPDATE partitions SET chunks = chunks + ?, length = length + ? WHERE id = ?",
            (chunks, length, partition),
        )

    def _run(
        self, sql: str, parameters: Sequence[str | int | float | bytes | None] = ()
    ) -> list[Row]:
        return run(self._connection, sql, parameters)


def scope_token(partition: int) -> str:
    """The word that marks a partition's chunks in the full-text index."""
    return f"{schema.SCOPE_MARK}{partition}"
