"""Sessions and transcripts in the database: plain functions over one transaction.

They compose: a turn, a command or a reset is one transaction made of these. Nothing here deletes
or changes an entry; only the pointer of a conversation moves. `bot.sessions.erasing` is the one
exception.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime
from typing import Final, Literal

from bot.channel import Address
from bot.config import Thinking
from bot.identity import MessageOrigin, Place
from bot.sessions import entries
from bot.sessions.reset import Cut
from bot.storage import Row, Transaction, Value, marks, scalar, scalars, upsert
from bot.storage.records import HERE, Records, place, read_alone

# "import": it took place elsewhere, with another program, and nothing is ever added to it here.
StartedBy = Literal["first", "new", "daily", "idle", "task", "import"]
EndedBy = Literal["", "daily", "idle", "left"]
Shelf = Literal["", "pinned", "archived"]

# What a session's mirror begins with: everything about it that never changes.
HEADER_NAMES = (
    *("id", "key", "person", "channel", "account", "chat", "thread", "chat_type"),
    *("previous", "started_at", "started_by"),
)


@dataclass(frozen=True, slots=True)
class Session:
    """One conversation. Times are ms since the epoch; `previous` is where /undo goes.

    `compaction` is the id of the entry that summarises what was said before it. A cycle is what
    lies between two compactions, counted by `compaction_count`: `told` is the highest notice of
    this one (percent), `held` says that its compaction was taken back, and memory was saved in it
    when `memory_flush_compaction_count` is the same. `notices` ("", "on", "off", "later") and
    `usage` ("", "tokens") are what the person chose, as is `thinking`. `ended_by` says why it
    is over ("daily", "idle", or "left" for another one); it is empty while it goes on. `locale`
    is that of the last message that was answered. `sender` is who wrote it, as an account of
    `channel`, or `MANY` when several people wrote. `parent` is the chat a thread hangs below
    and `server` the place of both, as that message had them. `cached_tokens` is what its model
    read from its cache: `input_tokens` does not count it. `version` grows with every change of
    the row, of its transcript and of what the model sees of it, so that what a program keeps of
    it in memory can be told to be out of date. Only `last_user_at` moves without it: a message
    alone must not have its conversation read again. `stand_in` is the model that answers while
    its own cannot, as its person was told. `first_seq` is the number of its first entry, or 0
    where that is not known: nothing before it has to be looked through. `shelf` is where its
    person put it; `deleted_at` is 0 unless they deleted it.
    """

    id: str
    key: str
    person: str
    channel: str
    account: str
    chat: str
    thread: str
    chat_type: str
    model: str
    previous: str | None
    started_at: int
    last_user_at: int
    started_by: StartedBy
    last_entry: str | None = None
    entry_count: int = 0
    mirror_bytes: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    context_tokens: int = 0
    turns: int = 0
    compaction: str | None = None
    compaction_count: int = 0
    held: int = 0
    memory_flush_at: int = 0
    memory_flush_compaction_count: int = -1
    flushed_to: int = 0
    told: int = 0
    saved: str = ""
    notices: Literal["", "on", "off", "later"] = ""
    usage: Literal["", "tokens"] = ""
    ended_by: EndedBy = ""
    ended_at: int = 0
    sender: str = ""
    locale: str = ""
    last_turn_at: int = 0
    cached_tokens: int = 0
    parent: str = ""
    server: str = ""
    version: int = 0
    first_seq: int = 0
    stand_in: str = ""
    thinking: Thinking = ""
    shelf: Shelf = ""
    deleted_at: int = 0

    @property
    def address(self) -> Address:
        """The address it takes place at."""
        return Address(self.channel, self.account, self.chat, self.thread)

    @property
    def origin(self) -> MessageOrigin:
        """The last writer and place: for whom things are done with no message at hand."""
        return MessageOrigin.of(self)

    @property
    def is_flushed(self) -> bool:
        """True if memory was saved in this cycle."""
        return self.memory_flush_compaction_count == self.compaction_count


_NAMES = tuple(field.name for field in fields(Session))  # the table's columns have these names
SESSIONS: Final = Records("sessions", Session)
_QUALIFIED = ", ".join(f"sessions.{name}" for name in _NAMES)
# What no branch in sight has, no reader of a conversation has; see `bot.sessions.branches`.
IN_SIGHT: Final = "NOT EXISTS (SELECT 1 FROM unseen WHERE unseen.seq = entries.seq)"
_CHANGING = frozenset(_NAMES[_NAMES.index("compaction") :]) - {"version", "first_seq"} | {
    "context_tokens",
    "model",
}


AHEAD_MS: Final = 10 * 60_000  # how far in the future a stored time is that a clock got wrong


@dataclass(frozen=True, slots=True)
class QuietSession:
    """A current session whose person has been silent for a while; times in ms since the epoch."""

    id: str
    person: str
    channel: str
    chat_type: str
    chat: str
    taken_up_at: int
    last_user_at: int


@dataclass(frozen=True, slots=True)
class Appended:
    """The bytes an append added to the mirror file: `data` belongs at byte `offset`.

    `ids` are those of the new entries, in order; none after a header.
    """

    session_id: str
    offset: int
    data: bytes
    ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TurnCounts:
    """The numbers a turn adds to its session's counters; `context_tokens` replaces."""

    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    context_tokens: int = 0
    turns: int = 0


