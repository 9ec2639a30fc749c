"""Conversations as their person looks through them: listed, opened, searched, named.

Plain functions over one transaction. They see the direct conversations of the `people` they are
given, which are the identities of a `MemoryView`, and no others; what was forgotten is shown
neither to a model nor here. Everything is read by index, a page at a time, however much there is.
`TranscriptIndex` finds what was said for the model's tools and for recall.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bot.channel import Address, HistoryItem
from bot.identity import MANY
from bot.identity.view import MemoryView
from bot.messages import Quote, Quoted, result_from_json
from bot.sessions import branches, entries, inbox, store
from bot.sessions.entries import Entry, NewEntry, Role
from bot.sessions.store import Session, Shelf
from bot.sessions.uploads import refs_of
from bot.storage import (
    Database,
    Row,
    Transaction,
    beginning,
    fulltext,
    marks,
    scalar,
    scalars,
    upsert,
)
from bot.storage.records import HERE, place

MAX_TITLE = 120  # characters
MAX_PINNED = 50  # that stand first; more are listed by day
MAX_FOUND = 200  # messages one search comes to
OPENING = 12  # entries among which the first words are looked for
BATCH = 100  # entries that are read together
LONGEST = 6_000  # characters of one line that are shown …
PAGE_CHARS = 60_000  # … and of a page

# Tasks are carried out unseen, and what several people wrote is nobody's own.
_OWN = f"chat_type = 'direct' AND started_by <> 'task' AND sender <> '{MANY}' AND deleted_at = 0"

# As the index has it. A command alone, such as the `/new` that ends it, makes it no newer.
_AT = "CASE WHEN last_turn_at > 0 THEN last_turn_at ELSE started_at END"


@dataclass(frozen=True, slots=True)
class Cursor:
    """The end of a page of the list: the conversation after which the next page begins."""

    at: int
    session_id: str


@dataclass(frozen=True, slots=True)
class Listed:
    """A conversation in the list.

    `at` is when its last turn was, or else when it began (ms since the epoch), `title` what its
    person named it, `opening` what they first said, `entries` how many it has, and `shelf` where
    they put it.
    """

    id: str
    channel: str
    at: int
    entries: int
    title: str
    opening: str
    shelf: Shelf = ""

    @property
    def name(self) -> str:
        """Its title, or else the words it began with; empty where only commands were given."""
        return self.title or self.opening

    @property
    def cursor(self) -> Cursor:
        """The place where the list goes on after it."""
        return Cursor(self.at, self.id)


@dataclass(frozen=True, slots=True)
class Lines:
    """A part of a conversation, oldest first; `older` and `newer` say whether there is more.

    `gone` are the ids of those whose words were forgotten.
    """

    said: tuple[Entry, ...]
    gone: frozenset[str]
    older: bool
    newer: bool


@dataclass(frozen=True, slots=True)
class FoundMessage:
    """A message that matched a search, in the conversation it was said in."""

    session_id: str
    channel: str
    entry: Entry


# --- which there are ----------------------------------------------------------------------------


_SEEN = "entry_count - (SELECT count(*) FROM unseen WHERE session_id = sessions.id)"
_COLUMNS = f"id, channel, {_AT}, {_SEEN}, first_seq, shelf"


def listed(
    tx: Transaction,
    people: Sequence[str],
    limit: int,
    after: Cursor | None = None,
    *,
    shelf: Shelf = "",
) -> list[Listed]:
    """Conversations of these people on a shelf, the last one first, from a place on.

    On none are also those that are pinned beyond the last `MAX_PINNED`.
    """
    where, values = "shelf = ? ", (shelf,)
    if not shelf and (first := [str(row[0]) for row in _pinned(tx, people)]):
        where = f"(shelf = ? OR (shelf = 'pinned' AND id NOT IN ({marks(first)}))) "
        values = (shelf, *first)
    if after is not None:
        where += f"AND {_AT} <= ? AND ({_AT} < ? OR id < ?) "
        values = (*values, after.at, after.at, after.session_id)
    return _listed(tx, _rows(tx, people, limit, where, *values))


def pinned(tx: Transaction, people: Sequence[str]) -> list[Listed]:
    """The conversations that stand before all others."""
    return _listed(tx, _pinned(tx, people))


def _pinned(tx: Transaction, people: Sequence[str]) -> list[Row]:
    return _rows(tx, people, MAX_PINNED, "shelf = 'pinned' ")


def _rows(
    tx: Transaction, people: Sequence[str], limit: int, where: str, *values: str | int
) -> list[Row]:
    rows: list[Row] = []
    for person in people:  # each by itself: the index has them in order
        rows += tx.execute(
            f"SELECT {_COLUMNS} FROM sessions "
            f"WHERE person = ? AND {_OWN} AND entry_count > 0 AND {where}"
            f"ORDER BY {_AT} DESC, id DESC LIMIT ?",
            (person, *values, limit),
        )
    rows.sort(key=lambda row: (row[2], row[0]), reverse=True)
    return rows[:limit]


def earlier(
    tx: Transaction, current: Session, limit: int, *, id_: str = ""
) -> Mapping[int, Listed]:
    """Other conversations of the same key in which something was answered, the last one first.

    They are numbered from 1 on. With an id, that one alone.
    """
    rows = tx.execute(
        f"SELECT {_COLUMNS} FROM sessions WHERE key = ? "
        "AND id <> ? AND turns > 0 AND deleted_at = 0 AND started_by NOT IN ('task', 'import') "
        f"{'AND id = ? ' if id_ else ''}ORDER BY {_AT} DESC, id DESC LIMIT ?",
        (current.key, current.id, *filter(None, [id_]), limit),
    )
    return dict(enumerate(_listed(tx, rows), 1))


def _listed(tx: Transaction, rows: Iterable[Row]) -> list[Listed]:
    return [
        Listed(id_, channel, at, count, title_of(tx, id_), _opening(tx, id_, first_seq), shelf)
        for id_, channel, at, count, first_seq, shelf in rows
    ]


def count_of(tx: Transaction, session: Session) -> int:
    """The number of visible entries of a conversation."""
    return scalar(tx, f"SELECT {_SEEN} FROM sessions WHERE id = ?", session.id)


def own(tx: Transaction, people: Sequence[str], session_id: str) -> Session | None:
    """A conversation by its id; None when it is not one of these people's, or is not there."""
    person = scalar(tx, f"SELECT person FROM sessions WHERE id = ? AND {_OWN}", session_id)
    return store.get(tx, session_id) if person is not None and person in people else None


