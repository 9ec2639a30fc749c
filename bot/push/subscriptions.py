"""Where a person's browsers are told of messages: the addresses they gave, with their keys."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from bot.storage import Transaction, scalars
from bot.storage.records import Records

MOST = 10  # browsers of one person; with another one the oldest is told no more


@dataclass(frozen=True, slots=True)
class Subscription:
    """One browser of one person; whoever asks it last has it.

    `login` is what the browser was let in by when it asked, `origin` the page it asked from.
    `words` says that it may be sent the first words of a message.
    """

    person: str
    login: str
    endpoint: str
    p256dh: str
    auth: str
    origin: str
    language: str
    words: bool = False

    @property
    def id(self) -> str:
        """What it is known by: it tells nothing of its address."""
        return hashlib.sha256(self.endpoint.encode()).hexdigest()


SUBSCRIPTIONS: Final = Records("push_subscriptions", Subscription, "id", "made_at")


def put(tx: Transaction, subscription: Subscription, now: int) -> None:
    """Tell a browser from now on; what was known of it before is replaced."""
    SUBSCRIPTIONS.put(tx, subscription, subscription.id, now)
    ids = "SELECT id FROM push_subscriptions WHERE person = ? ORDER BY made_at DESC, id"
    for old in scalars(tx, ids, subscription.person)[MOST:]:
        drop(tx, old)


def drop(tx: Transaction, subscription: str, person: str = "") -> None:
    """Tell a browser no more, by its id; with `person` only if it is theirs."""
    theirs = " AND person = ?" if person else ""
    parameters = (subscription, person) if person else (subscription,)
    tx.execute(f"DELETE FROM push_subscriptions WHERE id = ?{theirs}", parameters)


def of(tx: Transaction, person: str) -> Sequence[Subscription]:
    """The browsers of a person."""
    return SUBSCRIPTIONS.where(tx, "person = ?", person, order="made_at, id")
