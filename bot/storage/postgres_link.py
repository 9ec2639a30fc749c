"""Connections to a PostgreSQL: how they are made, lost and made again, and what people are told."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any, Final, TypeVar

import psycopg
import structlog
from psycopg import errors as pg
from psycopg.adapt import Loader
from psycopg.conninfo import conninfo_to_dict
from psycopg.sql import SQL, Composable
from psycopg.types.numeric import IntDumper
from psycopg.types.string import TextLoader

from bot import errors
from bot.backoff import Backoff
from bot.storage import Row, Value, fulltext, marks

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


# SQL on PostgreSQL: one transaction, how its values look to Python, and what its errors mean.

NUL = "\U0010ffff"  # stands for the one character PostgreSQL keeps in no text; it is none itself
MAX_FOUND = 20_000  # texts that are weighed for one search: the newest that match

Connection = psycopg.Connection[tuple[Any, ...]]
AWAY: Final = (psycopg.OperationalError, psycopg.InterfaceError)
COLLISION: Final = (pg.SerializationFailure, pg.DeadlockDetected)
# The server ends the connection after these, also when it has not been seen to end yet; of a
# read-only one another server has taken over, which a new connection may find. A protocol violation
# is how PgBouncer tells that it has lost the server, or waited for it too long.
ENDED: Final = (
    pg.AdminShutdown,
    pg.CrashShutdown,
    pg.CannotConnectNow,
    pg.IdleInTransactionSessionTimeout,
    pg.ReadOnlySqlTransaction,
    pg.ProtocolViolation,
)
# A plan is kept that is older than a change of its table: a new connection has none.
OUTDATED: Final = pg.FeatureNotSupported
GRANTS: Final = (
    "GRANT USAGE ON SCHEMA {schema} TO {role}; "
    "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {role}; "
    "GRANT USAGE ON ALL SEQUENCES IN SCHEMA {schema} TO {role};"
)


class _Whole(Loader):
    """A `numeric` as an int: sums of integers are the only ones there are."""

    def load(self, data: Any) -> int:
        return int(bytes(data))


class _Text(TextLoader):
    def load(self, data: Any) -> str | bytes:
        text = super().load(data)
        return text.replace(NUL, "\0") if isinstance(text, str) else text


def configure(connection: Connection) -> None:
    """Let values look as they do in a file's database."""
    connection.adapters.register_loader("numeric", _Whole)
    connection.adapters.register_loader("text", _Text)
    connection.adapters.register_dumper(bool, IntDumper)


class Signals:
    """Signals of the writer's transactions to other nodes; this one has none, see `bot.cluster`.

    `begin` is called in each try of a transaction, `ending` right before its COMMIT.
    """

    node = ""

    def begin(self) -> None:
        """A transaction begins; nothing was told in it."""

    def wake(self, tx: PostgresTransaction, key: str) -> None:
        """See `Transaction.wake`."""

    def publish(self, tx: PostgresTransaction, topic: str, name: str, body: str) -> None:
        """See `Transaction.publish`."""

    def ending(self) -> Composable:
        """Statements that go to the server with the COMMIT, now that all works are done."""
        return SQL("")


