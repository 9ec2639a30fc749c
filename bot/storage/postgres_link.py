"""Connections to a PostgreSQL: how they are made, lost and made again, and what people are told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final, TypeVar

import psycopg
import structlog
from psycopg.conninfo import conninfo_to_dict

from bot import errors
from bot.backoff import Backoff
from bot.storage.postgres_sql import AWAY, ENDED, OUTDATED, Connection, configure, mapped

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
    """What a URL names, as people are told of it: never with its password.

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
    """What a server, or the way to it, says of a connection that it refuses; no secret is in it."""
    lines = [line.strip() for line in str(exc).splitlines() if line.strip()]
    first = lines[0] if lines else type(exc).__name__
    return first.rpartition("failed: ")[2].removeprefix("FATAL:").strip().rstrip(".")
