"""What must outlive the database and stands in no transcript: what goes into the journal, and back.

A line of the journal is a row as it is now, or its key when the row is gone; so lines can be read
back over an older database, or an empty one, in order. What was forgotten is told by its place in a
transcript, never by its words. Codes are not in it: they are secrets, and soon worth nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, cast

import orjson

from bot.identity import MANY
from bot.storage import Row, Transaction, Value, upsert

Name = Literal[
    "links",
    "reminders",
    "pairing",
    "blocks",
    "rooms",
    "moved_chats",
    "zones",
    "titles",
    "repeats",
    "sessions",
]


@dataclass(frozen=True, slots=True)
class Table:
    """How rows of a table are written: their key, their other columns, and which of them last.

    `texts` and `numbers` name the columns; those in `nullable` may be empty. `fixed` is what a row
    that is read back has in the columns that are not written, `later` in those that lines of an
    earlier version lack. `only` says which rows last.
    """

    key: tuple[str, ...]
    texts: tuple[str, ...]
    numbers: tuple[str, ...]
    nullable: frozenset[str] = frozenset()
    fixed: Mapping[str, Value] = field(default_factory=dict[str, Value])
    later: Mapping[str, Value] = field(default_factory=dict[str, Value])
    only: str = "1 = 1"

    @property
    def columns(self) -> tuple[str, ...]:
        """Every column that is written."""
        return (*self.texts, *self.numbers)


_SPOT = ("channel", "account", "chat", "thread")

# Of a session only what its transcript does not tell: what people chose, and what was done with it.
TABLES: dict[str, Table] = {
    "links": Table(
        key=("channel", "sender"),
        texts=("channel", "sender", "root_channel", "root_sender", *_SPOT[1:], "language"),
        numbers=("linked_at",),
    ),
    "reminders": Table(
        key=("id",),
        texts=("key", "person", *_SPOT, "language", "made_by", "text", "state"),
        numbers=("id", "due_at", "created_at", "done_at"),
        nullable=frozenset({"done_at"}),
        only="state = 'waiting'",
    ),
    "repeats": Table(
        key=("id",),
        texts=(
            *("key", "person", *_SPOT, "language", "origin", "made_by", "text"),
            *("rule", "begins", "zone", "state", "kind"),
        ),
        numbers=("id", "due_at", "created_at", "done_at", "failures"),
        nullable=frozenset({"done_at"}),
        later={"kind": "text", "failures": 0},
        only="state IN ('waiting', 'paused')",
    ),
    "pairing": Table(
        key=("channel", "account", "sender"),
        texts=("channel", "account", "sender", "state", "name", "locale", "chat", "thread"),
        numbers=("asked_at", "approved_at"),
        nullable=frozenset({"approved_at"}),
        fixed={"code": "", "given": 1},
        only="state = 'approved'",
    ),
    "blocks": Table(
        key=("channel", "sender"),
        texts=("channel", "sender", "name", "locale", "account", "chat", "thread"),
        numbers=("blocked_at",),
    ),
    "rooms": Table(
        key=("key",),
        texts=("key", "activation"),
        numbers=("changed_at",),
        fixed={"warned_at": 0},
        only="activation <> ''",
    ),
    "moved_chats": Table(
        key=("channel", "account", "chat"),
        texts=("channel", "account", "chat", "first"),
        numbers=("moved_at",),
    ),
    "zones": Table(key=("person",), texts=("person", "zone"), numbers=("changed_at",)),
    "titles": Table(key=("session_id",), texts=("session_id", "title"), numbers=("changed_at",)),
    "sessions": Table(
        key=("id",),
        texts=("id", "model", "notices", "usage", "saved", "compaction", "sender"),
        numbers=(
            "told",
            "held",
            "compaction_count",
            "memory_flush_at",
            "memory_flush_compaction_count",
            "flushed_to",
        ),
        nullable=frozenset({"compaction"}),
        only="model <> '' OR notices <> '' OR usage <> '' OR told <> 0 OR compaction_count <> 0 "
        f"OR memory_flush_at <> 0 OR sender = '{MANY}'",
    ),
}

CHOICES = frozenset(TABLES["sessions"].columns)  # of a session's columns, those that last

ERASED = "erased:"  # what the keys of `meta` begin with that say who was erased

_DROP = {
    "artifact": ("DELETE FROM artifacts WHERE id = ?",),
    "prompt": ("DELETE FROM prefixes WHERE session_id = ?",),
}
# The texts that no session begins with any more.
DROP_UNUSED = """DELETE FROM prefix_texts
    WHERE NOT EXISTS (SELECT 1 FROM prefixes WHERE system = digest)
    AND NOT EXISTS (SELECT 1 FROM prefixes WHERE tools = digest)"""


@dataclass(frozen=True, slots=True)
class Record:
    """A line of the journal that was read: `kind` is a table or one of the kinds beside them."""

    kind: str
    data: Mapping[str, Any]
    is_gone: bool = False

    @property
    def subject(self) -> str:
        """What it speaks of: two lines about the same thing have the same."""
        table = TABLES.get(self.kind)
        names = table.key if table is not None else ("entry", "key", "id", "salt")
        return "\0".join(str(self.data[name]) for name in names if name in self.data)

    @property
    def session(self) -> str:
        """The session it speaks of, or empty."""
        match self.kind:
            case "sessions":
                return str(self.data["id"])
            case "forgotten":
                return str(self.data["entry"]).rpartition(".")[0]
            case "current":
                return str(self.data["session"])
            case _:
                return ""


# --- writing ------------------------------------------------------------------------------------


def keep(tx: Transaction, name: Name, *key: Value) -> None:
    """Note a row of a table as it is now, or that it is gone."""
    table = TABLES[name]
    rows = _rows(tx, name, _where(table), key)
    if rows:
        tx.note(_line({"type": name, "row": rows[0]}))
    else:
        tx.note(_line({"type": name, "gone": dict(zip(table.key, key, strict=True))}))


def differs(tx: Transaction, session_id: str, columns: Mapping[str, Value]) -> bool:
    """True when a session has something else in any of these columns, which are `CHOICES`."""
    others = " OR ".join(f"{name} IS DISTINCT FROM ?" for name in columns)
    rows = tx.execute(
        f"SELECT 1 FROM sessions WHERE id = ? AND ({others})", (session_id, *columns.values())
    )
    return bool(rows)


def forgot(
    tx: Transaction, entry: str, blocks: Iterable[int], now: int, *, says: bool = False
) -> None:
    """Note that blocks of an entry are hidden, and whether no search may find its words either."""
    record = {"entry": entry, "blocks": sorted(blocks), "says": says, "at": now}
    tx.note(_line({"type": "forgotten", "row": record}))


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


def dropped(tx: Transaction, what: Literal["artifact", "prompt"], id_: str) -> None:
    """Note that a tool's long result, or what a session's requests began with, was removed."""
    tx.note(dropped_line(what, id_))


def dropped_line(what: Literal["artifact", "prompt"], id_: str) -> str:
    """What `dropped` notes. Pure."""
    return _line({"type": "dropped", "row": {"what": what, "id": id_}})


def erased(tx: Transaction, row: Mapping[str, Any]) -> None:
    """Note that somebody was erased, by digests of their names."""
    tx.note(_line({"type": "erased", "row": row}))


def went_back(tx: Transaction, key: str, session_id: str, now: int) -> None:
    """Note that a key's next message belongs to an older session again.

    It is dated no earlier than the key's newest session, also when the clock was set back: reading
    back takes a session that began after this for a newer conversation.
    """
    newest = tx.execute("SELECT max(started_at) FROM sessions WHERE key = ?", (key,))[0][0]
    row = {"key": key, "session": session_id, "at": max(now, newest or 0)}
    tx.note(_line({"type": "current", "row": row}))


def everything(tx: Transaction) -> list[str]:
    """All that lasts as it is now, as lines: what a journal begins with."""
    found = [
        _line({"type": name, "row": row})
        for name, table in TABLES.items()
        for row in _rows(tx, name, table.only, ())
    ]
    gone = tx.execute(
        "SELECT id, -1, forgotten.at FROM forgotten JOIN entries ON entries.seq = forgotten.seq "
        "UNION ALL SELECT id, block, hidden.at FROM hidden JOIN entries ON entries.seq = hidden.seq"
    )
    for entry, block, at in gone:
        row = {"entry": entry, "blocks": [] if block < 0 else [block], "says": block < 0, "at": at}
        found.append(_line({"type": "forgotten", "row": row}))
    found += [
        _line({"type": "erased", "row": orjson.loads(value)})
        for (value,) in tx.execute(
            "SELECT value FROM meta WHERE substr(key, 1, ?) = ? ORDER BY key",
            (len(ERASED), ERASED),
        )
    ]
    return found


# --- reading back -------------------------------------------------------------------------------


def parse(line: bytes) -> Record | None:
    """What a line says, or None when it is none of ours. Pure."""
    try:
        found: object = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(found, dict):
        return None
    said = cast("dict[str, object]", found)
    kind, row = said.get("type"), said.get("row", said.get("gone"))
    if not isinstance(kind, str) or not isinstance(row, dict):
        return None
    record = Record(kind, cast("dict[str, Any]", row), is_gone="row" not in said)
    return record if _is_sound(record) else None


def drop(tx: Transaction, what: str, id_: str) -> None:
    """Remove a long result of a tool ("artifact"), or what a session begins with ("prompt")."""
    for statement in _DROP[what]:
        tx.execute(statement, (id_,))
    if what == "prompt":
        tx.execute(DROP_UNUSED)


def apply(tx: Transaction, line: str, record: Record, now: int) -> None:
    """Do what a line says; what it speaks of may not be there yet, and then it waits."""
    if record.kind in TABLES and record.kind != "sessions":
        _put(tx, record)
    elif record.kind == "dropped":
        drop(tx, record.data["what"], record.data["id"])
    elif record.kind == "erased":
        value = orjson.dumps(record.data).decode()
        row = {"key": f"{ERASED}{record.data['salt']}", "value": value, "updated_at": now}
        upsert(tx, "meta", ("key",), row)
    elif record.kind == "current" or not _apply_to_session(tx, record, now):
        tx.execute("INSERT INTO ahead(session_id, line) VALUES (?, ?)", (record.session, line))


def arrived(tx: Transaction, session_id: str, now: int) -> None:
    """A session's transcript was read back: do what the journal says of it."""
    rows = tx.execute(
        "SELECT seq, line FROM ahead WHERE session_id = ? ORDER BY seq", (session_id,)
    )
    for seq, line in rows:
        record = parse(str(line).encode())
        if record is not None and record.kind != "current" and _apply_to_session(tx, record, now):
            tx.execute("DELETE FROM ahead WHERE seq = ?", (seq,))


