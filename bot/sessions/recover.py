"""Reading transcripts back from their files, after an older database was restored.

The files were written after each commit, so together with a backup they hold everything that was
said; what is missing in the database is added again, and nothing that is there is touched.

A turn's lines are written at once, so a message that stands in a file has had its turn. Only the
last lines of a file that was torn off may be half of one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import structlog

from bot.sessions import entries, store
from bot.sessions.entries import Entry, NewEntry
from bot.sessions.mirror import sizes
from bot.sessions.store import Session
from bot.storage import Database, Transaction

Recovered = Callable[[Transaction, Session, Sequence[Entry]], object]
"""Hears, in the same transaction, of a session's entries that were added and are whole turns."""

log = structlog.get_logger(__name__)


async def read_back(database: Database, folder: Path, recovered: Recovered, *, every: bool) -> int:
    """Add the entries that only the files have; how many there were.

    Of a database that is not known to be an older one (not `every` file), only those files are
    read that are longer than it says: it may have been put in its place by hand.

    Raises:
        StorageError: the database could not take them; it can be tried again.
    """
    found = await asyncio.to_thread(lambda: sizes(folder) if folder.is_dir() else {})
    known = {} if every else await database.read(store.mirror_sizes)
    added = 0
    for id_ in sorted(id_ for id_, size in found.items() if size > known.get(id_, 0)):
        data = await asyncio.to_thread((folder / f"{id_}.jsonl").read_bytes)
        added += await database.write(partial(_add_missing, data=data, recovered=recovered))
    if added:
        log.warning("sessions.read_back", entries=added)
    return added


def _add_missing(tx: Transaction, data: bytes, recovered: Recovered) -> int:
    lines = data.splitlines()
    header = entries.parse_header(lines[0]) if lines else None
    if header is None or not set(store.HEADER_NAMES) <= header.keys():
        return 0
    session_id = str(header["id"])
    session = store.get(tx, session_id)
    if session is None:
        session = store.insert(tx, _begun(header))[0]
    found, is_torn = _entries(lines[1:])
    added = [
        entry
        for number, entry in enumerate(found, start=1)
        if number > session.entry_count and entry.id == entries.entry_id(session_id, number)
    ]
    for entry in added:
        news = NewEntry(entry.kind, entry.role, entry.text, entry.content, entry.source)
        store.append(tx, session_id, [news], entry.at)
    torn_at = added[-1].at if added and (is_torn or not data.endswith(b"\n")) else None
    recovered(tx, session, [entry for entry in added if entry.at != torn_at])
    return len(added)


def _begun(header: dict[str, Any]) -> Session:
    """The session of a header, as it was when it began."""
    facts = {name: header[name] for name in store.HEADER_NAMES}
    return Session(
        **facts,
        model="",
        last_user_at=header["started_at"],
        last_entry=None,
        entry_count=0,
        mirror_bytes=0,
        input_tokens=0,
        output_tokens=0,
        context_tokens=0,
        turns=0,
    )


def _entries(lines: list[bytes]) -> tuple[list[Entry], bool]:
    """The entries of lines, and whether there was a line behind them that is none."""
    found: list[Entry] = []
    for line in lines:
        try:
            found.append(entries.parse(line))
        except ValueError:
            return found, True  # a torn last line: nothing after it can be trusted
    return found, False
