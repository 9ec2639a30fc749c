"""Reminders in the database: plain functions over one transaction.

A reminder waits, and is then sent or cancelled; rows stay, so that it is sent once.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal

from bot.channel import Address
from bot.identity import MessageOrigin
from bot.storage import Row, Transaction
from bot.unicode import well_formed

MadeBy = Literal["person", "agent"]

MAX_WAITING = 100  # reminders of one person
MAX_TEXT = 1_000  # characters
MAX_AHEAD = timedelta(days=5 * 365 + 1)
SAME_MS = 60_000  # the same words at the same time, give or take this, are the same reminder

_COLUMNS = (
    "id, key, person, channel, account, chat, thread, language, made_by, text, due_at, created_at"
)


@dataclass(frozen=True, slots=True)
class ReplyTarget:
    """Who wants to be reminded, and where: the conversation's key, its address and language.

    `person` is the canonical identity of whoever asked, also in a room; `origin` is where they
    asked, for what comes again: by it is worked out each time what counts then.
    """

    key: str
    person: str
    address: Address
    language: str
    origin: MessageOrigin | None = None


@dataclass(frozen=True, slots=True)
class Reminder:
    """A reminder that waits. Times are ms since the epoch."""

    id: int
    target: ReplyTarget
    made_by: MadeBy
    text: str
    due_at: int
    created_at: int


def add(
    tx: Transaction,
    target: ReplyTarget,
    text: str,
    due_at: int,
    now: int,
    *,
    made_by: MadeBy = "person",
) -> Reminder | None:
    """Remember to remind; None when so many wait for this person already.

    What is asked for twice (a turn that was run again after a crash) is kept once.
    """
    text = well_formed(text)
    same = tx.execute(
        f"SELECT {_COLUMNS} FROM reminders "
        "WHERE key = ? AND state = 'waiting' AND text = ? AND due_at BETWEEN ? AND ?",
        (target.key, text, due_at - SAME_MS + 1, due_at + SAME_MS - 1),
    )
    if same:
        return _reminder(same[0])
    waiting = tx.execute(
        "SELECT count(*) FROM reminders WHERE person = ? AND state = 'waiting'", (target.person,)
    )
    if waiting[0][0] >= MAX_WAITING:
        return None
    place = target.address
    rows = tx.execute(
        "INSERT INTO reminders(key, person, channel, account, chat, thread, language, made_by, "
        "text, due_at, created_at, state) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 'waiting') "
        f"RETURNING {_COLUMNS}",
        (
            target.key,
            target.person,
            place.channel,
            place.account,
            place.chat,
            place.thread,
            target.language,
            made_by,
            text,
            due_at,
            now,
        ),
    )
    return _reminder(rows[0])


def due(tx: Transaction, now: int, limit: int) -> list[Reminder]:
    """What should have been sent by now, in order."""
    rows = tx.execute(
        f"SELECT {_COLUMNS} FROM reminders WHERE state = 'waiting' AND due_at <= ? "
        "ORDER BY due_at, id LIMIT ?",
        (now, limit),
    )
    return [_reminder(row) for row in rows]


def next_due(tx: Transaction) -> int | None:
    """When the next one is due, in ms since the epoch; None when none waits."""
    rows = tx.execute("SELECT min(due_at) FROM reminders WHERE state = 'waiting'")
    return rows[0][0]


def of_key(tx: Transaction, key: str) -> list[Reminder]:
    """What waits in a conversation, in order: their numbers are their places here, from 1."""
    rows = tx.execute(
        f"SELECT {_COLUMNS} FROM reminders WHERE key = ? AND state = 'waiting' ORDER BY due_at, id",
        (key,),
    )
    return [_reminder(row) for row in rows]


def of_everybody(tx: Transaction) -> list[Reminder]:
    """What waits in all conversations, in order."""
    rows = tx.execute(
        f"SELECT {_COLUMNS} FROM reminders WHERE state = 'waiting' ORDER BY due_at, id"
    )
    return [_reminder(row) for row in rows]


def mark(
    tx: Transaction, reminder: Reminder, state: Literal["sent", "cancelled"], now: int
) -> bool:
    """It waits no longer; False when it did not wait any more."""
    marked = tx.execute(
        "UPDATE reminders SET state = ?, done_at = ? WHERE id = ? AND state = 'waiting' "
        "RETURNING id",
        (state, now, reminder.id),
    )
    return bool(marked)


def moment(wall: datetime, now: datetime) -> datetime:
    """When it is `wall` (without a zone) on the clocks of `now`'s zone.

    A time the clocks skip is as long after the jump as it would have been after its beginning; of
    a time that comes twice it is the first that is still to come.

    Raises:
        OverflowError: there is no such year.
    """
    first, second = (
        wall.replace(tzinfo=now.tzinfo, fold=fold).astimezone(UTC).astimezone(now.tzinfo)
        for fold in (0, 1)
    )
    comes_twice = first.replace(tzinfo=None) == second.replace(tzinfo=None) == wall
    if comes_twice and first.timestamp() <= now.timestamp() < second.timestamp():
        return second
    return first


def _reminder(row: Row) -> Reminder:
    id_, key, person, channel, account, chat, thread, language, made_by, *rest = row
    target = ReplyTarget(key, person, Address(channel, account, chat, thread), language)
    return Reminder(id_, target, made_by, *rest)