def go_back(tx: Transaction) -> None:
    """Every transcript was read back: let each key's next message go where its person went back to.

    Unless a newer conversation was begun after that.
    """
    for seq, line in tx.execute("SELECT seq, line FROM ahead ORDER BY seq"):
        record = parse(str(line).encode())
        if record is None or record.kind != "current":
            continue
        tx.execute("DELETE FROM ahead WHERE seq = ?", (seq,))
        key, session, at = (record.data[name] for name in ("key", "session", "at"))
        tx.execute(
            "UPDATE conversations SET session_id = ?, updated_at = ? WHERE key = ? "
            "AND EXISTS (SELECT 1 FROM sessions WHERE id = ? AND key = ?) "
            "AND NOT EXISTS (SELECT 1 FROM sessions WHERE key = ? AND started_at > ?)",
            (session, at, key, session, key, key, at),
        )


def _apply_to_session(tx: Transaction, record: Record, now: int) -> bool:
    """False when its session or entry is not there."""
    if record.kind == "sessions":
        return _put(tx, record)
    rows = tx.execute("SELECT seq FROM entries WHERE id = ?", (record.data["entry"],))
    for (seq,) in rows:
        # As of now: what is forgotten of late is taken out of the index too.
        hide(tx, seq, record.data["blocks"], now, says=record.data["says"])
    return bool(rows)


