"""Removing everything of one person from the database, for good. Functions over a transaction.

Transcripts only grow, and this is the one exception that an operator asks for by name. What is in
a room is everybody's: there their words go, with the answers to them and whatever quotes them, and
a mark stays in each place.

A mark of the person stays as well, by digest: what an older copy of the database holds of them is
removed again when it takes this one's place.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import orjson

from bot.config import MAIN_AGENT
from bot.identity import MessageOrigin, Seat
from bot.identity.routing import agent_of
from bot.identity.view import AGENTS, agents_space, folder_name
from bot.sessions import compactions, entries, store, uploads
from bot.sessions.entries import GONE, Entry
from bot.storage import Transaction, Value, beginning, fulltext, insert_new, marks, scalar, scalars
from bot.storage.records import drop, drop_under, from_json, keep, under, values_under
from bot.storage.tables import TABLES, Owner, Table

# What in the database belongs to one person, table by table. Functions over a transaction.
#
# Somebody is known by their canonical identity and by every other name that theirs may be kept
# under ("ada", "telegram:42"). What several people said in a room is in `bot.sessions.erasing`.

WEB = "web"  # the channel in which the people of the page have their names
CHANNEL_KEPT = "channel/"  # what the keys of `meta` begin with that channels keep something under

Condition = tuple[str, tuple[Value, ...]]
"""The text after WHERE, and its values."""


@dataclass(frozen=True, slots=True)
class Belongings:
    """Somebody, by all their names, the canonical one first.

    `sessions` are the ids of their direct conversations, and `chats` where these take place
    (channel, account, chat). `agents` are all that may have memory of their own.
    """

    names: tuple[str, ...]
    sessions: tuple[str, ...] = ()
    chats: tuple[tuple[str, str, str], ...] = ()
    agents: tuple[str, ...] = ()

    @property
    def seats(self) -> tuple[Seat, ...]:
        """The accounts among their names."""
        return tuple((name.partition(":")[0], name.partition(":")[2]) for name in self.accounts)

    @property
    def accounts(self) -> tuple[str, ...]:
        """The names that are accounts: "telegram:42"."""
        return tuple(name for name in self.names if ":" in name)

    @property
    def spaces(self) -> tuple[str, ...]:
        """The spaces of notes that are, or were, theirs; not those of the owner."""
        own = [f"people/{folder_name(name)}" for name in self.names]
        return (*own, *(agents_space(agent, space) for agent in self.agents for space in own))


def belongings_of(
    tx: Transaction, names: Iterable[str], agents: Iterable[str] = (), *, on_server: bool = False
) -> Belongings:
    """Somebody's, with accounts joined to theirs and the names they have on the page.

    `agents` are those that are known beside the ones of which the database has anything.
    """
    known = dict.fromkeys(names)
    while True:
        found = Belongings(tuple(known))
        more = dict.fromkeys((*_joined(tx, found.seats), *_page_names(tx, found.seats)))
        if more.keys() <= known.keys():
            break
        known |= more
    where, values = _direct(found.names)
    theirs = f"SELECT id FROM sessions WHERE {where} ORDER BY started_at, id"
    spot = "SELECT DISTINCT channel, account, chat FROM"
    spots = tx.execute(f"{spot} sessions WHERE {where}", values)
    for table in ("pairing", "links"):
        seated, seats = _among("channel, sender", found.seats)
        spots += tx.execute(f"{spot} {table} WHERE {seated}", seats)
    return Belongings(
        found.names,
        tuple(scalars(tx, theirs, *values)),
        tuple(dict.fromkeys((a, b, c) for a, b, c in spots)),
        tuple(sorted({*agents, *_agents(tx, (where, values), on_server=on_server)})),
    )


def _agents(tx: Transaction, theirs: Condition, *, on_server: bool) -> set[str]:
    """The agents that somebody talked to, and those of whose memory there is a row."""
    where, values = theirs
    keys = scalars(tx, f"SELECT DISTINCT key FROM sessions WHERE {where}", *values)
    begins = (f"{AGENTS}/",)
    spaces = [
        space
        for table in _tables(on_server=on_server)
        if "space" in table.owner
        for space in scalars(
            tx,
            f"SELECT DISTINCT space FROM {table.name} WHERE {beginning('space', begins)}",
            *begins,
        )
    ]
    return ({*map(agent_of, keys)} - {MAIN_AGENT}) | {each.split("/")[1] for each in spaces}


def _tables(*, on_server: bool) -> list[Table]:
    engines = {"", "postgres" if on_server else "sqlite"}
    return [table for table in TABLES if table.engine in engines]


def belonging_conditions(found: Belongings, *, on_server: bool = False) -> dict[str, Condition]:
    """Conditions for somebody's rows of each table; tables that others depend on come last."""
    direct, names = _direct(found.names)
    theirs = f"session_id IN (SELECT id FROM sessions WHERE {direct})"
    person, person_names = within("person", found.names)
    on_page = tuple(sender for channel, sender in found.seats if channel == WEB)
    by: dict[Owner, Condition] = {
        "direct": (direct, names),
        "session": (theirs, names),
        "entry": (f"seq IN (SELECT seq FROM entries WHERE {theirs})", names),
        "person": (person, person_names),
        "repeat": (f"repeat IN (SELECT id FROM repeats WHERE {person})", person_names),
        "seat": _among("channel, sender", found.seats),
        "root": _among("root_channel, root_sender", found.seats),
        "chat": _among("channel, account, chat", found.chats),
        "asker": _among("channel, asker", found.seats),
        "space": within("space", found.spaces),
        "page person": within("person", on_page),
        "page asker": within("asker", found.names),
        "page name": within("name", on_page),
    }
    return {
        table.name: _any([by[owner] for owner in table.owner])
        for table in _tables(on_server=on_server)
        if table.owner
    }


