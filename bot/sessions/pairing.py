"""Pairing: an unknown person gets a code, the operator approves it. Functions over a transaction.

Or the operator blocks them: on no account of that channel do they get an answer or a code then.

Everybody has a place of their own, so strangers who ask keep no newcomer out: where too many codes
are pending, the oldest gives way. A code is valid for an hour, a repeated question gets no second
one while it is, and nobody gets more than a few in an hour, so nobody can make the bot write to
them again and again.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from bot.channel import Address, Inbound
from bot.identity import Seat
from bot.storage import Transaction
from bot.storage.records import Records

# Codes that people pass on to prove something: short enough to type, too many to guess.

ALPHABET = "ABCDEFGHJKLMNPQRSTUVWXYZ23456789"  # no I, O, 0 or 1: codes are read aloud
CODE_LENGTH = 8

_LIKE_A_CODE = re.compile(
    rf"(?<![A-Za-z0-9])[{ALPHABET}{ALPHABET.lower()}]{{{CODE_LENGTH}}}(?![A-Za-z0-9])"
)


def new_code() -> str:
    """A code nobody can guess."""
    return "".join(secrets.choice(ALPHABET) for _ in range(CODE_LENGTH))


def is_same_code(code: str, typed: str) -> bool:
    """True if somebody typed this code, in whatever case; an empty one never is."""
    return bool(code) and secrets.compare_digest(code.encode(), typed.strip().upper().encode())


def typed_code(text: str) -> frozenset[str]:
    """The words of a text that could be a code; many an ordinary word could."""
    return frozenset(match[0].upper() for match in _LIKE_A_CODE.finditer(text))


VALID_MS = 60 * 60_000
MAX_PENDING = 100  # for a channel's account
MAX_CODES = 3  # for one person, until they are silent for VALID_MS

_OPEN = "state <> 'approved'"  # as the index on those has it


@dataclass(frozen=True, slots=True)
class Pairing:
    """Someone who asked to talk. Times are in ms since the epoch."""

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
    approved_at: int | None = None

    @property
    def address(self) -> Address:
        """The address this person can be told at."""
        return Address(self.channel, self.account, self.chat, self.thread)

    @property
    def seat(self) -> tuple[str, str]:
        """Their account on the platform."""
        return (self.channel, self.sender)

    def is_from(self, inbound: Inbound) -> bool:
        """True when this is who wrote a message."""
        who = (inbound.channel, inbound.account, inbound.sender)
        return who == (self.channel, self.account, self.sender)


@dataclass(frozen=True, slots=True)
class Block:
    """Someone who gets neither an answer nor a code; `blocked_at` is in ms since the epoch.

    `name`, `locale` and the chat are those of when they asked.
    """

    channel: str
    sender: str
    name: str
    locale: str
    account: str
    chat: str
    thread: str
    blocked_at: int

    @property
    def seat(self) -> Seat:
        """Their account on the platform."""
        return (self.channel, self.sender)


PAIRINGS: Final = Records("pairing", Pairing)
BLOCKS: Final = Records("blocks", Block)


@dataclass(frozen=True, slots=True)
class PairingReply:
    """The answer to a message from an unlisted person: approved, a new code, or silence."""

    approved: bool
    code: str = ""


def ask(tx: Transaction, inbound: Inbound, code: str, now: int) -> PairingReply:
    """Look a sender up; hand out `code` to whoever is unknown and has none that is valid."""
    who = (inbound.channel, inbound.account, inbound.sender)
    if is_blocked(tx, (inbound.channel, inbound.sender)):
        return PairingReply(approved=False)
    rows = tx.execute(
        "SELECT state, asked_at, given FROM pairing "
        "WHERE channel = ? AND account = ? AND sender = ?",
        who,
    )
    given = 1
    for state, asked_at, before in rows:
        if state == "approved":
            return PairingReply(approved=True)
        if _valid(asked_at, now):
            if state == "pending" or before >= MAX_CODES:
                return PairingReply(approved=False)
            given = before + 1
    _make_room(tx, *who[:2], now)
    tx.execute(
        "INSERT INTO pairing(channel, account, sender, state, code, name, locale, chat, thread, "
        "asked_at, given) VALUES (?, ?, ?, 'pending', ?, ?, ?, ?, ?, ?, ?) "
        "ON CONFLICT(channel, account, sender) DO UPDATE SET state = 'pending', "
        "code = excluded.code, name = excluded.name, locale = excluded.locale, "
        "chat = excluded.chat, thread = excluded.thread, asked_at = excluded.asked_at, "
        "given = excluded.given",
        (*who, code, inbound.sender_name, inbound.locale, inbound.chat, inbound.thread, now, given),
    )
    return PairingReply(approved=False, code=code)


def _make_room(tx: Transaction, channel: str, account: str, now: int) -> None:
    """Forget who asked long ago, and void the oldest codes so that one more has a place."""
    tx.execute(
        f"DELETE FROM pairing WHERE {_OPEN} AND channel = ? AND account = ? "
        "AND abs(? - asked_at) >= ?",
        (channel, account, now, VALID_MS),
    )
    waiting = [p for p in pending(tx, now) if (p.channel, p.account) == (channel, account)]
    for found in waiting[MAX_PENDING - 1 :]:
        _void(tx, found)


def holder(tx: Transaction, channel: str, code: str, now: int) -> Pairing | None:
    """Whoever was given this code (any case); None when no valid code is like it."""
    for found in pending(tx, now):
        if found.channel == channel and is_same_code(found.code, code):
            return found
    return None


def approve(tx: Transaction, channel: str, code: str, now: int) -> Pairing | None:
    """Let in whoever holds this code (any case); None when no valid code is like it."""
    found = holder(tx, channel, code, now)
    if found is not None:
        tx.execute(
            "UPDATE pairing SET state = 'approved', code = '', approved_at = ? "
            "WHERE channel = ? AND account = ? AND sender = ?",
            (now, found.channel, found.account, found.sender),
        )
        tx.publish("books")
    return found


def void(tx: Transaction, typed: Collection[str], now: int) -> list[Pairing]:
    """Make the valid ones of these codes worthless; whose they were."""
    found = [waiting for waiting in pending(tx, now) if waiting.code in typed]
    for waiting in found:
        _void(tx, waiting)
    return found


def is_open(tx: Transaction, typed: Collection[str], now: int) -> bool:
    """True when one of these is a code that can still be approved."""
    return any(waiting.code in typed for waiting in pending(tx, now))


def _void(tx: Transaction, found: Pairing) -> None:
    """Void a code. Its row keeps who had it, and when, so that nobody gets any number of them."""
    tx.execute(
        "UPDATE pairing SET state = 'void', code = '' "
        "WHERE channel = ? AND account = ? AND sender = ?",
        (found.channel, found.account, found.sender),
    )


def revoke(tx: Transaction, channel: str, sender: str) -> int:
    """Forget a sender's approval or pending code on every account; how many there were."""
    gone = tx.execute(
        "DELETE FROM pairing WHERE channel = ? AND sender = ? RETURNING state",
        (channel, sender),
    )
    if ("approved",) in gone:
        tx.publish("books")
    return len(gone)


