"""Rows of a table as values of a dataclass: `Records` reads, adds, replaces and deletes them.

    LINKS = Records("links", Link, "linked_at", seat=Form("channel sender"))
    LINKS.put(tx, link, now)
    LINKS.where(tx, "language = ?", "zh", order="linked_at")

Columns have the names of the fields. A field that is a dataclass takes the columns of its own
fields, and a bool is stored as a number; for anything else there is a `Form`. All SQL is made once,
when the module that owns a table is imported.

A row that cannot be read, as it is damaged or another version wrote it, is left out by itself: it
is logged once with its key, counted, and holds up no other one.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, is_dataclass, replace
from functools import cache
from typing import Any, Final, Generic, TypeVar, cast, get_type_hints

import structlog
from pydantic import TypeAdapter

from bot.channel import Address
from bot.clock import Clock
from bot.errors import StorageError
from bot.invocation import confidant
from bot.storage import Database, Row, Transaction, Value, marks, scalar, upsert
from bot.storage.tables import KEYS

T = TypeVar("T")
V = TypeVar("V")

BROKEN: Final = (ValueError, TypeError, AttributeError, LookupError, ArithmeticError)
"""The errors of reading a row that is damaged, or another version's."""
_MOST_NAMED: Final = 10_000  # rows that are logged and counted

_named: set[tuple[str, str]] = set()  # rows that could not be read since the start

log = structlog.get_logger(__name__)


def begin_reports() -> None:
    """Log and count rows that cannot be read from now on: a program starts."""
    _named.clear()


def unreadable() -> int:
    """The number of stored rows that could not be read since the start of the program."""
    return len(_named)


def read_alone(table: str, key: str, read: Callable[[V], T], stored: V) -> T | None:
    """Apply `read` to a stored value; None, which is logged, when it cannot be read."""
    try:
        return read(stored)
    except BROKEN as error:
        report_unreadable(table, key, type(error).__name__)
        return None


@cache
def _adapter(kind: type[T]) -> TypeAdapter[T]:
    return TypeAdapter(kind)  # made when it is first needed: a start has better things to do


def from_json(kind: type[T], text: str | bytes) -> T:
    """A dataclass of its JSON; what a newer version added to it is left out.

    Raises:
        ValueError: the JSON is damaged, a field is missing, or is of another type.
    """
    return _adapter(kind).validate_json(text)


def report_unreadable(table: str, key: str, error: str) -> None:
    """Log, once, and count that a row cannot be read; `error` is only the kind."""
    if (table, key) in _named or len(_named) >= _MOST_NAMED:
        return
    _named.add((table, key))
    log.error("storage.row_unreadable", table=table, row=key, error=error)


@dataclass(frozen=True, slots=True)
class Form:
    """The stored form of a value: its columns, between spaces, and how to `read` and `write` it.

    By default it is a tuple, with each of its values in a column.
    """

    columns: str
    read: Callable[[Sequence[Any]], Any] = tuple
    write: Callable[[Any], Sequence[Value]] = tuple


def packed(column: str, load: Callable[[Any], Any], dump: Callable[[Any], Value]) -> Form:
    """A value that is stored in one column as another value, such as JSON."""
    return Form(column, lambda held: load(held[0]), lambda value: (dump(value),))


def _form_of(kind: type[Any], given: Mapping[str, Form]) -> Form:
    """The columns of a dataclass, in the order of its fields."""
    forms, columns, spans = dict[str, Form | None](), list[str](), list[tuple[slice, Form]]()
    for name, hint in get_type_hints(kind).items():
        form = given.get(name)
        if form is None and is_dataclass(hint):
            form = _form_of(cast("type[Any]", hint), given)
        elif form is None and hint is bool:
            form = packed(name, bool, int)
        names = form.columns.split() if form is not None else [name]
        if form is not None:
            spans.insert(0, (slice(len(columns), len(columns) + len(names)), form))
        columns += names
        forms[name] = form

    def read(row: Sequence[Any]) -> Any:
        values = list(row)
        for span, form in spans:  # the last first: those before it keep their places
            values[span] = (form.read(values[span]),)
        return kind(*values)

    def write(record: Any) -> Sequence[Value]:
        values: list[Value] = []
        for name, form in forms.items():
            value = getattr(record, name)
            values += (value,) if form is None else form.write(value)
        return values

    return Form(" ".join(columns), read if spans else lambda row: kind(*row), write)


