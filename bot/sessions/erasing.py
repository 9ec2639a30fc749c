"""Removing everything of one person from the database, for good. Functions over a transaction.

Transcripts only grow, and this is the one exception that an operator asks for by name. What is in
a room is everybody's: there their words go, with the answers to them and whatever quotes them, and
a mark stays in each place.

A mark of the person stays as well, by digest: what an older copy of the database holds of them is
removed again when it takes this one's place.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import orjson

from bot.identity import MessageOrigin
from bot.sessions import belongings, compactions, entries, speakers, store, uploads
from bot.sessions.belongings import Belongings
from bot.sessions.entries import GONE, Entry
from bot.storage import Transaction, fulltext, scalars
from bot.storage.meta import drop, drop_under, keep, under
from bot.storage.tables import TABLES, Owner

ERASED = "erased:"  # what the keys of `meta` begin with that say who was erased
ASKED = "asked:"  # what the keys of `meta` begin with that say how a space is found; see selftest
WAITING = "forgotten:"  # and what was forgotten of entries that are not here: "id/block"
NIGHT = "night:"  # and those that say what the last night did to one; see memory.night
_SHORTEST = 12  # characters of what somebody said that is looked for in what others were told
_QUOTING = frozenset({"heard", "reply", "before", "carried", "mixed", "unknown"})


@dataclass(frozen=True, slots=True)
class Mark:
    """Somebody who was erased: digests of all their names and spaces, with a salt of its own."""

    salt: str
    digests: frozenset[str]
    at: int

    @classmethod
    def of(cls, found: Belongings, now: int) -> Mark:
        """A new mark of somebody."""
        salt = secrets.token_hex(8)
        return cls(salt, frozenset(_digest(salt, n) for n in (*found.names, *found.spaces)), now)

    def is_of(self, name: str) -> bool:
        """True for one of their names, or spaces."""
        return _digest(self.salt, name) in self.digests

    def row(self) -> dict[str, Any]:
        """As it is stored."""
        return {"salt": self.salt, "digests": sorted(self.digests), "at": self.at}


def preview(
    tx: Transaction, found: Belongings, *, on_server: bool = False
) -> tuple[dict[str, int], int]:
    """How many rows of each table would go, and how many messages of theirs are in rooms."""
    said = sum(len(speakers.said_by(tx, id_, found.accounts)) for id_, _ in speakers.rooms(tx))
    return belongings.counts(tx, found, on_server=on_server), said


def erase_for_good(
    tx: Transaction, found: Belongings, at: int, now: int, *, on_server: bool = False
) -> None:
    """Remove everything of somebody, and keep a mark of them.

    `at` is when that was asked for: done again it leaves no other mark, and another time it does,
    for the copies that were made since.
    """
    erase(tx, found, now, on_server=on_server)
    if not is_marked(tx, found.names, at):
        put_mark(tx, Mark.of(found, at))


def is_marked(tx: Transaction, names: Sequence[str], at: int) -> bool:
    """True when the erasing that was asked for then has removed its rows."""
    return any(mark.at == at and all(map(mark.is_of, names)) for mark in marks(tx))


def erase(tx: Transaction, found: Belongings, now: int, *, on_server: bool = False) -> None:
    """Remove everything of somebody."""
    _leave_rooms(tx, found, now)
    kept = [f"{kind}{space}" for space in found.spaces for kind in (ASKED, NIGHT)]
    for key in (*belongings.channel_keys(tx, found), *kept):
        drop(tx, key)
    for table, (where, values) in belongings.conditions(found, on_server=on_server).items():
        if table == "entries":
            for seq in scalars(tx, f"SELECT seq FROM entries WHERE {where}", *values):
                tx.forget_text(seq)
        tx.execute(f"DELETE FROM {table} WHERE {where}", values)
    compactions.drop_unused(tx)
    _leave_inbox(tx, found)
    for session_id in found.sessions:
        drop_under(tx, f"{WAITING}{session_id}.")


def _leave_inbox(tx: Transaction, found: Belongings) -> None:
    """Remove what somebody said in rooms and waits for its answer; what has one has no words."""
    where, values = belongings.within("channel", [channel for channel, _ in found.seats])
    rows = tx.execute(f"SELECT id, channel, body FROM inbox WHERE body <> '' AND {where}", values)
    for id_, channel, body in rows:
        try:
            sender = str(orjson.loads(body).get("sender"))
        except (AttributeError, ValueError):  # it is no message any more, and never answered
            sender = next((s for c, s in found.seats if c == channel and s in str(body)), "")
        if (str(channel), sender) in found.seats:
            tx.execute("DELETE FROM inbox WHERE id = ?", (id_,))


# --- marks ----------------------------------------------------------------------------------------


def put_mark(tx: Transaction, mark: Mark) -> None:
    """Keep a mark."""
    keep(tx, f"{ERASED}{mark.salt}", orjson.dumps(mark.row()).decode(), mark.at)


def marks(tx: Transaction) -> list[Mark]:
    """Everybody who was erased."""
    return [mark_of(orjson.loads(said)) for said in under(tx, ERASED).values()]


def mark_of(row: Mapping[str, Any]) -> Mark:
    """A mark, as it is stored."""
    return Mark(str(row["salt"]), frozenset(map(str, row["digests"])), int(row["at"]))


def erase_again(tx: Transaction, mark: Mark, now: int) -> bool:
    """Remove what an older copy of the database holds of somebody; False when that is nothing."""
    names = [name for name in dict.fromkeys(_everybody(tx)) if mark.is_of(name)]
    if names:
        erase(tx, belongings.of(tx, names), now)
    return bool(names)


_NAMED: Mapping[Owner, str] = {
    "direct": "person",
    "person": "person",
    "seat": "channel || ':' || sender",
    "root": "root_channel || ':' || root_sender",
    "page name": f"'{belongings.WEB}:' || name",
}


def _everybody(tx: Transaction) -> Iterator[str]:
    """Every name that something may be kept under."""
    for table in TABLES:
        for owner in table.owner if not table.engine else ():
            if name := _NAMED.get(owner):
                yield from scalars(tx, f"SELECT DISTINCT {name} FROM {table.name}")
    yield from speakers.accounts(tx)


def _digest(salt: str, name: str) -> str:
    return hashlib.sha256(f"{salt}\0{name}".encode()).hexdigest()[:32]


def _is_theirs(found: Belongings, packed: str) -> bool:
    """True when whoever asked for something in a room is somebody, by its origin."""
    try:
        return MessageOrigin(**orjson.loads(packed)).seat in found.seats
    except (TypeError, ValueError):
        return False


# --- rooms ----------------------------------------------------------------------------------------


def _leave_rooms(tx: Transaction, found: Belongings, now: int) -> None:
    """Put a mark in the place of what somebody said in rooms, was answered, and is quoted with."""
    by_key: dict[str, list[str]] = {}
    for session_id, key in speakers.rooms(tx):
        by_key.setdefault(key, []).append(session_id)
    for key, ids in by_key.items():
        said = {id_: speakers.said_by(tx, id_, found.accounts) for id_ in ids}
        if not any(said.values()):
            continue
        wanted = _Wanted.of(entry for each in said.values() for _, entry in each)
        for id_ in ids:
            _leave_room(tx, id_, {seq for seq, _ in said[id_]}, wanted, now)
        _leave_planned(tx, found, key)


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What tells that something quotes somebody: their words, and what they were called."""

    words: tuple[str, ...]
    names: tuple[str, ...]

    @classmethod
    def of(cls, said: Iterable[Entry]) -> _Wanted:
        words, names = dict[str, None](), dict[str, None]()
        for entry in said:
            for line in entry.text.splitlines():
                folded = fulltext.folded(line)
                if len(folded) >= _SHORTEST:
                    words[folded] = None
            if (who := speakers.speaker_of(entry)) is not None and who.name:
                names[who.name] = None
        return cls(tuple(words), tuple(names))

    def is_in(self, told: str) -> bool:
        """True when a text repeats what they said."""
        folded = fulltext.folded(told)
        return any(each in folded for each in self.words)


