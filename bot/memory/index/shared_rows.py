"""The index in a database that many nodes share: how it is written and searched.

Every node writes what it knows to have changed; the one that owns the index builds it, and makes
what is missing.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import NamedTuple, TypeVar

import apsw

from bot.errors import IndexElsewhere, StorageError
from bot.memory import chunking, vectors, words
from bot.memory.embed import Embedder, identity
from bot.memory.index import note_files, queries
from bot.memory.index.engine import (
    COLUMNS,
    FIRST,
    Chunks,
    Header,
    Packed,
    Rows,
    Store,
    Writing,
    header_of,
)
from bot.memory.index.note_files import Note
from bot.memory.index.queries import BY_SIGNS, OF_TIME, Scope
from bot.memory.note_store import NoteStore
from bot.memory.ranking import Candidate, Candidates, Request
from bot.memory.row_notes import RowNotes, seen_of
from bot.memory.search import BEING_BUILT, Counts
from bot.memory.vectors import Array, NDArray, Vectors, np
from bot.memory.words import Query, Statistics, Term, Tokenize
from bot.storage import Row, SharedDatabase, Transaction, Value, fulltext, marks
from bot.storage.fulltext import tokenizer

T = TypeVar("T")

LOOK_AT_ALL = 240.0  # seconds after which all notes are compared, and not only late changes
MARGIN_MS = 600_000  # how far apart the clocks of nodes, and how long their transactions, may be
_ROWS = 200  # chunks in one statement


class Looks:
    """A node's comparisons of notes with the index, from one sync to the next."""

    def __init__(self) -> None:
        self._made: object = None  # the index that all notes were compared with
        self._all_at = 0.0  # monotonic
        self._newest = 0  # change of a note that was looked at, in ms since the epoch

    def differences(self, tx: Transaction) -> tuple[list[Note], list[int]]:
        """See `RowStore.differences`."""
        now = time.monotonic()
        header = header_of(tx.execute(HEADER))
        made = (header.id, header.chunker) if header is not None else None
        is_whole = made != self._made or now - self._all_at >= LOOK_AT_ALL
        since = 0 if is_whole else self._newest - MARGIN_MS
        changed = tx.execute(
            """SELECT n.path, n.changed_at, n.size, n.version FROM notes n
               WHERE n.changed_at >= ? AND NOT EXISTS (SELECT 1 FROM memory_sources s
                   WHERE s.kind = 'memory' AND s.name = n.path AND s.size = n.size
                       AND s.inode = n.version AND s.mtime = n.changed_at * 1000000)
               ORDER BY n.path""",
            (since,),
        )
        gone: list[int] = []
        if is_whole:
            rows = tx.execute(
                """SELECT s.id FROM memory_sources s WHERE s.kind = 'memory'
                   AND NOT EXISTS (SELECT 1 FROM notes n WHERE n.path = s.name)"""
            )
            gone = [int(row[0]) for row in rows]
            self._made, self._all_at = made, now
        newest = tx.execute("SELECT coalesce(max(changed_at), 0) FROM notes")[0][0]
        self._newest = max(self._newest, int(newest))
        return note_files.notes_of(seen_of(*row) for row in changed), gone


HEADER = f"SELECT {COLUMNS} FROM memory_generations {FIRST}"


class RowStore(Store):
    """The writing side of the index in a shared database."""

    table = "memory_generations"
    read_header = HEADER

    def __init__(self, database: SharedDatabase, writer: SharedDatabase) -> None:
        """Read in `database`, write with `writer`."""
        self._database = database
        self._writer = writer
        self._looks = Looks()
        self._tokenize = tokenizer(apsw.Connection(":memory:"))

    def run(self, sql: str, parameters: Sequence[Value] = ()) -> list[Row]:
        """See `Tables.run`."""
        return self._database.read_now(lambda tx: tx.execute(sql, parameters))

    def commit(self, work: Callable[[Writing], T]) -> T:
        """See `Store.commit`."""
        return self._writer.write_now(lambda tx: work(RowWriting(tx, self._tokenize)))

    def differences(
        self, notes: NoteStore, refused: dict[str, str]
    ) -> tuple[list[Note], list[int]]:
        """See `Store.differences`.

        Where notes are rows beside it, the database compares them: all of them now and then, else
        only those that were changed of late.
        """
        if not isinstance(notes, RowNotes):
            return super().differences(notes, refused)
        return self._database.read_now(self._looks.differences)

    def counts(self) -> Counts:
        """See `Store.counts`; with the `size` of all tables, in bytes."""
        size = self.run(
            "SELECT sum(pg_total_relation_size(name::regclass)) FROM unnest(ARRAY['memory_sources',"
            " 'memory_chunks', 'memory_signs', 'memory_partitions', 'memory_embeddings']) AS name",
        )
        return replace(super().counts(), size=size[0][0])


