"""What replies had from memory, as it is stored with their turns.

Notes that recall something and results of tools are quoted in the entries of a turn; the veil over
what was forgotten takes those quotes away, too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from bot.messages import Quote, Quoted, result_from_json
from bot.sessions import search, store
from bot.sessions.entries import Entry, NewEntry
from bot.sessions.store import Session
from bot.storage import Transaction, scalar

MAX_MESSAGES = 100  # of a turn that are looked at

_NOTHING: Mapping[str, Any] = {}


def of_reply(tx: Transaction, session: Session, entry_id: str = "") -> list[Quote]:
    """The quotes of memory in the turn of a reply, or in the last turn of a session; each once."""
    end = scalar(tx, "SELECT seq FROM entries WHERE id = ?", entry_id) if entry_id else None
    if entry_id and end is None:
        return []
    rows = tx.execute(
        "SELECT seq, line FROM entries WHERE session_id = ? AND kind = 'message' AND seq >= ? "
        f"AND {store.IN_SIGHT} {'AND seq <= ? ' if end else ''}ORDER BY seq DESC LIMIT ?",
        (session.id, session.first_seq, *([end] if end else []), MAX_MESSAGES),
    )
    gone = search.forgotten(tx, session.id, since=session.first_seq)
    turn: list[Entry] = []
    entries = store.read_entries(rows)
    for entry in store.veiled(tx, session.id, entries, since=session.first_seq):
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


def counts(entries: Iterable[Entry], gone: Collection[str]) -> Mapping[str, int]:
    """How many quotes of memory the replies among some entries had, by the replies' ids.

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
