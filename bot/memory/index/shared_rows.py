"""The index in a database that many nodes share: its generations, and searches of the live one.

One node at a time builds.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import apsw

from bot.errors import IndexElsewhere, StorageError
from bot.memory import vectors, words
from bot.memory.embed import Embedder, Identity
from bot.memory.index import queries
from bot.memory.index.engine import FILLING, Generation, Rows, SourceRow, Store, filling_for
from bot.memory.index.queries import BY_SIGNS, OF_TIME, Scope
from bot.memory.index.row_store import Looks, RowStore, mark_of, signs_of
from bot.memory.ranking import Candidate, Candidates, Request
from bot.memory.vectors import Array, NDArray, Vectors, np
from bot.memory.words import Query, Statistics, Term
from bot.storage import Row, SharedDatabase, Transaction, Value, fulltext, marks
from bot.storage.fulltext import tokenizer


class SharedRows(Rows):
    """`Rows` in the tables of `bot.storage.postgres_schema`.

    Every node writes what it knows to have changed. Only the one that `owns` the index builds
    other rows; for the others those that are there must do until then.
    """

    def __init__(
        self, database: SharedDatabase, embedder: Embedder, owns: Callable[[], bool]
    ) -> None:
        super().__init__(embedder)
        self._database = database
        self._writer = database.beside()
        self._owns = owns
        self._looks = Looks()
        self._tokenize = tokenizer(apsw.Connection(":memory:"))

    def need_attention(self) -> bool:
        """True if a rebuild is due, and this node's to do."""
        return (self.broken or bool(self.outdated)) and self._owns()

    def take_turn(self) -> bool:
        """True for the node that has the index."""
        return self._owns()

    def fitting(self) -> Store | None:
        """See `Rows.fitting`.

        Raises:
            IndexElsewhere: others have to be made, and by another node.
        """
        found = super().fitting()
        if found is None and not self._owns():
            raise IndexElsewhere
        return found

    def begin(self) -> tuple[Store, list[SourceRow]]:
        """See `Rows.begin`."""
        live = self.live()
        documents = live.documents() if live is not None else []
        *made, _ = which = filling_for(self._embedder, self.outdated)

        def work(tx: Transaction) -> Generation:
            if found := _generations(tx, FILLING, which):
                return found[0]
            tx.execute(
                "INSERT INTO memory_generations(is_live, chunker, provider, model, endpoint, dims)"
                " VALUES (0, ?, ?, ?, ?, 0)",
                made,
            )
            return _generations(tx, "id = (SELECT max(id) FROM memory_generations)")[0]

        return self._at(self._writer.write_now(work)), documents

    def put_live(self, store: Store) -> None:
        """See `Rows.put_live`."""
        number = store.generation.id

        def work(tx: Transaction) -> None:
            tx.execute("UPDATE memory_generations SET is_live = 0 WHERE id <> ?", (number,))
            tx.execute("UPDATE memory_generations SET is_live = 1 WHERE id = ?", (number,))
            drop_unfinished(tx)

        self._writer.write_now(work)
        self.outdated, self.broken = 0, False
        self.generation = f"{self._opened}.{number}"

    def reader(self) -> RowReader:
        """See `Rows.reader`."""
        return RowReader(self._database)

    def close(self) -> None:
        """Release the writer's connection."""
        self._writer.close_now()

    def _generations(self, which: str, parameters: Sequence[Value] = ()) -> Sequence[Generation]:
        return self._database.read_now(lambda tx: _generations(tx, which, parameters))

    def _store(self, generation: Generation) -> RowStore:
        return RowStore(self._database, self._writer, generation, self._tokenize, self._looks)


