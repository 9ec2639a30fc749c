"""Compactions of a session: entries of its transcript, and which one counts.

An entry says from which message on the model sees what was said, and in what words it sees what
was said before. Taking it back moves a pointer; nothing is ever removed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any, Final, cast

from pydantic import TypeAdapter

from bot.messages import Whose
from bot.sessions import store
from bot.sessions.entries import GONE, Entry, NewEntry
from bot.sessions.store import Session
from bot.storage import Transaction, Value, fulltext, insert_new, marks, scalars


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


Name = tuple[str, str]
"""Which snapshot: the session's id, and the name of the view."""


Sizes = tuple[tuple[str, int], ...]

_SIZES: Final[TypeAdapter[tuple[Sizes, Sizes]]] = TypeAdapter(tuple[Sizes, Sizes])
_ONE = "session_id = ? AND view = ?"
_UNUSED = """DELETE FROM prefix_texts
    WHERE NOT EXISTS (SELECT 1 FROM prefixes WHERE system = digest)
    AND NOT EXISTS (SELECT 1 FROM prefixes WHERE tools = digest)"""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The system prompt of a session, and its tools as JSON.

    Of the files in the prompt it has the names and about how many tokens each is: of those about
    people in `remembered`, of the others in `own`.
    """

    system: str
    tools: str
    own: Sizes = ()
    remembered: Sizes = ()


def load(tx: Transaction, session_id: str) -> dict[str, Snapshot]:
    """The snapshots of a session, by the name of the view they were made for."""
    rows = tx.execute(
        "SELECT view, system.text, tools.text, sizes FROM prefixes "
        "JOIN prefix_texts AS system ON system.digest = prefixes.system "
        "JOIN prefix_texts AS tools ON tools.digest = prefixes.tools WHERE session_id = ?",
        (session_id,),
    )
    return {row[0]: Snapshot(row[1], row[2], *_SIZES.validate_json(row[3])) for row in rows}


def names_of(tx: Transaction, keys: Sequence[str]) -> list[Name]:
    """The snapshots of these keys' sessions."""
    return _names(tx, f"key IN ({marks(keys)})", keys)


def _names(tx: Transaction, where: str, values: Sequence[Value]) -> list[Name]:
    rows = tx.execute(
        "SELECT session_id, view FROM prefixes JOIN sessions ON id = session_id "
        f"WHERE {where} ORDER BY session_id, view",
        values,
    )
    return [(row[0], row[1]) for row in rows]


def among(tx: Transaction, names: Sequence[Name], words: str) -> list[Name]:
    """Those of these snapshots that hold some words; case and spacing do not count."""
    wanted = fulltext.folded(words)
    found: list[Name] = []
    known: dict[str, bool] = {}  # whether a text has them, by its digest
    for name in names if wanted else ():
        for digest in scalars(tx, f"SELECT system FROM prefixes WHERE {_ONE}", *name):
            if digest not in known:
                texts = scalars(tx, "SELECT text FROM prefix_texts WHERE digest = ?", digest)
                known[digest] = any(wanted in fulltext.folded(text) for text in texts)
            if known[digest]:
                found.append(name)
    return found


def remove(tx: Transaction, names: Sequence[Name]) -> None:
    """Remove snapshots; the next request of their sessions makes new ones."""
    drop_old(tx, names)
    for session_id in dict.fromkeys(session_id for session_id, _ in names):
        store.touch(tx, session_id)


def before(tx: Transaction, at: int) -> list[Name]:
    """The snapshots of sessions that were last spoken in before a time, in ms since the epoch."""
    return _names(tx, "made_at < ? AND last_user_at < ?", (at, at))


def drop_old(tx: Transaction, names: Sequence[Name]) -> None:
    """Remove those of sessions that nobody spoke in for long; the next request makes new ones."""
    digests: set[str] = set()
    for name in names:
        rows = tx.execute(f"DELETE FROM prefixes WHERE {_ONE} RETURNING system, tools", name)
        digests.update(str(digest) for row in rows for digest in row)
    for digest in sorted(digests):
        tx.execute(f"{_UNUSED} AND digest = ?", (digest,))


def drop_of(tx: Transaction, session_id: str) -> None:
    """Remove those of a session."""
    tx.execute("DELETE FROM prefixes WHERE session_id = ?", (session_id,))
    drop_unused(tx)


def drop_all(tx: Transaction) -> None:
    """Remove all: an older database may have in them what was forgotten since."""
    tx.execute("DELETE FROM prefixes")
    tx.execute("DELETE FROM prefix_texts")


def drop_unused(tx: Transaction) -> None:
    """Remove the texts that no session begins with any more."""
    tx.execute(_UNUSED)


def keep(tx: Transaction, session_id: str, view: str, snapshot: Snapshot, now: int) -> None:
    """Keep the first snapshot of a session and view; a later one changes nothing.

    Together with the first turn that saw it, which changes the session's version.
    """
    sizes = _SIZES.dump_json((snapshot.own, snapshot.remembered)).decode()
    texts = (snapshot.system, snapshot.tools)
    digests = tuple(map(_digest, texts))
    key = {"session_id": session_id, "view": view}
    of_texts = {"system": digests[0], "tools": digests[1]}
    if insert_new(tx, "prefixes", **key, **of_texts, sizes=sizes, made_at=now):
        for digest, text in zip(digests, texts, strict=True):
            insert_new(tx, "prefix_texts", digest=digest, text=text)


def _digest(text: str) -> str:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
