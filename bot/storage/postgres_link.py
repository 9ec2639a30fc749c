"""Connections to a PostgreSQL: how they are made, lost and made again, and what people are told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

import psycopg
import structlog
from psycopg.conninfo import conninfo_to_dict

from bot import errors
from bot.backoff import Backoff
from bot.storage import fulltext, postgres_schema, scalar, schema
from bot.storage.postgres_sql import (
    AWAY,
    ENDED,
    OUTDATED,
    Connection,
    PostgresTransaction,
    Signals,
    configure,
    mapped,
)

T = TypeVar("T")

APPLICATION = "confidant"  # what the server calls our connections
PREPARED_AFTER = 3  # uses of a statement on a connection after which the server keeps its plan
PATIENCE = 15.0  # seconds a piece of work waits for a server that went away
FIRST_RETRY = 0.005  # seconds, after a collision with another node; doubles
LAST_RETRY = 0.5
START_RETRY = 5.0  # seconds at most between looks for a server that was not there at the start

OPTIONS: Final[dict[str, Any]] = {
    "autocommit": True,
    "prepare_threshold": None,
    "connect_timeout": 5,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,  # ms
}

log = structlog.get_logger(__name__)


class Link:
    """A connection of one thread, made again when it is lost."""

    def __init__(self, url: str, options: Mapping[str, Any]) -> None:
        self._url = url
        self._options = options
        self._connection: Connection | None = None

    def connected(self) -> Connection:
        """The connection, made now if there is none; psycopg raises what goes wrong."""
        if self._connection is None or self._connection.closed:
            self._connection = psycopg.connect(self._url, **self._options)
            configure(self._connection)
        return self._connection

    def is_lost(self, exc: BaseException) -> bool:
        """True when the server was not reached, or has gone away."""
        connection = self._connection
        return connection is None or connection.closed or isinstance(exc, (*ENDED, OUTDATED))

    def roll_back(self, *, lost: bool) -> None:
        """Leave no transaction open."""
        if lost:
            self.drop()
        elif self._connection is not None and self._connection.info.transaction_status:
            with suppress(psycopg.Error):
                self._connection.execute("ROLLBACK")

    def drop(self) -> None:
        """Disconnect; it connects again when it is next used."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(psycopg.Error):
                connection.close()


async def when_there(place: str, do: Callable[[], T]) -> T:
    """Do something in a thread; a server that is not there is told of at once, and waited for.

    `do` may be run more than once.
    """
    backoff = Backoff(LAST_RETRY, START_RETRY)
    is_told = False
    while True:
        try:
            done = await asyncio.to_thread(do)
        except errors.StorageAway as exc:
            if not is_told:
                log.warning("storage.waiting", server=place, reason=str(exc))
                is_told = True
            await asyncio.sleep(backoff.next())
        else:
            if is_told:
                log.info("storage.reached", server=place)
            return done


def place_of(url: str, option: str = "url") -> str:
    """The server a URL names, as people are told of it: never with its password.

    Raises:
        StorageError: it is none.
    """
    try:
        facts = conninfo_to_dict(url)
    except psycopg.ProgrammingError:  # what it says may hold the password
        facts = {}
    if not url.startswith(("postgresql://", "postgres://")) or not facts:
        raise errors.StorageError(
            f"[storage] {option} is not the URL of a PostgreSQL: write one such as "
            "postgresql://user:password@host:5432/database; nothing was tried."
        ) from None
    host, port = facts.get("host", "localhost"), facts.get("port", "5432")
    return f"{host}:{port}/{facts.get('dbname', facts.get('user', ''))}"


def unusable(exc: psycopg.Error, place: str) -> errors.StorageError:
    """Our error for what goes wrong before anything could be done at a server."""
    is_away = isinstance(exc, AWAY) and getattr(exc, "sqlstate", None) is None
    if not is_away and not isinstance(exc, ENDED):
        return mapped(exc)
    return errors.StorageAway(f"The database server at {place} cannot be used: {_reason(exc)}.")


def _reason(exc: psycopg.Error) -> str:
    """The reason a server, or the way to it, refused a connection; no secret is in it."""
    lines = [line.strip() for line in str(exc).splitlines() if line.strip()]
    first = lines[0] if lines else type(exc).__name__
    return first.rpartition("failed: ")[2].removeprefix("FATAL:").strip().rstrip(".")


# What a PostgreSQL server is like, for somebody who wants to know, on a connection of its own.


@dataclass(frozen=True, slots=True)
class Server:
    """A server that can be reached.

    Attributes:
        place: its host, port and database.
        version: such as "18.1".
        size: of the database, in bytes.
        tables: the version of the tables; 0 while there are none.
        problems: what is in the way, each with its fix.
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
        check_server(url, direct)
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


def check_server(url: str, direct: str) -> None:
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
