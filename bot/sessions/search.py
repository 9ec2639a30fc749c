"""Finding what was said before, by its words, within the conversations a session may see."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bot.scope import MemoryView
from bot.sessions import entries
from bot.sessions.entries import Entry, Role
from bot.storage import Database, Transaction

MAX_HELD = 500  # entries


@dataclass(frozen=True, slots=True)
class Hit:
    """A message that matched. `at` is in milliseconds since the epoch."""

    session_id: str
    entry_id: str
    role: Role
    text: str
    at: int


class TranscriptIndex:
    """Full-text search over every conversation; callers say which keys they may see."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def search(self, view: MemoryView, query: str, limit: int) -> Sequence[Hit]:
        """Messages a view may see that match the words, best first."""
        return await self._database.read(lambda tx: find(tx, view, query, limit))


def find(tx: Transaction, view: MemoryView, query: str, limit: int) -> list[Hit]:
    """Messages a view may see that match the words, best first."""
    hits: list[Hit] = []
    for seq, _ in tx.search_text(query, limit, view.keys, view.people):
        row = tx.execute("SELECT session_id, line FROM entries WHERE seq = ?", (seq,))[0]
        entry = entries.parse(row[1])
        hits.append(Hit(row[0], entry.id, entry.role, entry.text, entry.at))
    return hits


def holding(tx: Transaction, view: MemoryView, words: str) -> list[tuple[int, Entry]]:
    """Entries a view may see that literally hold these words, with their sequence numbers.

    Case and spacing do not count. At most `MAX_HELD` are looked at, the best matches first.
    """
    wanted = _folded(words)
    found: list[tuple[int, Entry]] = []
    for seq, _ in tx.search_text(words, MAX_HELD, view.keys, view.people):
        line = tx.execute("SELECT line FROM entries WHERE seq = ?", (seq,))[0][0]
        entry = entries.parse(line)
        if wanted in _folded(entry.text):
            found.append((seq, entry))
    return found


def forget(tx: Transaction, view: MemoryView, words: str, now: int) -> int:
    """Let no search find these words again; the transcripts themselves stay. How many entries."""
    held = holding(tx, view, words)
    for seq, _ in held:
        tx.forget_text(seq)
        tx.execute(
            "INSERT INTO forgotten(seq, at) VALUES (?, ?) ON CONFLICT(seq) DO NOTHING", (seq, now)
        )
    return len(held)


def forgotten(tx: Transaction, session_id: str) -> set[str]:
    """The ids of a session's entries that were forgotten."""
    rows = tx.execute(
        "SELECT id FROM entries JOIN forgotten ON forgotten.seq = entries.seq WHERE session_id = ?",
        (session_id,),
    )
    return {row[0] for row in rows}


def keys_of(tx: Transaction, view: MemoryView) -> list[str]:
    """The session keys of every conversation that shares a view's memory."""
    people, keys = (",".join("?" * len(values)) for values in (view.people, view.keys))
    rows = tx.execute(
        "SELECT DISTINCT key FROM sessions WHERE (chat_type = 'direct' AND person IN "
        f"({people})) OR key IN ({keys}) ORDER BY key",
        (*view.people, *view.keys),
    )
    return [row[0] for row in rows]


def _folded(text: str) -> str:
    return " ".join(text.casefold().split())
