"""What every request of a session begins with, kept so that it never changes, also by a restart.

A session seen through another view (its scope was changed, say) gets a prefix of its own: what one
view was shown must not reach another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bot.storage import Transaction


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The system prompt of a session, and its tools as JSON."""

    system: str
    tools: str


def load(tx: Transaction, session_id: str) -> dict[str, Snapshot]:
    """The snapshots of a session, by the name of the view they were made for."""
    rows = tx.execute(
        "SELECT view, system, tools FROM snapshots WHERE session_id = ?", (session_id,)
    )
    return {row[0]: Snapshot(row[1], row[2]) for row in rows}


def drop(tx: Transaction, keys: Sequence[str], words: str) -> list[str]:
    """Remove the snapshots of these keys' sessions that hold some words; the sessions' ids."""
    wanted = " ".join(words.casefold().split())
    if not wanted:
        return []
    marks = ",".join("?" * len(keys))
    rows = tx.execute(
        "SELECT session_id, view, system FROM snapshots JOIN sessions ON id = session_id "
        f"WHERE key IN ({marks})",
        keys,
    )
    held = [row for row in rows if wanted in " ".join(row[2].casefold().split())]
    for session_id, view, _ in held:
        tx.execute("DELETE FROM snapshots WHERE session_id = ? AND view = ?", (session_id, view))
    return list(dict.fromkeys(row[0] for row in held))


def keep(tx: Transaction, session_id: str, view: str, snapshot: Snapshot, now: int) -> None:
    """Keep the first snapshot of a session and view; a later one changes nothing."""
    tx.execute(
        "INSERT INTO snapshots(session_id, view, system, tools, made_at) VALUES (?, ?, ?, ?, ?) "
        "ON CONFLICT(session_id, view) DO NOTHING",
        (session_id, view, snapshot.system, snapshot.tools, now),
    )
