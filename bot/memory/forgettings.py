"""What was forgotten of late, for nodes that do not hear each other at once.

A turn or a flush reads first and writes later, and meanwhile another node may forget what it has
read. Each forgetting has the next number of its space; who reads remembers the last one, and looks
in the very transaction that writes whether there were others since.
"""

from __future__ import annotations

from bot.memory.note_store import Watch
from bot.storage import Transaction, scalar, scalars

KEPT_MS = 3_600_000  # words are cleared after so long: no turn that began before is at work still


def last(tx: Transaction, space: str) -> int:
    """The number of a space's last forgetting; 0 when there was none."""
    return scalar(tx, "SELECT coalesce(max(number), 0) FROM forgettings WHERE space = ?", space)


def tell(tx: Transaction, space: str, words: str, now: int) -> None:
    """Let whoever watches a space know, on whatever node, what was forgotten there."""
    tx.execute(
        "INSERT INTO forgettings(space, number, words, at) VALUES (?, ?, ?, ?)",
        (space, last(tx, space) + 1, words, now),
    )


def heard(tx: Transaction, watch: Watch) -> tuple[str, ...]:
    """What was forgotten since a watch began; an empty text stands for words that were cleared."""
    if watch.number is None:
        return tuple(watch.words)
    since = "SELECT words FROM forgettings WHERE space = ? AND number > ? ORDER BY number"
    return tuple(dict.fromkeys((*watch.words, *scalars(tx, since, watch.space, watch.number))))


def clear(tx: Transaction, now: int) -> None:
    """Let go of words that nobody can write any more."""
    tx.execute("UPDATE forgettings SET words = '' WHERE words <> '' AND at < ?", (now - KEPT_MS,))
