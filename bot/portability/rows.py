"""The rows of each table, read and written in the same way on both engines.

Which tables there are is in `bot.storage.tables`; their columns are asked of a database itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from pathlib import Path

import apsw
import orjson

from bot.storage import Row, Transaction, scalar, sqlite
from bot.storage.meta import MOVE
from bot.storage.sqlite_sql import SqliteTransaction
from bot.storage.tables import MOVED

AT_ONCE = 200  # rows that are read or written together
# What is said in a database about itself: how far a move is, and which cluster it belongs to.
_OWN_META = f"substr(key, 1, {len(MOVE)}) <> '{MOVE}' AND key <> 'cluster'"
_SIZE = 16  # bytes of a digest
_NUL = "\U0010ffff"  # what PostgreSQL keeps in the place of the one character it cannot

Key = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Digest:
    """How many rows a table has, and what they come to, in whatever order."""

    rows: int = 0
    sum: int = 0

    def of(self, rows: Iterable[Row]) -> Digest:
        """With some more rows."""
        count, total = self.rows, self.sum
        for row in rows:
            line = orjson.dumps([_canonical(value) for value in row])
            count += 1
            total += int.from_bytes(blake2b(line, digest_size=_SIZE).digest())
        return Digest(count, total % (1 << 8 * _SIZE))

    def __str__(self) -> str:
        return f"{self.sum:0{2 * _SIZE}x}"


@dataclass(frozen=True, slots=True)
class TableRows:
    """The rows of one table; `serial` is the column that numbers them, or empty."""

    name: str
    columns: tuple[str, ...]
    key: tuple[str, ...]
    serial: str

    def page(self, tx: Transaction, after: Key | None) -> list[Row]:
        """The next rows behind a key, in the order of their keys."""
        conditions = [_OWN_META] if self.name == "meta" else []
        names = ", ".join(self.key)
        if after is not None:
            conditions.append(f"({names}) > ({', '.join('?' * len(after))})")
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        return tx.execute(
            f"SELECT {', '.join(self.columns)} FROM {self.name}{where} ORDER BY {names} LIMIT ?",
            (*(after or ()), AT_ONCE),
        )

    def last(self, tx: Transaction) -> Key | None:
        """The key of the last row, if there is any."""
        where = f" WHERE {_OWN_META}" if self.name == "meta" else ""
        order = ", ".join(f"{name} DESC" for name in self.key)
        rows = tx.execute(
            f"SELECT {', '.join(self.key)} FROM {self.name}{where} ORDER BY {order} LIMIT 1"
        )
        return rows[0] if rows else None

    def key_of(self, row: Row) -> Key:
        """What tells a row apart."""
        return tuple(row[self.columns.index(name)] for name in self.key)

    def count(self, tx: Transaction) -> int:
        """How many there are, with those of `meta` that are about the database itself."""
        return scalar(tx, f"SELECT count(*) FROM {self.name}")

    def put(self, tx: Transaction, rows: Sequence[Row]) -> None:
        """Add rows."""
        marks = f"({', '.join('?' * len(self.columns))})"
        tx.execute(
            f"INSERT INTO {self.name}({', '.join(self.columns)}) "
            f"VALUES {', '.join([marks] * len(rows))}",
            [value for row in rows for value in row],
        )

    def clear(self, tx: Transaction) -> None:
        """Remove all rows."""
        where = f" WHERE {_OWN_META}" if self.name == "meta" else ""
        tx.execute(f"DELETE FROM {self.name}{where}")


@cache
def all_tables() -> tuple[TableRows, ...]:
    """All tables that a backup holds and a move copies, by name."""
    connection = apsw.Connection(":memory:")
    try:
        tx = SqliteTransaction(connection)
        sqlite.migrate(tx, Path(), keeps=False)
        return tuple(_all(tx))
    finally:
        connection.close()


def _all(tx: Transaction) -> Iterator[TableRows]:
    for table in sorted(MOVED, key=lambda each: each.name):
        found = tx.execute("SELECT name, type, pk FROM pragma_table_info(?)", (table.name,))
        # Every other number is a BIGINT.
        serial = next((str(name) for name, kind, pk in found if pk and kind == "INTEGER"), "")
        yield TableRows(table.name, tuple(str(row[0]) for row in found), table.key, serial)


def _canonical(value: object) -> object:
    """A value as both engines have it, for JSON."""
    if isinstance(value, str):
        return value.replace(_NUL, "\0")
    return {"bytes": value.hex()} if isinstance(value, bytes) else value
