"""A storage folder as years of many people leave it, written by SQL instead of being lived.

The same one each time for the same numbers. One person in Telegram and the owner in the page have
up to `MOST` conversations each, all others share the rest evenly. Everything was said longer ago
than the index of memory looks back: what that costs, `python -m bench memory` tells.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import accumulate
from pathlib import Path

import apsw

from bench.memory import vocabulary
from bot.clock import DAY_MS
from bot.identity.routing import OWNER
from bot.recovery import TRANSCRIPTS
from bot.sessions import compactions, store
from bot.sessions.compactions import Snapshot
from bot.sessions.mirror import path_of
from bot.sessions.store import Session
from bot.storage import fulltext
from bot.storage.files import DATABASE_NAME
from bot.storage.sqlite import SqliteDatabase
from bot.storage.sqlite_sql import SqliteTransaction

MOST = 1_000  # conversations of one person
OFTEN = 10  # conversations of each of the others
FIRST_CHAT = 1000  # theirs who has so many
SPAN_DAYS, SINCE_DAYS = 3 * 365, 100  # between the first and the last, and since then
WORDS = {"user": 8, "assistant": 12}  # of a message
POOL = 4_000  # different messages of each role
PREFIX = 8_000  # characters
COMMIT = 500  # conversations in one transaction

_FAST = "PRAGMA journal_mode = MEMORY", "PRAGMA synchronous = OFF", "PRAGMA cache_size = -200000"
_ENTRIES = """INSERT INTO entries(seq, id, session_id, kind, role, at, line)
    SELECT :first + n, :id || '.' || (n + 1), :id, 'message', role, :at + n * 1000,
        printf('{"type":"message","id":"%s.%d","parentId":%s,"at":%d,"message":{"role":"%s",'
            || '"text":"%s","content":[{"type":"text","text":"%s","origin":"%s"}]}}',
            :id, n + 1, CASE n WHEN 0 THEN 'null' ELSE printf('"%s.%d"', :id, n) END,
            :at + n * 1000, role, text, text, CASE role WHEN 'user' THEN 'person' ELSE 'bot' END)
    FROM temp.numbers
    JOIN temp.pool ON pool.number = ((:first + n) * 7919 % :pool) * 2 + n % 2
    WHERE n < :count ORDER BY n RETURNING line"""
_INDEX = """INSERT INTO entries_text(rowid, text)
    SELECT :first + n, spaced FROM temp.numbers
    JOIN temp.pool ON pool.number = ((:first + n) * 7919 % :pool) * 2 + n % 2
    WHERE n < :count ORDER BY n"""


@dataclass(frozen=True, slots=True)
class Built:
    """What was written: how large it is in bytes, and words that somebody said."""

    database: int
    transcripts: int
    words: tuple[str, ...]


async def build(
    folder: Path, sessions: int, entries: int, now: int, *, owners: bool = False
) -> Built:
    """Write so much into an empty storage folder; `now` is in ms since the epoch.

    With `owners` all of it is the owner's, said in the page.
    """
    await (await SqliteDatabase.open(folder / DATABASE_NAME)).close()
    return await asyncio.to_thread(_written, folder, sessions, entries, now, owners)


def _written(folder: Path, sessions: int, entries: int, now: int, owners: bool) -> Built:  # noqa: FBT001
    path = folder / DATABASE_NAME
    connection = apsw.Connection(str(path))
    try:
        tx = SqliteTransaction(connection)
        for pragma in _FAST:
            tx.execute(pragma)
        words = _prepare(tx, entries // sessions + 1)
        written = _fill(tx, folder / TRANSCRIPTS, list(_begun(sessions, now, owners)), entries)
        tx.execute("PRAGMA journal_mode = WAL")
    finally:
        connection.close()
    return Built(path.stat().st_size, written, words)


def _prepare(tx: SqliteTransaction, longest: int) -> tuple[str, ...]:
    """What the messages are made of: numbers to count them, and texts of each role in turn."""
    chance = random.Random(7)  # noqa: S311 - the same ones each time
    known = vocabulary(chance)
    weights = list(accumulate(1 / (rank + 10) for rank in range(len(known))))
    tx.execute("CREATE TEMP TABLE numbers(n INTEGER PRIMARY KEY)")
    tx.execute("CREATE TEMP TABLE pool(number INTEGER PRIMARY KEY, role, text, spaced)")
    for number in range(longest):
        tx.execute("INSERT INTO temp.numbers VALUES (?)", (number,))
    for number in range(2 * POOL):
        role = "assistant" if number % 2 else "user"
        text = " ".join(chance.choices(known, cum_weights=weights, k=WORDS[role]))
        row = (number, role, text, fulltext.spaced(text))
        tx.execute("INSERT INTO temp.pool VALUES (?, ?, ?, ?)", row)
    return tuple(known)


def _fill(tx: SqliteTransaction, transcripts: Path, begun: list[Session], entries: int) -> int:
    transcripts.mkdir()
    first, written = 1, 0
    prefix = f"{'You are a careful assistant of the people you talk to. ' * 200}"[:PREFIX]
    last: dict[str, Session] = {}  # of each person
    sessions = len(begun)
    for number, each in enumerate(begun):
        if number % COMMIT == 0:
            if number:
                tx.execute("COMMIT")
            tx.execute("BEGIN")
        count = entries // sessions + (number < entries % sessions)
        before = last.get(each.person)
        session = replace(each, previous=before.id if before else None)
        last[each.person] = session
        head = store.insert(tx, session)[1].data
        given = {"first": first, "id": session.id, "at": session.started_at, "count": count}
        rows = tx.connection.execute(_ENTRIES, given | {"pool": POOL}).fetchall()
        tx.connection.execute(_INDEX, given | {"pool": POOL})
        data = head + "".join(f"{row[0]}\n" for row in rows).encode()
        path = path_of(transcripts, session.id)
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
        _count(tx, session, first, count, len(data))
        known = f"{prefix}\nThey are {session.person}." if number % 10 == 0 else prefix
        name = f"{session.person}#private"
        compactions.keep(tx, session.id, name, Snapshot(known, "[]"), session.started_at)
        first, written = first + count, written + len(data)
    tx.execute("COMMIT")
    return written


def _begun(sessions: int, now: int, owners: bool) -> Iterator[Session]:  # noqa: FBT001
    """The conversations as they begin, in the order of time."""
    often = min(MOST, max(1, sessions // OFTEN))
    others = max(1, (sessions - 2 * often) // OFTEN)
    every = max(1, sessions // often)
    start = now - (SINCE_DAYS + SPAN_DAYS) * DAY_MS
    for number in range(sessions):
        at = start + SPAN_DAYS * DAY_MS * number // sessions
        chat = FIRST_CHAT if number % every == 0 else FIRST_CHAT + 1 + number % others
        is_owner = owners or number % every == 1
        channel, peer = ("web", "owner") if is_owner else ("telegram", str(chat))
        yield Session(
            id=f"{datetime.fromtimestamp(at / 1000, UTC):%Y%m%d-%H%M%S}-{number:010x}",
            key=f"agent:main:{channel}:dm:{peer}",
            person=OWNER if is_owner else f"{channel}:{peer}",
            channel=channel,
            account="default",
            chat=peer,
            thread="",
            chat_type="direct",
            model="",
            previous=None,
            started_at=at,
            last_user_at=at,
            started_by="new",
            sender=peer,
            locale="en",
        )


def _count(tx: SqliteTransaction, session: Session, first: int, count: int, size: int) -> None:
    ended = session.started_at + max(0, count - 1) * 1000
    tx.execute(
        "UPDATE sessions SET last_entry = ?, entry_count = ?, mirror_bytes = ?, turns = ?, "
        "last_user_at = ?, last_turn_at = ?, context_tokens = ?, first_seq = ? WHERE id = ?",
        (
            f"{session.id}.{count}" if count else None,
            *(count, size, count // 2, ended, ended, 40 * count),
            first if count else 0,
            session.id,
        ),
    )
