"""Vectors that were made before, kept beside the index so that a rebuild does not ask again."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import apsw

from bot.memory.embed import Identity
from bot.memory.index.connection import run
from bot.storage import private

KEPT_DAYS = 60  # unused for so long, a vector is dropped
_DAY_MS = 86_400_000
_GROUP = 500  # keys in one question

_TABLE = """CREATE TABLE IF NOT EXISTS embeddings(
    identity BLOB NOT NULL, hash BLOB NOT NULL, dims INTEGER NOT NULL, used INTEGER NOT NULL,
    vector BLOB NOT NULL, PRIMARY KEY (hash, identity)) WITHOUT ROWID"""


def digest(text: str) -> bytes:
    """What a text's vector is kept under."""
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
        connection = self._open()
        if connection is None:
            return {}
        key, day = _key(identity), now // _DAY_MS
        known: dict[bytes, bytes] = {}
        try:
            for at in range(0, len(hashes), _GROUP):
                group = hashes[at : at + _GROUP]
                marks = ",".join("?" * len(group))
                rows = run(
                    connection,
                    f"SELECT hash, vector FROM embeddings WHERE identity = ? AND hash IN ({marks})",
                    (key, *group),
                )
                known.update((row[0], row[1]) for row in rows)
                if rows:
                    run(
                        connection,
                        "UPDATE embeddings SET used = ? WHERE identity = ? AND used < ?"
                        f" AND hash IN ({marks})",
                        (day, key, day, *group),
                    )
        except apsw.Error as error:
            self._lost(error)
        return known

    def put(self, identity: Identity, vectors: Mapping[bytes, bytes], dims: int, now: int) -> None:
        """Keep packed vectors."""
        connection = self._open()
        if connection is None or not vectors:
            return
        key, day = _key(identity), now // _DAY_MS
        try:
            with connection:
                connection.executemany(  # pyright: ignore[reportUnknownMemberType]
                    "INSERT OR REPLACE INTO embeddings VALUES (?, ?, ?, ?, ?)",
                    ((key, hashed, dims, day, vector) for hashed, vector in vectors.items()),
                )
        except apsw.Error as error:
            self._lost(error)

    def forget(self, hashes: Iterable[bytes]) -> int:
        """Drop what was kept for these texts, from whatever embedder; returns how many."""
        connection = self._open()
        if connection is None:
            return 0
        gone = 0
        try:
            with connection:
                for hashed in hashes:
                    run(connection, "DELETE FROM embeddings WHERE hash = ?", (hashed,))
                    gone += connection.changes()
            run(connection, "PRAGMA wal_checkpoint(TRUNCATE)")
        except apsw.Error as error:
            self._lost(error)
        return gone

    def prune(self, now: int) -> None:
        """Drop what was not used for a long time."""
        connection = self._open()
        if connection is None:
            return
        try:
            run(connection, "DELETE FROM embeddings WHERE used < ?", (now // _DAY_MS - KEPT_DAYS,))
        except apsw.Error as error:
            self._lost(error)

    def close(self) -> None:
        """Release the file."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _open(self) -> apsw.Connection | None:
        if self._connection is not None:
            return self._connection
        for _ in range(2):
            connection: apsw.Connection | None = None
            try:
                private.create(self._path)
                connection = apsw.Connection(str(self._path))
                connection.set_busy_timeout(2_000)
                for statement in (
                    "PRAGMA journal_mode = WAL",
                    "PRAGMA synchronous = NORMAL",
                    "PRAGMA secure_delete = ON",
                    _TABLE,
                ):
                    run(connection, statement)
            except (apsw.Error, OSError) as error:
                if connection is not None:
                    connection.close()
                self._lost(error)
                continue
            self._connection = connection
            return connection
        return None

    def _lost(self, error: Exception) -> None:
        """Start again with an empty file when this one is damaged."""
        self.close()
        if isinstance(error, apsw.CorruptError | apsw.NotADBError | apsw.SQLError):
            for suffix in ("", "-wal", "-shm"):
                self._path.with_name(self._path.name + suffix).unlink(missing_ok=True)


def _key(identity: Identity) -> bytes:
    parts = (identity.provider, identity.model, identity.endpoint)
    return digest("\0".join(parts))
