"""Sessions and transcripts in the database: plain functions over one transaction.

They compose: a turn, a command or a reset is one transaction made of these. Nothing here deletes
or changes an entry; only the pointer of a conversation moves.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Literal

from bot.sessions import entries
from bot.storage import Row, Transaction

StartedBy = Literal["first", "new", "daily", "idle"]

_COLUMNS = (
    "id, key, person, channel, account, chat, thread, chat_type, model, previous, started_at, "
    "last_user_at, started_by, last_entry, entry_count, mirror_bytes, input_tokens, "
    "output_tokens, context_tokens, turns"
)

# What a session's mirror begins with: everything about it that never changes.
HEADER_NAMES = (
    "id",
    "key",
    "person",
    "channel",
    "account",
    "chat",
    "thread",
    "chat_type",
    "previous",
    "started_at",
    "started_by",
)


@dataclass(frozen=True, slots=True)
class Place:
    """Whose conversation it is and where it takes place; what a session key stands for.

    `person` is the canonical identity in a direct chat ("ada", "telegram:42"), empty in rooms.
    """

    key: str
    person: str
    channel: str
    account: str
    chat: str
    thread: str
    chat_type: str


@dataclass(frozen=True, slots=True)
class Session:
    """One conversation. Times are ms since the epoch; `previous` is where /undo goes."""

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
    last_entry: str | None
    entry_count: int
    mirror_bytes: int
    input_tokens: int
    output_tokens: int
    context_tokens: int
    turns: int


@dataclass(frozen=True, slots=True)
class Appended:
    """What an append added to the mirror file: `data` belongs at byte `offset`.

    `last_entry` is the id of the newest entry, empty after a header.
    """

    session_id: str
    offset: int
    data: bytes
    last_entry: str = ""


@dataclass(frozen=True, slots=True)
class Counted:
    """What a turn adds to its session's counters; `context_tokens` replaces."""

    input_tokens: int = 0
    output_tokens: int = 0
    context_tokens: int = 0
    turns: int = 0


def current(tx: Transaction, key: str) -> Session | None:
    """The session a key's next message belongs to."""
    rows = tx.execute(
        f"SELECT {_COLUMNS} FROM sessions "
        "WHERE id = (SELECT session_id FROM conversations WHERE key = ?)",
        (key,),
    )
    return _session(rows[0]) if rows else None


def get(tx: Transaction, session_id: str) -> Session | None:
    """A session by its id."""
    rows = tx.execute(f"SELECT {_COLUMNS} FROM sessions WHERE id = ?", (session_id,))
    return _session(rows[0]) if rows else None


def ensure(tx: Transaction, place: Place, now: int) -> tuple[Session, Appended | None]:
    """The current session of a place; its first one is made when there is none."""
    session = current(tx, place.key)
    if session is not None:
        return session, None
    return start(tx, place, now, by="first", previous=None, model="")


def start(
    tx: Transaction, place: Place, now: int, *, by: StartedBy, previous: str | None, model: str
) -> tuple[Session, Appended]:
    """Begin a new session and point the conversation at it."""
    session = Session(
        id=new_id(now),
        key=place.key,
        person=place.person,
        channel=place.channel,
        account=place.account,
        chat=place.chat,
        thread=place.thread,
        chat_type=place.chat_type,
        model=model,
        previous=previous,
        started_at=now,
        last_user_at=now,
        started_by=by,
        last_entry=None,
        entry_count=0,
        mirror_bytes=0,
        input_tokens=0,
        output_tokens=0,
        context_tokens=0,
        turns=0,
    )
    return insert(tx, session)


def insert(tx: Transaction, session: Session) -> tuple[Session, Appended]:
    """Store a new session, with its header in the mirror, and point the conversation at it."""
    header = f"{header_of(session)}\n".encode()
    session = replace(session, mirror_bytes=len(header))
    values = tuple(getattr(session, name) for name in _NAMES)
    marks = ",".join("?" * len(values))
    tx.execute(f"INSERT INTO sessions({_COLUMNS}) VALUES ({marks})", values)
    point(tx, session.key, session.id, session.started_at)
    return session, Appended(session.id, 0, header)


def header_of(session: Session) -> str:
    """The header line of a session's mirror file; it never changes."""
    return entries.header_line({name: getattr(session, name) for name in HEADER_NAMES})


def point(tx: Transaction, key: str, session_id: str, now: int) -> None:
    """Let a key's next message belong to this session."""
    tx.execute(
        "INSERT INTO conversations(key, session_id, updated_at) VALUES (?, ?, ?) "
        "ON CONFLICT(key) DO UPDATE SET session_id = excluded.session_id, "
        "updated_at = excluded.updated_at",
        (key, session_id, now),
    )