def current(tx: Transaction, key: str) -> Session | None:
    """The session a key's next message belongs to."""
    found = taken_up(tx, key)
    return found[0] if found is not None else None


def taken_up(tx: Transaction, key: str) -> tuple[Session, int] | None:
    """A key's current session, and when it began or was gone back to, in ms since the epoch."""
    rows = tx.execute(
        f"SELECT updated_at, {_QUALIFIED} FROM conversations "
        "JOIN sessions ON sessions.id = conversations.session_id WHERE conversations.key = ?",
        (key,),
    )
    return (Session(*rows[0][1:]), int(rows[0][0])) if rows else None


def get(tx: Transaction, session_id: str) -> Session | None:
    """A session by its id."""
    return SESSIONS.get(tx, session_id)


def latest_direct(tx: Transaction, person: str) -> Session | None:
    """The direct conversation in which somebody wrote last, wherever that was."""
    return next(iter(directs(tx, person, 1)), None)


def direct_at(tx: Transaction, address: Address) -> Session | None:
    """The direct conversation at an address in which somebody wrote last."""
    here = f"{HERE} AND chat_type = 'direct'"
    return SESSIONS.first(tx, here, *place(address), order="last_user_at DESC, id DESC")


def directs(tx: Transaction, person: str, limit: int) -> list[Session]:
    """Somebody's direct conversations, those first in which they wrote last."""
    theirs = "chat_type = 'direct' AND person = ? AND started_by <> 'import'"
    return SESSIONS.where(tx, theirs, person, limit, order="last_user_at DESC, id DESC LIMIT ?")


def rooms_of(tx: Transaction, person: str, since: int, limit: int) -> list[Session]:
    """The conversations of rooms in which somebody was answered since a time (ms), latest first."""
    theirs = "SELECT session_id FROM usage_counts WHERE person = ? AND at >= ?"
    where = f"chat_type <> 'direct' AND id IN ({theirs})"
    return SESSIONS.where(tx, where, person, since, limit, order="last_user_at DESC LIMIT ?")


def people(tx: Transaction) -> list[str]:
    """Everybody who has a direct conversation."""
    direct = "chat_type = 'direct' AND started_by <> 'import'"
    return scalars(tx, f"SELECT DISTINCT person FROM sessions WHERE {direct} ORDER BY person")


def said_since(tx: Transaction, person: str, since: int) -> int:
    """The number of messages of somebody's own in direct conversations since a moment."""
    rows = "FROM entries JOIN sessions ON sessions.id = session_id WHERE role = 'user'"
    theirs = "chat_type = 'direct' AND person = ? AND started_by NOT IN ('task', 'import')"
    return scalar(tx, f"SELECT count(*) {rows} AND {theirs} AND at > ?", person, since) or 0


