"""Opening index files, with sqlite-vec where it can be loaded."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import apsw

from bot.memory import words
from bot.memory.index import schema
from bot.storage import Row, Value, private

BUSY_TIMEOUT_MS = 2_000  # another program holding the file locked this long has lost its claim
READER_BUSY_TIMEOUT_MS = 500  # a search must not wait long

Extension = Callable[[apsw.Connection], None]
"""Loads sqlite-vec into a connection, or raises."""


def load_vec(connection: apsw.Connection) -> None:
    """Load sqlite-vec.

    Raises:
        ImportError: it is not installed.
        apsw.Error: it cannot be loaded on this machine.
    """
    # Its Python package is not imported, because that loads numpy.
    found = importlib.util.find_spec("sqlite_vec")
    if found is None or not found.origin:
        raise ImportError("sqlite-vec is not installed")
    connection.enable_load_extension(True)
    try:
        connection.load_extension(str(Path(found.origin).with_name("vec0")))
    finally:
        connection.enable_load_extension(False)


def connect(path: Path, *, writing: bool, extension: Extension) -> tuple[apsw.Connection, bool]:
    """A connection, and whether it has sqlite-vec.

    Raises:
        apsw.Error: the file cannot be opened or is no database.
    """
    if writing:
        with suppress(OSError):  # SQLite says better what is wrong
            private.create(path)
    flags = apsw.SQLITE_OPEN_READWRITE | (apsw.SQLITE_OPEN_CREATE if writing else 0)
    connection = apsw.Connection(str(path), flags=flags, statementcachesize=100)
    try:
        connection.set_busy_timeout(BUSY_TIMEOUT_MS if writing else READER_BUSY_TIMEOUT_MS)
        for pragma in schema.PRAGMAS if writing else schema.READER_PRAGMAS:
            run(connection, pragma)
        return connection, _has(extension, connection)
    except BaseException:
        connection.close()
        raise


def run(connection: apsw.Connection, sql: str, parameters: Sequence[Value] = ()) -> list[Row]:
    """Run one statement and return all its rows; apsw raises what goes wrong."""
    cursor: Any = connection.execute(sql, parameters)  # pyright: ignore[reportUnknownMemberType]
    return cursor.fetchall()


def tokenizer(connection: apsw.Connection, *, stems: bool = True) -> words.Tokenize:
    """The full-text index's own tokenizer, so that Python sees the words as it does.

    Without `stems` the same words come in the same places, but whole.
    """
    name, arguments = schema.TOKENIZER
    if not stems:
        name, *arguments = arguments
    call: Any = connection.fts5_tokenizer(name, arguments)

    def tokenize(text: str) -> list[str]:
        data = text.encode("utf-8", "replace")
        return call(
            data,
            apsw.FTS5_TOKENIZE_DOCUMENT,
            None,
            include_offsets=False,
            include_colocated=False,
        )

    return tokenize


def _has(extension: Extension, connection: apsw.Connection) -> bool:
    try:
        extension(connection)
    except (ImportError, OSError, AttributeError, apsw.Error):
        return False
    return True
