"""Longer digests for what was kept under short ones: session keys, and the folders of spaces.

Keys had digests of 48 bits and folders of 40, so few that somebody could find two ids that share
one. Everything is moved when the program starts, before anything is read: the database in one
transaction, then each folder in one step. Doing it again changes nothing.

A short digest does not say whose it is. The ids are in the database (whoever wrote, the chats) and
in the configuration. Where two of them share a folder, it is nobody's any more: it stays where it
is, for whoever runs the program to look into.
"""

from __future__ import annotations

import asyncio
import re
import shutil
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import orjson
import structlog

from bot.config import SessionConfig
from bot.identity import routing
from bot.identity.view import SHORT_DIGEST, folder_name, room_name
from bot.memory import folders
from bot.memory.layout import PEOPLE, ROOMS
from bot.sessions import journal_records, rooms, store
from bot.sessions.store import Session
from bot.storage import Database, Transaction, backup, schema

_IN_KEY = re.compile(rf"~([0-9a-f]{{{routing.SHORT_DIGEST}}})(?![0-9a-f])")
_IN_FOLDER = re.compile(rf"-[0-9a-f]{{{SHORT_DIGEST}}}$")
_KEYED = ("sessions", "conversations", "reminders", "rooms", "link_codes", "inbox")

Ids = Mapping[str, frozenset[tuple[str, str]]]
"""What stands before a short digest in a key, and what takes the place of both, by digest."""

log = structlog.get_logger(__name__)


async def lengthen(database: Database, workspace: Path, config: SessionConfig, path: Path) -> None:
    """Move everything that is kept under short digests, after a copy beside `path`, its file.

    Raises:
        StorageError: it cannot be copied, or the database did not take it; nothing was changed.
    """
    keys = await database.read(_short_keys)
    if keys:
        await asyncio.to_thread(backup.keep, path, schema.VERSION)
        moved, left = await database.write(lambda tx: _move_keys(tx, keys, config))
        log.warning("digests.keys", moved=moved, left=left)
    short = await asyncio.to_thread(short_folders, workspace)
    if short:
        owners = await database.read(lambda tx: _folders_of(tx, config))
        await asyncio.to_thread(_move_folders, workspace, short, owners, backup.notes_of(path))


def short_folders(workspace: Path) -> list[str]:
    """The folders of spaces whose names end in a short digest, below the workspace."""
    found: list[str] = []
    for kind in (PEOPLE, ROOMS):
        if (parent := workspace / kind).is_dir():
            names = sorted(path.name for path in parent.iterdir())
            found += [f"{kind}/{name}" for name in names if _IN_FOLDER.search(name)]
    return found


# --- keys: pure -----------------------------------------------------------------------------------


def ids_of(ids: Iterable[str]) -> Ids:
    """How keys spell these ids, as far as they need a digest."""
    found: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for id_ in ids:
        readable, _, digest = routing.part(id_, routing.SHORT_DIGEST).partition("~")
        if digest:
            found[digest].add((readable, routing.part(id_)))
    return {digest: frozenset(spelled) for digest, spelled in found.items()}


def lengthened(key: str, *known: Ids) -> str:
    """A key with long digests; those nobody is known for, or several are, stay as they are.

    Of several `known`, the first that has an id for a digest counts.
    """

    def longer(match: re.Match[str]) -> str:
        for ids in known:
            fitting = {
                (readable, spelled)
                for readable, spelled in ids.get(match[2], ())
                if match[1].endswith(readable)
            }
            if len(fitting) == 1:
                readable, spelled = fitting.pop()
                return f"{match[1].removesuffix(readable)}{spelled}"
            if fitting:
                break
        return match[0]

    return re.sub(rf"([^:~]*){_IN_KEY.pattern}", longer, key)


# --- the database ---------------------------------------------------------------------------------


def _short_keys(tx: Transaction) -> list[str]:
    """Every session key with a short digest in it."""
    found: set[str] = set()
    for table in _KEYED:
        rows = tx.execute(f"SELECT DISTINCT key FROM {table} WHERE key LIKE '%~%'")
        found.update(row[0] for row in rows if _IN_KEY.search(row[0]))
    return sorted(found)


def _move_keys(tx: Transaction, keys: list[str], config: SessionConfig) -> tuple[int, int]:
    """Give sessions and all that hangs on them longer keys; how many keys moved, and did not."""
    everybody = ids_of(_everybody(tx, config))
    left = 0
    for key in keys:
        longer = lengthened(key, everybody)
        _move_sessions(tx, key, everybody)
        _move_rows(tx, key, everybody)
        if longer != key:
            rooms.rename(tx, key, longer)
        left += bool(_IN_KEY.search(longer))
    return len(keys) - left, left


def _move_sessions(tx: Transaction, key: str, everybody: Ids) -> None:
    """Give each session of a key the one it would have now, by the ids it knows itself."""
    current = store.current(tx, key)
    moved = {
        session.id: replace(
            session, key=lengthened(session.key, ids_of(_ids_in(session)), everybody)
        )
        for session in store.of_key(tx, key)
    }
    if current is not None:  # one that was read back has its longer key already
        moved.setdefault(current.id, current)
    for session in moved.values():
        before = moved.get(session.previous or "")
        is_others = before is not None and before.key != session.key
        store.rekey(tx, replace(session, previous=None) if is_others else session)
    if current is None or moved[current.id].key != key:
        since = store.taken_up_at(tx, key) if current is not None else 0
        tx.execute("DELETE FROM conversations WHERE key = ?", (key,))
        newest = {session.key: session for session in moved.values()}  # the last one of each
        if current is not None:
            newest[moved[current.id].key] = moved[current.id]
        for longer, session in newest.items():
            at = since if current is not None and session.id == current.id else session.last_user_at
            _take_up(tx, longer, session, at)