def version(tx: Transaction, session_id: str) -> int | None:
    """The `Session.version` of a session, or None when it is not there."""
    return scalar(tx, "SELECT version FROM sessions WHERE id = ?", session_id)


def is_untouched(tx: Transaction, session: Session) -> bool:
    """True when `/new` or a reset began a session, and nobody has said anything in it since."""
    return not session.turns and session.previous is not None and not is_awaited(tx, session)


def is_awaited(tx: Transaction, session: Session) -> bool:
    """True while a message of a session has no answer yet."""
    waiting = "SELECT 1 FROM inbox WHERE session_id = ? AND state = 'waiting' LIMIT 1"
    return bool(tx.execute(waiting, (session.id,)))


def start(
    tx: Transaction,
    place: Place,
    now: int,
    *,
    by: StartedBy,
    previous: Session | None = None,
    model: str = "",
) -> tuple[Session, Appended]:
    """Begin a new session, with the choices made in the one before, and point to it."""
    notices = previous.notices if previous is not None else ""
    session = Session(
        id=new_id(now),
        **asdict(place),
        model=model,
        previous=previous.id if previous is not None else None,
        started_at=now,
        last_user_at=now,
        started_by=by,
        notices="" if notices == "later" else notices,  # that was for this conversation
        usage=previous.usage if previous is not None else "",
        thinking=previous.thinking if previous is not None else "",
    )
    return insert(tx, session)


def insert(tx: Transaction, session: Session) -> tuple[Session, Appended]:
    """Store a new session, with its header in the mirror, and point the conversation at it.

    One that was imported is over: no next message belongs to it.
    """
    header = f"{header_of(session)}\n".encode()
    session = replace(session, mirror_bytes=len(header))
    is_imported = session.started_by == "import"
    if is_imported:
        session = replace(session, ended_by="left", ended_at=session.last_user_at)
    SESSIONS.add(tx, session)
    if not is_imported:
        point(tx, session.key, session.id, session.started_at)
    return session, Appended(session.id, 0, header)


def header_of(session: Session) -> str:
    """The header line of a session's mirror file; only a longer key changes it."""
    return entries.header_line({name: getattr(session, name) for name in HEADER_NAMES})


def point(tx: Transaction, key: str, session_id: str, now: int) -> None:
    """Let a key's next message belong to this session: it is open, the one before it is not."""
    tx.execute(
        "UPDATE sessions SET ended_by = 'left', ended_at = ?, version = version + 1 "
        "WHERE ended_by = '' AND id <> ? "
        "AND id = (SELECT session_id FROM conversations WHERE key = ?)",
        (now, session_id, key),
    )
    tx.execute(
        "UPDATE sessions SET ended_by = '', ended_at = 0, version = version + 1 "
        "WHERE id = ? AND (ended_by <> '' OR ended_at <> 0)",
        (session_id,),
    )
    upsert(tx, "conversations", key=key, session_id=session_id, updated_at=now)


def taken_up_at(tx: Transaction, key: str) -> int:
    """The time a key's current session began, or was gone back to, in ms since the epoch."""
    return scalar(tx, "SELECT updated_at FROM conversations WHERE key = ?", key)


def heard(tx: Transaction, session_id: str, now: int) -> None:
    """A session's person has just written, also when it stands in no transcript yet."""
    tx.execute(
        "UPDATE sessions SET last_user_at = ? WHERE id = ? AND last_user_at < ?",
        (now, session_id, now),
    )


def bring_back(tx: Transaction, now: int) -> int:
    """Let no open session have been heard, or taken up, long after now; how many were.

    They were stored while a clock was ahead, and would be reset only when it gets there.
    """
    late = now + AHEAD_MS
    ids = scalars(
        tx,
        "UPDATE sessions SET last_user_at = ? WHERE turns > 0 AND ended_by = '' "
        "AND last_user_at > ? RETURNING id",
        *(now, late),
    )
    for id_ in ids:
        tx.execute(
            "UPDATE conversations SET updated_at = ? WHERE updated_at > ? AND key = "
            "(SELECT key FROM sessions WHERE id = ?)",
            (now, late, id_),
        )
    return len(ids)


