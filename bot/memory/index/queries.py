"""The index file: connections to it, and the candidates that a search finds in it.

All of it can be made again from the notes and from what was said.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import apsw
import structlog

from bot.memory import vectors, words
from bot.memory.index.engine import COLUMNS, FIRST, Header, header_of
from bot.memory.periods import Period
from bot.memory.ranking import Candidate, Candidates, Request
from bot.memory.search import Hit
from bot.memory.vectors import NDArray, Vectors, np
from bot.memory.words import Statistics
from bot.storage import Row, Value, files, fulltext, marks

NAME = "index.db"
FORMAT = 7  # raise it when the tables change: a file of another format is replaced
BUSY_TIMEOUT_MS = 2_000  # a program that holds the file locked for longer is not waited for
READER_BUSY_TIMEOUT_MS = 500  # a search must not wait long
HEADER = f"SELECT {COLUMNS}, epoch FROM memory_index {FIRST}"
SCOPE_MARK = "\ue001"  # begins a partition's token, so that no word of a note is one

_PRAGMAS = (
    "PRAGMA auto_vacuum = INCREMENTAL",  # what is not needed any more goes back to the disk
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = NORMAL",  # what a power cut takes is found again from the notes
    "PRAGMA cache_size = -1000",  # more is not faster: the system keeps the file in memory
    "PRAGMA temp_store = MEMORY",
    "PRAGMA trusted_schema = OFF",
    "PRAGMA secure_delete = ON",  # what is forgotten must not stay in free pages
)
_READER_PRAGMAS = (
    "PRAGMA query_only = ON",
    "PRAGMA cache_size = -1000",
    "PRAGMA temp_store = MEMORY",
    "PRAGMA trusted_schema = OFF",
)

BY_SIGNS = 256  # chunks of a partition the signs find, to be compared again by their windows:
BY_SIGNS_SHARE = 150  # of so many one, where that is more,
BY_SIGNS_MOST = 768  # and never more than these
WINDOWS = 8  # for each of them, whose signs are the nearest
OF_TIME = 400  # chunks of the times that are asked about, the newest, to be compared
COMMON = 0.1  # a word in more of a scope's chunks than this finds nothing by itself,
COMMON_LEAST = 500  # if there are enough of them to find
# Chunks from which on the signs of each window are kept in memory, 32 bytes each. The vectors of
# fewer are all compared: 200 take 0.4 ms, and 500 take 1 ms (sqlite-vec: 0.9 and 1.3 ms).
LARGE = 2 * BY_SIGNS
MAX_GONE = BY_SIGNS // 2  # chunks that are not there any more among those that are kept in memory
GRACE = 0.25  # seconds to read what was found when the time is up
# What a candidate is made of, of a chunk `c` and its source `s`.
CANDIDATE = (
    "c.id, c.body, c.heading, c.day, c.vectors, c.start_line, c.end_line,"
    " s.kind, s.space, s.path, s.at"
)
_STEPS = 20_000  # of SQLite's machine between looks at the clock; about a millisecond

log = structlog.get_logger(__name__)


def inode(path: Path) -> int:
    """The inode of the file at a path; 0 when there is none."""
    try:
        return path.stat().st_ino
    except OSError:
        return 0


def remove(path: Path) -> None:
    """Remove a database file with its logs."""
    for suffix in ("", "-wal", "-shm", "-journal"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def connect(path: Path, *, writing: bool) -> apsw.Connection:
    """A connection to the file.

    Raises:
        apsw.Error: the file cannot be opened or is no database.
    """
    if writing:
        with suppress(OSError):  # SQLite says better what is wrong
            files.create(path)
    flags = apsw.SQLITE_OPEN_READWRITE | (apsw.SQLITE_OPEN_CREATE if writing else 0)
    connection = apsw.Connection(str(path), flags=flags, statementcachesize=100)
    try:
        connection.set_busy_timeout(BUSY_TIMEOUT_MS if writing else READER_BUSY_TIMEOUT_MS)
        for pragma in _PRAGMAS if writing else _READER_PRAGMAS:
            run(connection, pragma)
    except BaseException:
        connection.close()
        raise
    return connection


def run(connection: apsw.Connection, sql: str, parameters: Sequence[Value] = ()) -> list[Row]:
    """Run one statement and return all its rows; apsw raises what goes wrong."""
    cursor: Any = connection.execute(sql, parameters)  # pyright: ignore[reportUnknownMemberType]
    return cursor.fetchall()


@dataclass(frozen=True, slots=True)
class Scope:
    """The partitions of a search as the index knows them, and how much is in them.

    `sizes` are the chunks of each. They may be `all` that the index has: then no chunk need be
    asked whose it is.
    """

    ids: tuple[int, ...]
    sizes: tuple[int, ...]
    chunks: int
    length: int
    all: bool = False


@dataclass(frozen=True, slots=True)
class _Signs:
    """The signs of the windows of a partition's chunks, and for each window its chunk's id.

    `columns` is as `vectors.columns` has them; the ids are in rising order, of so many `chunks`.
    """

    epoch: int
    chunks: int
    ids: NDArray[np.int64]
    columns: NDArray[np.uint64]


class FileReader:
    """The reading side of the index file; used by one thread at a time."""

    def __init__(self, path: Path) -> None:
        """Open it.

        Raises:
            apsw.Error: it is damaged or gone.
        """
        self._path = path
        self._connection = connect(path, writing=False)
        self._inode = inode(path)
        self._header: Header | None = None
        self._deadline = float("inf")
        self._known: dict[int, _Signs] = {}
        self.tokenize = fulltext.tokenizer(self._connection)
        self._connection.set_progress_handler(lambda: time.monotonic() > self._deadline, _STEPS)

    def close(self) -> None:
        """Release the file."""
        try:
            self._connection.close()
        except apsw.Error as error:  # a full disk: the last one out could not tidy up
            log.warning("memory.close_failed", error=type(error).__name__)

    def is_current(self) -> bool:
        """False when the file was removed, or another one stands in its place."""
        return inode(self._path) == self._inode

    @contextmanager
    def snapshot(self, deadline: float) -> Generator[Header | None]:
        """See `Reader.snapshot`."""
        self._deadline = deadline
        run(self._connection, "BEGIN")
        try:
            found = header_of(run(self._connection, HEADER))
            self._header = found if found is not None and found.is_live else None
            yield self._header
        finally:
            self._deadline = float("inf")
            if self._connection.in_transaction:
                run(self._connection, "COMMIT")

    def scope(self, partitions: Sequence[str]) -> Scope:
        """The scope of these partitions."""
        some, held = f"IN ({marks(partitions)})", "memory_partitions WHERE chunks > 0 AND name"
        rows = self._run(f"SELECT id, chunks, length FROM {held} {some}", partitions)
        others = self._run(f"SELECT 1 FROM {held} NOT {some} LIMIT 1", partitions)
        ids, sizes, lengths = zip(*rows, strict=True) if rows else ((), (), ())
        return Scope(ids, sizes, sum(sizes), sum(lengths), all=not others)

    def find(self, request: Request, most: int, *, by_words: bool) -> Candidates:
        """The chunks that the words and the vector of a search find, at most `most` by each.

        When the time is up they are those that were found until then.
        """
        query = words.parse(request.query, self.tokenize)
        scope = self.scope(request.partitions)
        known, late = Statistics(scope.chunks, 1.0, {}), False
        ids: dict[int, None] = {}
        try:
            known = self._statistics(query, scope)
            asked = _asked(query, known, scope) if by_words else ""
            if asked:
                ids.update(dict.fromkeys(self._by_words(asked, scope, most)))
            if request.vector is not None:
                ids.update(dict.fromkeys(self._by_vector(request.vector, scope, most)))
            if request.times:
                ids.update(dict.fromkeys(self._by_time(request, asked, scope, most)))
        except apsw.InterruptError:
            late = True
        self._deadline = max(self._deadline, time.monotonic() + GRACE)  # to show what was found
        found = self._candidates(list(ids), scope, sorted(request.without))
        return Candidates(query, found, known, late)

    def chunks(self, partition: str, path: str) -> list[Row]:
        """See `Reader.chunks`."""
        return self._run(
            "SELECT c.start_line, c.end_line, c.body FROM memory_chunks c JOIN memory_sources s"
            " ON s.id = c.source JOIN memory_partitions p ON p.id = s.partition"
            " WHERE s.kind = 'folder' AND p.name = ? AND s.path = ? ORDER BY c.id",
            (partition, path),
        )

    # ----------------------------------------------------------------------------------------------

    def _statistics(self, query: words.Query, scope: Scope) -> Statistics:
        """In how many of the scope's chunks each term is: what others wrote changes no score.

        Counting stops where a term is common anyway.
        """
        seen: dict[tuple[str, ...], int] = {}
        for term in query.terms if scope.ids else ():
            rows = self._run(
                "SELECT count(*) FROM"
                " (SELECT 1 FROM memory_chunks_text WHERE memory_chunks_text MATCH ? LIMIT ?)",
                (_within(scope, term.match), common(scope)),
            )
            seen[term.tokens] = int(rows[0][0])
        return Statistics(scope.chunks, scope.length / max(1, scope.chunks), seen)

    def _by_words(self, asked: str, scope: Scope, limit: int) -> list[int]:
        """The chunks with any of the terms that are looked for, best BM25 first."""
        rows = self._run(
            """SELECT rowid FROM memory_chunks_text WHERE memory_chunks_text MATCH ?
               AND rank MATCH 'bm25(0.0, 1.0, 1.0)' ORDER BY rank LIMIT ?""",
            (_within(scope, asked), limit),
        )
        return [int(row[0]) for row in rows]

    def _by_time(self, request: Request, asked: str, scope: Scope, limit: int) -> list[int]:
        """The chunks of the times asked about: half by their words, half by what they mean."""
        of_time, days = within_times(request.times, "c.day")
        found: list[int] = []
        if asked:
            rows = self._run(
                f"""SELECT t.rowid FROM memory_chunks_text t
                    CROSS JOIN memory_chunks c ON c.id = t.rowid
                    WHERE t.memory_chunks_text MATCH ? AND t.rank MATCH 'bm25(0.0, 1.0, 1.0)'
                    AND ({of_time}) ORDER BY t.rank LIMIT ?""",
                (_within(scope, asked), *days, limit // 2),
            )
            found += [int(row[0]) for row in rows]
        if request.vector is not None:
            rows = self._run(
                f"""SELECT c.id, c.vectors FROM memory_chunks c
                    WHERE c.partition IN ({marks(scope.ids)}) AND ({of_time})
                    ORDER BY c.day DESC LIMIT {OF_TIME}""",
                (*scope.ids, *days),
            )
            packed = [(int(i), blob) for i, blob in rows if blob]
            found += nearest(packed, request.vector, limit // 2)
        return found

    def _by_vector(self, wanted: Vectors, scope: Scope, limit: int) -> list[int]:
        """The chunks with the nearest windows, nearest first."""
        small, chosen = list[int](), list[int]()
        for partition, chunks in zip(scope.ids, scope.sizes, strict=True):
            if chunks < LARGE:
                small.append(partition)
            else:
                chosen += self._by_signs(partition, chunks, wanted)
        rows = self._run(
            "SELECT id, vectors FROM memory_chunks WHERE vectors IS NOT NULL AND "
            f"(partition IN ({marks(small)}) OR id IN ({marks(chosen)}))",
            (*small, *chosen),
        )
        return nearest([(int(i), blob) for i, blob in rows], wanted, limit)

    def _candidates(
        self, ids: Sequence[int], scope: Scope, without: Sequence[str]
    ) -> list[Candidate]:
        """Chunks with everything their ranking needs; none of another partition, however found."""
        dims = self._header.dims if self._header is not None else 0
        of_scope = f"c.partition IN ({marks(scope.ids)})"
        rows = self._run(
            f"""SELECT {CANDIDATE} FROM memory_chunks c JOIN memory_sources s ON s.id = c.source
                WHERE c.id IN ({marks(ids)}) AND {of_scope} AND s.path NOT IN ({marks(without)})""",
            (*ids, *scope.ids, *without),
        )
        return candidates(rows, dims)

    def _by_signs(self, partition: int, chunks: int, wanted: Vectors) -> list[int]:
        """Some of a partition's chunks that may be near: `BY_SIGNS`, or more of very many."""
        known = self._signs(partition)
        if known.chunks > chunks + MAX_GONE:  # what is gone would crowd out what is there
            del self._known[partition]
            known = self._signs(partition)
        if not len(known.ids):
            return []
        most = min(BY_SIGNS_MOST, max(BY_SIGNS, chunks // BY_SIGNS_SHARE))
        near = known.ids[vectors.nearest(known.columns, wanted, WINDOWS * most)]
        return list(dict.fromkeys(near.tolist()))[:most]

    def _signs(self, partition: int) -> _Signs:
        """A partition's signs, kept in memory: what was added since is read, the rest is not.

        Chunks that were removed stay in it for a while; they are not found when they are looked up.
        """
        header = self._header
        epoch, dims = (0, 0) if header is None else (header.epoch, header.dims)
        known = self._known.get(partition)
        if known is None or known.epoch != epoch:
            known = _Signs(epoch, 0, np.zeros(0, np.int64), np.zeros((0, 0), np.uint64))
        rows = self._run(
            """SELECT id, signs FROM memory_chunks WHERE partition = ? AND id > ?
               AND id <= (SELECT filled FROM memory_index) AND signs IS NOT NULL ORDER BY id""",
            (partition, int(known.ids[-1]) if len(known.ids) else 0),
        )
        if rows:
            added = vectors.columns(b"".join(row[1] for row in rows), dims)
            windows = [len(row[1]) // -(-dims // 8) for row in rows]
            ids = np.repeat(np.array([int(row[0]) for row in rows], np.int64), windows)
            if known.chunks:
                ids = np.concatenate((known.ids, ids))
                added = np.concatenate((known.columns, added), axis=1)
            known = _Signs(epoch, known.chunks + len(rows), ids, added)
        self._known[partition] = known
        return known

    def _run(self, sql: str, parameters: Sequence[Any] = ()) -> list[Row]:
        return run(self._connection, sql, parameters)


def candidates(rows: Sequence[Row], dims: int) -> list[Candidate]:
    """Chunks with everything their ranking needs, from the columns of `CANDIDATE`."""
    packed = [row[4] or b"" for row in rows] if dims else [b""] * len(rows)
    every = vectors.unpack(b"".join(packed), dims) if any(packed) else None
    found: list[Candidate] = []
    end = 0
    for row, blob in zip(rows, packed, strict=True):
        key, body, heading, day, _, first, last, source, space, path, at = row
        start, end = end, end + len(blob) // (dims or 1)
        found.append(
            Candidate(
                int(key),
                Hit(str(space), str(path), int(first), int(last), 0.0, "", source, int(at)),
                str(body),
                str(heading),
                date.fromordinal(day) if day else None,
                every[start:end] if every is not None and blob else None,
            )
        )
    return found


def nearest(packed: Sequence[tuple[int, bytes]], wanted: Vectors, limit: int) -> list[int]:
    """The chunks, of these with their windows' vectors, whose best window is nearest."""
    if not packed:
        return []
    dims = wanted.shape[1]
    cosines = vectors.cosines(b"".join(blob for _, blob in packed), wanted)
    starts = np.cumsum([0, *(len(blob) // dims for _, blob in packed[:-1])])
    best = np.maximum.reduceat(cosines, starts)
    return [packed[at][0] for at in np.argsort(-best, kind="stable")[:limit]]


def common(scope: Scope) -> int:
    """In how many chunks a word must be to be common in a scope."""
    return max(COMMON_LEAST, int(COMMON * scope.chunks))


def within_times(times: Sequence[Period], column: str) -> tuple[str, list[int]]:
    """A condition that a day, as the index has it, is of one of some times; and its parameters."""
    condition = " OR ".join([f"{column} BETWEEN ? AND ?"] * len(times))
    return condition, [
        day for each in times for day in (each.first.toordinal(), each.last.toordinal())
    ]


def _asked(query: words.Query, known: Statistics, scope: Scope) -> str:
    """The terms that are looked for, those that are common only when there are no others."""
    terms = [term for term in query.terms if known.frequencies.get(term.tokens)]
    rare = [t for t in terms if known.frequencies[t.tokens] < common(scope)]
    return " OR ".join(term.match for term in rare or terms)


def _within(scope: Scope, asked: str) -> str:
    if scope.all:
        return f"{{heading body}} : ({asked})"
    asked_of = " OR ".join(f'"{SCOPE_MARK}{each}"' for each in scope.ids)
    return f"scope : ({asked_of}) AND {{heading body}} : ({asked})"
