"""The generations of the index in a database that many nodes share: one node at a time builds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import apsw
import structlog

from bot.clock import DAY_MS
from bot.errors import IndexElsewhere, StorageError
from bot.memory import chunking
from bot.memory.embed import Embedder, Identity, identity
from bot.memory.index.cache import KEPT_DAYS, key_of
from bot.memory.index.engine import DimsChanged, Generation, SourceRow, Store, mismatch
from bot.memory.index.row_reader import EXTENSION, RowReader
from bot.memory.index.row_store import Looks, RowStore
from bot.memory.search import BEING_BUILT, Building, Counts, Probe
from bot.storage import SharedDatabase, Transaction, Value
from bot.storage.fulltext import tokenizer

MEND = "CREATE EXTENSION vector"
SLOW = f"pgvector is not installed: a slower way is used; `{MEND}` mends it"
_GROUP = 500  # keys in one question

log = structlog.get_logger(__name__)


class SharedRows:
    """`bot.memory.index.engine.Rows` in the tables of `bot.storage.postgres_schema`.

    Every node writes what it knows to have changed. Only the one that `owns` the index builds
    other rows; for the others those that are there must do until then.
    """

    def __init__(
        self, database: SharedDatabase, embedder: Embedder, owns: Callable[[], bool]
    ) -> None:
        self.broken = False
        self.generation = ""
        self._database = database
        self._writer = database.beside()
        self._embedder = embedder
        self._owns = owns
        self._outdated = 0  # the generation whose vectors have another length than the embedder's
        self._at_work = 0
        self._looks = Looks()
        self._tokenize = tokenizer(apsw.Connection(":memory:"))

    @property
    def are_there(self) -> bool:
        """Always: whether the database answers is seen when it is asked."""
        return True

    def need_attention(self) -> bool:
        """Whether a rebuild is due, and this node's to do."""
        return (self.broken or bool(self._outdated)) and self._owns()

    def mismatch(self, live: Generation, dims: int) -> str:
        """See `Rows.mismatch`."""
        why, is_outdated = mismatch(live, self._embedder, dims)
        if is_outdated:
            self._outdated = live.id
        return why

    def can_mend(self, error: Exception) -> bool:
        """See `Rows.can_mend`."""
        if isinstance(error, DimsChanged):
            self._outdated = self._at_work
            return True
        return False

    def tidy(self) -> None:
        """Nothing is left behind that a rebuild would not drop."""

    def take_turn(self) -> bool:
        """True for the node that has the index."""
        return self._owns()

    def end_turn(self) -> None:
        """Nothing: it is the node's for as long as it has the index."""

    def fitting(self) -> Store | None:
        """See `Rows.fitting`.

        Raises:
            IndexElsewhere: others have to be made, and by another node.
        """
        live = self._database.read_now(live_generation)
        is_fitting = (
            live is not None
            and live.id != self._outdated
            and not self.broken
            and live.is_made_by(identity(self._embedder))
        )
        if live is not None and is_fitting:
            return self._store(live)
        if not self._owns():
            raise IndexElsewhere
        return None

    def begin(self) -> tuple[Store, list[SourceRow]]:
        """See `Rows.begin`."""
        made = identity(self._embedder)
        live = self.live()
        documents = live.documents() if isinstance(live, RowStore) else []

        def work(tx: Transaction) -> Generation:
            if (found := _filling(tx, made, self._outdated)) is not None:
                return found
            which = (chunking.VERSION, made.provider, made.model, made.endpoint)
            tx.execute(
                "INSERT INTO memory_generations(is_live, chunker, provider, model, endpoint, dims)"
                " VALUES (0, ?, ?, ?, ?, 0)",
                which,
            )
            return _generations(tx, "id = (SELECT max(id) FROM memory_generations)")[0]

        return self._store(self._writer.write_now(work)), documents

    def put_live(self, store: Store) -> None:
        """See `Rows.put_live`."""
        number = store.generation.id

        def work(tx: Transaction) -> None:
            tx.execute("UPDATE memory_generations SET is_live = 0 WHERE id <> ?", (number,))
            tx.execute("UPDATE memory_generations SET is_live = 1 WHERE id = ?", (number,))
            drop_unfinished(tx)

        self._writer.write_now(work)
        self._outdated, self.broken = 0, False
        self.generation = str(number)

    def live(self) -> Store | None:
        """See `Rows.live`."""
        if self.need_attention():
            return None
        live = self._database.read_now(live_generation)
        return self._store(live) if live is not None else None

    def count(self, *, is_well: bool) -> tuple[Counts | None, str]:
        """See `Rows.count`."""
        try:
            live = self._database.read_now(live_generation)
            if live is None:
                return None, BEING_BUILT if is_well else ""
            known = self._store(live).counts()
            slow = self.reader().slow if self._embedder.provider != "none" else ""
        except StorageError as error:
            return None, f"the index cannot be read: {error}"
        return known, slow

    def building(self) -> Building | None:
        """See `Rows.building`."""
        live, made = self._database.read_now(live_generation), identity(self._embedder)
        is_usable = live is not None and live.id != self._outdated and not self.broken
        usable = live if is_usable else None
        if usable is not None and usable.is_made_by(made):
            return None
        found = self._database.read_now(lambda tx: _filling(tx, made, self._outdated))
        done = self._store_of(found).counts().files if found is not None else 0
        before = self._store_of(live).counts().files if live is not None else 0
        return Building(
            done,
            max(done, before),
            beside=live is not None,
            by_meaning=usable is not None and usable.embedder == made,
        )

    def reader(self) -> RowReader:
        """See `Rows.reader`."""
        return RowReader(self._database, slow=SLOW)

    def probe(self) -> Probe:
        """See `Rows.probe`."""
        try:
            found = self._database.read_now(lambda tx: tx.execute(EXTENSION))
        except StorageError as error:
            return Probe(ok=False, detail=str(error))
        return Probe(ok=True, detail=f"pgvector {found[0][0]}") if found else Probe(False, SLOW)

    def close(self) -> None:
        """Release the writer's connection."""
        self._writer.close_now()

    def _store(self, generation: Generation) -> RowStore:
        self._at_work = generation.id
        if generation.is_live:
            self.generation = str(generation.id)
        return self._store_of(generation)

    def _store_of(self, generation: Generation) -> RowStore:
        return RowStore(self._database, self._writer, generation, self._tokenize, self._looks)