def _leave_room(tx: Transaction, session_id: str, own: set[int], wanted: _Wanted, now: int) -> None:
    """Put marks into one conversation of a room."""
    is_changed, begun, is_answer = False, False, False
    before: Entry | None = None
    for seq, entry in speakers.read(tx, session_id):
        begun = begun or seq in own
        if entry.role == "user" and speakers.speaker_of(entry) is not None:
            # Messages that were answered together are one turn; so is what a tool said in it.
            goes_on = before is not None and before.role == "user" and is_answer
            is_answer = seq in own or goes_on
        elif entry.kind != "message":
            is_answer = False
        left = _without(entry, wanted, whole=seq in own or _goes(entry, begun, is_answer))
        before = entry
        if left is not None:
            _put(tx, seq, entry, left, now)
            is_changed = True
    if is_changed:
        size = sum(len(line.encode()) + 1 for line in store.lines(tx, session_id))
        store.set_mirror_bytes(tx, session_id, size)
        tx.execute("UPDATE sessions SET version = version + 1 WHERE id = ?", (session_id,))
        compactions.drop_of(tx, session_id)


def _goes(entry: Entry, begun: bool, is_answer: bool) -> bool:  # noqa: FBT001 - both are facts
    """True when all of an entry goes that the person did not say themselves.

    That is what answers them, a summary of what was said by then, and a command: nothing tells who
    typed it.
    """
    if entry.kind == "compaction":
        return begun
    if entry.kind in {"command", "notice"}:
        return True
    return is_answer and speakers.speaker_of(entry) is None