def _put(tx: Transaction, record: Record) -> bool:
    """Let a row be as a line says; False when it is a session that is not there."""
    table = TABLES[record.kind]
    key = tuple(record.data[name] for name in table.key)
    if record.is_gone:
        tx.execute(f"DELETE FROM {record.kind} WHERE {_where(table)}", key)
        return True
    if record.kind == "sessions":
        others = [name for name in table.columns if name not in table.key]
        rows = tx.execute(
            f"UPDATE sessions SET {', '.join(f'{name} = ?' for name in others)}, "
            f"version = version + 1 WHERE {_where(table)} RETURNING id",
            (*(record.data[name] for name in others), *key),
        )
        return bool(rows)
    said = {**table.later, **record.data}
    row = {name: said[name] for name in table.columns}
    upsert(tx, record.kind, table.key, {**row, **table.fixed})
    return True


def _is_sound(record: Record) -> bool:
    """True when a line has all that its kind needs, of the right types."""
    data = record.data
    match record.kind:
        case "erased":
            return not record.is_gone and _is_mark(data)
        case kind if kind in TABLES:
            table = TABLES[kind]
            names = table.key if record.is_gone else table.columns
            missing = set(names) - set(data)
            return (
                not (record.is_gone and kind == "sessions")  # transcripts only grow
                and set(data) <= set(names)
                and missing <= set(table.later)
                and all(_fits(table, name, value) for name, value in data.items())
            )
        case "forgotten":
            return (
                not record.is_gone
                and isinstance(data.get("entry"), str)
                and isinstance(data.get("says"), bool)
                and isinstance(data.get("blocks"), list)
                and all(_is_number(block) for block in data["blocks"])
            )
        case "dropped":
            return data.get("what") in _DROP and isinstance(data.get("id"), str)
        case "current":
            return (
                isinstance(data.get("key"), str)
                and isinstance(data.get("session"), str)
                and _is_number(data.get("at"))
            )
        case _:
            return False


