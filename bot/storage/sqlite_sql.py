"""SQL on SQLite: one connection's transaction, and what its errors mean."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import apsw

from bot import errors
from bot.storage import Row, Value, beginning, fulltext, marks

# After one of these SQLite may have rolled back the whole transaction, so the group fails as one.
_FATAL = (apsw.FullError, apsw.IOError, apsw.CorruptError, apsw.NotADBError, apsw.NoMemError)


class SqliteTransaction:
    """`bot.storage.Transaction` over one connection."""

    __slots__ = ("connection",)
    failures = _FATAL

    def __init__(self, connection: apsw.Connection) -> None:
        self.connection = connection

    def mapped(self, error: Exception) -> Exception:
        """Our error for one of SQLite's; any other as it is."""
        return mapped(error) if isinstance(error, apsw.Error) else error

    def execute(self, sql: str, parameters: Sequence[Value] = ()) -> list[Row]:
        """Run one statement and return all its rows; apsw raises what goes wrong."""
        cursor: Any = self.connection.execute(sql, parameters)  # pyright: ignore[reportUnknownMemberType]
        return cursor.fetchall()

    def index_text(self, entry: int, text: str) -> None:
        """Make an entry findable by its words."""
        self.execute(
            "INSERT INTO entries_text(rowid, text) VALUES (?, ?)", (entry, fulltext.spaced(text))
        )

    def forget_text(self, entry: int) -> None:
        """Take an entry out of the full-text index."""
        self.execute("DELETE FROM entries_text WHERE rowid = ?", (entry,))

    def search_text(
        self,
        query: str,
        limit: int,
        keys: Sequence[str],
        people: Sequence[str] = (),
        begins: Sequence[str] = ("",),
    ) -> list[Row]:
        """Entries that match, best first: (entry, score)."""
        match = fulltext.match_query(query)
        if not match or not (keys or people):
            return []
        begun = beginning("key", begins)
        # What they may see is gathered once, so that what others said costs next to nothing. The
        # "+" keeps SQLite from asking the index for each of it instead.
        rows = self.execute(
            f"""SELECT rowid, bm25(entries_text) FROM entries_text
                WHERE entries_text MATCH ? AND +rowid IN (
                    SELECT seq FROM sessions CROSS JOIN entries ON session_id = sessions.id
                    WHERE key IN ({marks(keys)})
                        OR (chat_type = 'direct' AND person IN ({marks(people)}) AND {begun}))
                AND NOT EXISTS (SELECT 1 FROM unseen WHERE seq = entries_text.rowid)
                ORDER BY bm25(entries_text), rowid DESC LIMIT ?""",
            (match, *keys, *people, *begins, limit),
        )
        return [(entry, fulltext.score(bm25)) for entry, bm25 in rows]

    @property
    def node(self) -> str:
        """There is but one."""
        return ""

    def wake(self, key: str) -> None:
        """The caller does that."""

    def publish(self, topic: str, name: str = "", body: str = "") -> None:
        """Nobody else is there to hear it."""


def mapped(exc: apsw.Error) -> errors.StorageError:
    """Our error for one of SQLite's."""
    if isinstance(exc, apsw.FullError):
        return errors.StorageFull()
    if isinstance(exc, apsw.CorruptError | apsw.NotADBError):
        return errors.StorageCorrupt()
    if isinstance(exc, apsw.IOError):
        return errors.StorageError("The disk failed while the database was reading or writing.")
    if isinstance(exc, apsw.ReadOnlyError | apsw.CantOpenError | apsw.PermissionsError):
        return errors.StorageError("The database file cannot be written: check its permissions.")
    if isinstance(exc, apsw.BusyError | apsw.LockedError):
        return errors.StorageError("Another process kept the database locked for too long.")
    return errors.StorageError(f"The database refused: {type(exc).__name__}.")
