"""How many messages came and how long their answers took, a day at a time: numbers alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bot.storage import Transaction, scalar, scalars

# Those that were for the bot and are done with, by when that was: `inbox_done` finds them.
_THEN = "state <> 'waiting' AND done_at >= ? AND done_at < ?"


@dataclass(frozen=True, slots=True)
class Traffic:
    """What came within some time, by channel, and how long answers took, in ms.

    `middle` is the median and `slow` what nine of ten answers stayed within, from the moment a
    message was stored to the one its answer was; None where nothing was answered.
    """

    channels: Mapping[str, int]
    middle: int | None
    slow: int | None


@dataclass(frozen=True, slots=True)
class Waiting:
    """What waits: messages for an answer, texts to be sent, reminders for their time."""

    messages: int
    texts: int
    unsent: int
    reminders: int


def traffic(tx: Transaction, start: int, end: int) -> Traffic:
    """What was done with from `start` to, not including, `end` (ms since the epoch)."""
    channels = tx.execute(
        f"SELECT channel, count(*) FROM inbox WHERE {_THEN} "
        "AND state IN ('done', 'aside') GROUP BY channel ORDER BY channel",
        (start, end),
    )
    spans = scalars(
        tx,
        "SELECT span FROM (SELECT done_at - received_at AS span, "
        "row_number() OVER (ORDER BY done_at - received_at) AS place, count(*) OVER () AS of_all "
        f"FROM inbox WHERE {_THEN} AND state = 'done') AS ended "
        "WHERE place = (of_all + 1) / 2 OR place = (9 * of_all + 9) / 10 ORDER BY place",
        *(start, end),
    )
    middle, slow = (spans[0], spans[-1]) if spans else (None, None)
    return Traffic(dict(channels), middle, slow)


def waiting(tx: Transaction) -> Waiting:
    """What waits now."""
    counts = [
        scalar(tx, f"SELECT count(*) FROM {where}")
        for where in (
            "inbox WHERE state = 'waiting'",
            "outbox WHERE state = 'waiting'",
            "outbox WHERE state = 'parked' AND again = 1",
            "reminders WHERE state = 'waiting'",
            "repeats WHERE state = 'waiting'",
        )
    ]
    return Waiting(counts[0], counts[1], counts[2], counts[3] + counts[4])