def _is_mark(data: Mapping[str, Any]) -> bool:
    """True for what says who was erased."""
    digests = data.get("digests")
    return (
        isinstance(data.get("salt"), str)
        and isinstance(digests, list)
        and all(isinstance(each, str) for each in cast("list[object]", digests))
        and _is_number(data.get("at"))
    )


def _fits(table: Table, name: str, value: object) -> bool:
    if value is None:
        return name in table.nullable
    return isinstance(value, str) if name in table.texts else _is_number(value)


def _is_number(value: object) -> bool:
    """True for what an integer column takes."""
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63


def _rows(tx: Transaction, name: str, where: str, values: Sequence[Value]) -> list[dict[str, Any]]:
    table = TABLES[name]
    rows: list[Row] = tx.execute(
        f"SELECT {', '.join(table.columns)} FROM {name} WHERE {where}", values
    )
    found = [dict(zip(table.columns, row, strict=True)) for row in rows]
    for row in found:
        if name == "sessions" and row["sender"] != MANY:
            row["sender"] = ""  # one person's name changes from turn to turn, and no turn is noted
    return found


def _where(table: Table) -> str:
    return " AND ".join(f"{name} = ?" for name in table.key)


def _line(record: Mapping[str, Any]) -> str:
    return orjson.dumps(record).decode()
