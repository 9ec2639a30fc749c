"""Finds what was said before, within the conversations a session may see, and what it quoted."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bot.identity.view import MemoryView
from bot.messages import Quote, Quoted, result_from_json
from bot.sessions import store
from bot.sessions.entries import Entry, NewEntry, Role
from bot.sessions.store import Session
from bot.storage import Database, Transaction, marks, scalar, scalars

MAX_MESSAGES = 100  # of a turn that are looked at for what it quotes

_NOTHING: Mapping[str, Any] = {}
_NEAR = 12  # entries in which the message before or after is looked for: tools have some too


@dataclass(frozen=True, slots=True)
class Hit:
    """A message that matched. `at` is in milliseconds since the epoch, `content` as in `Entry`.

    `channel` is that of its session.
    """

    session_id: str
    entry_id: str
    role: Role
    text: str
    at: int
    content: tuple[Mapping[str, Any], ...] = ()
    channel: str = ""


@dataclass(frozen=True, slots=True)
class Passage:
    """A message that matched, `at` its place among what was said just before and after it.

    `channel` is that of its session.
    """

    session_id: str
    said: tuple[Entry, ...]
    at: int
    channel: str = ""

    @property
    def match(self) -> Entry:
        """The message itself."""
        return self.said[self.at]


class TranscriptIndex:
    """Full-text search over every conversation; callers say which keys they may see."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def search(self, view: MemoryView, query: str, limit: int) -> Sequence[Hit]:
        """Messages a view may see that match the words, best first."""
        return await self._database.read(lambda tx: find(tx, view, query, limit))

    async def entries(self, ids: Sequence[str]) -> Sequence[Entry]:
        """Entries by their ids; what is not there, or not in sight, is left out."""
        if not ids:
            return ()
        return await self._database.read(lambda tx: by_id(tx, ids))


def find(tx: Transaction, view: MemoryView, query: str, limit: int) -> list[Hit]:
    """Messages a view may see that match the words, best first."""
    found = [seq for seq, _ in tx.search_text(query, limit, view.keys, view.people)]
    rows = tx.execute(
        "SELECT seq, session_id, line, channel FROM entries "
        f"JOIN sessions ON sessions.id = session_id WHERE seq IN ({marks(found)})",
        found,
    )
    by_seq: dict[int, Hit] = {}
    for seq, session_id, line, channel in rows:
        for entry in store.read_entries([(seq, line)]):
            said = (entry.role, entry.text, entry.at, entry.content)
            by_seq[seq] = Hit(session_id, entry.id, *said, channel)
    return [by_seq[seq] for seq in found if seq in by_seq]


def by_id(tx: Transaction, ids: Sequence[str]) -> list[Entry]:
    """Entries by their ids; what is not there, or not in sight, is left out."""
    found = (store.entry(tx, id_) for id_ in dict.fromkeys(ids))
    return [entry for entry in found if entry is not None]


def passages(
    tx: Transaction, view: MemoryView, query: str, limit: int, *, beside: str = ""
) -> list[Passage]:
    """Messages a view may see that match the words, best first, each with the turn around it.

    None of the session `beside`, nothing that was forgotten, and no message twice.
    """
    found: list[Passage] = []
    shown: set[str] = set()
    for hit in find(tx, view, query, limit):
        if hit.session_id == beside or hit.entry_id in shown:
            continue
        said, at = _around(tx, hit)
        shown.update(entry.id for entry in said)
        found.append(Passage(hit.session_id, tuple(said), at, hit.channel))
    return found


def _around(tx: Transaction, hit: Hit) -> tuple[list[Entry], int]:
    """A message between the one before it and the one after it, and its place in that."""
    sides: list[list[Entry]] = []
    for before in (True, False):
        rows = tx.execute(
            "SELECT seq, line FROM entries WHERE session_id = ? AND kind = 'message' AND seq "
            f"{'<' if before else '>'} (SELECT seq FROM entries WHERE id = ?) "
            f"AND {store.IN_SIGHT} ORDER BY seq {'DESC' if before else 'ASC'} LIMIT {_NEAR}",
            (hit.session_id, hit.entry_id),
        )
        shown, gone = store.as_shown(tx, rows)
        sides.append([e for e in shown if e.id not in gone and e.text.strip()][:1])
    match = Entry(hit.entry_id, None, "message", hit.role, hit.at, hit.text, hit.content, "")
    return [*sides[0], match, *sides[1]], len(sides[0])