def count_belongings(
    tx: Transaction, found: Belongings, *, on_server: bool = False
) -> dict[str, int]:
    """The number of somebody's rows in each table; tables that hold none are left out."""
    told: dict[str, int] = {}
    for table, (where, values) in belonging_conditions(found, on_server=on_server).items():
        if number := scalar(tx, f"SELECT count(*) FROM {table} WHERE {where}", *values):
            told[table] = number
    return told


def belonging_rows(
    tx: Transaction, found: Belongings, table: str, columns: Sequence[str]
) -> list[dict[str, Any]]:
    """Some columns of somebody's rows of a table, in the order of the first ones."""
    where, values = belonging_conditions(found)[table]
    read = tx.execute(
        f"SELECT {', '.join(columns)} FROM {table} WHERE {where} ORDER BY {', '.join(columns[:2])}",
        values,
    )
    return [dict(zip(columns, row, strict=True)) for row in read]


def channel_keys(tx: Transaction, found: Belongings) -> list[str]:
    """The keys of what channels keep about somebody's direct chats."""
    chats = {chat for _, _, chat in found.chats}
    return [
        f"{CHANNEL_KEPT}{key}"
        for key in under(tx, CHANNEL_KEPT)
        if not chats.isdisjoint(key.split("/", 2)[-1].replace(":", " ").split(" "))
    ]


def _joined(tx: Transaction, seats: Sequence[Seat]) -> list[str]:
    where, values = _any(
        [_among("channel, sender", seats), _among("root_channel, root_sender", seats)]
    )
    columns = "channel, sender, root_channel, root_sender"
    found = tx.execute(f"SELECT {columns} FROM links WHERE {where}", values)
    return [f"{row[n]}:{row[n + 1]}" for row in found for n in (0, 2)]


def _page_names(tx: Transaction, seats: Sequence[Seat]) -> list[str]:
    at, values = _among("channel, sender", seats)
    names = scalars(tx, f"SELECT name FROM page_people WHERE {at}", *values)
    return [f"{WEB}:{name}" for name in names]


def _direct(names: Sequence[str]) -> Condition:
    where, values = within("person", names)
    return f"chat_type = 'direct' AND {where}", values


def within(column: str, values: Sequence[Value]) -> Condition:
    """Rows that have one of these values, of which there may be none."""
    return f"{column} IN ({marks(values)})" if values else "1 = 0", tuple(values)


def _among(columns: str, values: Sequence[tuple[str, ...]]) -> Condition:
    if not values:
        return "1 = 0", ()
    one = " AND ".join(f"{column} = ?" for column in columns.split(", "))
    return f"({' OR '.join([f'({one})'] * len(values))})", tuple(v for each in values for v in each)


def _any(of: Sequence[Condition]) -> Condition:
    return f"({' OR '.join(where for where, _ in of)})", tuple(v for _, each in of for v in each)


# What one person said in rooms, where a conversation is everybody's. Pure, over entries.
#
# Beside each message in a room stands who wrote it, id first, in a note that the person cannot
# write themselves; commands have no such note.

