"""Deleting one conversation: out of sight at once, had back for a day, then gone for good.

Functions over a transaction, for a slice of its entries at a time: everybody waits for the writer.
Out of sight is what forgetting makes: no search, request or page has its entries. For good is what
erasing makes: a mark stands in the place of each, and nothing is left of what came with it. Where
memory quoted it in other conversations of its person, the quotation goes the same way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from bot.clock import DAY_MS
from bot.identity import Place
from bot.sessions import branches, compactions, erasing, store, unsaved
from bot.sessions.erasing import DELETED
from bot.sessions.store import Appended, Session
from bot.storage import Transaction, fulltext, marks, scalar, scalars
from bot.storage.records import drop, keep, values_under

GRACE_MS = DAY_MS  # in which it can be had back
SLICE = 200  # entries
_SHORTEST = 12  # characters of a line by which a quotation of it is known …
_LONGEST = 40  # … its first ones: quotations are shortened

_PLACE = tuple(Place.__dataclass_fields__)


def begin(tx: Transaction, session: Session, now: int) -> list[Appended]:
    """Delete a conversation: no list has it any more. Its entries are to be hidden next.

    What waits for an answer in it goes with it. Where it was the current one, another begins.

    Returns:
        What is added to transcript files.
    """
    # A moment of its own, by which what is hidden with it is known.
    times = ("max(deleted_at) FROM sessions", "max(at) FROM forgotten", "max(at) FROM hidden")
    at = max(now, *(1 + (scalar(tx, f"SELECT {each}") or 0) for each in times))
    store.change(tx, session.id, deleted_at=at)
    keep(tx, f"{DELETED}{session.id}", str(at), now)
    unsaved.drop(tx, session.id)
    compactions.drop_of(tx, session.id)
    added = branches.put_away(tx, session, now)
    current = store.current(tx, session.key)
    if current is not None and current.id == session.id:
        place = Place(**{name: getattr(session, name) for name in _PLACE})
        _, header = store.start(tx, place, now, by="new", previous=session, model=session.model)
        added.append(header)
    return added


def hide(tx: Transaction, session: Session) -> bool:
    """Let no search find, and no request show, the next of its entries; False when all are."""
    rows = tx.execute(
        "SELECT seq, line FROM entries WHERE session_id = ? AND seq >= ? AND NOT EXISTS "
        "(SELECT 1 FROM forgotten WHERE forgotten.seq = entries.seq) ORDER BY seq LIMIT ?",
        (session.id, session.first_seq, SLICE),
    )
    read = {seq: store.read_entries([(seq, line)]) for seq, line in rows}
    for seq, found in read.items():
        blocks = range(max((len(each.content) for each in found), default=0))
        erasing.hide(tx, seq, blocks, session.deleted_at, says=True)
    return bool(rows)


def beginnings(tx: Transaction, session: Session) -> frozenset[str]:
    """The beginnings of its lines, by which quotations of them are recognised."""
    rows = tx.execute("SELECT seq, line FROM entries WHERE session_id = ?", (session.id,))
    said = (each.text for each in store.read_entries(rows))
    return frozenset(key for text in said for line in text.splitlines() if (key := _key(line)))


def quoting(
    tx: Transaction, session: Session, people: Sequence[str], known: frozenset[str], after: int
) -> tuple[int, Mapping[int, Sequence[int]]]:
    """The blocks that quote it in the next entries of these people; and how far was looked."""
    rows = tx.execute(
        "SELECT seq, line FROM entries JOIN sessions ON sessions.id = session_id "
        f"WHERE chat_type = 'direct' AND person IN ({marks(people)}) AND session_id <> ? "
        "AND seq > ? AND line LIKE ? ORDER BY seq LIMIT ?",
        (*people, session.id, max(after, session.first_seq), '%"quotes"%', SLICE),
    )
    found: dict[int, list[int]] = {}
    for seq, line in rows:
        for entry in store.read_entries([(seq, line)]):
            content = enumerate(entry.content)
            blocks = [number for number, each in content if not known.isdisjoint(_keys(each))]
            found |= {seq: blocks} if blocks else {}
    return (int(rows[-1][0]) if rows else 0), found


def hide_quotations(
    tx: Transaction, session: Session, found: Mapping[int, Sequence[int]]
) -> list[str]:
    """Show the model no more what quotes it elsewhere; the ids of the sessions that did."""
    for seq, blocks in found.items():
        erasing.hide(tx, seq, blocks, session.deleted_at, says=False)
    those = f"SELECT DISTINCT session_id FROM entries WHERE seq IN ({marks(found)})"
    return scalars(tx, those, *found)


def _keys(block: Mapping[str, Any]) -> Iterator[str]:
    """The beginnings of the lines that a block quotes."""
    facts = cast("Mapping[str, Any]", block.get("facts") or {})
    for quote in cast("Sequence[Mapping[str, Any]]", facts.get("quotes") or ()):
        said = [str(words) for _, words in quote.get("turns", ())]
        said += [line.partition(": ")[2] for line in str(quote.get("text", "")).splitlines()]
        yield from (_key(line) for text in said for line in text.splitlines())


def _key(line: str) -> str:
    key = fulltext.folded(line)[:_LONGEST]
    return key if len(key) >= _SHORTEST else ""


def _quotations(tx: Transaction, session: Session) -> list[tuple[int, str, int]]:
    """The blocks elsewhere that were hidden with it: number and session of the entry, and block."""
    rows = tx.execute(
        "SELECT hidden.seq, session_id, block FROM hidden "
        "JOIN entries ON entries.seq = hidden.seq WHERE hidden.at = ? AND session_id <> ?",
        (session.deleted_at, session.id),
    )
    return [(int(seq), str(id_), int(block)) for seq, id_, block in rows]


def restore(tx: Transaction, session: Session) -> bool:
    """Let the next of its entries be found and shown again; False when all are.

    What was forgotten in it before it was deleted stays forgotten.
    """
    rows = tx.execute(
        "SELECT entries.seq, line FROM entries JOIN forgotten ON forgotten.seq = entries.seq "
        "WHERE session_id = ? AND entries.seq >= ? AND forgotten.at = ? "
        "ORDER BY entries.seq LIMIT ?",
        (session.id, session.first_seq, session.deleted_at, SLICE),
    )
    for seq, line in rows:
        tx.execute("DELETE FROM hidden WHERE seq = ? AND at = ?", (seq, session.deleted_at))
        tx.execute("DELETE FROM forgotten WHERE seq = ?", (seq,))
        for entry in store.read_entries([(seq, line)]):
            if store.is_indexed(entry):
                tx.index_text(seq, entry.text)
    return bool(rows)


def restored(tx: Transaction, session: Session) -> list[str]:
    """Have it in the lists again, with all that is left to `restore`.

    Returns:
        The ids of the sessions that quote it.
    """
    while restore(tx, session):
        pass
    elsewhere = _quotations(tx, session)
    for seq, id_, block in elsewhere:
        tx.execute("DELETE FROM hidden WHERE seq = ? AND block = ?", (seq, block))
        store.touch(tx, id_)
    drop(tx, f"{DELETED}{session.id}")
    store.change(tx, session.id, deleted_at=0)
    return [id_ for _, id_, _ in elsewhere]


def wipe(tx: Transaction, session: Session, after: int, now: int) -> int:
    """Put a mark in the place of the next of its entries; the number of the last, 0 for none."""
    rows = tx.execute(
        "SELECT seq, line FROM entries WHERE session_id = ? AND seq > ? ORDER BY seq LIMIT ?",
        (session.id, max(after, session.first_seq - 1), SLICE),
    )
    for seq, line in rows:
        for entry in store.read_entries([(seq, line)]):
            erasing.blank(tx, seq, entry, now)
    return int(rows[-1][0]) if rows else 0


def wiped(tx: Transaction, session: Session) -> list[str]:
    """Remove what is kept beside its entries, quotations of it, and the way back.

    Returns:
        The ids of the sessions that quoted it.
    """
    elsewhere = _quotations(tx, session)
    for seq in dict.fromkeys(seq for seq, _, _ in elsewhere):
        erasing.take_out(tx, seq, {block for each, _, block in elsewhere if each == seq})
    for table in ("artifacts", "titles", "approvals"):
        tx.execute(f"DELETE FROM {table} WHERE session_id = ?", (session.id,))
    compactions.drop_of(tx, session.id)
    drop(tx, f"{DELETED}{session.id}")
    others = dict.fromkeys(id_ for _, id_, _ in elsewhere)
    for id_ in (session.id, *others):
        store.measure(tx, id_)
    return [*others]


def waiting(tx: Transaction) -> list[Session]:
    """The conversations that can be had back, the last deleted first."""
    found = (store.get(tx, id_) for id_ in values_under(tx, DELETED, int))
    return sorted(filter(None, found), key=lambda each: -each.deleted_at)


def own(tx: Transaction, people: Sequence[str], session_id: str = "") -> list[Session]:
    """Those of these people; with an id, that one alone."""
    return [each for each in waiting(tx) if each.person in people and session_id in {"", each.id}]


def is_deleted(tx: Transaction, key: str, session_id: str) -> bool:
    """True for a conversation of a key that its person deleted, however long ago."""
    deleted = "SELECT deleted_at FROM sessions WHERE id = ? AND key = ?"
    return bool(scalar(tx, deleted, session_id, key))