def _without(entry: Entry, wanted: _Wanted, *, whole: bool) -> Entry | None:
    """An entry without what holds somebody's words; None when nothing does."""
    if whole:
        blocks = {*range(len(entry.content))}
    else:
        blocks = {n for n, block in enumerate(entry.content) if _quotes(block, wanted)}
    says = whole or wanted.is_in(entry.text)
    if not says and not blocks:
        return None
    left = entries.veil(entry, {*range(len(entry.content))} if says else blocks)
    if says:
        return replace(left, text=GONE, source="", below="", files=(), failed=(), said_at=0)
    return replace(left, text=entry.text, files=entry.files)


def _quotes(block: Mapping[str, Any], wanted: _Wanted) -> bool:
    """True when a block beside what others said may hold somebody's words, or names them."""
    packed = orjson.dumps(block).decode()
    if wanted.is_in(packed.replace("\\n", "\n")):
        return True
    is_about = bool(block.get("note")) and block.get("origin") in _QUOTING
    return is_about and (block["origin"] != "heard" or any(n in packed for n in wanted.names))


def _put(tx: Transaction, seq: int, was: Entry, left: Entry, now: int) -> None:
    """Store what is left of an entry, and remove what came with the rest of it."""
    session_id = was.session_id
    kept = entries.to_append(left)
    line = entries.line_of(kept, was.id, was.parent_id, was.at)
    tx.execute("UPDATE entries SET line = ? WHERE seq = ?", (line, seq))
    if left.text == GONE:
        tx.forget_text(seq)
        tx.execute("DELETE FROM hidden WHERE seq = ?", (seq,))
        tx.execute(
            "INSERT INTO forgotten(seq, at) VALUES (?, ?) ON CONFLICT(seq) DO NOTHING", (seq, now)
        )
        tx.execute("DELETE FROM outbox WHERE entry = ?", (was.id,))
        uploads.drop_of(tx, session_id, was.files)
    for id_ in _artifacts(was.content):
        tx.execute("DELETE FROM artifacts WHERE id = ? AND session_id = ?", (id_, session_id))


def _artifacts(content: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for block in content:
        yield from (str(block[name]) for name in ("artifact", "kept") if block.get(name))


def _leave_planned(tx: Transaction, found: Belongings, key: str) -> None:
    """Remove what somebody planned in a room, as far as it tells who did."""
    for id_, origin in tx.execute("SELECT id, origin FROM repeats WHERE key = ?", (key,)):
        if _is_theirs(found, str(origin)):
            tx.execute("DELETE FROM repeat_runs WHERE repeat = ?", (id_,))
            tx.execute("DELETE FROM repeats WHERE id = ?", (id_,))
