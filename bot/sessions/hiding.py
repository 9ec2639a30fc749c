"""What no request shows the model again, although the transcript keeps it.

It is kept by block, so that a message stays readable when only something beside its words (a tool's
answer, what was recalled for it) had to go; and by number, so that nowhere is written what it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from bot.sessions.entries import Entry
from bot.storage import Transaction

GONE = "(forgotten, as the person wished)"


def hide(tx: Transaction, seq: int, blocks: Iterable[int], now: int) -> None:
    """Show the model these blocks of an entry's content no more."""
    for block in blocks:
        tx.execute(
            "INSERT INTO hidden(seq, block, at) VALUES (?, ?, ?) ON CONFLICT(seq, block) "
            "DO NOTHING",
            (seq, block, now),
        )


def hidden(tx: Transaction, seq: int) -> set[int]:
    """The blocks of an entry that are hidden."""
    return {row[0] for row in tx.execute("SELECT block FROM hidden WHERE seq = ?", (seq,))}


def marks(tx: Transaction, session_id: str) -> int:
    """How much of a session the model must not see: it grows with each forgetting that is new."""
    rows = tx.execute(
        "SELECT (SELECT count(*) FROM hidden JOIN entries ON entries.seq = hidden.seq "
        "WHERE session_id = ?) + (SELECT count(*) FROM forgotten JOIN entries "
        "ON entries.seq = forgotten.seq WHERE session_id = ?)",
        (session_id, session_id),
    )
    return int(rows[0][0])


def veiled(tx: Transaction, session_id: str, found: Sequence[Entry]) -> list[Entry]:
    """Entries of a session as the model may see them."""
    rows = tx.execute(
        "SELECT id, block FROM hidden JOIN entries ON entries.seq = hidden.seq "
        "WHERE session_id = ?",
        (session_id,),
    )
    gone: dict[str, set[int]] = {}
    for id_, block in rows:
        gone.setdefault(id_, set()).add(block)
    return [veil(entry, gone[entry.id]) if entry.id in gone else entry for entry in found]


def veil(entry: Entry, blocks: set[int]) -> Entry:
    """An entry without what some of its blocks said; calls and answers stay pairs. Pure."""
    shown = (_bare(block) if n in blocks else block for n, block in enumerate(entry.content))
    # A block only the model's service understands may repeat what the others said.
    content = tuple(block for block in shown if block.get("type") in _KNOWN)
    said = any(_is_said(block) for n, block in enumerate(entry.content) if n in blocks)
    return replace(entry, text="" if said else entry.text, content=content)


def strings(value: object) -> Iterator[str]:
    """Every text within a block. Pure."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in cast("dict[str, object]", value).values():
            yield from strings(inner)
    elif isinstance(value, (list, tuple)):
        for inner in cast("Sequence[object]", value):
            yield from strings(inner)


_KNOWN = frozenset({"text", "tool_use", "tool_result"})


def _is_said(block: Mapping[str, Any]) -> bool:
    return block.get("type") == "text" and not block.get("note")


def _bare(block: Mapping[str, Any]) -> Mapping[str, Any]:
    left = {name: value for name, value in block.items() if name != "facts"}
    match block.get("type"):
        case "text":
            return {**left, "text": f"{GONE}\n" if block.get("note") else GONE}
        case "tool_use":
            return {**left, "input": {}}
        case "tool_result":
            return {**left, "content": GONE}
        case _:
            return {}
