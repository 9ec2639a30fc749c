"""One durable home for everything: `Database` is the seam, `sqlite` the engine behind it.

Work is a plain function over a `Transaction`; the engine runs it on its writer, commits it
together with whatever else is waiting, and resumes the caller only when it is on disk.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence, Sized
from typing import Any, Protocol, TypeVar

import structlog

from bot.backoff import Backoff
from bot.errors import FenceLost, StorageClosed, StorageError
from bot.storage.tables import KEYS

FIRST_RETRY = 0.5  # seconds; doubles with each try
LAST_RETRY = 15.0  # seconds

log = structlog.get_logger(__name__)

T = TypeVar("T")
Value = str | int | float | bytes | None
Row = tuple[Any, ...]


class Transaction(Protocol):
    """SQL inside one transaction. Parameters are `?`; both engines speak the same SQL."""

    def execute(self, sql: str, parameters: Sequence[Value] = ()) -> list[Row]:
        """Run one statement and return all its rows."""
        ...

    def index_text(self, entry: int, text: str) -> None:
        """Make an entry findable by its words; `entry` is its sequence number."""
        ...

    def forget_text(self, entry: int) -> None:
        """Take an entry out of the full-text index."""
        ...

    def search_text(
        self,
        query: str,
        limit: int,
        keys: Sequence[str],
        people: Sequence[str] = (),
        begins: Sequence[str] = ("",),
    ) -> list[Row]:
        """Entries that match, best first: (entry, score); score in (0, 1).

        Only of these session keys, and of these people's direct conversations whose keys begin
        with one of `begins`.
        """
        ...

    @property
    def node(self) -> str:
        """The node that writes; empty where there is but one."""
        ...

    def wake(self, key: str) -> None:
        """Have a node take up the lane of a session key, once this is committed.

        Where there is but one node the caller does that itself.
        """
        ...

    def publish(self, topic: str, name: str = "", body: str = "") -> None:
        """Tell the other nodes something, once this is committed; see `bot.coordination`."""
        ...


class Database(Protocol):
    """A database that survives crashes; `write` returns only when the work is on disk."""

    async def write(self, work: Callable[[Transaction], T]) -> T:
        """Run `work` in a transaction of its own kind: all of it is stored, or none.

        Raises:
            StorageFull: no space; nothing of this work was stored.
            StorageCorrupt: the file is damaged.
            StorageError: anything else the engine says.
        """
        ...

    async def read(self, work: Callable[[Transaction], T]) -> T:
        """Run `work` on a snapshot of what is committed."""
        ...

    async def close(self) -> None:
        """Finish what is queued, then release the files."""
        ...


class SharedDatabase(Database, Protocol):
    """A database that many nodes share; threads may use it too."""

    def write_now(self, work: Callable[[Transaction], T]) -> T:
        """`write` for a thread, which waits; never call it on an event loop.

        Raises:
            StorageError: see `write`.
        """
        ...

    def read_now(self, work: Callable[[Transaction], T]) -> T:
        """`read` for a thread, which waits; never call it on an event loop."""
        ...

    def close_now(self) -> None:
        """`close` for a thread, which waits."""
        ...

    def beside(self) -> SharedDatabase:
        """Another writer on the same tables, for work that must not hold up this one's.

        It connects when it is first used, and tells other nodes nothing. The caller closes it.
        """
        ...


def upsert(tx: Transaction, table: str, **row: Value) -> None:
    """Store a row, by its columns; one that has its key gets its other values."""
    key = KEYS[table]
    changes = ", ".join(f"{name} = excluded.{name}" for name in row if name not in key)
    tx.execute(f"{_inserting(table, row)} DO UPDATE SET {changes}", tuple(row.values()))


def insert_new(tx: Transaction, table: str, **row: Value) -> bool:
    """Store a row, by its columns; False, and nothing is changed, when one has its key."""
    inserting = f"{_inserting(table, row)} DO NOTHING RETURNING 1"
    return bool(tx.execute(inserting, tuple(row.values())))


def _inserting(table: str, row: Mapping[str, Value]) -> str:
    names, key = ", ".join(row), ", ".join(KEYS[table])
    return f"INSERT INTO {table}({names}) VALUES ({marks(row)}) ON CONFLICT({key})"


def scalar(tx: Transaction, sql: str, *values: Value) -> Any:
    """The first value of the first row that a statement returns; None where there is no row."""
    rows = tx.execute(sql, values)
    return rows[0][0] if rows else None


def scalars(tx: Transaction, sql: str, *values: Value) -> list[Any]:
    """The first value of every row that a statement returns."""
    return [row[0] for row in tx.execute(sql, values)]


def marks(values: Sized) -> str:
    """A mark for each of these values, to stand in a statement between brackets."""
    return ",".join("?" * len(values))


def beginning(column: str, begins: Sequence[str]) -> str:
    """A condition that is true where a column begins with one of these texts, its values."""
    each = (f"substr({column}, 1, {len(begin)}) = ?" for begin in begins)
    return f"({' OR '.join(each) or '1 = 0'})"


async def insist(database: Database, work: Callable[[Transaction], T]) -> T:
    """Run `work` as `Database.write` does, trying again while the disk is full or failing.

    What has happened already (a message sent, a turn finished) can only be noted, not undone.

    Raises:
        StorageClosed: the database was closed meanwhile.
        FenceLost: another node has taken over what this is about.
    """
    backoff = Backoff(FIRST_RETRY, LAST_RETRY)
    while True:
        try:
            return await database.write(work)
        except (StorageClosed, FenceLost):
            raise
        except StorageError as exc:
            delay = backoff.next()
            log.warning("storage.retry", error=type(exc).__name__, seconds=delay)
            await asyncio.sleep(delay)