def taken_up_at(tx: Transaction, key: str) -> int:
    """When a key's current session began, or was gone back to, in ms since the epoch."""
    return int(tx.execute("SELECT updated_at FROM conversations WHERE key = ?", (key,))[0][0])


def append(
    tx: Transaction,
    session_id: str,
    news: Sequence[entries.NewEntry],
    now: int,
    counted: Counted | None = None,
) -> Appended:
    """Add entries to the end of a transcript, findable by their words, and count them.

    Raises:
        LookupError: there is no such session.
    """
    rows = tx.execute(
        "SELECT last_entry, entry_count, mirror_bytes FROM sessions WHERE id = ?", (session_id,)
    )
    if not rows:
        raise LookupError(session_id)
    parent, count, offset = rows[0]
    lines: list[str] = []
    spoken = False
    for new in news:
        count += 1
        id_ = entries.entry_id(session_id, count)
        line = entries.line_of(new, id_, parent, now)
        seq = tx.execute(
            "INSERT INTO entries(id, session_id, kind, role, at, line) "
            "VALUES (?, ?, ?, ?, ?, ?) RETURNING seq",
            (id_, session_id, new.kind, new.role, now, line),
        )[0][0]
        if new.kind == "message" and new.text:
            tx.index_text(seq, new.text)
        spoken = spoken or new.role == "user"
        lines.append(line)
        parent = id_
    data = "".join(f"{line}\n" for line in lines).encode()
    add = counted or Counted()
    tx.execute(
        "UPDATE sessions SET last_entry = ?, entry_count = ?, mirror_bytes = ?, "
        "last_user_at = CASE WHEN ? > last_user_at THEN ? ELSE last_user_at END, "
        "input_tokens = input_tokens + ?, output_tokens = output_tokens + ?, "
        "context_tokens = CASE WHEN ? > 0 THEN ? ELSE context_tokens END, turns = turns + ? "
        "WHERE id = ?",
        (
            parent,
            count,
            offset + len(data),
            now if spoken else 0,
            now,
            add.input_tokens,
            add.output_tokens,
            add.context_tokens,
            add.context_tokens,
            add.turns,
            session_id,
        ),
    )
    return Appended(session_id, offset, data, parent or "")


def set_model(tx: Transaction, session_id: str, model: str) -> None:
    """Choose the model of a session; empty is the configured one."""
    tx.execute("UPDATE sessions SET model = ? WHERE id = ?", (model, session_id))


def messages(tx: Transaction, session_id: str, limit: int) -> list[entries.Entry]:
    """The newest `limit` entries the model may see, oldest first."""
    rows = tx.execute(
        "SELECT line FROM entries WHERE session_id = ? AND kind = 'message' "
        "ORDER BY seq DESC LIMIT ?",
        (session_id, limit),
    )
    return [entries.parse(row[0]) for row in reversed(rows)]


def lines(tx: Transaction, session_id: str) -> list[str]:
    """Every line of a session's mirror file, header first.

    Raises:
        LookupError: there is no such session.
    """
    session = get(tx, session_id)
    if session is None:
        raise LookupError(session_id)
    rows = tx.execute("SELECT line FROM entries WHERE session_id = ? ORDER BY seq", (session_id,))
    return [header_of(session), *(row[0] for row in rows)]


def recent(tx: Transaction, key: str, limit: int) -> list[tuple[str, entries.Entry]]:
    """The newest entries of all of a key's sessions, oldest first, with their session's id."""
    rows = tx.execute(
        "SELECT entries.session_id, line FROM entries "
        "JOIN sessions ON sessions.id = entries.session_id "
        "WHERE sessions.key = ? ORDER BY seq DESC LIMIT ?",
        (key, limit),
    )
    return [(row[0], entries.parse(row[1])) for row in reversed(rows)]


def all_sessions(tx: Transaction) -> list[Session]:
    """Every session, newest first."""
    rows = tx.execute(f"SELECT {_COLUMNS} FROM sessions ORDER BY started_at DESC, id DESC")
    return [_session(row) for row in rows]


def pointers(tx: Transaction) -> dict[str, str]:
    """The current session's id of every key."""
    return {row[0]: row[1] for row in tx.execute("SELECT key, session_id FROM conversations")}


def new_id(now: int) -> str:
    """A session id: when it began (UTC), then chance, so that ids sort and never meet."""
    moment = datetime.fromtimestamp(now / 1000, UTC)
    return f"{moment:%Y%m%d-%H%M%S}-{secrets.token_hex(5)}"


_NAMES = tuple(name.strip() for name in _COLUMNS.split(","))


def _session(row: Row) -> Session:
    return Session(*row)