def is_ahead(tx: Transaction, now: int) -> bool:
    """True when `bring_back` has something to do."""
    ahead = "turns > 0 AND ended_by = '' AND last_user_at > ?"
    return bool(tx.execute(f"SELECT 1 FROM sessions WHERE {ahead} LIMIT 1", (now + AHEAD_MS,)))


def silent(tx: Transaction, cut: Cut) -> list[QuietSession]:
    """Every open current session that has been answered and is within a cut, oldest first."""
    rows = tx.execute(
        "SELECT id, person, channel, chat_type, chat, updated_at, last_user_at FROM sessions "
        "JOIN conversations ON conversations.key = sessions.key AND session_id = id "
        "WHERE turns > 0 AND ended_by = '' AND last_user_at <= ? "
        "AND (last_user_at <= ? OR updated_at < ?) ORDER BY last_user_at",
        (max(cut.idle_since, cut.quiet_since), cut.idle_since, cut.boundary),
    )
    return [QuietSession(*row) for row in rows]


def open_models(tx: Transaction) -> list[str]:
    """The models that open sessions chose, by name; empty for the default one."""
    return scalars(tx, "SELECT DISTINCT model FROM sessions WHERE turns > 0 AND ended_by = ''")


def filling(
    tx: Transaction, *, agent: str, model: str, used: int, level: int, since: int
) -> list[Session]:
    """An agent's current sessions with a model and so many tokens that were not told of a level.

    Only those whose person wrote since a moment (ms since the epoch) and did not turn notices off.
    """
    begin = f"agent:{agent}:"
    return SESSIONS.where(
        tx,
        "turns > 0 AND ended_by = '' AND substr(key, 1, ?) = ? AND model = ? "
        "AND context_tokens >= ? AND told < ? AND last_user_at >= ? AND notices IN ('', 'on') "
        "AND id IN (SELECT session_id FROM conversations WHERE key = sessions.key)",
        *(len(begin), begin, model, used, level, since),
    )


def append(
    tx: Transaction,
    session_id: str,
    news: Sequence[entries.NewEntry],
    now: int,
    counted: TurnCounts | None = None,
    *,
    dated: Sequence[int] = (),
) -> Appended:
    """Add entries to the end of a transcript, findable by their words, and count them.

    `dated` says when each was said, in ms since the epoch, where that was not `now`.

    Raises:
        LookupError: there is no such session.
    """
    rows = tx.execute(
        "SELECT last_entry, entry_count, mirror_bytes FROM sessions WHERE id = ?", (session_id,)
    )
    if not rows:
        raise LookupError(session_id)
    parent, count, offset = rows[0]
    is_begun = count > 0
    lines: dict[str, str] = {}  # by id
    values: list[Value] = []
    for new, at in zip(news, dated or (now,) * len(news), strict=True):
        count += 1
        id_ = entries.entry_id(session_id, count)
        lines[id_] = entries.line_of(new, id_, parent, at)
        parent = id_
        values += (id_, session_id, new.kind, new.role, at, lines[id_])
    numbers: dict[str, int] = {}  # by id
    if news:
        each = ", ".join(["(?, ?, ?, ?, ?, ?)"] * len(news))
        rows = tx.execute(
            "INSERT INTO entries(id, session_id, kind, role, at, line) "
            f"VALUES {each} RETURNING id, seq",
            values,
        )
        numbers = dict(rows)  # pyright: ignore[reportArgumentType]
    for new, id_ in zip(news, lines, strict=True):
        if is_indexed(new):
            tx.index_text(numbers[id_], new.text)
    first_seq = 0 if is_begun else min(numbers.values(), default=0)
    data = "".join(f"{line}\n" for line in lines.values()).encode()
    spoken = any(new.role == "user" for new in news)
    add = counted or TurnCounts()
    tx.execute(
        "UPDATE sessions SET last_entry = ?, entry_count = ?, mirror_bytes = ?, "
        "last_user_at = CASE WHEN ? > last_user_at THEN ? ELSE last_user_at END, "
        "input_tokens = input_tokens + ?, cached_tokens = cached_tokens + ?, "
        "output_tokens = output_tokens + ?, "
        "context_tokens = CASE WHEN ? > 0 THEN ? ELSE context_tokens END, turns = turns + ?, "
        "shelf = CASE WHEN ? > 0 AND shelf = 'archived' THEN '' ELSE shelf END, "
        "first_seq = CASE WHEN ? > 0 THEN ? ELSE first_seq END, "
        "version = version + 1 WHERE id = ?",
        (
            *(parent, count, offset + len(data), now if spoken else 0, now),
            *(add.input_tokens, add.cached_tokens, add.output_tokens),
            *(add.context_tokens, add.context_tokens, add.turns, add.turns),
            *(first_seq, first_seq, session_id),
        ),
    )
    return Appended(session_id, offset, data, tuple(lines))


