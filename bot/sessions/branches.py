"""Branches of a conversation: versions of a turn, of which one is in sight.

An edited message, or one that is asked once more, takes the place of its turn and of all that came
after it. Nothing is removed: what was there goes out of sight (`unseen`), and comes back as it was
with its version. So what is in sight is one path through the tree that `parentId` tells of. Whoever
reads a conversation reads that path (`store.IN_SIGHT`); forgetting, deleting and erasing go through
all there is. Functions over one transaction.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from bot.sessions import approvals, compactions, inbox, store
from bot.sessions.entries import Entry, NewEntry, number_of
from bot.sessions.store import Appended, Session
from bot.storage import Transaction, scalar, scalars
from bot.storage.records import Records


@dataclass(frozen=True, slots=True)
class Version:
    """One version of a turn, by the platform's id of its message; see the table `branches`."""

    session_id: str
    source: str
    fork: str
    number: int
    after_seq: int
    taken: int = 0
    compaction: str | None = None


VERSIONS: Final = Records("branches", Version)
_ONE = "session_id = ? AND source = ?"


def versions_of(tx: Transaction, session_id: str) -> Mapping[str, tuple[str, ...]]:
    """The messages whose turns have several versions, each with the messages of all, in order."""
    forks: dict[str, list[str]] = {}
    for each in VERSIONS.where(tx, "session_id = ?", session_id, order="number"):
        forks.setdefault(each.fork, []).append(each.source)
    return {source: tuple(fork) for fork in forks.values() for source in fork}


def put_away(tx: Transaction, session: Session, now: int) -> list[Appended]:
    """Let no message be answered that waits in a session: its transcript has them, as commands.

    A turn of theirs that has begun is not stored.

    Returns:
        What is added to transcript files.
    """
    added: list[Appended] = []
    for id_, bound, body in inbox.held_by(tx, [session.key]):
        if bound == session.id:
            inbound = inbox.read_back(id_, body)
            if inbound is not None:
                said = NewEntry("command", "user", inbound.shown, source=inbound.message_id)
                added.append(store.append(tx, session.id, [said], now))
            inbox.done(tx, [id_], now)
    approvals.tidy_started(tx)
    return added


def begin(tx: Transaction, session: Session, replaced: str, source: str) -> bool:
    """Let a message that is to be answered take the place of another one and all after it.

    False when that one is not in sight; then nothing was changed.
    """
    seq = _place_of(tx, session, replaced)
    if seq is None:
        return False
    left = VERSIONS.get(tx, session.id, replaced)
    if left is None:
        before = "SELECT max(seq) FROM entries WHERE session_id = ? AND seq >= ? AND seq < ?"
        after = scalar(tx, f"{before} AND {store.IN_SIGHT}", session.id, session.first_seq, seq)
        left = VERSIONS.add(tx, Version(session.id, replaced, replaced, 1, after or 0))
    last = VERSIONS.count(tx, "session_id = ? AND fork = ?", session.id, left.fork)
    taken = _next_taken(tx, session)
    VERSIONS.add(tx, Version(session.id, source, left.fork, last + 1, left.after_seq, taken))
    compaction = session.compaction
    while (_seq_of(tx, compaction) if compaction else 0) > left.after_seq:
        entry = store.entry(tx, compaction or "")
        undone = compactions.of_entry(entry) if entry is not None else None
        compaction = undone.previous if undone is not None else None
    _leave(tx, session, left)
    _settle(tx, session, compaction, session.flushed_to)
    return True


def switch(tx: Transaction, session: Session, source: str) -> bool:
    """Have a version of a turn in sight, as it was left; False when there is none to be had.

    Where it is in sight already, nothing changes.
    """
    wanted = VERSIONS.get(tx, session.id, source)
    if wanted is None:
        return False
    if tx.execute("SELECT 1 FROM unseen WHERE seq = ?", (wanted.after_seq,)):
        return False  # another version of another turn leads there
    versions = VERSIONS.where(tx, "session_id = ? AND fork = ?", session.id, wanted.fork)
    shown = max(versions, key=lambda each: each.taken)
    if shown == wanted:
        return True
    first = scalar(tx, f"SELECT min(seq) FROM unseen WHERE {_ONE}", session.id, source)
    if first is None:  # nothing came of it
        return False
    _leave(tx, session, shown)
    tx.execute(f"DELETE FROM unseen WHERE {_ONE}", (session.id, source))
    taken = _next_taken(tx, session)
    tx.execute(f"UPDATE branches SET taken = ? WHERE {_ONE}", (taken, session.id, source))
    # What was not saved of it before something newer was is saved now.
    ids = scalars(tx, "SELECT id FROM entries WHERE seq = ?", first)
    flushed_to = min([session.flushed_to, *(number_of(id_) - 1 for id_ in ids)])
    _settle(tx, session, wanted.compaction, flushed_to)
    return True


def _leave(tx: Transaction, session: Session, version: Version) -> None:
    """Have all that a version is seen with out of sight."""
    tx.execute(
        "INSERT INTO unseen(seq, session_id, source) SELECT seq, session_id, ? FROM entries "
        f"WHERE session_id = ? AND seq >= ? AND seq > ? AND {store.IN_SIGHT}",
        (version.source, session.id, session.first_seq, version.after_seq),
    )
    tx.execute(
        f"UPDATE branches SET compaction = ? WHERE {_ONE}",
        (session.compaction, session.id, version.source),
    )


def _settle(tx: Transaction, session: Session, compaction: str | None, flushed_to: int) -> None:
    """Have a session go on from what is in sight of it, and be read again."""
    last = "SELECT id FROM entries WHERE session_id = ? AND seq >= ? AND"
    ids = scalars(
        tx,
        f"{last} {store.IN_SIGHT} ORDER BY seq DESC LIMIT 1",
        *(session.id, session.first_seq),
    )
    tx.execute(
        "UPDATE sessions SET last_entry = ?, compaction = ?, flushed_to = ?, context_tokens = 0, "
        "memory_flush_compaction_count = -1, held = 0, told = 0, version = version + 1 "
        "WHERE id = ?",
        (next(iter(ids), None), compaction, flushed_to, session.id),
    )


def _place_of(tx: Transaction, session: Session, source: str) -> int | None:
    """The number of a message in sight, by the platform's id; None for a command."""
    rows = tx.execute(
        "SELECT seq, line FROM entries WHERE session_id = ? AND seq >= ? AND role = 'user' "
        f"AND line LIKE ? AND {store.IN_SIGHT} ORDER BY seq DESC",
        (session.id, session.first_seq, f'%"source":"{source}"%'),
    )
    found = ((row[0], entry) for row in rows for entry in store.read_entries([row]))
    return next((seq for seq, entry in found if entry.source == source and _is_asked(entry)), None)


def _is_asked(entry: Entry) -> bool:
    return entry.kind == "message" or not entry.text.startswith("/")


def _seq_of(tx: Transaction, id_: str) -> int:
    return scalar(tx, "SELECT seq FROM entries WHERE id = ?", id_) or 0


def _next_taken(tx: Transaction, session: Session) -> int:
    newest = "SELECT coalesce(max(taken), 0) + 1 FROM branches WHERE session_id = ?"
    return scalar(tx, newest, session.id)
