"""The outbox table: what is to be said, until it has been said. Functions over a transaction."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Sequence
from dataclasses import dataclass

import orjson

from bot.channel import Address, Attachment, Button, OutboundKind
from bot.storage import Row, Transaction

_COLUMNS = (
    "id, channel, account, chat, thread, kind, text, reply_to, pieces_sent, entry, created_at, "
    "extra"
)
_HERE = "channel = ? AND account = ? AND chat = ? AND thread = ?"


@dataclass(frozen=True, slots=True)
class Extra:
    """What comes with a text, to a channel that takes it; `draft` as in `Outbound`."""

    buttons: tuple[Button, ...] = ()
    attachments: tuple[Attachment, ...] = ()
    draft: str = ""


NOTHING = Extra()


@dataclass(frozen=True, slots=True)
class Letter:
    """One text for one address; it may take several pieces.

    `entry` is the id of the transcript entry it tells, or empty. Times are ms since the epoch.
    """

    id: int
    address: Address
    kind: OutboundKind
    text: str
    reply_to: str
    pieces_sent: int
    entry: str
    created_at: int
    extra: Extra = NOTHING

    def piece_id(self, index: int) -> str:
        """The id of the n-th piece, from 0: the same each time it is tried."""
        base = self.entry or f"letter-{self.id}"
        return f"{base}.{index}" if index else base


def add(
    tx: Transaction,
    address: Address,
    text: str,
    now: int,
    *,
    kind: OutboundKind = "reply",
    reply_to: str = "",
    entry: str = "",
    extra: Extra | None = None,
) -> Letter:
    """Store a text to send; hand the result to `Delivery.post` once it is committed."""
    row = tx.execute(
        "INSERT INTO outbox(channel, account, chat, thread, kind, text, reply_to, state, "
        "pieces_sent, entry, created_at, error, extra) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, 'waiting', 0, ?, ?, '', ?) "
        "RETURNING id",
        (*_place(address), kind, text, reply_to, entry, now, _to_json(extra)),
    )[0]
    return Letter(row[0], address, kind, text, reply_to, 0, entry, now, extra or NOTHING)


def waiting(tx: Transaction, address: Address, limit: int) -> list[Letter]:
    """What waits for an address, in order."""
    rows = tx.execute(
        f"SELECT {_COLUMNS} FROM outbox WHERE {_HERE} AND state = 'waiting' ORDER BY id LIMIT ?",
        (*_place(address), limit),
    )
    return [_letter(row) for row in rows]


def addresses(tx: Transaction) -> list[Address]:
    """Every address something waits for."""
    rows = tx.execute(
        "SELECT DISTINCT channel, account, chat, thread FROM outbox WHERE state = 'waiting'"
    )
    return [Address(*row) for row in rows]


def progress(tx: Transaction, letter: int, pieces_sent: int) -> None:
    """So many pieces have been sent."""
    tx.execute("UPDATE outbox SET pieces_sent = ? WHERE id = ?", (pieces_sent, letter))


def sent(tx: Transaction, letter: int, now: int) -> None:
    """All of it has been sent; its words are in the transcript, so they need not stay here."""
    tx.execute(
        "UPDATE outbox SET state = 'sent', text = '', extra = '', done_at = ? WHERE id = ?",
        (now, letter),
    )


def park(tx: Transaction, letter: int, error: str, now: int) -> None:
    """Stop trying; it is kept, and `/status` shows it."""
    tx.execute(
        "UPDATE outbox SET state = 'parked', error = ?, done_at = ? WHERE id = ?",
        (error, now, letter),
    )


def move(tx: Transaction, address: Address, chat: str) -> int:
    """Send everything that waits for an address to another chat; how much there was."""
    return len(
        tx.execute(
            f"UPDATE outbox SET chat = ? WHERE {_HERE} AND state = 'waiting' RETURNING id",
            (chat, *_place(address)),
        )
    )


def parked(tx: Transaction, address: Address) -> int:
    """How many texts could never be sent to an address."""
    return int(
        tx.execute(
            f"SELECT count(*) FROM outbox WHERE {_HERE} AND state = 'parked'", _place(address)
        )[0][0]
    )


def prune(tx: Transaction, before: int) -> None:
    """Drop what was sent before a moment."""
    tx.execute("DELETE FROM outbox WHERE state = 'sent' AND done_at < ?", (before,))


def _place(address: Address) -> Sequence[str]:
    return (address.channel, address.account, address.chat, address.thread)


def _letter(row: Row) -> Letter:
    id_, channel, account, chat, thread, *rest, extra = row
    address = Address(channel, account, chat, thread)
    return Letter(id_, address, *rest, extra=_from_json(extra))


def _to_json(extra: Extra | None) -> str:
    if extra is None or extra == NOTHING:
        return ""
    buttons = [(button.label, button.command) for button in extra.buttons]
    files = [(f.name, f.mime, b64encode(f.data).decode()) for f in extra.attachments]
    found = {"buttons": buttons, "attachments": files, "draft": extra.draft}
    return orjson.dumps({name: value for name, value in found.items() if value}).decode()


def _from_json(text: str) -> Extra:
    if not text:
        return NOTHING
    raw = orjson.loads(text)
    return Extra(
        tuple(Button(*each) for each in raw.get("buttons", ())),
        tuple(Attachment(name, mime, b64decode(d)) for name, mime, d in raw.get("attachments", ())),
        raw.get("draft", ""),
    )
