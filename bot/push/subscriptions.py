"""Where a person's browsers are told of messages: the addresses they gave, with their keys."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from bot.storage import Transaction, upsert

MOST = 10  # browsers of one person; with another one the oldest is told no more
_COLUMNS = "id, person, login, endpoint, p256dh, auth, origin, language, words"


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


def put(tx: Transaction, subscription: Subscription, now: int) -> None:
    """Tell a browser from now on; what was known of it before is replaced."""
    row = {
        "id": subscription.id,
        "person": subscription.person,
        "login": subscription.login,
        "endpoint": subscription.endpoint,
        "p256dh": subscription.p256dh,
        "auth": subscription.auth,
        "origin": subscription.origin,
        "language": subscription.language,
        "words": int(subscription.words),
        "made_at": now,
    }
    upsert(tx, "push_subscriptions", ("id",), row)
    ids = tx.execute(
        "SELECT id FROM push_subscriptions WHERE person = ? ORDER BY made_at DESC, id",
        (subscription.person,),
    )
    for (old,) in ids[MOST:]:
        drop(tx, str(old))


def drop(tx: Transaction, subscription: str, person: str = "") -> None:
    """Tell a browser no more, by its id; with `person` only if it is theirs."""
    theirs = " AND person = ?" if person else ""
    parameters = (subscription, person) if person else (subscription,)
    tx.execute(f"DELETE FROM push_subscriptions WHERE id = ?{theirs}", parameters)


def of(tx: Transaction, person: str) -> Sequence[Subscription]:
    """The browsers of a person."""
    rows = tx.execute(
        f"SELECT {_COLUMNS} FROM push_subscriptions WHERE person = ? ORDER BY made_at, id",
        (person,),
    )
    return [Subscription(*map(str, row[1:8]), words=bool(row[8])) for row in rows]