class RowCache:
    """`bot.memory.index.engine.Cache` in a table."""

    def __init__(self, database: SharedDatabase) -> None:
        self._database = database

    def get(self, identity: Identity, hashes: Sequence[bytes], now: int) -> dict[bytes, bytes]:
        """See `Cache.get`."""
        key, day = key_of(identity), now // DAY_MS
        known: dict[bytes, bytes] = {}

        def read(tx: Transaction) -> bool:
            is_old = False
            for at in range(0, len(hashes), _GROUP):
                group = hashes[at : at + _GROUP]
                rows = tx.execute(
                    "SELECT hash, vector, used < ? FROM memory_embeddings WHERE identity = ?"
                    f" AND hash IN ({','.join('?' * len(group))})",
                    (day, key, *group),
                )
                known.update((bytes(row[0]), bytes(row[1])) for row in rows)
                is_old = is_old or any(row[2] for row in rows)
            return is_old

        def use(tx: Transaction) -> None:
            for hashed in known:
                tx.execute(
                    "UPDATE memory_embeddings SET used = ? WHERE used < ? AND hash = ?"
                    " AND identity = ?",
                    (day, day, hashed, key),
                )

        try:
            if self._database.read_now(read):
                self._database.write_now(use)
        except StorageError as error:
            log.warning("memory.cache_failed", error=type(error).__name__)
        return known

    def put(self, identity: Identity, vectors: Mapping[bytes, bytes], dims: int, now: int) -> None:
        """See `Cache.put`."""
        key, day = key_of(identity), now // DAY_MS
        rows = list(vectors.items())

        def work(tx: Transaction) -> None:
            for at in range(0, len(rows), _GROUP):
                group = rows[at : at + _GROUP]
                values: list[Value] = [
                    each for hashed, vector in group for each in (key, hashed, dims, day, vector)
                ]
                tx.execute(
                    "INSERT INTO memory_embeddings(identity, hash, dims, used, vector) VALUES "
                    + ", ".join(["(?, ?, ?, ?, ?)"] * len(group))
                    + " ON CONFLICT(hash, identity) DO UPDATE SET dims = excluded.dims,"
                    " used = excluded.used, vector = excluded.vector",
                    values,
                )

        if rows:
            self._quietly(work)

    def forget(self, hashes: Iterable[bytes]) -> int:
        """See `Cache.forget`."""
        wanted = tuple(hashes)

        def work(tx: Transaction) -> int:
            return sum(
                len(
                    tx.execute(
                        "DELETE FROM memory_embeddings WHERE hash = ? RETURNING hash", (hashed,)
                    )
                )
                for hashed in wanted
            )

        return self._quietly(work) or 0

    def prune(self, now: int) -> None:
        """See `Cache.prune`."""
        oldest = now // DAY_MS - KEPT_DAYS
        self._quietly(
            lambda tx: len(tx.execute("DELETE FROM memory_embeddings WHERE used < ?", (oldest,)))
        )

    def close(self) -> None:
        """Nothing is held."""

    def _quietly(self, work: Callable[[Transaction], int | None]) -> int | None:
        try:
            return self._database.write_now(work)
        except StorageError as error:
            log.warning("memory.cache_failed", error=type(error).__name__)
            return None


def live_generation(tx: Transaction) -> Generation | None:
    """The generation that searches read, if there is one."""
    found = _generations(tx, "is_live = 1")
    return found[0] if found else None


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


def _filling(tx: Transaction, made: Identity, outdated: int) -> Generation | None:
    """The generation that was begun for an embedder and is not `outdated`, if there is one."""
    found = _generations(
        tx,
        "is_live = 0 AND (chunker, provider, model, endpoint) = (?, ?, ?, ?) AND id <> ?",
        (chunking.VERSION, made.provider, made.model, made.endpoint, outdated),
    )
    return found[0] if found else None


def _generations(tx: Transaction, which: str, parameters: Sequence[Value] = ()) -> list[Generation]:
    rows = tx.execute(
        "SELECT id, is_live, chunker, provider, model, endpoint, dims FROM memory_generations"
        f" WHERE {which} ORDER BY id",
        parameters,
    )
    return [
        Generation(
            *(int(row[0]), bool(row[1]), int(row[2])),
            Identity(str(row[3]), str(row[4]), str(row[5])),
            int(row[6]),
        )
        for row in rows
    ]