class PostgresTransaction:
    """`bot.storage.Transaction` over one connection."""

    __slots__ = ("connection", "signals", "words")
    failures = (*COLLISION, *AWAY, *ENDED, OUTDATED, pg.DiskFull)

    def __init__(self, connection: Connection, signals: Signals, words: fulltext.Words) -> None:
        self.connection = connection
        self.signals = signals
        self.words = words

    def execute(self, sql: str, parameters: Sequence[Value] = ()) -> list[Row]:
        """Run one statement and return all its rows."""
        given = [p.replace("\0", NUL) if isinstance(p, str) else p for p in parameters]
        cursor = self.connection.execute(translated(sql), given)
        return cursor.fetchall() if cursor.description is not None else []

    def index_text(self, entry: int, text: str) -> None:
        """Make an entry findable by its words."""
        for part, vector in enumerate(fulltext.tsvectors(self.words.of(text))):
            self.execute(
                "INSERT INTO entries_text(entry, part, words) VALUES (?, ?, CAST(? AS tsvector))",
                (entry, part, vector),
            )

    def forget_text(self, entry: int) -> None:
        """Take an entry out of the full-text index."""
        self.execute("DELETE FROM entries_text WHERE entry = ?", (entry,))

    def search_text(
        self, query: str, limit: int, keys: Sequence[str], people: Sequence[str] = ()
    ) -> list[Row]:
        """Entries that match, best first: (entry, score)."""
        asked = (fulltext.tsquery(self.words.of(phrase)) for phrase in fulltext.phrases(query))
        terms = list(dict.fromkeys(filter(None, asked)))
        if not terms or not (keys or people):
            return []
        sql = _SEARCH.format(
            terms=", ".join(["(CAST(? AS tsquery))"] * len(terms)),
            keys=marks(keys),
            people=marks(people),
            found=MAX_FOUND,
        )
        rows = self.execute(sql, (*terms, *keys, *people, " | ".join(terms), limit))
        return [(entry, fulltext.score(strength)) for entry, strength in rows]

    @property
    def node(self) -> str:
        """The node that writes."""
        return self.signals.node

    def wake(self, key: str) -> None:
        """Have a node take up the lane of a session key, once this is committed."""
        self.signals.wake(self, key)

    def publish(self, topic: str, name: str = "", body: str = "") -> None:
        """Tell the other nodes something, once this is committed."""
        self.signals.publish(self, topic, name, body)

    def mapped(self, error: Exception) -> Exception:
        """Our error for one of PostgreSQL's; any other as it is."""
        return mapped(error) if isinstance(error, psycopg.Error) else error


# The server's ranks count how often a word is there and how long the text is, but not how rare the
# word is, which decides most (a name against "went"). So each word's rank is weighed by that, as
# BM25 does, which is what FTS5 orders by. Rarity is that among the conversations that are looked
# through: what others wrote must not show in an order.
_SEARCH = """
    WITH terms(term) AS (VALUES {terms}),
    scope AS (SELECT id, entry_count FROM sessions
        WHERE key IN ({keys}) OR (chat_type = 'direct' AND person IN ({people}))),
    found AS MATERIALIZED (SELECT entry, words FROM entries_text
        JOIN entries ON entries.seq = entry JOIN scope ON scope.id = entries.session_id
        WHERE words @@ CAST(? AS tsquery)
            AND NOT EXISTS (SELECT 1 FROM unseen WHERE unseen.seq = entry)
        ORDER BY entry DESC LIMIT {found}),
    counted AS (SELECT term, count(*) AS texts FROM terms JOIN found ON words @@ term
        GROUP BY term),
    weighed AS (SELECT term, ln(1 + (greatest(total, texts) - texts + 0.5) / (texts + 0.5))
        AS weight FROM counted, (SELECT sum(entry_count) AS total FROM scope) AS everything),
    parts AS (SELECT entry, words, sum(weight * ts_rank(words, term, 1)) AS strength
        FROM found JOIN weighed ON words @@ term GROUP BY entry, words)
    SELECT entry, CAST(max(strength) AS double precision) FROM parts GROUP BY entry
    ORDER BY 2 DESC, entry DESC LIMIT ?"""


@lru_cache(maxsize=1_000)
def translated(sql: str) -> bytes:
    """A statement with psycopg's marks, and nothing PostgreSQL would not take."""
    return re.sub(r"\bIN \(\)", "IN (NULL)", sql.replace("%", "%%").replace("?", "%s")).encode()


def mapped(exc: Exception) -> errors.StorageError:
    """Our error for one of PostgreSQL's."""
    if isinstance(exc, pg.DiskFull):
        return errors.StorageFull()
    if isinstance(exc, pg.InsufficientPrivilege):
        return errors.StorageError(
            f"The database refused: {exc.diag.message_primary}. Whoever owns the tables mends "
            f"that with: {GRANTS.format(schema='public', role='the role')}"
        )
    if isinstance(exc, ENDED) or (isinstance(exc, AWAY) and getattr(exc, "sqlstate", None) is None):
        return errors.StorageAway()
    return errors.StorageError(f"The database refused: {type(exc).__name__}.")