_FROM = re.compile(r"^\[from (?P<who>[^\n]*?)(?:, called “(?P<name>[^\n]*)”)?\]$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Speaker:
    """The writer of a message: their account, and what they were called there."""

    account: str
    name: str


def speaker_of(entry: Entry) -> Speaker | None:
    """The writer of an entry of a room; None for what the bot said, and where nothing tells."""
    if entry.role != "user":
        return None
    for block in entry.content:
        if block.get("note") and (found := _FROM.search(str(block.get("text", "")))):
            return Speaker(found["who"], found["name"] or "")
    return None


def tag_of(account: str) -> str:
    """An account as the notes spell it: on one line, without brackets."""
    return " ".join(account.split()).replace("[", "(").replace("]", ")")


def rooms_spoken_in(tx: Transaction) -> list[tuple[str, str]]:
    """The conversations of rooms, by key in the order in which they began: (id, key)."""
    return tx.execute(
        "SELECT id, key FROM sessions WHERE chat_type <> 'direct' ORDER BY key, started_at, id"
    )


def read_speaker(tx: Transaction, session_id: str) -> Iterator[tuple[int, Entry]]:
    """The entries of a conversation with their numbers, in order."""
    for seq, line in tx.execute(
        "SELECT seq, line FROM entries WHERE session_id = ? ORDER BY seq", (session_id,)
    ):
        yield int(seq), entries.parse(str(line))


def said_by(tx: Transaction, session_id: str, accounts: Collection[str]) -> list[tuple[int, Entry]]:
    """The entries somebody wrote in a conversation of a room."""
    tags = {*map(tag_of, accounts)}
    spoken = tx.execute(  # most rooms know nothing of them, and most entries are not worth parsing
        "SELECT 1 FROM entries WHERE session_id = ? AND role = 'user' AND line LIKE '%[from %' "
        "LIMIT 1",
        (session_id,),
    )
    if not spoken:
        return []
    found = ((seq, entry, speaker_of(entry)) for seq, entry in read_speaker(tx, session_id))
    return [(seq, entry) for seq, entry, who in found if who is not None and who.account in tags]


def speaker_accounts(tx: Transaction) -> Iterable[str]:
    """Everybody who ever said something to the bot in a room."""
    known: dict[str, None] = {}
    for session_id, _ in rooms_spoken_in(tx):
        for _, entry in read_speaker(tx, session_id):
            if (who := speaker_of(entry)) is not None:
                known[who.account] = None
    return known


ERASED = "erased:"  # what the keys of `meta` begin with that say who was erased
ASKED = "asked:"  # what the keys of `meta` begin with that say how a space is found; see selftest
FORGETTING = "forgetting:"  # and what somebody is asked to have forgotten: "person/key"
DELETED = "deleted:"  # and the conversations that were deleted and can be had back; see deleting
WAITING = "forgotten:"  # and what was forgotten of entries that are not here: "id/block"
NIGHT = "night:"  # and those that say what the last night did to one; see memory.night
_SHORTEST = 12  # characters of what somebody said that is looked for in what others were told
_QUOTING = frozenset({"heard", "reply", "before", "carried", "mixed", "unknown"})


@dataclass(frozen=True, slots=True)
class ErasureMark:
    """Somebody who was erased: digests of all their names and spaces, with a salt of its own."""

    salt: str
    digests: frozenset[str]
    at: int

    @classmethod
    def of(cls, found: Belongings, now: int) -> ErasureMark:
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
    """The number of rows of each table that would go, and of their messages in rooms."""
    said = sum(len(said_by(tx, id_, found.accounts)) for id_, _ in rooms_spoken_in(tx))
    return count_belongings(tx, found, on_server=on_server), said


def erase_for_good(
    tx: Transaction, found: Belongings, at: int, now: int, *, on_server: bool = False
) -> None:
    """Remove everything of somebody, and keep a mark of them.

    `at` is when that was asked for: done again it leaves no other mark, and another time it does,
    for the copies that were made since.
    """
    erase(tx, found, now, on_server=on_server)
    if not is_marked(tx, found.names, at):
        put_mark(tx, ErasureMark.of(found, at))


def is_marked(tx: Transaction, names: Sequence[str], at: int) -> bool:
    """True when the erasing that was asked for then has removed its rows."""
    return any(mark.at == at and all(map(mark.is_of, names)) for mark in erased_marks(tx))


def erase(tx: Transaction, found: Belongings, now: int, *, on_server: bool = False) -> None:
    """Remove everything of somebody."""
    _leave_rooms(tx, found, now)
    kept = [f"{kind}{space}" for space in found.spaces for kind in (ASKED, NIGHT)]
    for key in (*channel_keys(tx, found), *kept):
        drop(tx, key)
    for table, (where, values) in belonging_conditions(found, on_server=on_server).items():
        if table == "entries":
            for seq in scalars(tx, f"SELECT seq FROM entries WHERE {where}", *values):
                tx.forget_text(seq)
        tx.execute(f"DELETE FROM {table} WHERE {where}", values)
    compactions.drop_unused(tx)
    _leave_inbox(tx, found)
    for session_id in found.sessions:
        drop_under(tx, f"{WAITING}{session_id}.")
        drop(tx, f"{DELETED}{session_id}")
    for name in found.names:
        drop_under(tx, f"{FORGETTING}{name}/")


def _leave_inbox(tx: Transaction, found: Belongings) -> None:
    """Remove what somebody said in rooms and waits for its answer; what has one has no words."""
    where, values = within("channel", [channel for channel, _ in found.seats])
    rows = tx.execute(f"SELECT id, channel, body FROM inbox WHERE body <> '' AND {where}", values)
    for id_, channel, body in rows:
        try:
            sender = str(orjson.loads(body).get("sender"))
        except (AttributeError, ValueError):  # it is no message any more, and never answered
            sender = next((s for c, s in found.seats if c == channel and s in str(body)), "")
        if (str(channel), sender) in found.seats:
            tx.execute("DELETE FROM inbox WHERE id = ?", (id_,))


# --- marks ----------------------------------------------------------------------------------------


def put_mark(tx: Transaction, mark: ErasureMark) -> None:
    """Keep a mark."""
    keep(tx, f"{ERASED}{mark.salt}", orjson.dumps(mark.row()).decode(), mark.at)


def erased_marks(tx: Transaction) -> list[ErasureMark]:
    """Everybody who was erased."""
    return [*values_under(tx, ERASED, lambda said: mark_of(orjson.loads(said))).values()]


def mark_of(row: Mapping[str, Any]) -> ErasureMark:
    """A mark, as it is stored."""
    return ErasureMark(str(row["salt"]), frozenset(map(str, row["digests"])), int(row["at"]))


def erase_again(tx: Transaction, mark: ErasureMark, now: int) -> bool:
    """Remove what an older copy of the database holds of somebody; False when that is nothing."""
    names = [name for name in dict.fromkeys(_everybody(tx)) if mark.is_of(name)]
    if names:
        erase(tx, belongings_of(tx, names), now)
    return bool(names)


_NAMED: Mapping[Owner, str] = {
    "direct": "person",
    "person": "person",
    "seat": "channel || ':' || sender",
    "root": "root_channel || ':' || root_sender",
    "page name": f"'{WEB}:' || name",
}


def _everybody(tx: Transaction) -> Iterator[str]:
    """Every name that something may be kept under."""
    for table in TABLES:
        for owner in table.owner if not table.engine else ():
            if name := _NAMED.get(owner):
                yield from scalars(tx, f"SELECT DISTINCT {name} FROM {table.name}")
    yield from speaker_accounts(tx)


def _digest(salt: str, name: str) -> str:
    return hashlib.sha256(f"{salt}\0{name}".encode()).hexdigest()[:32]


def _is_theirs(found: Belongings, packed: str) -> bool:
    """True when whoever asked for something in a room is somebody, by its origin."""
    try:
        return from_json(MessageOrigin, packed).seat in found.seats
    except ValueError:
        return False


# --- rooms ----------------------------------------------------------------------------------------


def _leave_rooms(tx: Transaction, found: Belongings, now: int) -> None:
    """Put a mark in the place of what somebody said in rooms, was answered, and is quoted with."""
    by_key: dict[str, list[str]] = {}
    for session_id, key in rooms_spoken_in(tx):
        by_key.setdefault(key, []).append(session_id)
    for key, ids in by_key.items():
        said = {id_: said_by(tx, id_, found.accounts) for id_ in ids}
        if not any(said.values()):
            continue
        wanted = _Wanted.of(entry for each in said.values() for _, entry in each)
        for id_ in ids:
            _leave_room(tx, id_, {seq for seq, _ in said[id_]}, wanted, now)
        _leave_planned(tx, found, key)


@dataclass(frozen=True, slots=True)
class _Wanted:
    """The signs that something quotes somebody: their words, and what they were called."""

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
            if (who := speaker_of(entry)) is not None and who.name:
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
    for seq, entry in read_speaker(tx, session_id):
        begun = begun or seq in own
        if entry.role == "user" and speaker_of(entry) is not None:
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
        store.measure(tx, session_id)
        store.touch(tx, session_id)
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
    return is_answer and speaker_of(entry) is None


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
        insert_new(tx, "forgotten", seq=seq, at=now)
        tx.execute("DELETE FROM outbox WHERE entry = ?", (was.id,))
        uploads.drop_of(tx, session_id, was.files)
    for id_ in _artifacts(was.content):
        tx.execute("DELETE FROM artifacts WHERE id = ? AND session_id = ?", (id_, session_id))


def blank(tx: Transaction, seq: int, entry: Entry, now: int) -> None:
    """Leave nothing but a mark of an entry."""
    left = _without(entry, _Wanted((), ()), whole=True)
    if left is not None:
        _put(tx, seq, entry, left, now)


def take_out(tx: Transaction, seq: int, blocks: set[int]) -> None:
    """Leave nothing of some blocks of an entry."""
    for line in scalars(tx, "SELECT line FROM entries WHERE seq = ?", seq):
        was = entries.parse(line)
        kept = entries.to_append(entries.veil(was, blocks))
        left = entries.line_of(kept, was.id, was.parent_id, was.at)
        tx.execute("UPDATE entries SET line = ? WHERE seq = ?", (left, seq))


def _artifacts(content: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for block in content:
        yield from (str(block[name]) for name in ("artifact", "kept") if block.get(name))


def _leave_planned(tx: Transaction, found: Belongings, key: str) -> None:
    """Remove what somebody planned in a room, as far as it tells who did."""
    for id_, origin in tx.execute("SELECT id, origin FROM repeats WHERE key = ?", (key,)):
        if _is_theirs(found, str(origin)):
            tx.execute("DELETE FROM repeat_runs WHERE repeat = ?", (id_,))
            tx.execute("DELETE FROM repeats WHERE id = ?", (id_,))


# What was taken away for good: what people had the bot forget, and whom an operator erased.
#
# It must hold whatever older copy of the database takes this one's place, so it is said by where
# it was in transcripts and by digests of names, never by the words themselves.

_WORDS = -1  # in the place of a block: no search finds the words of the entry


@dataclass(frozen=True, slots=True)
class Removals:
    """Blocks of entries that are hidden, by the entry's id, and marks of whoever was erased."""

    hidden: frozenset[tuple[str, int]] = frozenset()
    erased: tuple[ErasureMark, ...] = ()

    def facts(self) -> dict[str, Any]:
        """As JSON can say it."""
        return {"hidden": sorted(self.hidden), "erased": [mark.row() for mark in self.erased]}

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> Removals:
        """The value that `facts` describes."""
        hidden = frozenset((str(entry), int(block)) for entry, block in facts.get("hidden", ()))
        return cls(hidden, tuple(map(mark_of, facts.get("erased", ()))))


NOTHING = Removals()


def removals_of(tx: Transaction) -> Removals:
    """Everything there was until now."""
    rows = tx.execute(
        "SELECT id, ? FROM forgotten JOIN entries ON entries.seq = forgotten.seq "
        "UNION ALL SELECT id, block FROM hidden JOIN entries ON entries.seq = hidden.seq",
        (_WORDS,),
    )
    hidden = frozenset((str(entry), int(block)) for entry, block in rows)
    return Removals(hidden, tuple(erased_marks(tx)))


def apply_removals(tx: Transaction, removals: Removals, now: int) -> list[ErasureMark]:
    """Take away again what an older database has; the marks of whoever was still in it."""
    blocks: dict[str, set[int]] = defaultdict(set)
    for entry, block in removals.hidden - removals_of(tx).hidden:
        blocks[entry].add(block)
    for entry, gone in blocks.items():
        for seq in scalars(tx, "SELECT seq FROM entries WHERE id = ?", entry):
            hide(tx, seq, gone - {_WORDS}, now, says=_WORDS in gone)
    known = {mark.salt for mark in erased_marks(tx)}
    new = [mark for mark in removals.erased if mark.salt not in known]
    for mark in new:
        put_mark(tx, mark)
    return [mark for mark in new if erase_again(tx, mark, now)]


def hide(tx: Transaction, seq: int, blocks: Iterable[int], now: int, *, says: bool) -> None:
    """Show the model these blocks of an entry no more; with `says` no search finds it either.

    By block, so that a message stays readable when only something beside its words (a tool's
    answer, what was recalled for it) had to go; and by number, so that nowhere is written what it
    was. The transcript keeps all of it.
    """
    store.touch(tx, scalar(tx, "SELECT session_id FROM entries WHERE seq = ?", seq))
    for block in blocks:
        insert_new(tx, "hidden", seq=seq, block=block, at=now)
    if says:
        tx.forget_text(seq)
        insert_new(tx, "forgotten", seq=seq, at=now)