def drop_unfinished(tx: Transaction) -> None:
    """Drop every generation but the live one."""
    gone = (
        "partition IN (SELECT p.id FROM memory_partitions p "
        "JOIN memory_generations g ON g.id = p.generation WHERE g.is_live = 0)"
    )
    for table in ("memory_signs", "memory_chunks", "memory_sources"):
        tx.execute(f"DELETE FROM {table} WHERE {gone}")
    tx.execute(
        "DELETE FROM memory_partitions WHERE generation IN"
        " (SELECT id FROM memory_generations WHERE is_live = 0)"
    )
    tx.execute("DELETE FROM memory_generations WHERE is_live = 0")


def _generations(tx: Transaction, which: str, parameters: Sequence[Value] = ()) -> list[Generation]:
    found = f"SELECT {_COLUMNS} FROM memory_generations WHERE {which} ORDER BY id"
    return [_generation_of(row) for row in tx.execute(found, parameters)]


def _generation_of(row: Sequence[Any]) -> Generation:
    number, is_live, chunker, *made, dims = row
    return Generation(
        int(number), bool(is_live), int(chunker), Identity(*map(str, made)), int(dims)
    )


# Reading the live generation: the candidates of a search.
#
# Every look is at the partitions of the search and at no others: a word is looked up together with
# the marks of its partitions, and signs are compared one by one within them, so nothing is missed
# and nobody's other notes cost anything.

K1, B = 1.2, 0.75  # of BM25, as SQLite has them
_COLUMNS = "id, is_live, chunker, provider, model, endpoint, dims"
# The planner does not know how narrow a partition is; helpers cost more than they bring.
_SETTINGS = """SELECT set_config('statement_timeout', ?, true),
    set_config('enable_seqscan', 'off', true),
    set_config('max_parallel_workers_per_gather', '0', true)"""


class RowReader:
    """`bot.memory.index.engine.Reader` over rows."""

    def __init__(self, database: SharedDatabase) -> None:
        self._database = database
        self._generation: Generation | None = None
        self._deadline = float("inf")
        connection = apsw.Connection(":memory:")
        self.tokenize = tokenizer(connection)

    def is_current(self) -> bool:
        """Always: it holds nothing."""
        return True

    @contextmanager
    def snapshot(self, deadline: float) -> Generator[Generation | None]:
        """See `Reader.snapshot`. What is found is of one moment, and of this generation or none."""
        self._deadline = deadline
        try:
            self._database.read_now(self._look)
            yield self._generation
        finally:
            self._deadline = float("inf")

    def find(self, request: Request, most: int, *, by_words: bool) -> Candidates:
        """See `Reader.find`.

        Raises:
            StorageError: the database does not answer, or the generation was replaced.
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
        generation = self._generation.id if self._generation is not None else 0
        return self._database.read_now(
            lambda tx: tx.execute(
                "SELECT c.start_line, c.end_line, c.body FROM memory_chunks c"
                " JOIN memory_sources s ON s.id = c.source"
                " JOIN memory_partitions p ON p.id = s.partition"
                " WHERE s.kind = 'folder' AND p.generation = ? AND p.name = ? AND s.path = ?"
                " ORDER BY c.id",
                (generation, partition, path),
            )
        )

    # ----------------------------------------------------------------------------------------------

    def _look(self, tx: Transaction) -> None:
        self._generation = next(iter(_generations(tx, "is_live = 1")), None)

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
        rows = tx.execute(
            f"""SELECT p.id, p.chunks, p.length FROM memory_generations g
                LEFT JOIN memory_partitions p
                    ON p.generation = g.id AND p.chunks > 0 AND p.name IN ({marks(partitions)})
                WHERE g.id = ?""",
            (*partitions, self._generation.id if self._generation is not None else 0),
        )
        if not rows:
            raise StorageError("the index was built anew meanwhile")
        held = [(int(i), int(chunks), int(length)) for i, chunks, length in rows if i is not None]
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
        dims = self._generation.dims if self._generation is not None else 0
        rows = tx.execute(
            f"SELECT {queries.CANDIDATE} FROM memory_chunks c JOIN memory_sources s"
            f" ON s.id = c.source WHERE c.id IN ({marks(ids)}) AND {queries.not_among(without)}",
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
