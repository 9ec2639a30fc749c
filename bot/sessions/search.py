"""Finding what was said before, by its words, within the conversations a session may see."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bot.scope import MemoryView
from bot.sessions import entries
from bot.sessions.entries import Role
from bot.storage import Database, Transaction


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