def title_of(tx: Transaction, session_id: str) -> str:
    """The name somebody gave a conversation, or empty."""
    return scalar(tx, "SELECT title FROM titles WHERE session_id = ?", session_id) or ""


def name(tx: Transaction, session_id: str, title: str, now: int) -> None:
    """Name a conversation, or take its name away with an empty one."""
    words = " ".join(title.split())[:MAX_TITLE].rstrip()
    if words:
        upsert(tx, "titles", session_id=session_id, title=words, changed_at=now)
    else:
        tx.execute("DELETE FROM titles WHERE session_id = ?", (session_id,))


def titled(tx: Transaction, keys: Sequence[str], words: str) -> list[str]:
    """The conversations of some keys that are named with these words; case does not count."""
    wanted = fulltext.folded(words)
    rows = tx.execute(
        "SELECT session_id, title FROM titles JOIN sessions ON sessions.id = session_id "
        f"WHERE key IN ({marks(keys)}) ORDER BY session_id",
        tuple(keys),
    )
    return [str(id_) for id_, title in rows if wanted and wanted in fulltext.folded(title)]


def opening_of(tx: Transaction, session: Session) -> str:
    """The words a conversation began with, as far as they may be shown."""
    return _opening(tx, session.id, session.first_seq)


def _opening(tx: Transaction, session_id: str, since: int) -> str:
    rows = tx.execute(
        "SELECT seq, kind, role, line FROM entries WHERE session_id = ? AND seq >= ? "
        f"AND {store.IN_SIGHT} ORDER BY seq LIMIT ?",
        (session_id, since, OPENING),
    )
    said = ((seq, line) for seq, kind, role, line in rows if (kind, role) == ("message", "user"))
    shown, gone = store.as_shown(tx, list(said))
    first = (" ".join(entry.text.split()) for entry in shown if entry.id not in gone)
    return next(filter(None, first), "")[:MAX_TITLE]


