"""What was taken away for good: what people had the bot forget, and whom an operator erased.

It must hold whatever older copy of the database takes this one's place, so it is said by where it
was in transcripts and by digests of names, never by the words themselves.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from bot.sessions import erasing
from bot.sessions.erasing import Mark
from bot.storage import Transaction, scalars

_WORDS = -1  # in the place of a block: no search finds the words of the entry


@dataclass(frozen=True, slots=True)
class Removals:
    """Blocks of entries that are hidden, by the entry's id, and marks of whoever was erased."""

    hidden: frozenset[tuple[str, int]] = frozenset()
    erased: tuple[Mark, ...] = ()

    def facts(self) -> dict[str, Any]:
        """As JSON can say it."""
        return {"hidden": sorted(self.hidden), "erased": [mark.row() for mark in self.erased]}

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> Removals:
        """What `facts` said."""
        hidden = frozenset((str(entry), int(block)) for entry, block in facts.get("hidden", ()))
        return cls(hidden, tuple(map(erasing.mark_of, facts.get("erased", ()))))


NOTHING = Removals()


def of(tx: Transaction) -> Removals:
    """Everything there was until now."""
    rows = tx.execute(
        "SELECT id, ? FROM forgotten JOIN entries ON entries.seq = forgotten.seq "
        "UNION ALL SELECT id, block FROM hidden JOIN entries ON entries.seq = hidden.seq",
        (_WORDS,),
    )
    hidden = frozenset((str(entry), int(block)) for entry, block in rows)
    return Removals(hidden, tuple(erasing.marks(tx)))


def apply(tx: Transaction, removals: Removals, now: int) -> tuple[int, list[Mark]]:
    """Take away again what an older database has: how many entries, and who was still in it."""
    blocks: dict[str, set[int]] = defaultdict(set)
    for entry, block in removals.hidden - of(tx).hidden:
        blocks[entry].add(block)
    count = 0
    for entry, gone in blocks.items():
        for seq in scalars(tx, "SELECT seq FROM entries WHERE id = ?", entry):
            hide(tx, seq, gone - {_WORDS}, now, says=_WORDS in gone)
            count += 1
    known = {mark.salt for mark in erasing.marks(tx)}
    new = [mark for mark in removals.erased if mark.salt not in known]
    for mark in new:
        erasing.put_mark(tx, mark)
    return count, [mark for mark in new if erasing.erase_again(tx, mark, now)]


def hide(tx: Transaction, seq: int, blocks: Iterable[int], now: int, *, says: bool) -> None:
    """Show the model these blocks of an entry no more; with `says` no search finds it either.

    By block, so that a message stays readable when only something beside its words (a tool's
    answer, what was recalled for it) had to go; and by number, so that nowhere is written what it
    was. The transcript keeps all of it.
    """
    tx.execute(
        "UPDATE sessions SET version = version + 1 "
        "WHERE id = (SELECT session_id FROM entries WHERE seq = ?)",
        (seq,),
    )
    for block in blocks:
        tx.execute(
            "INSERT INTO hidden(seq, block, at) VALUES (?, ?, ?) "
            "ON CONFLICT(seq, block) DO NOTHING",
            (seq, block, now),
        )
    if says:
        tx.forget_text(seq)
        tx.execute(
            "INSERT INTO forgotten(seq, at) VALUES (?, ?) ON CONFLICT(seq) DO NOTHING", (seq, now)
        )
