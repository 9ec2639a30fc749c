"""Pairing: an unknown person gets a code, the operator approves it. Functions over a transaction.

A code is valid for an hour, at most three are pending for a channel's account, and a repeated
question gets no second code, so nobody can make the bot write to them again and again.
"""

from __future__ import annotations

from dataclasses import dataclass

from bot import codes
from bot.channel import Address, Inbound
from bot.storage import Transaction

VALID_MS = 60 * 60_000
MAX_PENDING = 3  # for a channel's account

_COLUMNS = "channel, account, sender, state, code, name, locale, chat, thread, asked_at"


@dataclass(frozen=True, slots=True)
class Pairing:
    """Someone who asked to talk. `asked_at` is in ms since the epoch."""

    channel: str
    account: str
    sender: str
    state: str
    code: str
    name: str
    locale: str
    chat: str
    thread: str
    asked_at: int

    @property
    def address(self) -> Address:
        """Where this person can be told."""
        return Address(self.channel, self.account, self.chat, self.thread)


@dataclass(frozen=True, slots=True)
class Asked:
    """What a message from an unlisted person comes to: approved, a new code, or silence."""

    approved: bool
    code: str = ""


def ask(tx: Transaction, inbound: Inbound, code: str, now: int) -> Asked:
    """Look a sender up; hand out `code` if they are unknown and there is room for one more."""
    who = (inbound.channel, inbound.account, inbound.sender)
    rows = tx.execute(
        "SELECT state, asked_at FROM pairing WHERE channel = ? AND account = ? AND sender = ?", who
    )
    if rows and rows[0][0] == "approved":
        return Asked(approved=True)
    if rows and _valid(rows[0][1], now):
        return Asked(approved=False)
    asked = tx.execute(
        "SELECT asked_at FROM pairing WHERE channel = ? AND account = ? AND state = 'pending'",
        who[:2],
    )
    if sum(_valid(row[0], now) for row in asked) >= MAX_PENDING:
        return Asked(approved=False)
    tx.execute(
        f"INSERT INTO pairing({_COLUMNS}) VALUES (?, ?, ?, 'pending', ?, ?, ?, ?, ?, ?) "
        "ON CONFLICT(channel, account, sender) DO UPDATE SET state = 'pending', "
        "code = excluded.code, name = excluded.name, locale = excluded.locale, "
        "chat = excluded.chat, thread = excluded.thread, asked_at = excluded.asked_at",
        (*who, code, inbound.sender_name, inbound.locale, inbound.chat, inbound.thread, now),
    )
    return Asked(approved=False, code=code)


def approve(tx: Transaction, channel: str, code: str, now: int) -> Pairing | None:
    """Let in whoever holds this code (any case); None when no valid code is like it."""
    for found in pending(tx, now):
        if found.channel == channel and codes.is_same(found.code, code):
            tx.execute(
                "UPDATE pairing SET state = 'approved', code = '', approved_at = ? "
                "WHERE channel = ? AND account = ? AND sender = ?",
                (now, found.channel, found.account, found.sender),
            )
            return found
    return None


def revoke(tx: Transaction, channel: str, sender: str) -> int:
    """Forget a sender's approval or pending code on every account; how many there were."""
    return len(
        tx.execute(
            "DELETE FROM pairing WHERE channel = ? AND sender = ? RETURNING sender",
            (channel, sender),
        )
    )


def pending(tx: Transaction, now: int) -> list[Pairing]:
    """Everyone whose code can still be approved, oldest first."""
    return [found for found in _all(tx, "pending") if _valid(found.asked_at, now)]


def approved(tx: Transaction) -> list[Pairing]:
    """Everyone who was let in, oldest first."""
    return _all(tx, "approved")


def _all(tx: Transaction, state: str) -> list[Pairing]:
    rows = tx.execute(
        f"SELECT {_COLUMNS} FROM pairing WHERE state = ? ORDER BY asked_at, sender", (state,)
    )
    return [Pairing(*row) for row in rows]


def _valid(asked_at: int, now: int) -> bool:
    # A question from further ahead was asked by a clock that was wrong: it must not last for years.
    return abs(now - asked_at) < VALID_MS
