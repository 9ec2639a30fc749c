"""The tables that are moved, read and written in the same way on both engines.

Which there are, their columns and keys are asked of the schema itself, so that none is forgotten.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b

import apsw
import orjson

from bot.storage import Row, Transaction, schema
from bot.storage.meta import MOVE
from bot.storage.sqlite_sql import SqliteTransaction

LEFT_OUT = frozenset({"schema_versions"})  # those of the tables are their own
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
class Table:
    """One table. `key` is what its rows are told apart by; `serial` numbers them, or is empty."""

    name: str
    columns: tuple[str, ...]
    key: tuple[str, ...]
    serial: str = ""

    def page(self, tx: Transaction, after: Key | None, limit: int) -> list[Row]:
        """The next rows behind a key, in the order of their keys."""
        conditions = [_OWN_META] if self.name == "meta" else []
        names = ", ".join(self.key)
        if after is not None:
            conditions.append(f"({names}) > ({', '.join('?' * len(after))})")
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        return tx.execute(
            f"SELECT {', '.join(self.columns)} FROM {self.name}{where} ORDER BY {names} LIMIT ?",
            (*(after or ()), limit),
        )

    def key_of(self, row: Row) -> Key:
        """What tells a row apart."""
        return tuple(row[self.columns.index(name)] for name in self.key)

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
def known() -> tuple[Table, ...]:
    """All tables of this version that are moved."""
    connection = apsw.Connection(":memory:")
    try:
        tx = SqliteTransaction(connection)
        for _, step in schema.steps(0):
            for statement in step:
                tx.execute(statement.replace("{serial}", "INTEGER PRIMARY KEY"))
        rows = tx.execute("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name")
        return tuple(_described(tx, str(name)) for (name,) in rows if name not in LEFT_OUT)
    finally:
        connection.close()


def _described(tx: Transaction, name: str) -> Table:
    rows = tx.execute("SELECT name, type, pk FROM pragma_table_info(?) ORDER BY cid", (name,))
    key = tuple(str(column) for column, _, pk in sorted(rows, key=lambda row: row[2]) if pk)
    # Every other number is a BIGINT.
    serial = next((str(column) for column, kind, pk in rows if pk and kind == "INTEGER"), "")
    return Table(name, tuple(str(column) for column, _, _ in rows), key, serial)


def _canonical(value: object) -> object:
    """A value as both engines have it, for JSON."""
    if isinstance(value, str):
        return value.replace(_NUL, "\0")
    return {"bytes": value.hex()} if isinstance(value, bytes) else value
