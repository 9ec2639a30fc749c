"""The log of changes: what each commit changed since a copy of the database was made.

SQLite's session extension says what a transaction leaves different; once that is committed it is
added to a file beside the copies. A database that is damaged, emptied, deleted or an older one is
brought forward by it: the newest sound copy, then every later change. Other processes (the command
line) add to the same file. Each copy begins another one, and those before it stay for as long as an
older copy needs them.

The database knows how many changes it has had and what they come to (`Position`), so a log that is
another database's, or of another past, is never applied. What is derived, ends soon or is a secret
is not in it, nor what notes said before: see `LEFT_OUT`.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import struct
import threading
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import apsw
import orjson
import structlog

from bot import __version__
from bot.errors import StorageError
from bot.storage import Transaction, Value, files
from bot.storage.sqlite_sql import SqliteTransaction
from bot.storage.tables import TABLES

SUFFIX = ".changes"
FORMAT = 1
MAX_BYTES = 64_000_000  # of a file; then a copy is made, which begins another one
MAX_FILES = 8
SYNC_SECONDS = 5.0  # what nobody was told is done may wait so long for the disk

LEFT_OUT = frozenset(
    {
        *("approvals", "page_links", "page_logins", "api_keys", "hooks"),
        *("push_subscriptions", "link_codes"),
        *("uploads", "note_versions", "claim_uses"),
    }
)
LOGGED = frozenset(
    each.name for each in TABLES if each.kind == "truth" and each.engine != "postgres"
) - LEFT_OUT  # fmt: skip

# What people are told is done is on the disk before that: any change of these tables, or, where
# columns are named, one of theirs in a row that was there.
_TOLD: Mapping[str, tuple[str, ...]] = {
    "links": (),
    "reminders": (),
    "repeats": (),
    "pairing": (),
    "blocks": (),
    "rooms": (),
    "moved_chats": (),
    "zones": (),
    "titles": (),
    "forgotten": (),
    "hidden": (),
    "unseen": (),
    "conversations": ("session_id",),
    "sessions": (
        *("model", "notices", "usage", "thinking", "saved", "compaction", "told", "held"),
        *("shelf", "deleted_at"),
        *("compaction_count", "memory_flush_at", "memory_flush_compaction_count", "flushed_to"),
    ),
}

TABLE = """CREATE TABLE IF NOT EXISTS changes(
    id TEXT PRIMARY KEY, seq BIGINT NOT NULL, mark BIGINT NOT NULL)"""
FIRST = """INSERT INTO changes(id, seq, mark)
    SELECT lower(hex(randomblob(8))), 0, 0 WHERE NOT EXISTS (SELECT 1 FROM changes)"""

_MAGIC = b"\xc5chg"
_RECORD = struct.Struct("<4sQIIQ")  # the magic, seq, mark before, mark, size of what follows
_LONGEST_HEAD = 1_000_000_000

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Position:
    """The position of a database: its id, its number of changes, and their checksum in a chain."""

    id: str
    seq: int
    mark: int


@dataclass(frozen=True, slots=True)
class Change:
    """The changes of one commit, as SQLite's patchset; `before` is the mark it goes on from."""

    seq: int
    before: int
    mark: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Part:
    """A file of the log that was read; `unread` counts places that are no changes (any more).

    `removed` is what was forgotten and erased for good when it was begun, as whoever began it said,
    and whether no file before it ends there.
    """

    path: Path
    base: Position
    removed: Mapping[str, Any]
    changes: tuple[Change, ...]
    unread: int

    @property
    def end(self) -> Position:
        """The position of its last change."""
        last = max(self.changes, key=lambda each: each.seq, default=None)
        return Position(self.base.id, last.seq, last.mark) if last is not None else self.base


# --- in the database ------------------------------------------------------------------------------


def position(tx: Transaction) -> Position:
    """The position of a database."""
    return Position(*tx.execute("SELECT id, seq, mark FROM changes")[0])


def put(tx: Transaction, at: Position) -> None:
    """Let the database be at a position."""
    tx.execute("UPDATE changes SET id = ?, seq = ?, mark = ?", (at.id, at.seq, at.mark))


def fresh(id_: str, seq: int) -> Position:
    """A position that no log leads to yet."""
    return Position(id_, seq, secrets.randbits(32))


def renew(tx: Transaction) -> None:
    """Let the database be one of its own, whatever it was copied from."""
    put(tx, fresh(secrets.token_hex(8), 1))


def is_blank(tx: Transaction) -> bool:
    """True while nothing is stored yet."""
    tables = ("sessions", "inbox", "pairing", "meta")
    return not any(tx.execute(f"SELECT 1 FROM {name} LIMIT 1") for name in tables)


def position_in(path: Path) -> Position | None:
    """The position of a database that nobody has opened; None if it was made before the log.

    Raises:
        apsw.Error: it cannot be read.
    """
    with closing(apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)) as connection:
        tx = SqliteTransaction(connection)
        is_there = tx.execute("SELECT 1 FROM sqlite_schema WHERE name = 'changes'")
        return position(tx) if is_there else None