class Records(Generic[T]):
    """The rows of a table, each as a `kind`.

    `also` are columns that are no fields of it; their values are given beside it. With
    `is_numbered` the first field is an `id` that the database gives. `form` is for a kind that is
    not stored field by field.
    """

    def __init__(
        self,
        table: str,
        kind: type[T],
        *also: str,
        is_numbered: bool = False,
        form: Form | None = None,
        **forms: Form,
    ) -> None:
        form = form or _form_of(kind, forms)
        key = KEYS[table]
        columns = form.columns.split()
        names = (*columns, *also)[is_numbered:]
        changes = ", ".join(f"{name} = excluded.{name}" for name in names if name not in key)
        self.columns = ", ".join(columns)
        self._table, self._read, self._write = table, form.read, form.write
        self._key_at = [columns.index(name) for name in key if name in columns]
        self._is_numbered = is_numbered
        self._is_key = " AND ".join(f"{name} = ?" for name in key)
        self._select = f"SELECT {self.columns} FROM {table} WHERE"
        self._count = f"SELECT count(*) FROM {table} WHERE"
        self._delete = f"DELETE FROM {table} WHERE"
        self._aside = f"UPDATE {table} SET state = 'aside' WHERE {self._is_key}"
        self._insert = f"INSERT INTO {table}({', '.join(names)}) VALUES ({marks(names)})"
        self._upsert = f"{self._insert} ON CONFLICT({', '.join(key)}) DO UPDATE SET {changes}"

    def of(self, rows: Sequence[Row]) -> list[T]:
        """Rows of `columns` as values, without those that cannot be read."""
        found = (read_alone(self._table, self._name(row), self._read, row) for row in rows)
        return [cast("T", each) for each in found if each is not None]

    def _name(self, row: Row) -> str:
        return "/".join(str(row[at]) for at in self._key_at)

    def get(self, tx: Transaction, *key: Value) -> T | None:
        """The row with a key, or None."""
        return self.first(tx, self._is_key, *key)

    def where(
        self, tx: Transaction, condition: str = "TRUE", *values: Value, order: str = ""
    ) -> list[T]:
        """The rows that match a condition; `order` may end with a LIMIT."""
        ordered = f" ORDER BY {order}" if order else ""
        return self.of(tx.execute(f"{self._select} {condition}{ordered}", values))

    def take(self, tx: Transaction, condition: str, *values: Value, order: str = "") -> list[T]:
        """The rows that match; those that cannot be read are set aside, in their column `state`."""
        while True:
            rows = tx.execute(f"{self._select} {condition} ORDER BY {order}", values)
            found = self.of(rows)
            if len(found) == len(rows):
                return found
            for row in rows:
                with self.apart(tx, *(row[at] for at in self._key_at)):
                    self._read(row)

    @contextmanager
    def apart(self, tx: Transaction, *key: Value) -> Generator[None]:
        """Set a row aside, in its column `state`, when what is done with it shows it is broken."""
        try:
            yield
        except BROKEN as error:
            report_unreadable(self._table, "/".join(map(str, key)), type(error).__name__)
            tx.execute(self._aside, key)

    def first(self, tx: Transaction, condition: str, *values: Value, order: str = "") -> T | None:
        """The first row that matches, or None."""
        return next(iter(self.where(tx, condition, *values, order=order)), None)

    def count(self, tx: Transaction, condition: str, *values: Value) -> int:
        """The number of rows that match."""
        return scalar(tx, f"{self._count} {condition}", *values)

    def add(self, tx: Transaction, record: T, *also: Value) -> T:
        """Insert a row; returns it with its number."""
        values = (*self._write(record), *also)
        if not self._is_numbered:
            tx.execute(self._insert, values)
            return record
        number = scalar(tx, f"{self._insert} RETURNING id", *values[1:])
        return cast("T", replace(cast("Any", record), id=number))

    def put(self, tx: Transaction, record: T, *also: Value) -> None:
        """Insert a row, or replace the one with its key."""
        tx.execute(self._upsert, (*self._write(record), *also))

    def delete(self, tx: Transaction, condition: str, *values: Value) -> list[T]:
        """Delete the rows that match; returns them."""
        return self.of(tx.execute(f"{self._delete} {condition} RETURNING {self.columns}", values))