def is_indexed(entry: entries.NewEntry | entries.Entry) -> bool:
    """True for what search finds by its words, unless it was forgotten."""
    return entry.kind == "message" and bool(entry.text)


def change(tx: Transaction, session_id: str, **columns: str | int | None) -> Session | None:
    """Set columns of a session's row that no entry stands for, such as `told` or `model`.

    Returns the row as it is now, or None when there is no such session.
    """
    unknown = columns.keys() - _CHANGING
    if unknown:
        raise ValueError(f"not to be changed: {', '.join(sorted(unknown))}")
    names = ", ".join(f"{name} = ?" for name in columns)
    rows = tx.execute(
        f"UPDATE sessions SET {names}, version = version + 1 WHERE id = ? "
        f"RETURNING {SESSIONS.columns}",
        (*columns.values(), session_id),
    )
    return Session(*rows[0]) if rows else None


def messages(
    tx: Transaction, session_id: str, limit: int, first: str = "", *, since: int = 0
) -> list[entries.Entry]:
    """The newest `limit` messages of a session, oldest first; with `first`, none before it.

    Here and below `since` is the `first_seq` of the session, where that is at hand: a number that
    the statement holds keeps the server from looking at the months before.
    """
    if first:
        start = scalar(tx, "SELECT seq FROM entries WHERE id = ? AND seq >= ?", first, since)
    else:
        start = None
    rows = tx.execute(
        "SELECT seq, line FROM entries WHERE session_id = ? AND kind = 'message' "
        f"AND seq >= ? AND {IN_SIGHT} ORDER BY seq DESC LIMIT ?",
        (session_id, since if start is None else start, limit),
    )
    return veiled(tx, session_id, read_entries(reversed(rows)), since=since)


def read_entries(rows: Iterable[Row]) -> list[entries.Entry]:
    """Entries of rows of number and line, without those that cannot be read."""
    found = (read_alone("entries", str(seq), entries.parse, line) for seq, line in rows)
    return [entry for entry in found if entry is not None]


def veiled(
    tx: Transaction, session_id: str, found: Sequence[entries.Entry], *, since: int = 0
) -> list[entries.Entry]:
    """Entries of a session as the model may see them."""
    rows = tx.execute(
        "SELECT id, block FROM hidden JOIN entries ON entries.seq = hidden.seq "
        "WHERE session_id = ? AND entries.seq >= ?",
        (session_id, since),
    )
    gone: dict[str, set[int]] = {}
    for id_, block in rows:
        gone.setdefault(id_, set()).add(block)
    return [entries.veil(entry, gone[entry.id]) if entry.id in gone else entry for entry in found]


def as_shown(tx: Transaction, rows: Sequence[Row]) -> tuple[list[entries.Entry], frozenset[str]]:
    """Entries, of rows of number and line, as they may be shown; and which were forgotten."""
    numbers = [int(row[0]) for row in rows]
    among = f"WHERE seq IN ({marks(numbers)})"
    forgotten = {*scalars(tx, f"SELECT seq FROM forgotten {among}", *numbers)}
    hidden: dict[int, set[int]] = {}
    for seq, block in tx.execute(f"SELECT seq, block FROM hidden {among}", numbers):
        hidden.setdefault(seq, set()).add(block)
    shown: list[entries.Entry] = []
    gone: set[str] = set()
    for row in rows:
        for whole in read_entries([row[:2]]):
            seq, entry = row[0], whole
            if seq in hidden:
                entry = entries.veil(whole, hidden[seq])
            if seq in forgotten:
                entry = replace(entry, text="", files=())
            if whole.text and not entry.text:
                gone.add(entry.id)
            shown.append(entry)
    return shown, frozenset(gone)


