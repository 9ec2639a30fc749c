"""Reading transcripts back from their files, after an older database was restored.

The files were written after each commit, so together with a backup they hold everything that was
said; what is missing in the database is added again, and nothing that is there is touched.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import structlog

from bot.sessions import entries, store
from bot.sessions.entries import Entry, NewEntry
from bot.sessions.store import Session
from bot.storage import Database, Transaction

log = structlog.get_logger(__name__)


async def read_back(database: Database, folder: Path) -> int:
    """Add the entries that only the files have; how many there were.

    Raises:
        StorageError: the database could not take them; it can be tried again.
    """
    added = 0
    for path in await asyncio.to_thread(lambda: sorted(folder.glob("*.jsonl"))):
        lines = (await asyncio.to_thread(path.read_bytes)).splitlines()
        added += await database.write(partial(_add_missing, lines=lines))
    log.warning("sessions.read_back", entries=added)
    return added


def _add_missing(tx: Transaction, lines: list[bytes]) -> int:
    header = entries.parse_header(lines[0]) if lines else None
    if header is None or not set(store.HEADER_NAMES) <= header.keys():
        return 0
    session_id = str(header["id"])
    session = store.get(tx, session_id)
    if session is None:
        session = store.insert(tx, _begun(header))[0]
    added = 0
    for number, entry in enumerate(_entries(lines[1:]), start=1):
        if number > session.entry_count and entry.id == entries.entry_id(session_id, number):
            news = NewEntry(entry.kind, entry.role, entry.text, entry.content, entry.source)
            store.append(tx, session_id, [news], entry.at)
            added += 1
    return added


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


def _entries(lines: list[bytes]) -> Iterator[Entry]:
    for line in lines:
        try:
            yield entries.parse(line)
        except ValueError:
            return  # a torn last line: nothing after it can be trusted