HERE: Final = "channel = ? AND account = ? AND chat = ? AND thread = ?"


def place(address: Address) -> tuple[str, str, str, str]:
    """An address as values for `HERE`, which finds its rows in any table that has them."""
    return address.channel, address.account, address.chat, address.thread


# Small facts worth keeping across restarts, by key.

MOVE = "move:"  # what the keys begin with that say how far a move into this database is
MOVED_FROM = f"{MOVE}from"  # where everything here comes from
MOVED = ""  # what that says once all is here


class MetaStore:
    """Texts in the `meta` table."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def get(self, key: str) -> str | None:
        """The text of a key, if there is one."""
        return await self._database.read(lambda tx: text_of(tx, key))

    async def under(self, prefix: str) -> dict[str, str]:
        """The texts of all keys that begin like this, by what follows in the key."""
        return await self._database.read(lambda tx: under(tx, prefix))

    async def forget(self, key: str) -> None:
        """Keep nothing under a key.

        Raises:
            StorageError: it could not be stored.
        """
        await self._database.write(lambda tx: drop(tx, key))

    async def set(self, key: str, text: str) -> None:
        """Keep a text.

        Raises:
            StorageError: it could not be stored.
        """
        now = self._clock()
        await self._database.write(lambda tx: keep(tx, key, text, now))


def text_of(tx: Transaction, key: str, since: int = 0) -> str | None:
    """The text of a key, if one has been kept since then."""
    return scalar(tx, "SELECT value FROM meta WHERE key = ? AND updated_at >= ?", key, since)


def value_of(tx: Transaction, key: str, read: Callable[[str], T]) -> T | None:
    """Apply `read` to the text of a key; None for no text, or one that cannot be read."""
    found = text_of(tx, key)
    return read_alone("meta", key, read, found) if found is not None else None


def values_under(tx: Transaction, prefix: str, read: Callable[[str], T]) -> dict[str, T]:
    """The same of all keys with a prefix, by what follows it; without what cannot be read."""
    found = {
        name: read_alone("meta", f"{prefix}{name}", read, text)
        for name, text in under(tx, prefix).items()
    }
    return {name: value for name, value in found.items() if value is not None}


def under(tx: Transaction, prefix: str) -> dict[str, str]:
    """The texts of all keys with a prefix, by what follows it, in the order of the keys."""
    rows = tx.execute(
        f"SELECT key, value FROM meta WHERE {_UNDER} ORDER BY key", (prefix, _after(prefix))
    )
    return {key.removeprefix(prefix): text for key, text in rows}


_UNDER: Final = "key >= ? AND key < ?"


def _after(prefix: str) -> str:
    """The first text that sorts behind all that begin with a prefix."""
    return prefix[:-1] + chr(ord(prefix[-1]) + 1)


def drop(tx: Transaction, key: str) -> None:
    """Keep nothing under a key."""
    tx.execute("DELETE FROM meta WHERE key = ?", (key,))


def drop_under(tx: Transaction, prefix: str, *, before: int | None = None) -> None:
    """Keep nothing under the keys with a prefix, or nothing that is older than `before`."""
    is_old, values = ("", ()) if before is None else (" AND updated_at < ?", (before,))
    tx.execute(f"DELETE FROM meta WHERE {_UNDER}{is_old}", (prefix, _after(prefix), *values))


def keep(tx: Transaction, key: str, text: str, now: int) -> None:
    """Keep a text."""
    upsert(tx, "meta", key=key, value=text, updated_at=now)


def must_be_whole(tx: Transaction) -> None:
    """Make sure that nothing is being moved into this database.

    Raises:
        StorageError: a move was begun and is not complete.
    """
    if text_of(tx, MOVED_FROM) not in {None, MOVED}:
        raise StorageError(
            "A move into this database is not complete, so nothing runs on it yet. Do the same "
            f"`{confidant('move')}`, or `{confidant('restore')}`, again: it goes on where it ended."
        )
