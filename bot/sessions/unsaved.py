"""Conversations whose memory is still to be saved, in `meta`, until that was done.

A mark is made in the transaction that ends a conversation, and where saving fails: so whatever
happens between, a later look finds what is left to do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pydantic import TypeAdapter

from bot.sessions import store
from bot.sessions.store import Session
from bot.storage import Transaction, records

PREFIX: Final = "unsaved:"
MINUTE_MS: Final = 60_000
PAUSES_MS: Final = tuple(n * MINUTE_MS for n in (1, 5, 30, 120, 480))  # before each next try
GRACE_MS: Final = 15 * MINUTE_MS  # in which whoever ended a conversation saves it
MOST: Final = 20  # of them at a time


@dataclass(frozen=True, slots=True)
class Unsaved:
    """The failed tries to save a conversation, the time of the next (ms), and the last reason.

    `at` is 0 when it is tried no more.
    """

    tries: int = 0
    at: int = 0
    why: str = ""

    @property
    def is_given_up(self) -> bool:
        """True when nothing is tried any more."""
        return self.tries > len(PAUSES_MS)

    def failed(self, now: int, why: str) -> Unsaved:
        """The same after one more try that failed."""
        tries = self.tries + 1
        at = now + PAUSES_MS[tries - 1] if tries <= len(PAUSES_MS) else 0
        return Unsaved(tries, at, why)


_READ: Final = TypeAdapter(Unsaved)


def get(tx: Transaction, session_id: str) -> Unsaved | None:
    """The saving left to do for a session; None for nothing."""
    return records.value_of(tx, PREFIX + session_id, _READ.validate_json)


def mark(tx: Transaction, session_id: str, now: int, left: Unsaved | None = None) -> None:
    """Note what is left to do; without more, that it has just ended."""
    found = left or Unsaved(at=now + GRACE_MS)
    records.keep(tx, PREFIX + session_id, _READ.dump_json(found).decode(), now)


def drop(tx: Transaction, session_id: str) -> None:
    """Nothing is left to do."""
    records.drop(tx, PREFIX + session_id)


def due(tx: Transaction, now: int, *, interrupted: bool = False) -> list[str]:
    """The ids of sessions that are to be saved now.

    With `interrupted` also those that somebody had just ended, as nobody is at it any more.
    """
    return [
        session_id
        for session_id, left in _all(tx)
        if 0 < left.at <= now
        # Noted by a clock that was ahead; only a limit may last longer.
        or (left.at > now + PAUSES_MS[-1] and left.why != "limit")
        or (interrupted and not left.tries)
    ][:MOST]


def failing(tx: Transaction, keys: Sequence[str]) -> list[tuple[Session, Unsaved]]:
    """The conversations of these keys that could not be saved so far, the latest first."""
    found = ((store.get(tx, id_), left) for id_, left in _all(tx) if left.tries)
    own = [(each, left) for each, left in found if each is not None and each.key in keys]
    return sorted(own, key=lambda each: -each[0].started_at)


def again(tx: Transaction, keys: Sequence[str], now: int) -> int:
    """Have all of these keys tried again from now on; how many there are."""
    found = failing(tx, keys)
    for session, left in found:
        mark(tx, session.id, now, Unsaved(1, now, left.why))
    return len(found)


def _all(tx: Transaction) -> list[tuple[str, Unsaved]]:
    return [*records.values_under(tx, PREFIX, _READ.validate_json).items()]
