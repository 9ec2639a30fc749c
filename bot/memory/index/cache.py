"""Vectors that were made before, kept so that a rebuild of the index does not ask again."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar, TypeVar

import apsw
import structlog

from bot.clock import DAY_MS
from bot.errors import StorageError
from bot.memory.embed import Identity
from bot.memory.index.queries import BUSY_TIMEOUT_MS, remove, run
from bot.storage import Row, SharedDatabase, Transaction, Value, files, marks

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


class Cache(ABC):
    """Vectors by (provider, model, endpoint, hash of the text); it never makes anything fail.

    An empty vector marks a text that the embedder refuses, so that it is not asked for it again.
    All wait, so they are used in threads.
    """

    table: ClassVar[str]

    def get(self, identity: Identity, hashes: Sequence[bytes], now: int) -> dict[bytes, bytes]:
        """The packed vectors that are known, by hash."""
        key, day = key_of(identity), now // DAY_MS
        known: dict[bytes, bytes] = {}
        for group in _groups(hashes):
            of_group = f"{self.table} WHERE identity = ? AND hash IN ({marks(group)})"
            found = f"SELECT hash, vector, used < ? FROM {of_group}"
            rows = self._read(found, (day, key, *group))
            known.update((bytes(row[0]), bytes(row[1])) for row in rows)
            if old := [bytes(row[0]) for row in rows if row[2]]:
                used = f"UPDATE {self.table} SET used = ? WHERE used < ? AND identity = ?"
                self._write(f"{used} AND hash IN ({marks(old)})", (day, day, key, *old))
        return known

    def put(self, identity: Identity, vectors: Mapping[bytes, bytes], dims: int, now: int) -> None:
        """Keep packed vectors."""
        key, day = key_of(identity), now // DAY_MS
        for group in _groups(list(vectors.items())):
            self._write(
                f"INSERT INTO {self.table}(identity, hash, dims, used, vector) VALUES "
                + ", ".join(["(?, ?, ?, ?, ?)"] * len(group))
                + " ON CONFLICT(hash, identity) DO UPDATE SET dims = excluded.dims,"
                " used = excluded.used, vector = excluded.vector",
                [each for hashed, vector in group for each in (key, hashed, dims, day, vector)],
            )

    def forget(self, hashes: Iterable[bytes]) -> int:
        """Drop what was kept for these texts, from whatever embedder; returns how many."""
        gone = 0
        for group in _groups([*hashes]):
            named = f"{self.table} WHERE hash IN ({marks(group)})"
            gone += len(self._write(f"DELETE FROM {named} RETURNING hash", group))
        return gone

    def prune(self, now: int) -> None:
        """Drop what was not used for a long time."""
        self._write(f"DELETE FROM {self.table} WHERE used < ?", (now // DAY_MS - KEPT_DAYS,))

    def close(self) -> None:  # noqa: B027 - not all hold anything
        """Release what it holds."""

    @abstractmethod
    def _read(self, sql: str, parameters: Sequence[Value]) -> list[Row]:
        """The rows of a statement that changes nothing; none when it failed."""

    @abstractmethod
    def _write(self, sql: str, parameters: Sequence[Value]) -> list[Row]:
        """The rows of a statement; none when it failed."""


class EmbeddingCache(Cache):
    """A cache in a file of its own; a damaged or missing file is one that knows nothing."""

    table = "embeddings"

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection: apsw.Connection | None = None

    def forget(self, hashes: Iterable[bytes]) -> int:
        """See `Cache.forget`; nothing is left in the file or its log."""
        gone = super().forget(hashes)
        self._write("PRAGMA wal_checkpoint(TRUNCATE)", ())
        return gone

    def close(self) -> None:
        """Release the file."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _read(self, sql: str, parameters: Sequence[Value]) -> list[Row]:
        return self._use(lambda connection: run(connection, sql, parameters)) or []

    _write = _read

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


class RowCache(Cache):
    """A cache in a table of a database that many nodes share."""

    table = "memory_embeddings"

    def __init__(self, database: SharedDatabase) -> None:
        self._database = database

    def _read(self, sql: str, parameters: Sequence[Value]) -> list[Row]:
        return self._quietly(self._database.read_now, sql, parameters)

    def _write(self, sql: str, parameters: Sequence[Value]) -> list[Row]:
        return self._quietly(self._database.write_now, sql, parameters)

    def _quietly(
        self,
        run_now: Callable[[Callable[[Transaction], list[Row]]], list[Row]],
        sql: str,
        parameters: Sequence[Value],
    ) -> list[Row]:
        try:
            return run_now(lambda tx: tx.execute(sql, parameters))
        except StorageError as error:
            log.warning("memory.cache_failed", error=type(error).__name__)
            return []


def _groups(items: Sequence[T]) -> Iterator[Sequence[T]]:
    """The items in groups, each for one statement."""
    return (items[at : at + _GROUP] for at in range(0, len(items), _GROUP))


def key_of(identity: Identity) -> bytes:
    """The cache key of an embedder."""
    parts = (identity.provider, identity.model, identity.endpoint)
    return digest("\0".join(parts))
