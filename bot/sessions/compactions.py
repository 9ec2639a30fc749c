"""Compactions of a session: entries of its transcript, and which one counts.

An entry says from which message on the model sees what was said, and in what words it sees what
was said before. Taking it back moves a pointer; nothing is ever removed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

from bot.messages import Whose
from bot.sessions import store
from bot.sessions.entries import GONE, Entry, NewEntry
from bot.sessions.store import Session
from bot.storage import Transaction


@dataclass(frozen=True, slots=True)
class Compaction:
    """A summary of a session up to `first_kept`, the id of the first message that stays whole.

    `tokens_before` is how full the window was, `messages` how many became the summary, `previous`
    the id of the compaction before, if any; `origin` is whose words the summary may hold.
    """

    summary: str
    first_kept: str
    tokens_before: int
    messages: int
    previous: str | None = None
    origin: Whose = ""


def entry_of(compaction: Compaction) -> NewEntry:
    """The transcript entry of a compaction."""
    facts: Mapping[str, Any] = {
        "type": "compaction",
        "first_kept_entry_id": compaction.first_kept,
        "tokens_before": compaction.tokens_before,
        "messages": compaction.messages,
        "previous": compaction.previous,
        "origin": compaction.origin,
    }
    return NewEntry("compaction", "assistant", compaction.summary, (facts,))


def of_entry(entry: Entry) -> Compaction | None:
    """The compaction of an entry, or None when it is none."""
    match entry.content:
        case ({"first_kept_entry_id": str(first), "tokens_before": int(before)} as facts,):
            previous = facts.get("previous")
            return Compaction(
                entry.text,
                first,
                before,
                int(facts.get("messages", 0)),
                previous if isinstance(previous, str) else None,
                # One that does not say was made before that was told apart.
                cast("Whose", facts.get("origin", "unknown")),
            )
        case _:
            return None


def current(tx: Transaction, session: Session) -> Compaction | None:
    """The compaction that counts in a session."""
    if not session.compaction:
        return None
    entry = store.entry(tx, session.compaction, since=session.first_seq)
    found = of_entry(entry) if entry is not None else None
    if found is None:
        return None
    gone = tx.execute(
        "SELECT 1 FROM forgotten JOIN entries ON entries.seq = forgotten.seq "
        "WHERE id = ? AND entries.seq >= ?",
        (session.compaction, session.first_seq),
    )
    return replace(found, summary=GONE) if gone else found


def apply(tx: Transaction, session_id: str, entry_id: str, tokens_after: int) -> None:
    """Let a compaction count: a new cycle begins, in which nothing has been told or saved yet."""
    session = store.get(tx, session_id)
    if session is None:
        raise LookupError(session_id)
    store.change(
        tx,
        session_id,
        compaction=entry_id,
        compaction_count=session.compaction_count + 1,
        context_tokens=tokens_after,
        held=0,
        told=0,
        saved="",
    )


def undo(tx: Transaction, session: Session) -> Compaction | None:
    """Take the compaction that counts back; None when there is none.

    The conversation is as full as it was, so its next compaction waits until it must be.
    """
    taken_back = current(tx, session)
    if taken_back is None:
        return None
    store.change(
        tx,
        session.id,
        compaction=taken_back.previous,
        context_tokens=taken_back.tokens_before,
        held=1,
    )
    return taken_back