# --- blocked --------------------------------------------------------------------------------------


def block(tx: Transaction, seat: Seat, now: int) -> Block | None:
    """Give somebody who asked, or was let in, no answer from now on; None for anybody else."""
    latest = "approved_at IS NULL, asked_at DESC, account LIMIT 1"
    asked = PAIRINGS.first(tx, "channel = ? AND sender = ?", *seat, order=latest)
    if asked is None:
        return None
    revoke(tx, *seat)
    found = Block(*seat, asked.name, asked.locale, asked.account, asked.chat, asked.thread, now)
    BLOCKS.put(tx, found)
    tx.publish("books")
    return found


def is_blocked(tx: Transaction, seat: Seat) -> bool:
    """True when somebody gets no answer."""
    return bool(tx.execute("SELECT 1 FROM blocks WHERE channel = ? AND sender = ?", seat))


def let_in_again(tx: Transaction, seat: Seat, now: int) -> Pairing | None:
    """Let in somebody who was blocked, as if a code of theirs were approved; None if nobody is."""
    found = unblock(tx, seat)
    if found is None:
        return None
    chat = (found.name, found.locale, found.chat, found.thread)
    asked = Pairing(found.channel, found.account, found.sender, "approved", "", *chat, now, now)
    PAIRINGS.put(tx, asked)
    return asked


def unblock(tx: Transaction, seat: Seat) -> Block | None:
    """Let somebody ask again, as a stranger does; None when they are not blocked."""
    for found in BLOCKS.delete(tx, "channel = ? AND sender = ?", *seat):
        tx.publish("books")
        return found
    return None


def blocked(tx: Transaction) -> list[Block]:
    """Everyone who is blocked, the latest first."""
    return BLOCKS.where(tx, order="blocked_at DESC, channel, sender")


# --------------------------------------------------------------------------------------------------


def pending(tx: Transaction, now: int) -> list[Pairing]:
    """Everyone whose code can still be approved, the newest first."""
    found = PAIRINGS.where(tx, f"{_OPEN} AND state = 'pending'", order="asked_at DESC, sender")
    return [each for each in found if _valid(each.asked_at, now)]


def approved(tx: Transaction) -> list[Pairing]:
    """Everyone who was let in, oldest first."""
    return PAIRINGS.where(tx, "state = 'approved'", order="asked_at, sender")


def _valid(asked_at: int, now: int) -> bool:
    # A question from further ahead was asked by a clock that was wrong: it must not last for years.
    return abs(now - asked_at) < VALID_MS