def adopt(path: Path, id_: str) -> None:
    """Let a database that has no position be the beginning of a log.

    Raises:
        apsw.Error: it cannot be written.
    """
    with closing(apsw.Connection(str(path))) as connection:
        tx = SqliteTransaction(connection)
        tx.execute(TABLE)
        tx.execute(
            "INSERT INTO changes SELECT ?, 0, 0 WHERE NOT EXISTS (SELECT 1 FROM changes)", (id_,)
        )


def step(tx: Transaction, data: bytes) -> Change:
    """Count a change in the transaction that makes it."""
    before = position(tx)
    seq = before.seq + 1
    change = Change(seq, before.mark, _mark(seq, before.mark, data), data)
    tx.execute("UPDATE changes SET seq = ?, mark = ?", (seq, change.mark))
    return change


def _mark(seq: int, before: int, data: bytes) -> int:
    return zlib.crc32(data, zlib.crc32(seq.to_bytes(8, "little"), before))


def columns_of(tx: Transaction) -> dict[str, tuple[str, ...]]:
    """The columns of the tables that are logged, in the order in which changes have them."""
    return {
        name: tuple(str(row[0]) for row in rows)
        for name in sorted(LOGGED)
        if (rows := tx.execute("SELECT name FROM pragma_table_info(?) ORDER BY cid", (name,)))
    }


def is_told(data: bytes, columns: Mapping[str, Sequence[str]]) -> bool:
    """True when people may be told that a change is done, so it has to be on the disk before."""
    for each in cast("Any", apsw.Changeset.iter)(data):
        counted = _TOLD.get(each.name)
        if each.name == "artifacts" and each.op == "DELETE":  # it was forgotten
            return True
        if counted == ():
            return True
        if counted and each.op == "UPDATE" and each.new is not None:
            named = zip(columns[each.name], each.new, strict=False)
            if any(name in counted and new is not apsw.no_change for name, new in named):
                return True
    return False


@dataclass(frozen=True, slots=True)
class RowChange:
    """A row that a change left or removed: its key, and its `values` as far as they are new."""

    table: str
    op: str
    key: Mapping[str, Value]
    values: Mapping[str, Value]


def rows_of(data: bytes, columns: Mapping[str, tuple[str, ...]]) -> Iterator[RowChange]:
    """The rows of a change, as far as these tables and columns know them.

    A later version of the program may have added some of either.
    """
    for each in cast("Any", apsw.Changeset.iter)(data):
        names = columns.get(each.name)
        if names is None:
            continue
        whose = cast("tuple[Value, ...]", each.new if each.op == "INSERT" else each.old)
        key: dict[str, Value] = {names[at]: whose[at] for at in sorted(each.pk_columns)}
        new = zip(names, each.new or (), strict=False)
        values = {name: value for name, value in new if value is not apsw.no_change}
        yield RowChange(each.name, each.op, key, cast("dict[str, Value]", values) | key)


def apply(tx: Transaction, row: RowChange) -> None:
    """Let a row be as a change left it."""
    where = " AND ".join(f"{name} = ?" for name in row.key)
    key = tuple(row.key.values())
    others = {name: value for name, value in row.values.items() if name not in row.key}
    if row.op == "DELETE":
        tx.execute(f"DELETE FROM {row.table} WHERE {where}", key)
    elif row.op == "INSERT":
        names, marks = ", ".join(row.values), ", ".join("?" * len(row.values))
        sql = f"INSERT OR REPLACE INTO {row.table}({names}) VALUES ({marks})"
        tx.execute(sql, tuple(row.values.values()))
    elif others:
        new = ", ".join(f"{name} = ?" for name in others)
        tx.execute(f"UPDATE {row.table} SET {new} WHERE {where}", (*others.values(), *key))


# --- files ----------------------------------------------------------------------------------------


def paths(database: Path) -> list[Path]:
    """The files of a database's log, the oldest first."""
    return sorted((database.parent / files.BACKUPS).glob(f"{database.stem}-*{SUFFIX}"))


def first_base(database: Path) -> Position | None:
    """The first position of the oldest file of a log that can be read.

    Raises:
        OSError: one cannot be read.
    """
    for path in paths(database):
        with path.open("rb") as file:
            head = _head(file.readline(_LONGEST_HEAD), path)
        if head is not None:
            return head[0]
    return None


