"""Taking whole partitions out of an index that nothing uses just now, and out of the cache.

In a folder the index is derived: its file goes, and the next start makes it anew from what is left.
What was made of everybody else's texts stays in the cache. In a database rows go.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import apsw

from bot.memory import chunking
from bot.memory.index.cache import EmbeddingCache, digest
from bot.memory.index.schema import NAME, remove, run
from bot.memory.index.service import CACHE
from bot.storage import Transaction, marks, scalars

_ROWS = 500  # hashes in one statement


def leave_folder(folder: Path, partitions: Sequence[str]) -> None:
    """Take partitions out of the index in a folder.

    Of the vectors that are cached those stay that others' texts have. Everything else goes: what
    theirs once said before it was edited, or how it was cut by an earlier version, stands nowhere.

    Raises:
        OSError: a file cannot be removed.
    """
    index, cached = folder / NAME, folder / CACHE
    try:
        others = _hashes(_texts_of_others(index, partitions)) if index.exists() else set[bytes]()
    except apsw.Error:  # nothing tells which vectors are theirs
        others = set[bytes]()
    if others and cached.exists():
        cache = EmbeddingCache(cached)
        cache.keep_only(others)
        cache.close()
    else:
        remove(cached)
    remove(index)


def leave_rows(tx: Transaction, partitions: Sequence[str]) -> None:
    """Take partitions out of the index in a database, and what is cached of their texts."""
    named = f"SELECT id FROM memory_partitions WHERE name IN ({marks(partitions)})"
    texts: list[str] = []
    for partition in scalars(tx, named, *partitions):
        for heading, body in tx.execute(
            "SELECT heading, body FROM memory_chunks WHERE partition = ?", (partition,)
        ):
            texts += chunking.windows_of(str(heading), str(body))
        for table in ("memory_signs", "memory_chunks", "memory_sources"):
            tx.execute(f"DELETE FROM {table} WHERE partition = ?", (partition,))
        tx.execute("DELETE FROM memory_partitions WHERE id = ?", (partition,))
    hashes = sorted(_hashes(texts))
    for at in range(0, len(hashes), _ROWS):
        some = hashes[at : at + _ROWS]
        tx.execute(
            f"DELETE FROM memory_embeddings WHERE hash IN ({', '.join('?' * len(some))})", some
        )


def _texts_of_others(index: Path, partitions: Sequence[str]) -> Iterator[str]:
    """The texts that the vectors of all other partitions are of, in every generation."""
    connection = apsw.Connection(str(index), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        tables = run(
            connection, "SELECT name FROM sqlite_schema WHERE name LIKE 'partitions!_%' ESCAPE '!'"
        )
        for (name,) in tables:
            number = str(name).rpartition("_")[2]
            if not number.isdecimal():
                continue
            rows = run(
                connection,
                f"SELECT c.heading, c.body FROM chunks_{number} c JOIN partitions_{number} p "
                f"ON p.id = c.partition WHERE p.name NOT IN ({', '.join('?' * len(partitions))})",
                tuple(partitions),
            )
            for heading, body in rows:
                yield from chunking.windows_of(str(heading), str(body))
    finally:
        connection.close()


def _hashes(texts: Iterable[str]) -> set[bytes]:
    return {digest(text) for text in texts}
