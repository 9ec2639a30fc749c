"""What a PostgreSQL server is like, for somebody who wants to know, on a connection of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

import psycopg

from bot import errors
from bot.storage import fulltext, postgres_direct, postgres_schema, schema
from bot.storage.postgres_link import OPTIONS, place_of, unusable
from bot.storage.postgres_sql import PostgresTransaction, Signals, configure

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Server:
    """A server that can be reached.

    Attributes:
        place: its host, port and database.
        version: such as "18.1".
        size: of the database, in bytes.
        tables: the version of the tables; 0 while there are none.
        problems: what stands in the way, each with what mends it.
    """

    place: str
    version: str
    size: int
    tables: int
    problems: tuple[str, ...]


def examine(url: str, cluster: str, direct: str = "") -> Server:
    """Look at the server that a URL names; `direct` is the same without a pooler, if need be.

    Raises:
        StorageError: the URL is none, or the server cannot be reached.
    """
    place = place_of(url)
    found = once(url, lambda tx: _look(tx, place, cluster))
    try:
        postgres_direct.check(url, direct)
    except errors.StorageError as exc:
        return replace(found, problems=(*found.problems, str(exc)))
    return found


def once(url: str, work: Callable[[PostgresTransaction], T]) -> T:
    """Run some work on a connection of its own, each statement by itself; for a thread.

    What is done here collides with no other transaction, as it is not serializable: it must be
    right all the same.

    Raises:
        StorageError: the URL is none, the server cannot be reached, or it refuses something.
    """
    place = place_of(url)
    try:
        with psycopg.connect(url, **OPTIONS) as connection:
            configure(connection)
            return work(PostgresTransaction(connection, Signals(), fulltext.Words()))
    except psycopg.Error as exc:
        raise unusable(exc, place) from exc


def _look(tx: PostgresTransaction, place: str, cluster: str) -> Server:
    version = str(tx.execute("SHOW server_version")[0][0]).split()[0]
    size = int(tx.execute("SELECT pg_database_size(current_database())")[0][0])
    problems: list[str] = []
    tables = 0
    try:
        postgres_schema.check_server(tx)
        if tx.execute("SELECT to_regclass('schema_versions') IS NOT NULL")[0][0]:
            postgres_schema.check_rights(tx)
            tables = postgres_schema.version(tx)
            if tables:
                postgres_schema.check_cluster(tx, cluster)
        if tables < schema.VERSION:
            postgres_schema.check_making(tx)
    except errors.StorageError as exc:
        problems.append(str(exc))
    return Server(place, version, size, tables, tuple(problems))