def forgotten(tx: Transaction, session_id: str, *, since: int = 0) -> set[str]:
    """The ids of a session's entries that were forgotten."""
    gone = "SELECT id FROM entries JOIN forgotten ON forgotten.seq = entries.seq"
    return {*scalars(tx, f"{gone} WHERE session_id = ? AND entries.seq >= ?", session_id, since)}


def keys_of(tx: Transaction, view: MemoryView) -> list[str]:
    """The session keys of every conversation that shares a view's memory."""
    return scalars(
        tx,
        "SELECT DISTINCT key FROM sessions WHERE (chat_type = 'direct' AND person IN "
        f"({marks(view.people)})) OR key IN ({marks(view.keys)}) ORDER BY key",
        *(*view.people, *view.keys),
    )


def last_save(tx: Transaction, view: MemoryView) -> tuple[int, str] | None:
    """The last time a conversation was saved to a view's memory (ms since the epoch), and where.

    The place is empty when nothing in it was new; None when none was ever saved.
    """
    keys = keys_of(tx, view)
    rows = tx.execute(
        "SELECT memory_flush_at, saved FROM sessions "
        f"WHERE key IN ({marks(keys)}) AND memory_flush_at > 0 "
        "ORDER BY memory_flush_at DESC LIMIT 1",
        keys,
    )
    return (int(rows[0][0]), str(rows[0][1])) if rows else None


# --- what replies had from memory -----------------------------------------------------------------

# It is quoted in the entries of a turn; the veil over what was forgotten takes quotes away, too.


def quotes_of_reply(tx: Transaction, session: Session, entry_id: str = "") -> list[Quote]:
    """The quotes of memory in the turn of a reply, or in the last turn of a session; each once."""
    end = scalar(tx, "SELECT seq FROM entries WHERE id = ?", entry_id) if entry_id else None
    if entry_id and end is None:
        return []
    rows = tx.execute(
        "SELECT seq, line FROM entries WHERE session_id = ? AND kind = 'message' AND seq >= ? "
        f"AND {store.IN_SIGHT} {'AND seq <= ? ' if end else ''}ORDER BY seq DESC LIMIT ?",
        (session.id, session.first_seq, *([end] if end else []), MAX_MESSAGES),
    )
    turn: list[Entry] = []
    said, gone = store.as_shown(tx, rows)
    for entry in said:
        turn.append(entry)
        if _begins_turn(entry):
            break
    return quotes(entry for entry in reversed(turn) if entry.id not in gone)


def quotes(entries: Iterable[Entry | NewEntry]) -> list[Quote]:
    """The quotes of memory in some entries; each once. What a tool had from the web is none."""
    found: dict[tuple[str, str], Quote] = {}
    for entry in entries:
        for block in entry.content:
            facts = block.get("facts") or _NOTHING
            value = result_from_json(facts) if "quotes" in facts else None
            if isinstance(value, Quoted):
                for each in value.quotes:
                    if each.path or each.by or block.get("type") == "text":
                        found[each.where[0], each.text] = each
    return list(found.values())


def quote_counts(entries: Iterable[Entry], gone: Collection[str]) -> Mapping[str, int]:
    """The number of quotes of memory of each reply among some entries, by the reply's id.

    The entries are in order; of a turn with several texts the last one counts as the reply.
    """
    turns: dict[str, list[Entry]] = {}
    found: dict[str, int] = {}
    for entry in entries:
        turn = turns.setdefault(entry.session_id, [])
        if _begins_turn(entry):
            turn.clear()
        if entry.kind != "message" or entry.id in gone:
            continue
        if entry.role == "assistant" and entry.text:
            for earlier in turn:
                found.pop(earlier.id, None)
            found[entry.id] = len(quotes(turn))
        turn.append(entry)
    return found


def _begins_turn(entry: Entry) -> bool:
    """True for what a person sent, as `Message.begins_turn` has it."""
    if (entry.kind, entry.role) != ("message", "user"):
        return False
    texts = [block for block in entry.content if block.get("type") == "text"]
    answers = any(block.get("type") == "tool_result" for block in entry.content)
    return any(not block.get("note") for block in texts) or (bool(texts) and not answers)