class RowWriting(Writing):
    """A transaction on the index."""

    table = "memory_generations"
    read_header = HEADER

    def __init__(self, tx: Transaction, tokenize: Tokenize) -> None:
        self._tx = tx
        self._tokenize = tokenize

    def run(self, sql: str, parameters: Sequence[Value] = ()) -> list[Row]:
        """See `Tables.run`."""
        return self._tx.execute(sql, parameters)

    def _add_partition(self, name: str) -> list[Row]:
        return self.run(
            f"""INSERT INTO memory_partitions(generation, name, chunks, length)
                SELECT id, ?, 0, 0 FROM memory_generations {FIRST} RETURNING id""",
            (name,),
        )

    def _put_vectors(self, chunk: int, partition: int, packed: Packed) -> None:
        self.run("UPDATE memory_chunks SET vectors = ? WHERE id = ?", (packed.vectors, chunk))
        self._put_signs([(chunk, partition, packed.mean)])

    def _clear(self, chunks: Sequence[int]) -> None:
        sql = f"UPDATE memory_chunks SET vectors = NULL WHERE id IN ({marks(chunks)})"
        self.run(sql, chunks)
        self._unindex(chunks)

    def _unindex(self, chunks: Sequence[int]) -> None:
        if chunks:
            self.run(f"DELETE FROM memory_signs WHERE chunk IN ({marks(chunks)})", chunks)

    def _holding(self, texts: Sequence[str], partitions: Sequence[str]) -> Iterable[int]:
        rows = self.run(
            "SELECT c.source, c.body FROM memory_chunks c JOIN memory_partitions p"
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
            "INSERT INTO memory_chunks(source, partition, start_line, end_line, day, length,"
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
                "INSERT INTO memory_signs(chunk, partition, signs) VALUES "
                + ", ".join(["(?, ?, ?::varbit)"] * len(rows))
                + " ON CONFLICT(chunk) DO UPDATE SET signs = excluded.signs",
                [value for *place, mean in rows for value in (*place, signs_of(mean))],
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


class SharedRows(Rows):
    """`Rows` in the tables of `bot.storage.postgres_schema`."""

    def __init__(
        self, database: SharedDatabase, embedder: Embedder, owns: Callable[[], bool]
    ) -> None:
        super().__init__(embedder)
        self._database = database
        self._writer = database.beside()
        self._owns = owns
        self._store = RowStore(database, self._writer)

    def need_attention(self) -> bool:
        """True if its vectors have another length, and it is this node's to make them again."""
        return self.outdated and self._owns()

    def take_turn(self) -> bool:
        """True for the node that has the index."""
        return self._owns()

    def store(self) -> RowStore:
        """See `Rows.store`."""
        if len(self._store.run("SELECT id FROM memory_generations")) != 1 and self._owns():
            self._writer.write_now(self._begin)
        header = self._store.header()
        if header is None:
            raise IndexElsewhere(BEING_BUILT)
        self.generation = str(header.id)
        return self._store

    def _begin(self, tx: Transaction) -> None:
        """Begin an empty index if there is none; else drop what is not of the one there is.

        Versions before made another one beside it.
        """
        header = header_of(tx.execute(HEADER))
        if header is None:
            tx.execute(
                "INSERT INTO memory_generations(is_live, chunker, provider, model, endpoint, dims)"
                " VALUES (0, ?, ?, ?, ?, 0)",
                (chunking.VERSION, *identity(self._embedder)),
            )
            return
        others = "SELECT id FROM memory_partitions WHERE generation <> ?"
        for table in ("memory_signs", "memory_chunks", "memory_sources"):
            tx.execute(f"DELETE FROM {table} WHERE partition IN ({others})", (header.id,))
        tx.execute("DELETE FROM memory_partitions WHERE generation <> ?", (header.id,))
        tx.execute("DELETE FROM memory_generations WHERE id <> ?", (header.id,))

    def known(self) -> RowStore:
        """See `Rows.known`."""
        return self._store

    def reader(self) -> RowReader:
        """See `Rows.reader`."""
        return RowReader(self._database)

    def close(self) -> None:
        """Release the writer's connection."""
        self._writer.close_now()


# Reading: the candidates of a search.
#
# Every look is at the partitions of the search and at no others: a word is looked up together with
# the marks of its partitions, and signs are compared one by one within them, so nothing is missed
# and nobody's other notes cost anything.

K1, B = 1.2, 0.75  # of BM25, as SQLite has them
# The planner does not know how narrow a partition is; helpers cost more than they bring.
_SETTINGS = """SELECT set_config('statement_timeout', ?, true),
    set_config('enable_seqscan', 'off', true),
    set_config('max_parallel_workers_per_gather', '0', true)"""


class RowReader:
    """`bot.memory.index.engine.Reader` over rows."""

    def __init__(self, database: SharedDatabase) -> None:
        self._database = database
        self._header: Header | None = None
        self._deadline = float("inf")
        self.tokenize = tokenizer(apsw.Connection(":memory:"))

    def is_current(self) -> bool:
        """Always: it holds nothing."""
        return True

    @contextmanager
    def snapshot(self, deadline: float) -> Generator[Header | None]:
        """See `Reader.snapshot`. What is found is of one moment, and with these vectors or none."""
        self._deadline = deadline
        try:
            found = header_of(self._database.read_now(lambda tx: tx.execute(HEADER)))
            self._header = found if found is not None and found.is_live else None
            yield self._header
        finally:
            self._deadline = float("inf")

    def find(self, request: Request, most: int, *, by_words: bool) -> Candidates:
        """See `Reader.find`.

        Raises:
            StorageError: the database does not answer, or the vectors were replaced meanwhile.
        """
        query = words.parse(request.query, self.tokenize)
        work = partial(self._find, request=request, query=query, most=most, by_words=by_words)
        try:
            return self._database.read_now(work)
        except StorageError:
            if time.monotonic() < self._deadline:
                raise
            return Candidates(query, [], Statistics(0, 1.0, {}), late=True)

    def close(self) -> None:
        """Nothing is held."""

    def chunks(self, partition: str, path: str) -> list[Row]:
        """See `Reader.chunks`."""
        return self._database.read_now(
            lambda tx: tx.execute(
                "SELECT c.start_line, c.end_line, c.body FROM memory_chunks c"
                " JOIN memory_sources s ON s.id = c.source"
                " JOIN memory_partitions p ON p.id = s.partition"
                " WHERE s.kind = 'folder' AND p.name = ? AND s.path = ? ORDER BY c.id",
                (partition, path),
            )
        )

    # ----------------------------------------------------------------------------------------------

    def _find(
        self, tx: Transaction, *, request: Request, query: Query, most: int, by_words: bool
    ) -> Candidates:
        left = self._deadline - time.monotonic()
        tx.execute(_SETTINGS, (str(max(1, int(left * 1000)) if math.isfinite(left) else 0),))
        scope = self._scope(tx, request.partitions)
        found = _postings(tx, query, scope)
        average = scope.length / max(1, scope.chunks)
        seen = {each.term.tokens: len(each.ids) for each in found}
        known = Statistics(scope.chunks, average, seen)
        ids: dict[int, None] = {}
        if by_words:
            ids.update(dict.fromkeys(_best(found, scope, average, most)))
        if request.vector is not None and scope.ids:
            ids.update(dict.fromkeys(self._by_vector(tx, request.vector, scope, most)))
        if request.times and scope.ids:
            of_time = self._by_time(tx, request, scope, most // 2)
            ids.update(dict.fromkeys(of_time[1]))
            if by_words:
                ids.update(dict.fromkeys(_best(found, scope, average, most // 2, of_time[0])))
        return Candidates(query, self._candidates(tx, list(ids), sorted(request.without)), known)

    def _scope(self, tx: Transaction, partitions: Sequence[str]) -> Scope:
        """The scope of these partitions."""
        if header_of(tx.execute(HEADER)) != self._header:
            raise StorageError("the index was made again meanwhile")
        rows = tx.execute(
            "SELECT id, chunks, length FROM memory_partitions"
            f" WHERE chunks > 0 AND name IN ({marks(partitions)})",
            partitions,
        )
        held = [(int(i), int(chunks), int(length)) for i, chunks, length in rows]
        ids, sizes, lengths = zip(*held, strict=True) if held else ((), (), ())
        return Scope(ids, sizes, sum(sizes), sum(lengths))

    def _by_vector(self, tx: Transaction, wanted: Vectors, scope: Scope, limit: int) -> list[int]:
        """The chunks with the nearest windows, nearest first."""
        # pgvector's distance of bits takes as long, so it is not needed.
        rows = tx.execute(
            "SELECT chunk, bit_count(signs # ?::varbit) AS distance FROM memory_signs "
            f"WHERE partition IN ({marks(scope.ids)}) ORDER BY distance, chunk LIMIT {BY_SIGNS}",
            (signs_of(vectors.mean_signs(wanted)), *scope.ids),
        )
        chosen = tuple(int(row[0]) for row in rows)
        packed = tx.execute(
            f"SELECT id, vectors FROM memory_chunks WHERE id IN ({marks(chosen)})",
            chosen,
        )
        return queries.nearest([(int(i), bytes(v)) for i, v in packed if v], wanted, limit)

    def _by_time(
        self, tx: Transaction, request: Request, scope: Scope, limit: int
    ) -> tuple[list[int], list[int]]:
        """The newest chunks of the times asked about, and the nearest of these by their windows."""
        condition, days = queries.within_times(request.times, "day")
        rows = tx.execute(
            f"SELECT id, vectors FROM memory_chunks WHERE partition IN ({marks(scope.ids)}) "
            f"AND ({condition}) ORDER BY day DESC, id LIMIT {OF_TIME}",
            (*scope.ids, *days),
        )
        packed = [(int(i), bytes(v)) for i, v in rows if v]
        vector = request.vector
        near = queries.nearest(packed, vector, limit) if vector is not None else []
        return [int(row[0]) for row in rows], near

    def _candidates(
        self, tx: Transaction, ids: Sequence[int], without: Sequence[str]
    ) -> list[Candidate]:
        """Chunks with everything their ranking needs."""
        dims = self._header.dims if self._header is not None else 0
        without = without or [""]  # an empty list is no SQL here
        rows = tx.execute(
            f"SELECT {queries.CANDIDATE} FROM memory_chunks c JOIN memory_sources s ON s.id ="
            f" c.source WHERE c.id IN ({marks(ids)}) AND s.path NOT IN ({marks(without)})",
            (*ids, *without),
        )
        return queries.candidates(rows, dims)


class _Posting(NamedTuple):
    """A term, and the chunks of the scope that have it, as far as they are counted."""

    term: Term
    ids: NDArray[np.int64]
    lengths: NDArray[np.int64]


def _postings(tx: Transaction, query: Query, scope: Scope) -> list[_Posting]:
    """The scope's chunks that have each term; looking stops where one is common anyway."""
    if not scope.ids or not query.terms:
        return []
    within = " | ".join(map(mark_of, scope.ids))
    asked = [f"({within}) & ({fulltext.tsquery(term.tokens)})" for term in query.terms]
    values = ", ".join(f"({number}, ?::tsquery)" for number in range(len(asked)))
    rows = tx.execute(
        f"""SELECT t.number, array_agg(found.id), array_agg(found.length)
            FROM (VALUES {values}) AS t(number, query)
            CROSS JOIN LATERAL (
                SELECT id, length FROM memory_chunks WHERE words @@ t.query
                LIMIT {queries.common(scope)}) AS found
            GROUP BY t.number""",
        asked,
    )
    none = np.zeros(0, np.int64)
    known = {int(row[0]): (np.array(row[1], np.int64), np.array(row[2], np.int64)) for row in rows}
    return [
        _Posting(term, *known.get(number, (none, none))) for number, term in enumerate(query.terms)
    ]


def _best(
    found: Sequence[_Posting],
    scope: Scope,
    average: float,
    limit: int,
    among: Sequence[int] | None = None,
) -> list[int]:
    """The chunks with any of the terms, the best first, by BM25 as if each had a term once.

    Only those `among` some, when these are given.
    """
    there = [each for each in found if len(each.ids)]
    rare = [each for each in there if len(each.ids) < queries.common(scope)] or there
    if not rare:
        return []
    scores: list[Array] = []
    for each in rare:
        seen = len(each.ids)
        idf = max(1e-6, math.log((scope.chunks - seen + 0.5) / (seen + 0.5)))
        weight = 1 - B + B * each.lengths / max(1.0, average)
        scores.append(idf * (K1 + 1) / (1 + K1 * weight))
    ids, places = np.unique(np.concatenate([each.ids for each in rare]), return_inverse=True)
    total = np.bincount(places, weights=np.concatenate(scores))
    if among is not None:
        total[~np.isin(ids, among)] = 0.0
        limit = min(limit, int(np.count_nonzero(total)))
    return [int(ids[at]) for at in np.argsort(-total, kind="stable")[:limit]]
