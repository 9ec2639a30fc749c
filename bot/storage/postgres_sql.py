"""SQL on PostgreSQL: one transaction, how its values look to Python, and what its errors mean."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

import psycopg
from psycopg import errors as pg
from psycopg.adapt import Loader
from psycopg.sql import SQL, Composable
from psycopg.types.numeric import IntDumper
from psycopg.types.string import TextLoader

from bot import errors
from bot.storage import Row, Value, beginning, fulltext, marks

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
        self,
        query: str,
        limit: int,
        keys: Sequence[str],
        people: Sequence[str] = (),
        begins: Sequence[str] = ("",),
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
            begins=beginning("key", begins),
            found=MAX_FOUND,
        )
        rows = self.execute(sql, (*terms, *keys, *people, *begins, " | ".join(terms), limit))
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
        WHERE key IN ({keys})
            OR (chat_type = 'direct' AND person IN ({people}) AND {begins})),
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
