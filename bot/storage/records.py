"""Rows of a table as values of a dataclass: `Records` reads, adds, replaces and deletes them.

    LINKS = Records("links", Link, "linked_at", seat=Form("channel sender"))
    LINKS.put(tx, link, now)
    LINKS.where(tx, "language = ?", "zh", order="linked_at")

Columns have the names of the fields. A field that is a dataclass takes the columns of its own
fields, and a bool is stored as a number; for anything else there is a `Form`. All SQL is made once,
when the module that owns a table is imported.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, is_dataclass, replace
from typing import Any, Final, Generic, TypeVar, cast, get_type_hints

from bot.channel import Address
from bot.storage import Row, Transaction, Value, marks, scalar
from bot.storage.tables import TABLES

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Form:
    """How a value is stored: its columns, with spaces between, and how to `read` and `write` it.

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
        key = next(each.key for each in TABLES if each.name == table)
        names = (*form.columns.split(), *also)[is_numbered:]
        changes = ", ".join(f"{name} = excluded.{name}" for name in names if name not in key)
        self.columns = form.columns.replace(" ", ", ")
        self._read, self._write = form.read, form.write
        self._is_numbered = is_numbered
        self._is_key = " AND ".join(f"{name} = ?" for name in key)
        self._select = f"SELECT {self.columns} FROM {table} WHERE"
        self._count = f"SELECT count(*) FROM {table} WHERE"
        self._delete = f"DELETE FROM {table} WHERE"
        self._insert = f"INSERT INTO {table}({', '.join(names)}) VALUES ({marks(names)})"
        self._upsert = f"{self._insert} ON CONFLICT({', '.join(key)}) DO UPDATE SET {changes}"

    def of(self, rows: Sequence[Row]) -> list[T]:
        """Rows of `columns` as values."""
        return [self._read(row) for row in rows]

    def get(self, tx: Transaction, *key: Value) -> T | None:
        """The row with a key, or None."""
        return self.first(tx, self._is_key, *key)

    def where(
        self, tx: Transaction, condition: str = "TRUE", *values: Value, order: str = ""
    ) -> list[T]:
        """The rows that match a condition; `order` may end with a LIMIT."""
        ordered = f" ORDER BY {order}" if order else ""
        return self.of(tx.execute(f"{self._select} {condition}{ordered}", values))

    def first(self, tx: Transaction, condition: str, *values: Value, order: str = "") -> T | None:
        """The first row that matches, or None."""
        return next(iter(self.where(tx, condition, *values, order=order)), None)

    def count(self, tx: Transaction, condition: str, *values: Value) -> int:
        """How many rows match."""
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