def hidden_count(tx: Transaction, session_id: str, *, since: int = 0) -> int:
    """The number of hidden parts of a session; it grows with each new forgetting or branch."""
    return scalar(
        tx,
        "SELECT (SELECT coalesce(sum(taken), 0) FROM branches WHERE session_id = ?) + "
        "(SELECT count(*) FROM hidden JOIN entries ON entries.seq = hidden.seq "
        "WHERE session_id = ? AND entries.seq >= ?) + (SELECT count(*) FROM forgotten JOIN entries "
        "ON entries.seq = forgotten.seq WHERE session_id = ? AND entries.seq >= ?)",
        *(session_id, session_id, since, session_id, since),
    )


def entry(tx: Transaction, id_: str, *, since: int = 0) -> entries.Entry | None:
    """An entry in sight by its id."""
    where = f"WHERE id = ? AND seq >= ? AND {IN_SIGHT}"
    rows = tx.execute(f"SELECT seq, line FROM entries {where}", (id_, since))
    return next(iter(read_entries(rows)), None)


def lines(tx: Transaction, session_id: str) -> list[str]:
    """Every line of a session's mirror file, header first.

    Raises:
        LookupError: there is no such session.
    """
    session = get(tx, session_id)
    if session is None:
        raise LookupError(session_id)
    said = "SELECT line FROM entries WHERE session_id = ? ORDER BY seq"
    return [header_of(session), *scalars(tx, said, session_id)]


def mirror_sizes(tx: Transaction, after: str, limit: int) -> dict[str, int]:
    """The size each session's mirror file must have, in bytes, of the next ids behind `after`."""
    rows = "SELECT id, mirror_bytes FROM sessions WHERE id > ? ORDER BY id LIMIT ?"
    return dict(tx.execute(rows, (after, limit)))


def shortened(tx: Transaction) -> list[str]:
    """The ids of sessions whose older entries are no longer there."""
    there = "SELECT count(*) FROM entries WHERE session_id = sessions.id"
    return scalars(tx, f"SELECT id FROM sessions WHERE entry_count > ({there})")


def measure(tx: Transaction, session_id: str) -> None:
    """Store how long a session's file must be now: some of its entries were removed or replaced."""
    size = sum(len(line.encode()) + 1 for line in lines(tx, session_id))
    tx.execute("UPDATE sessions SET mirror_bytes = ? WHERE id = ?", (size, session_id))


def touch(tx: Transaction, session_id: str) -> None:
    """Have a session read again by whoever keeps it in memory; see `Session.version`."""
    tx.execute("UPDATE sessions SET version = version + 1 WHERE id = ?", (session_id,))


def recent(tx: Transaction, key: str, limit: int) -> list[tuple[str, entries.Entry]]:
    """The newest entries in sight of all of a key's sessions, oldest first, with their session."""
    rows = tx.execute(
        "SELECT entries.session_id, seq, line FROM entries "
        "JOIN sessions ON sessions.id = entries.session_id "
        f"WHERE sessions.key = ? AND {IN_SIGHT} ORDER BY seq DESC LIMIT ?",
        (key, limit),
    )
    return [(id_, each) for id_, *row in reversed(rows) for each in read_entries([tuple(row)])]


def all_sessions(tx: Transaction) -> list[Session]:
    """Every session, newest first."""
    return SESSIONS.where(tx, order="started_at DESC, id DESC")


def pointers(tx: Transaction) -> dict[str, str]:
    """The current session's id of every key."""
    return dict(tx.execute("SELECT key, session_id FROM conversations"))


def new_id(now: int) -> str:
    """A session id: when it began (UTC), then chance, so that ids sort and never meet."""
    moment = datetime.fromtimestamp(now / 1000, UTC)
    return f"{moment:%Y%m%d-%H%M%S}-{secrets.token_hex(5)}"
