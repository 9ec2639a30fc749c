"""The one connection of a node that must be its own: whether a URL leads to such a one.

On it a node listens for the others and holds the locks of what it does alone. Both belong to a
process of the server, and a pooler that gives its processes to another client after each
transaction would lose them without a word.
"""

from __future__ import annotations

import psycopg

from bot import errors
from bot.storage.postgres_link import OPTIONS, place_of, unusable
from bot.storage.postgres_sql import Connection

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
