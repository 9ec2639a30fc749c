"""What was forgotten after a backup was made, which stays forgotten when that is restored.

Two databases tell: the one that is there now (its copies and its log, if it is lost), and that of
the backup.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path, PurePosixPath

import apsw
import structlog

from bot.channel import reveal
from bot.clock import Clock
from bot.config import Config
from bot.errors import ArchiveError, StorageError
from bot.memory import layout, uses, versions
from bot.memory.night import record as nights
from bot.memory.row_notes import space_of
from bot.portability import places
from bot.portability.places import Files, ReadOnly
from bot.recovery import Restored, note, rebuilt
from bot.sessions import approvals, compactions, page_logins, removals
from bot.sessions.erasing import WAITING, Mark
from bot.sessions.removals import NOTHING, Removals
from bot.storage import Database, Transaction, backup, changes
from bot.storage.files import DATABASE_NAME
from bot.storage.meta import keep, under
from bot.storage.sqlite import SqliteDatabase, compact
from bot.storage.sqlite_sql import SqliteTransaction

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Forgotten:
    """What was forgotten where people talk now.

    `spaces` says how often something was in each space, `workspace` where the notes are that say
    nothing of it any more, `results` which long results of tools were removed.
    """

    workspace: Path
    removed: Removals = NOTHING
    spaces: Mapping[str, int] = field(default_factory=dict[str, int])
    results: Collection[str] = ()


async def of_folder(
    folder: Path, workspace: Path, then: Path, scratch: Path, *, clock: Clock
) -> Forgotten:
    """What was forgotten in a storage folder since a database was copied.

    The folder is only looked at: `scratch` takes its database, if that is lost.

    Raises:
        ArchiveError: what is kept beside the database cannot be read.
    """
    path = folder / DATABASE_NAME
    here: ReadOnly | SqliteDatabase
    try:
        if not backup.is_new(path) and await asyncio.to_thread(backup.is_sound, path):
            here = ReadOnly()
            connect = partial(apsw.Connection, str(path), flags=apsw.SQLITE_OPEN_READONLY)
            await here.begin(lambda: SqliteTransaction(connect()))
        elif backup.newest_first(path, 0) or changes.paths(path):
            here = await rebuilt(folder, scratch, clock)
        else:
            return Forgotten(workspace)
        try:
            return await _since(here, then, workspace)
        finally:
            await here.close()
    except StorageError as exc:  # it may be what a backup is restored for, or of a newer version
        log.warning("archive.database_unreadable", error=type(exc).__name__)
        return Forgotten(workspace)
    except OSError as exc:
        raise ArchiveError(
            f"What {folder} keeps beside its database cannot be read: {exc.strerror}. It says what "
            "was forgotten, so nothing is restored without it. Nothing was changed: mend that, or "
            "move it away."
        ) from exc


async def of_server(config: Config, then: Path, workspace: Path) -> Forgotten:
    """What was forgotten on a server since a database was copied; `workspace` gets its notes.

    Raises:
        StorageBusy: nodes run on it, so more may be forgotten.
        StorageError: it cannot be reached.
    """
    storage, notes = config.storage, Files(workspace)
    async with places.server_now(reveal(storage.url), storage.cluster) as here:
        await places.must_be_still(here.database, here.name, storage.node_timeout)
        found = await _since(here.database, then, workspace)
        for path in await here.notes.paths():
            if space_of(path) in found.spaces:
                await notes.write(await here.notes.read(path))
    return found


async def _since(here: Database, then: Path, workspace: Path) -> Forgotten:
    copy = await SqliteDatabase.open(then)
    try:
        results = await copy.read(
            lambda tx: tx.execute("SELECT id, session_id, at FROM artifacts ORDER BY id")
        )
    finally:
        await copy.close()

    def removed(tx: Transaction, id_: str, session_id: str, at: int) -> bool:
        """True for what is not there although its conversation went on behind it."""
        return not tx.execute("SELECT 1 FROM artifacts WHERE id = ?", (id_,)) and bool(
            tx.execute(
                "SELECT 1 FROM entries WHERE session_id = ? AND at >= ? LIMIT 1", (session_id, at)
            )
        )

    def work(tx: Transaction) -> Forgotten:
        gone = tuple(str(row[0]) for row in results if removed(tx, *row))
        known = removals.of(tx)
        every = Removals(known.hidden | _waiting(tx), known.erased)
        return Forgotten(workspace, every, versions.numbers(tx), gone)

    return await here.read(work)


def _waiting(tx: Transaction) -> frozenset[tuple[str, int]]:
    """What was forgotten of entries that are not here, by their ids and blocks."""
    found = (key.rsplit("/", 1) for key in under(tx, WAITING))
    return frozenset((id_, int(block)) for id_, block in found)


async def settle(
    path: Path, workspace: Path, forgotten: Forgotten, name: str, now: int
) -> tuple[int, int]:
    """Let a database from a backup and its notes know what was forgotten since.

    How much that was, and how many notes are as now because of it. What was asked, who was let in
    and what notes said before may be over since, too.

    Raises:
        ArchiveError: the disk does not take it.
    """
    try:
        database = await SqliteDatabase.open(path)
        try:
            before = await database.read(versions.numbers)
            count, erased = await database.write(partial(_settle, forgotten, name, now))
        finally:
            await database.close()
        if erased:
            await asyncio.to_thread(compact, path)
        kept = await asyncio.to_thread(_settle_notes, workspace, forgotten, before, erased)
    except OSError as exc:
        raise ArchiveError(f"A note cannot be kept: {exc.strerror}. Nothing was changed.") from exc
    except StorageError as exc:
        raise ArchiveError(f"{name} cannot be restored: {exc} Nothing was changed.") from exc
    return count, kept


def _settle(forgotten: Forgotten, name: str, now: int, tx: Transaction) -> tuple[int, list[Mark]]:
    known = removals.of(tx)
    new = forgotten.removed.hidden - known.hidden - _waiting(tx)
    for id_, block in sorted(new):
        # Another backup may have what is not here.
        if not tx.execute("SELECT 1 FROM entries WHERE id = ?", (id_,)):
            keep(tx, f"{WAITING}{id_}/{block}", "", now)
    for id_ in forgotten.results:
        tx.execute("DELETE FROM artifacts WHERE id = ?", (id_,))
    salts = {mark.salt for mark in known.erased}
    erased = [mark for mark in forgotten.removed.erased if mark.salt not in salts]
    removals.apply(tx, forgotten.removed, now)
    for space, number in forgotten.spaces.items():
        tx.execute(
            "INSERT INTO forgotten_spaces(space, number) VALUES (?, ?) ON CONFLICT(space) "
            "DO UPDATE SET number = max(forgotten_spaces.number, excluded.number)",
            (space, number),
        )
    for clear in (approvals.drop_all, page_logins.drop_all, versions.clear, uses.clear):
        clear(tx)
    nights.clear(tx)
    count = len({id_ for id_, _ in new}) + len(forgotten.results) + len(erased)
    if count or forgotten.spaces:  # what requests begin with may hold it
        compactions.drop_all(tx)
    changes.renew(tx)
    note(tx, Restored(now, name, counts={"forgotten": count}))
    return count, erased


# --- notes ----------------------------------------------------------------------------------------


def _settle_notes(
    workspace: Path, forgotten: Forgotten, before: Mapping[str, int], erased: Collection[Mark]
) -> int:
    """Have the notes as they are now of whoever had something forgotten since; how many there are.

    Nothing says which words those were, so what the backup has of these notes is taken out of its
    `workspace`, and all of whoever was erased. `before` is how often something had been forgotten
    when it was made.
    """
    people = workspace / layout.PEOPLE
    for folder in [*people.iterdir()] if people.is_dir() else []:
        if any(mark.is_of(f"{layout.PEOPLE}/{folder.name}") for mark in erased):
            shutil.rmtree(folder)
    spaces = {space for space, number in forgotten.spaces.items() if number > before.get(space, 0)}
    if not spaces:
        return 0
    for path in _notes(workspace, spaces):
        (workspace / path).unlink()
    kept = _notes(forgotten.workspace, spaces)
    for path in kept:
        target = workspace / path
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        shutil.copy2(forgotten.workspace / path, target)
        with target.open("rb") as file:
            os.fsync(file.fileno())
    return len(kept)


def _notes(workspace: Path, spaces: set[str]) -> list[PurePosixPath]:
    """The notes of these spaces, by their paths below the workspace."""
    found: list[PurePosixPath] = []
    for parent, _, names in os.walk(workspace):
        for path in (Path(parent, name) for name in names):
            located = layout.locate(below := PurePosixPath(path.relative_to(workspace).as_posix()))
            is_plain = path.is_file() and not path.is_symlink()
            if located is not None and located.space in spaces and is_plain:
                found.append(below)
    return found
