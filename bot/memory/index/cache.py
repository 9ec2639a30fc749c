"""Vectors that were made before, kept beside the index so that a rebuild does not ask again."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import apsw
import structlog

from bot.clock import DAY_MS
from bot.errors import StorageError
from bot.memory.embed import Identity
from bot.memory.index.schema import BUSY_TIMEOUT_MS, remove, run
from bot.storage import SharedDatabase, Transaction, Value, files, marks

T = TypeVar("T")

KEPT_DAYS = 60  # unused for so long, a vector is dropped
_GROUP = 500  # keys in one question

_PREPARE = (
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = NORMAL",
    "PRAGMA secure_delete = ON",
    """CREATE TABLE IF NOT EXISTS embeddings(
        identity BLOB NOT NULL, hash BLOB NOT NULL, dims INTEGER NOT NULL, used INTEGER NOT NULL,
        vector BLOB NOT NULL, PRIMARY KEY (hash, identity)) WITHOUT ROWID""",
)
log = structlog.get_logger(__name__)

_DAMAGED = (apsw.CorruptError, apsw.NotADBError, apsw.SQLError)


def digest(text: str) -> bytes:
    """The cache key of a text."""
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


class EmbeddingCache:
    """Vectors by (provider, model, endpoint, hash of the text), in a file of their own.

    An empty vector marks a text that the embedder refuses, so that it is not asked for it again.
    A damaged or missing file is a cache that knows nothing; it never makes anything fail.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection: apsw.Connection | None = None

    def get(self, identity: Identity, hashes: Sequence[bytes], now: int) -> dict[bytes, bytes]:
        """The packed vectors that are known, by hash."""
        key, day = key_of(identity), now // DAY_MS
        known: dict[bytes, bytes] = {}

        def work(connection: apsw.Connection) -> None:
            for at in range(0, len(hashes), _GROUP):
                group = hashes[at : at + _GROUP]
                named = f"identity = ? AND hash IN ({marks(group)})"
                sql = f"SELECT hash, vector FROM embeddings WHERE {named}"
                rows = run(connection, sql, (key, *group))
                known.update((row[0], row[1]) for row in rows)
                if rows:
                    sql = f"UPDATE embeddings SET used = ? WHERE used < ? AND {named}"
                    run(connection, sql, (day, day, key, *group))

        self._use(work)
        return known

    def put(self, identity: Identity, vectors: Mapping[bytes, bytes], dims: int, now: int) -> None:
        """Keep packed vectors."""
        key, day = key_of(identity), now // DAY_MS

        def work(connection: apsw.Connection) -> None:
            with connection:
                connection.executemany(  # pyright: ignore[reportUnknownMemberType]
                    "INSERT OR REPLACE INTO embeddings VALUES (?, ?, ?, ?, ?)",
                    ((key, hashed, dims, day, vector) for hashed, vector in vectors.items()),
                )

        if vectors:
            self._use(work)

    def forget(self, hashes: Iterable[bytes]) -> int:
        """Drop what was kept for these texts, from whatever embedder; returns how many."""
        wanted = tuple(hashes)

        def work(connection: apsw.Connection) -> int:
            gone = 0
            with connection:
                for hashed in wanted:
                    run(connection, "DELETE FROM embeddings WHERE hash = ?", (hashed,))
                    gone += connection.changes()
            run(connection, "PRAGMA wal_checkpoint(TRUNCATE)")
            return gone

        return self._use(work) or 0

    def keep_only(self, hashes: Iterable[bytes]) -> None:
        """Drop what was kept for any other text, from whatever embedder."""
        wanted = tuple((hashed,) for hashed in hashes)

        def work(connection: apsw.Connection) -> None:
            with connection:
                run(connection, "CREATE TEMP TABLE kept(hash BLOB PRIMARY KEY) WITHOUT ROWID")
                connection.executemany(  # pyright: ignore[reportUnknownMemberType]
                    "INSERT OR IGNORE INTO kept VALUES (?)", wanted
                )
                run(connection, "DELETE FROM embeddings WHERE hash NOT IN (SELECT hash FROM kept)")
                run(connection, "DROP TABLE kept")
            run(connection, "PRAGMA wal_checkpoint(TRUNCATE)")

        self._use(work)

    def prune(self, now: int) -> None:
        """Drop what was not used for a long time."""
        oldest = now // DAY_MS - KEPT_DAYS
        self._use(lambda each: run(each, "DELETE FROM embeddings WHERE used < ?", (oldest,)))

    def close(self) -> None:
        """Release the file."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _use(self, work: Callable[[apsw.Connection], T]) -> T | None:
        """Do something with the file, an empty one if it is damaged; None when it failed."""
        for _ in range(2):
            try:
                if self._connection is None:
                    self._connection = self._opened()
                return work(self._connection)
            except (apsw.Error, OSError) as error:
                self.close()
                if isinstance(error, _DAMAGED):
                    remove(self._path)
        return None

    def _opened(self) -> apsw.Connection:
        files.create(self._path)
        connection = apsw.Connection(str(self._path))
        try:
            connection.set_busy_timeout(BUSY_TIMEOUT_MS)
            for statement in _PREPARE:
                run(connection, statement)
        except BaseException:
            connection.close()
            raise
        return connection


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
                    f" AND hash IN ({marks(group)})",
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


def key_of(identity: Identity) -> bytes:
    """The cache key of an embedder."""
    parts = (identity.provider, identity.model, identity.endpoint)
    return digest("\0".join(parts))
