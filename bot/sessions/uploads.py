"""Files that came in through a page, in parts, until their day is over.

Plain functions over one transaction. A file belongs to one address and is read for that alone. It
is kept for a day, and longer while a message of its address waits for its answer.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Sequence
from typing import Final

from bot.channel import MOST_UPLOAD, MOST_UPLOAD_PART, UPLOAD_MARK, Address, Inbound, Media
from bot.clock import DAY_MS
from bot.storage import Transaction, fulltext, marks, scalars
from bot.storage.records import HERE, place

MOST_BYTES: Final = 60_000_000  # of one address, as much as one message may bring
MOST_FILES: Final = 100  # of one address


def refs_of(inbound: Inbound) -> tuple[str, ...]:
    """The files of a message that are kept here."""
    return tuple(media.ref for media in inbound.media if media.ref.startswith(UPLOAD_MARK))


def put(
    tx: Transaction, address: Address, media: Media, part: int, data: bytes, *, now: int
) -> bool:
    """Keep one part of a file; False when there is no room for it, or it fits no such file.

    The same part again changes nothing.
    """
    held_there = f"SELECT ref, sum(bytes) FROM uploads WHERE {HERE} GROUP BY ref"
    sizes: dict[str, int] = dict(tx.execute(held_there, place(address)))
    if tx.execute(
        f"SELECT 1 FROM uploads WHERE {HERE} AND ref = ? AND part = ?",
        (*place(address), media.ref, part),
    ):
        return True
    held = sizes.get(media.ref, 0)
    if len(data) > MOST_UPLOAD_PART or media.size > MOST_UPLOAD or held + len(data) > media.size:
        return False
    if sum(sizes.values()) + len(data) > MOST_BYTES:
        return False
    if media.ref not in sizes and len(sizes) >= MOST_FILES:
        return False
    tx.execute(
        "INSERT INTO uploads(channel, account, chat, thread, ref, part, kind, name, mime, size, "
        "bytes, data, at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            *place(address),
            *(media.ref, part, media.kind, media.name, media.mime, media.size),
            *(len(data), b64encode(data).decode(), now),
        ),
    )
    return True


def whole(tx: Transaction, address: Address) -> dict[str, Media]:
    """The files of an address that are there with all their parts, by ref."""
    rows = tx.execute(
        "SELECT ref, min(kind), min(name), min(mime), min(size) FROM uploads "
        f"WHERE {HERE} GROUP BY ref HAVING sum(bytes) = min(size)",
        place(address),
    )
    return {row[0]: Media(row[1], row[2], row[3], row[4], row[0]) for row in rows}


def read(tx: Transaction, address: Address, ref: str) -> bytes | None:
    """A file of an address; None when it is not there, or not whole."""
    if ref not in whole(tx, address):
        return None
    parts = f"SELECT data FROM uploads WHERE {HERE} AND ref = ? ORDER BY part"
    return b"".join(map(b64decode, scalars(tx, parts, *place(address), ref)))


def drop(tx: Transaction, address: Address, ref: str) -> None:
    """Keep a file no longer: it was taken back."""
    tx.execute(f"DELETE FROM uploads WHERE {HERE} AND ref = ?", (*place(address), ref))


def drop_of(tx: Transaction, session_id: str, refs: Sequence[str]) -> None:
    """Keep files no longer that came with a message of a session: it was forgotten."""
    for address in _addresses(tx, "id", (session_id,)):
        for ref in refs:
            drop(tx, address, ref)


def forget(tx: Transaction, keys: Sequence[str], words: str) -> None:
    """Keep no file of some keys' addresses that is named with these words, unless it waits."""
    wanted = fulltext.folded(words)
    for address in _addresses(tx, "key", keys):
        rows = tx.execute(
            f"SELECT DISTINCT ref, name FROM uploads WHERE {HERE} AND NOT EXISTS "
            f"(SELECT 1 FROM inbox WHERE state = 'waiting' AND {HERE})",
            (*place(address), *place(address)),
        )
        for ref, name in rows:
            if wanted and wanted in fulltext.folded(name):
                drop(tx, address, ref)


def prune(tx: Transaction, now: int) -> None:
    """Drop what is older than a day, and is no part of a message that waits."""
    tx.execute(
        "DELETE FROM uploads WHERE at < ? AND NOT EXISTS (SELECT 1 FROM inbox "
        "WHERE inbox.state = 'waiting' AND inbox.channel = uploads.channel "
        "AND inbox.account = uploads.account AND inbox.chat = uploads.chat "
        "AND inbox.thread = uploads.thread)",
        (now - DAY_MS,),
    )


def _addresses(tx: Transaction, column: str, values: Sequence[str]) -> list[Address]:
    """The addresses of sessions whose `column` (id or key) has one of these values."""
    rows = tx.execute(
        "SELECT DISTINCT channel, account, chat, thread FROM sessions "
        f"WHERE {column} IN ({marks(values)})",
        values,
    )
    return [Address(*row) for row in rows]
