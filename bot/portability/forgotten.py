"""What was forgotten after a backup was made, which stays forgotten when that is restored.

Two databases tell: the one that is there now, and that of the backup.
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
from bot.portability import places, swap
from bot.portability.places import Files, ReadOnly
from bot.recovery import Restored, note, open_database
from bot.sessions import approvals, erasing, journal_records, page_logins
from bot.sessions.erasing import WAITING, Mark
from bot.storage import Database, Transaction
from bot.storage.files import DATABASE_NAME
from bot.storage.meta import keep
from bot.storage.sqlite import SqliteDatabase, compact
from bot.storage.sqlite_sql import SqliteTransaction

WORDS = -1  # in the place of a block: what was said, which no search finds

log = structlog.get_logger(__name__)

Hidden = frozenset[tuple[str, int]]
"""Entries by their ids, and which block of each no request shows; see `WORDS`."""


@dataclass(frozen=True, slots=True)
class Forgotten:
    """What was forgotten where people talk now.

    `spaces` says how often something was in each space, `workspace` where the notes are that say
    nothing of it any more, `results` which long results of tools were removed.
    """

    workspace: Path
    hidden: Hidden = frozenset()
    marks: tuple[Mark, ...] = ()
    spaces: Mapping[str, int] = field(default_factory=dict[str, int])
    results: Collection[str] = ()


async def of_folder(folder: Path, workspace: Path, then: Path, *, clock: Clock) -> Forgotten:
    """What was forgotten in a storage folder since a database was copied.

    A database that is damaged or gone is brought back before, as a start does it.
    """
    if not any(swap.parts(folder)):
        return Forgotten(workspace)
    try:
        here: Database = await open_database(folder, clock)
    except StorageError as exc:  # it may be what a backup is restored for, or of a newer version
        log.warning("archive.database_unreadable", error=type(exc).__name__)
        here = reader = ReadOnly()
        path = str(folder / DATABASE_NAME)
        connect = partial(apsw.Connection, path, flags=apsw.SQLITE_OPEN_READONLY)
        try:
            await reader.begin(lambda: SqliteTransaction(connect()))
            return await _since(here, then, workspace)
        except StorageError:
            return Forgotten(workspace)
        finally:
            await reader.close()
    try:
        return await _since(here, then, workspace)
    finally:
        await here.close()


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
        marks = tuple(erasing.marks(tx))
        return Forgotten(workspace, _hidden(tx), marks, versions.numbers(tx), gone)

    return await here.read(work)


def _hidden(tx: Transaction) -> Hidden:
    rows = tx.execute(
        "SELECT id, ? FROM forgotten JOIN entries ON entries.seq = forgotten.seq "
        "UNION ALL SELECT id, block FROM hidden JOIN entries ON entries.seq = hidden.seq",
        (WORDS,),
    )
    waiting = tx.execute(
        "SELECT substr(key, ?) FROM meta WHERE substr(key, 1, ?) = ?",
        (len(WAITING) + 1, len(WAITING), WAITING),
    )
    rows += [str(key).rsplit("/", 1) for (key,) in waiting]  # pyright: ignore[reportArgumentType]
    return frozenset((str(id_), int(block)) for id_, block in rows)


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
    new = sorted(forgotten.hidden - _hidden(tx))
    for id_, block in new:
        blocks, says = [block] if block != WORDS else [], block == WORDS
        found = tx.execute("SELECT seq FROM entries WHERE id = ?", (id_,))
        for (seq,) in found:
            journal_records.hide(tx, seq, blocks, now, says=says)
            journal_records.forgot(tx, id_, blocks, now, says=says)
        if not found:  # another backup may have it
            keep(tx, f"{WAITING}{id_}/{block}", "", now)
    for id_ in forgotten.results:
        journal_records.drop(tx, "artifact", id_)
        journal_records.dropped(tx, "artifact", id_)
    known = erasing.marks(tx)
    erased = [mark for mark in forgotten.marks if mark not in known]
    for mark in erased:
        erasing.put_mark(tx, mark)
        erasing.erase_again(tx, mark, now)
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
        tx.execute("DELETE FROM prefixes")
        tx.execute("DELETE FROM prefix_texts")
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