def _take_up(tx: Transaction, key: str, session: Session, at: int) -> None:
    """Let a key go on with a session, unless it goes on with one that was taken up later."""
    if store.current(tx, key) is None or store.taken_up_at(tx, key) < at:
        store.point(tx, key, session.id, at)
        journal_records.went_back(tx, key, session.id, at)
    else:
        store.change(tx, session.id, ended_by="left", ended_at=at)


def _ids_in(session: Session) -> Iterable[str]:
    sender = session.person.partition(":")[2]
    # A person's own name stands in keys of linked accounts.
    return (session.account, session.chat, session.thread, session.person, sender)


def _move_rows(tx: Transaction, key: str, everybody: Ids) -> None:
    """Let what waits follow its conversation."""
    rows = tx.execute("SELECT id, session_id, body FROM inbox WHERE key = ?", (key,))
    for id_, session_id, body in rows:
        session = store.get(tx, session_id) if session_id else None
        longer = session.key if session else lengthened(key, ids_of(_ids_said(body)), everybody)
        tx.execute("UPDATE inbox SET key = ? WHERE id = ?", (longer, id_))
    for table, who in (("reminders", "id"), ("link_codes", "person")):
        rows = tx.execute(
            f"SELECT {who}, person, account, chat, thread FROM {table} WHERE key = ?", (key,)
        )
        for id_, person, account, chat, thread in rows:
            own = ids_of((account, chat, thread, person, person.partition(":")[2]))
            longer = lengthened(key, own, everybody)
            tx.execute(f"UPDATE {table} SET key = ? WHERE {who} = ?", (longer, id_))
            if table == "reminders":
                journal_records.keep(tx, table, id_)


def _ids_said(body: str) -> Iterable[str]:
    """The ids in a stored message."""
    said = cast("dict[str, Any]", orjson.loads(body or "{}"))  # of an answered one nothing is left
    names = ("account", "chat", "thread", "sender")
    own = [str(said.get(name, "")) for name in names]
    return (*own, f"{said.get('channel', '')}:{own[-1]}")


def _everybody(tx: Transaction, config: SessionConfig) -> set[str]:
    """Every id that may stand in a key."""
    found = {*_people(tx, config), *config.identity_links}
    found |= {person.partition(":")[2] for person in found}
    for table, columns in (
        ("sessions", ("channel", "account", "chat", "thread", "sender")),
        ("moved_chats", ("first", "chat", "account")),
    ):
        for column in columns:
            rows = tx.execute(f"SELECT DISTINCT {column} FROM {table}")
            found.update(row[0] for row in rows)
    for (body,) in tx.execute("SELECT body FROM inbox WHERE key LIKE '%~%'"):
        found.update(_ids_said(body))
    return found


# --- folders --------------------------------------------------------------------------------------


def _people(tx: Transaction, config: SessionConfig) -> set[str]:
    """Everybody who is known, as a space may be called after them."""
    links = config.identity_links
    found = {*config.owner, *map(routing.identity_of, links)}
    found.update(place for places in links.values() for place in places)
    for table, columns in (
        ("sessions", "person"),
        ("reminders", "person"),
        ("sessions", "channel || ':' || sender"),
        ("pairing", "channel || ':' || sender"),
        ("blocks", "channel || ':' || sender"),
        ("links", "channel || ':' || sender"),
        ("links", "root_channel || ':' || root_sender"),
    ):
        found.update(row[0] for row in tx.execute(f"SELECT DISTINCT {columns} FROM {table}"))
    return found


def _folders_of(tx: Transaction, config: SessionConfig) -> dict[str, set[str]]:
    """The folders that belong to the names of short ones."""
    chats = tx.execute("SELECT DISTINCT channel, account, chat FROM sessions")
    chats += tx.execute("SELECT DISTINCT channel, account, first FROM moved_chats")
    names = {PEOPLE: _people(tx, config), ROOMS: {room_name(*chat) for chat in chats}}
    found: dict[str, set[str]] = defaultdict(set)
    for kind, ids in names.items():
        for id_ in ids:
            found[f"{kind}/{folder_name(id_, SHORT_DIGEST)}"].add(f"{kind}/{folder_name(id_)}")
    return found


def _move_folders(
    workspace: Path, short: list[str], owners: Mapping[str, set[str]], copies: Path
) -> None:
    done: dict[str, int] = defaultdict(int)
    for folder in short:
        to = owners.get(folder, set())
        if len(to) != 1:
            done["shared" if to else "unknown"] += 1
            continue
        try:
            _copy(workspace / folder, copies / folder)
            done[folders.move(workspace, folder, next(iter(to)))] += 1
        except (OSError, shutil.Error) as error:  # the notes are where they were
            log.warning("digests.folder_failed", error=type(error).__name__)
            done["failed"] += 1
    log.warning("digests.folders", **done)


def _copy(folder: Path, copy: Path) -> None:
    """Keep notes as they are; what an earlier try has copied stays."""
    if not copy.exists():
        copy.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        beside = copy.with_name(f"{copy.name}.tmp")
        shutil.rmtree(beside, ignore_errors=True)
        shutil.copytree(folder, beside, symlinks=True)
        beside.rename(copy)
