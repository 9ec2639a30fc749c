"""What every request of a session begins with, kept so that it never changes, also by a restart.

A session seen through another view (its scope was changed, say) gets a prefix of its own: what one
view was shown must not reach another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pydantic import TypeAdapter

from bot.sessions import journal_records
from bot.storage import Transaction, fulltext

Name = tuple[str, str]
"""Which snapshot: the session's id, and the name of the view."""


Sizes = tuple[tuple[str, int], ...]

_SIZES: Final[TypeAdapter[tuple[Sizes, Sizes]]] = TypeAdapter(tuple[Sizes, Sizes])


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The system prompt of a session, and its tools as JSON.

    Of the files in the prompt it has the names and about how many tokens each is: of those about
    people in `remembered`, of the others in `own`. One kept by an earlier version has none.
    """

    system: str
    tools: str
    own: Sizes = ()
    remembered: Sizes = ()


def load(tx: Transaction, session_id: str) -> dict[str, Snapshot]:
    """The snapshots of a session, by the name of the view they were made for."""
    rows = tx.execute(
        "SELECT view, system, tools, sizes FROM snapshots WHERE session_id = ?", (session_id,)
    )
    return {row[0]: Snapshot(row[1], row[2], *_SIZES.validate_json(row[3])) for row in rows}


def names_of(tx: Transaction, keys: Sequence[str]) -> list[Name]:
    """The snapshots of these keys' sessions."""
    rows = tx.execute(
        "SELECT session_id, view FROM snapshots JOIN sessions ON id = session_id "
        f"WHERE key IN ({','.join('?' * len(keys))}) ORDER BY session_id, view",
        keys,
    )
    return [(row[0], row[1]) for row in rows]


def among(tx: Transaction, names: Sequence[Name], words: str) -> list[Name]:
    """Those of these snapshots that hold some words; case and spacing do not count."""
    wanted = fulltext.folded(words)
    found: list[Name] = []
    for name in names if wanted else ():
        rows = tx.execute("SELECT system FROM snapshots WHERE session_id = ? AND view = ?", name)
        if any(wanted in fulltext.folded(row[0]) for row in rows):
            found.append(name)
    return found


def remove(tx: Transaction, names: Sequence[Name]) -> None:
    """Remove snapshots; the next request of their sessions makes them anew."""
    for name in names:
        tx.execute("DELETE FROM snapshots WHERE session_id = ? AND view = ?", name)
    for session_id in dict.fromkeys(session_id for session_id, _ in names):
        tx.execute("UPDATE sessions SET version = version + 1 WHERE id = ?", (session_id,))
        journal_records.dropped(tx, "prompt", session_id)


def before(tx: Transaction, at: int) -> list[Name]:
    """The snapshots of sessions that were last spoken in before a time, in ms since the epoch."""
    rows = tx.execute(
        "SELECT session_id, view FROM snapshots JOIN sessions ON id = session_id "
        "WHERE made_at < ? AND last_user_at < ? ORDER BY session_id, view",
        (at, at),
    )
    return [(row[0], row[1]) for row in rows]


def drop_old(tx: Transaction, names: Sequence[Name]) -> None:
    """Remove those of a database whose old months are dropped; such a one has no journal.

    What is still said in such a session begins with new ones.
    """
    for name in names:
        tx.execute("DELETE FROM snapshots WHERE session_id = ? AND view = ?", name)


def keep(tx: Transaction, session_id: str, view: str, snapshot: Snapshot, now: int) -> None:
    """Keep the first snapshot of a session and view; a later one changes nothing.

    Together with the first turn that saw it, which changes the session's version.
    """
    sizes = _SIZES.dump_json((snapshot.own, snapshot.remembered)).decode()
    tx.execute(
        "INSERT INTO snapshots(session_id, view, system, tools, sizes, made_at) "
        "VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT(session_id, view) DO NOTHING",
        (session_id, view, snapshot.system, snapshot.tools, sizes, now),
    )
