"""Reminders in the database: plain functions over one transaction.

A reminder waits, and is then sent or cancelled; rows stay, so that it is sent once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, Literal

from bot.channel import Address
from bot.identity import MessageOrigin
from bot.storage import Transaction, marks, scalar
from bot.storage.records import Form, Records
from bot.unicode import well_formed

MadeBy = Literal["person", "agent", "program"]

MAX_WAITING = 100  # reminders of one person
MAX_TEXT = 1_000  # characters
MAX_ABOUT = 120  # characters of what somebody has to talk about
NEVER = 2**53 - 1  # when those come that wait for a topic, in ms since the epoch
MAX_AHEAD = timedelta(days=5 * 365 + 1)
SAME_MS = 60_000  # the same words at the same time, give or take this, are the same reminder


@dataclass(frozen=True, slots=True)
class ReplyTarget:
    """The target of a reminder: the conversation's key, its address and language.

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
    """A reminder that waits. Times are ms since the epoch.

    With `about` it is said when its person talks about that, and `due_at` is `NEVER`.
    """

    id: int
    target: ReplyTarget
    made_by: MadeBy
    text: str
    due_at: int
    created_at: int
    about: str = ""


_UNKEPT = Form("", lambda _: None, lambda _: ())
REMINDERS: Final = Records("reminders", Reminder, "state", is_numbered=True, origin=_UNKEPT)
_WAITING = "state = 'waiting'"


def add(
    tx: Transaction,
    target: ReplyTarget,
    text: str,
    due_at: int,
    now: int,
    *,
    made_by: MadeBy = "person",
    about: str = "",
) -> Reminder | None:
    """Remember to remind; None when so many wait for this person already.

    What is asked for twice (a turn that was run again after a crash) is kept once.
    """
    text, about = well_formed(text), well_formed(about)
    same = REMINDERS.first(
        tx,
        f"key = ? AND {_WAITING} AND text = ? AND about = ? AND due_at BETWEEN ? AND ?",
        *(target.key, text, about, due_at - SAME_MS + 1, due_at + SAME_MS - 1),
    )
    if same is not None:
        return same
    if REMINDERS.count(tx, f"person = ? AND {_WAITING}", target.person) >= MAX_WAITING:
        return None
    return REMINDERS.add(tx, Reminder(0, target, made_by, text, due_at, now, about), "waiting")


def due(tx: Transaction, now: int, limit: int) -> list[Reminder]:
    """The reminders that are due, in order; rows that cannot be read are set aside."""
    return REMINDERS.take(tx, f"{_WAITING} AND due_at <= ?", now, limit, order="due_at, id LIMIT ?")


def next_due(tx: Transaction) -> int | None:
    """The time the next one is due, in ms since the epoch; None when none waits."""
    return scalar(tx, f"SELECT min(due_at) FROM reminders WHERE {_WAITING} AND about = ''")


def about_something(tx: Transaction, key: str, person: str) -> list[Reminder]:
    """The reminders that wait for their person to talk about something."""
    return REMINDERS.where(
        tx, f"key = ? AND person = ? AND {_WAITING} AND about <> ''", key, person, order="id"
    )


def of_key(tx: Transaction, key: str) -> list[Reminder]:
    """The reminders of a conversation, in order; their numbers are their places here, from 1."""
    return REMINDERS.where(tx, f"key = ? AND {_WAITING}", key, order="due_at, id")


def of_people(tx: Transaction, people: Sequence[str]) -> list[Reminder]:
    """The reminders of these people, wherever they asked for them, in order."""
    whose = f"person IN ({marks(people)}) AND {_WAITING}"
    return REMINDERS.where(tx, whose, *people, order="due_at, id")


def change(tx: Transaction, reminder: Reminder, text: str, due_at: int) -> bool:
    """Let it say something else, or at another time; False when it does not wait any more."""
    changed = tx.execute(
        f"UPDATE reminders SET text = ?, due_at = ? WHERE id = ? AND {_WAITING} RETURNING id",
        (well_formed(text), due_at, reminder.id),
    )
    return bool(changed)


def of_everybody(tx: Transaction) -> list[Reminder]:
    """All reminders that wait, in order."""
    return REMINDERS.where(tx, _WAITING, order="due_at, id")


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
    """The moment at which clocks of `now`'s zone show `wall`, which has no zone.

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