# --- what was said in one -----------------------------------------------------------------------


def before(tx: Transaction, session: Session, number: int | None, limit: int) -> Lines:
    """The last lines before an entry, by its number, or the newest there are."""
    end = _seq(tx, session, number)
    said, gone, older = _walk(tx, session, end, limit, newest_first=True)
    later = f"SELECT 1 FROM entries WHERE session_id = ? AND seq >= ? AND {store.IN_SIGHT} LIMIT 1"
    newer = end is not None and bool(tx.execute(later, (session.id, end)))
    return Lines(tuple(reversed(said)), gone, older, newer)


def after(tx: Transaction, session: Session, number: int, limit: int) -> Lines:
    """The first lines after an entry, by its number."""
    start = _seq(tx, session, number)
    if start is None:
        return before(tx, session, None, limit)
    said, gone, newer = _walk(tx, session, start + 1, limit, newest_first=False)
    return Lines(tuple(said), gone, older=True, newer=newer)


def around(tx: Transaction, session: Session, number: int, limit: int) -> Lines:
    """An entry, by its number, among what was said just before and after it."""
    at = _seq(tx, session, number)
    if at is None:
        return before(tx, session, None, limit)
    first = before(tx, session, number, limit // 2)
    said, gone, newer = _walk(tx, session, at, limit - limit // 2, newest_first=False)
    return Lines((*first.said, *said), first.gone | gone, first.older, newer)


def everything(tx: Transaction, session: Session, after_seq: int) -> tuple[list[str], int]:
    """The next lines of a conversation's JSONL file without what was forgotten, and how far.

    The number is to be given for those after them; 0 when there are no more.
    """
    rows = tx.execute(
        f"SELECT seq, line FROM entries WHERE session_id = ? AND seq > ? AND {store.IN_SIGHT} "
        "ORDER BY seq LIMIT ?",
        (session.id, max(after_seq, session.first_seq - 1), BATCH),
    )
    stored = {entry.id: (entry, row[1]) for row in rows for entry in store.read_entries([row])}
    shown, _ = store.as_shown(tx, rows)
    return [
        line
        if entry == whole
        else entries.line_of(entries.to_append(entry), entry.id, entry.parent_id, entry.at)
        for entry in shown
        for whole, line in (stored[entry.id],)
    ], (int(rows[-1][0]) if rows else 0)


def whole(tx: Transaction, session: Session) -> tuple[list[Entry], frozenset[str]]:
    """A conversation from its first entry to its last, and the ids of what was forgotten of it."""
    said, lost = list[Entry](), set[str]()
    for rows in _batches(tx, session, None, newest_first=False):
        shown, gone = store.as_shown(tx, rows)
        said += shown
        lost |= gone
    return said, frozenset(lost)


def text_of(tx: Transaction, entry_id: str) -> str:
    """The text of an entry as its person sees it; empty if it is not visible."""
    found = f"SELECT seq, line FROM entries WHERE id = ? AND {store.IN_SIGHT}"
    shown, _ = store.as_shown(tx, tx.execute(found, (entry_id,)))
    return shown[0].shown if shown else ""


def is_line(entry: Entry, gone: Iterable[str] = ()) -> bool:
    """True for what its person saw as a line of the conversation, or would if it were not gone."""
    return entry.kind != "compaction" and (bool(entry.text or entry.files) or entry.id in gone)


def in_order(said: Sequence[Entry]) -> list[Entry]:
    """Lines as they were said. Pure.

    A message is stored with its answer, a command at once: so what was asked before a command (a
    reply that `/stop` ended) is moved above it, and above what else came while it was answered.
    """
    ordered: list[Entry] = []
    for entry in said:
        place = len(ordered)
        if entry.said_at and (entry.kind, entry.role) == ("message", "user"):
            while place and _came_later(ordered[place - 1], entry):
                place -= 1
            if ordered[place - 1 : place] and _answers(ordered[place:], ordered[place - 1]):
                place += 1  # a command and what it said stay together
        ordered.insert(place, entry)
    return ordered


def _came_later(line: Entry, entry: Entry) -> bool:
    is_beside = line.kind != "message" and line.session_id == entry.session_id
    # Some platforms tell whole seconds only.
    return is_beside and line.said_or_at > entry.said_at


def _answers(lines: Sequence[Entry], command: Entry) -> bool:
    return command.kind == "command" and bool(lines) and lines[0].kind == "notice"


def _walk(
    tx: Transaction, session: Session, edge: int | None, limit: int, *, newest_first: bool
) -> tuple[list[Entry], frozenset[str], bool]:
    """Lines from a number on, one way, and whether there are more that way."""
    said: list[Entry] = []
    lost: set[str] = set()
    size = 0
    batches = _batches(tx, session, edge, newest_first=newest_first)
    for rows in batches:
        shown, gone = store.as_shown(tx, rows)
        for entry in shown:
            if not is_line(entry, gone):
                continue
            if len(said) == limit or size > PAGE_CHARS:
                return said, frozenset(lost), True
            said.append(entry)
            size += min(len(entry.text), LONGEST)
            lost |= gone & {entry.id}
    return said, frozenset(lost), False


def _batches(
    tx: Transaction,
    session: Session,
    edge: int | None,
    *,
    newest_first: bool,
    size: int = BATCH,
) -> Iterator[list[Row]]:
    bound, order = ("<", "DESC") if newest_first else (">=", "ASC")
    while True:
        is_bound = "" if edge is None else f"AND seq {bound} ? "
        rows = tx.execute(
            f"SELECT seq, line FROM entries WHERE session_id = ? AND seq >= ? {is_bound}"
            f"AND {store.IN_SIGHT} ORDER BY seq {order} LIMIT ?",
            (session.id, session.first_seq, *(() if edge is None else (edge,)), size),
        )
        yield rows
        if len(rows) < size:
            return
        edge = int(rows[-1][0]) + (0 if newest_first else 1)


def _seq(tx: Transaction, session: Session, number: int | None) -> int | None:
    """The sequence number of an entry; None when it is not there (any more)."""
    if number is None:
        return None
    id_ = entries.entry_id(session.id, number)
    return scalar(tx, "SELECT seq FROM entries WHERE id = ? AND seq >= ?", id_, session.first_seq)


# --- where something was said -------------------------------------------------------------------


def found(
    tx: Transaction, view: MemoryView, query: str, first: int, limit: int
) -> list[FoundMessage]:
    """Messages in a person's own conversations that match the words, best first, from one on."""
    numbers = [row[0] for row in tx.search_text(query, MAX_FOUND, (), view.people)]
    rows = tx.execute(
        "SELECT seq, session_id, channel FROM entries JOIN sessions ON sessions.id = session_id "
        f"WHERE seq IN ({marks(numbers)}) AND {_OWN}",
        numbers,
    )
    places = {seq: place for seq, *place in rows}
    wanted = [number for number in numbers if number in places][first : first + limit]
    hits: list[FoundMessage] = []
    for number in wanted:
        lines = tx.execute("SELECT seq, line FROM entries WHERE seq = ?", (number,))
        shown, gone = store.as_shown(tx, lines)
        session_id, channel = places[number]
        hits += [
            FoundMessage(session_id, channel, entry) for entry in shown if entry.id not in gone
        ]
    return hits


def listed_with(tx: Transaction, view: MemoryView, query: str, limit: int) -> list[Listed]:
    """A person's own conversations in which the words were said, the best matches first."""
    ids = dict.fromkeys(hit.session_id for hit in found(tx, view, query, 0, MAX_FOUND))
    wanted = list(ids)[:limit]
    rows = tx.execute(
        f"SELECT {_COLUMNS} FROM sessions WHERE id IN ({marks(wanted)})",
        wanted,
    )
    return sorted(_listed(tx, rows), key=lambda each: wanted.index(each.id))


# What is said in the current conversation, as whoever talks there sees it: a page draws it.


def history_of(
    tx: Transaction, key: str, address: Address, limit: int, before: str = ""
) -> list[HistoryItem]:
    """Up to `limit` lines of a key's current conversation: the newest, or the last before a place.

    They come oldest first, last what has no answer yet; `before` is the `HistoryItem.place` of a
    line. A conversation that was begun elsewhere is not shown: several people may share its key.
    """
    session = store.current(tx, key)
    if session is None or session.address != address:
        return []
    # Before one that is not there, nothing stands.
    number = "SELECT seq FROM entries WHERE id = ? AND session_id = ?"
    edge = (scalar(tx, number, before, session.id) or 0) if before else None
    items = _items(tx, session, edge, limit)
    items = items if before else [*items, *_unanswered(tx, session)]
    versions = branches.versions_of(tx, session.id)
    return [replace(item, versions=versions.get(item.id, ())) for item in items]


def _items(tx: Transaction, session: Session, edge: int | None, limit: int) -> list[HistoryItem]:
    """The lines that the last entries before a number come to."""
    for rows in _batches(tx, session, edge, newest_first=True, size=limit):
        shown, gone = store.as_shown(tx, rows[::-1])
        recalled = quote_counts(shown, gone)
        said = in_order([each for each in shown if is_line(each, gone)])
        items = [
            replace(_item(entry), sources=recalled.get(entry.id, 0))
            for entry in said
            if not is_aside(entry)
        ]
        if items:  # else nothing but what tools did
            lowest = scalar(tx, "SELECT id FROM entries WHERE seq = ?", rows[-1][0])
            before = lowest if len(rows) == limit else ""
            return [replace(items[0], place=before), *items[1:]]
    return []


def is_aside(entry: Entry) -> bool:
    """True for a command of which a page shows only what it was answered."""
    return entry.mark == "aside" and entry.role == "user"


def _item(entry: Entry) -> HistoryItem:
    role = "user" if entry.role == "user" else "divider" if entry.mark == "aside" else "bot"
    return HistoryItem(
        entry.source or entry.id,
        role,
        entry.shown,
        entry.said_or_at,
        entry.id,
        entry.files,
        entry.failed,
        stopped=entry.mark == "stopped",
    )


def _unanswered(tx: Transaction, session: Session) -> Iterator[HistoryItem]:
    waiting = f"{HERE} AND key = ? AND session_id = ? AND state = 'waiting'"
    where = f"SELECT id, body FROM inbox WHERE {waiting} ORDER BY id"
    values = (*place(session.address), session.key, session.id)
    for number, (id_, body) in enumerate(tx.execute(where, values)):
        inbound = inbox.read_back(id_, body)
        if inbound is not None:
            what = (inbound.message_id, "user", inbound.shown, inbound.sent_at)
            yield HistoryItem(*what, files=refs_of(inbound), waits=number > 0)


# --- what was said, and what it quoted ------------------------------------------------------------


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
    rows = tx.search_text(query, limit, view.keys, view.people, view.begins)
    found = [seq for seq, _ in rows]
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
    begun = beginning("key", view.begins)
    return scalars(
        tx,
        "SELECT DISTINCT key FROM sessions WHERE (chat_type = 'direct' AND person IN "
        f"({marks(view.people)}) AND {begun}) OR key IN ({marks(view.keys)}) ORDER BY key",
        *(*view.people, *view.begins, *view.keys),
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
