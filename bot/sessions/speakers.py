"""What one person said in rooms, where a conversation is everybody's. Pure, over entries.

Beside each message in a room stands who wrote it, id first, in a note that the person cannot write
themselves; commands have no such note.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from bot.sessions import entries
from bot.sessions.entries import Entry
from bot.storage import Transaction

_FROM = re.compile(r"^\[from (?P<who>[^\n]*?)(?:, called “(?P<name>[^\n]*)”)?\]$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Speaker:
    """Who wrote a message: their account, and what they were called there."""

    account: str
    name: str


def speaker_of(entry: Entry) -> Speaker | None:
    """Who wrote an entry of a room; None for what the bot said, and where nothing tells."""
    if entry.role != "user":
        return None
    for block in entry.content:
        if block.get("note") and (found := _FROM.search(str(block.get("text", "")))):
            return Speaker(found["who"], found["name"] or "")
    return None


def tag_of(account: str) -> str:
    """An account as the notes spell it: on one line, without brackets."""
    return " ".join(account.split()).replace("[", "(").replace("]", ")")


def rooms(tx: Transaction) -> list[tuple[str, str]]:
    """The conversations of rooms, by key in the order in which they began: (id, key)."""
    return tx.execute(
        "SELECT id, key FROM sessions WHERE chat_type <> 'direct' ORDER BY key, started_at, id"
    )


def read(tx: Transaction, session_id: str) -> Iterator[tuple[int, Entry]]:
    """The entries of a conversation with their numbers, in order."""
    for seq, line in tx.execute(
        "SELECT seq, line FROM entries WHERE session_id = ? ORDER BY seq", (session_id,)
    ):
        yield int(seq), entries.parse(str(line))


def said_by(tx: Transaction, session_id: str, accounts: Collection[str]) -> list[tuple[int, Entry]]:
    """What somebody said in a conversation of a room."""
    tags = {*map(tag_of, accounts)}
    spoken = tx.execute(  # most rooms know nothing of them, and most entries are not worth parsing
        "SELECT 1 FROM entries WHERE session_id = ? AND role = 'user' AND line LIKE '%[from %' "
        "LIMIT 1",
        (session_id,),
    )
    if not spoken:
        return []
    found = ((seq, entry, speaker_of(entry)) for seq, entry in read(tx, session_id))
    return [(seq, entry) for seq, entry, who in found if who is not None and who.account in tags]


def accounts(tx: Transaction) -> Iterable[str]:
    """Everybody who ever said something to the bot in a room."""
    known: dict[str, None] = {}
    for session_id, _ in rooms(tx):
        for _, entry in read(tx, session_id):
            if (who := speaker_of(entry)) is not None:
                known[who.account] = None
    return known
