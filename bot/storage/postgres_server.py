"""What a PostgreSQL server is like, for somebody who wants to know, on a connection of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

import psycopg

from bot import errors
from bot.storage import fulltext, postgres_schema, scalar, schema
from bot.storage.postgres_link import OPTIONS, place_of, unusable
from bot.storage.postgres_sql import Connection, PostgresTransaction, Signals, configure

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
        check(url, direct)
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
    version = scalar(tx, "SHOW server_version").split()[0]
    size = scalar(tx, "SELECT pg_database_size(current_database())")
    problems: list[str] = []
    tables = 0
    try:
        postgres_schema.check_server(tx)
        if scalar(tx, "SELECT to_regclass('schema_versions') IS NOT NULL"):
            postgres_schema.check_rights(tx)
            tables = postgres_schema.version(tx)
            if tables:
                postgres_schema.check_cluster(tx, cluster)
        if tables < schema.VERSION:
            postgres_schema.check_making(tx)
    except errors.StorageError as exc:
        problems.append(str(exc))
    return Server(place, version, size, tables, tuple(problems))


# --- a connection of its own ----------------------------------------------------------------------


TRIES = 5  # a busy pooler may give the same process twice by chance

_VARIABLE = "CONFIDANT_STORAGE__DIRECT_URL"
_SET = f"Set direct_url ({_VARIABLE}) to the same database at the server itself"
_ELSE = "or let the pooler keep a process for a whole session (pool_mode = session)"
_PID = b"SELECT pg_backend_pid()"
# Whose start, because two servers may have databases of the same number.
_DATABASE = b"""SELECT pg_postmaster_start_time(), oid FROM pg_database
    WHERE datname = current_database()"""


def check(url: str, direct: str) -> None:
    """Make sure that a node can listen and hold locks; `direct` is empty where `url` serves both.

    Raises:
        StorageAway: a server cannot be reached.
        StorageError: a pooler is in between, or the two are not the same database.
    """
    place = place_of(direct, "direct_url") if direct else place_of(url)
    try:
        with psycopg.connect(direct or url, **OPTIONS) as connection:
            if _is_shared(connection, direct or url):
                option, mends = ("direct_url", "") if direct else ("url", f", {_ELSE}")
                raise errors.StorageError(
                    f"[storage] {option} leads through a pooler ({place}) that keeps no process of "
                    "the server for a session: a node could not listen there, nor hold a lock. "
                    f"{_SET}{mends}."
                )
            if direct and _one(connection, _DATABASE) != _database_of(url):
                raise errors.StorageError(
                    f"[storage] direct_url ({place}) leads to another database than url "
                    f"({place_of(url)}). {_SET}."
                )
    except psycopg.Error as exc:
        raise unusable(exc, place) from exc


def _database_of(url: str) -> tuple[object, ...]:
    try:
        with psycopg.connect(url, **OPTIONS) as connection:
            return _one(connection, _DATABASE)
    except psycopg.Error as exc:
        raise unusable(exc, place_of(url)) from exc


def _is_shared(connection: Connection, url: str) -> bool:
    """True when other clients are given the process that serves this connection, between two uses.

    Whoever is in between makes up a number for the process that a client is told, as it could be
    any; so where that is right, nobody is.
    """
    (own,) = _one(connection, _PID)
    if own == connection.info.backend_pid:
        return False
    for _ in range(TRIES):
        with psycopg.connect(url, **OPTIONS) as other:
            other.execute("BEGIN")
            is_taken = _one(other, _PID) == (own,)
            if is_taken or _one(connection, _PID) != (own,):
                return True
    return False


def _one(connection: Connection, statement: bytes) -> tuple[object, ...]:
    return connection.execute(statement).fetchone() or ()