class ChangeLog:
    """Adds changes to the newest file of a log."""

    def __init__(self, file: int, path: Path) -> None:
        self._file = file
        self.path = path
        self._lock = threading.RLock()
        self._timer: threading.Timer | None = None

    @classmethod
    def newest(cls, database: Path, id_: str) -> ChangeLog | None:
        """The log of a database, if it has one."""
        for path in reversed(paths(database)):
            with suppress(OSError), path.open("rb") as file:
                base = _head(file.readline(_LONGEST_HEAD))
                if base is not None and base[0].id == id_:
                    return cls(files.opener(str(path), os.O_WRONLY | os.O_APPEND), path)
        return None

    @classmethod
    def begin(cls, database: Path, base: Position, removed: Mapping[str, Any]) -> ChangeLog:
        """Begin another file at a position; one that begins there already is gone on with.

        Raises:
            OSError: the disk does not take it.
        """
        path = database.parent / files.BACKUPS / f"{database.stem}-{base.seq:015d}{SUFFIX}"
        facts = {"id": base.id, "base": base.seq, "mark": base.mark, "removed": removed}
        head = orjson.dumps({"type": "changes", "version": FORMAT, **facts})
        if not path.exists():
            files.put(path, head + b"\n")
        return cls(files.opener(str(path), os.O_WRONLY | os.O_APPEND), path)

    @property
    def is_full(self) -> bool:
        """True when a copy should be made, which begins another file."""
        return os.fstat(self._file).st_size > MAX_BYTES

    def append(self, change: Change, *, at_once: bool) -> None:
        """Add a change; `at_once` it is on the disk then, else within `SYNC_SECONDS`.

        Raises:
            OSError: the disk does not take it; nothing of it is in the file.
        """
        head = _RECORD.pack(_MAGIC, change.seq, change.before, change.mark, len(change.data))
        data = head + change.data
        fcntl.flock(self._file, fcntl.LOCK_EX)
        try:
            end = os.lseek(self._file, 0, os.SEEK_END)
            try:
                while data:
                    data = data[os.write(self._file, data) :]
            except OSError:
                with suppress(OSError):
                    os.ftruncate(self._file, end)
                raise
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)
        with self._lock:
            if at_once:
                if self._timer is not None:
                    self._timer.cancel()
                    self._timer = None
                os.fdatasync(self._file)
            elif self._timer is None:
                self._timer = threading.Timer(SYNC_SECONDS, self._sync)
                self._timer.daemon = True
                self._timer.start()

    def close(self) -> None:
        """Let everything reach the disk, and release the file."""
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
                self._sync()
            file, self._file = self._file, -1
            if file >= 0:
                os.close(file)

    def _sync(self) -> None:
        with self._lock:
            self._timer = None
            if self._file >= 0:
                try:
                    os.fdatasync(self._file)
                except OSError as exc:
                    log.warning("changes.write_failed", error=type(exc).__name__)


def read(path: Path) -> Part | None:
    """Read a file of the log as far as its checksums hold; None for one that is none.

    Raises:
        StorageError: a newer version of the program wrote it.
        OSError: it cannot be read.
    """
    data = path.read_bytes()
    end = data.find(b"\n") + 1
    head = _head(data[:end], path)
    if head is None:
        return None
    found: list[Change] = []
    unread, at = 0, end
    while at < len(data):
        change, after = _change(data, at)
        if change is None:
            # What was written when the power or the disk went: go on at the next one that is whole.
            unread += 1
            while change is None and (at := data.find(_MAGIC, at + 1)) >= 0:
                change, after = _change(data, at)
            if change is None:
                break
        found.append(change)
        at = after
    return Part(path, head[0], head[1], tuple(sorted(found, key=lambda each: each.seq)), unread)


def _change(data: bytes, at: int) -> tuple[Change | None, int]:
    if at + _RECORD.size > len(data):
        return None, at
    magic, seq, before, mark, size = _RECORD.unpack_from(data, at)
    start = at + _RECORD.size
    if magic != _MAGIC or size > len(data) - start:
        return None, at
    content = data[start : start + size]
    if _mark(seq, before, content) != mark:
        return None, at
    return Change(seq, before, mark, content), start + size


def _head(line: bytes, path: Path | None = None) -> tuple[Position, Mapping[str, Any]] | None:
    """The first position of a file, and what was removed by then; None if it is none of ours."""
    try:
        said: object = orjson.loads(line)
        facts = cast("dict[str, Any]", said)
        if facts["type"] != "changes":
            return None
        if path is not None and facts["version"] > FORMAT:
            raise StorageError(
                f"The log of changes {path} has format {facts['version']}, made by a newer "
                f"Confidant; this is {__version__} and knows format {FORMAT}. Nothing was changed: "
                "start the newer one again, or go back to a backup from before the upgrade."
            )
        base = Position(str(facts["id"]), int(facts["base"]), int(facts["mark"]))
        return base, cast("dict[str, Any]", facts["removed"])
    except (ValueError, KeyError, TypeError):
        return None


def prune(database: Path, oldest: int) -> None:
    """Remove the files that no copy needs, of which the oldest has had so many changes.

    Raises:
        OSError: one cannot be removed.
    """
    found = paths(database)
    for number, (path, following) in enumerate(pairwise(found)):
        base = int(following.stem.rpartition("-")[2])
        if base <= oldest or number < len(found) - MAX_FILES:
            path.unlink()


def clear(database: Path) -> None:
    """Remove the whole log.

    Raises:
        OSError: the disk does not take it.
    """
    for path in (database.parent / files.BACKUPS).glob(f"{database.stem}-*{SUFFIX}*"):
        path.unlink()
