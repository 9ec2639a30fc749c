"""What was forgotten after a backup was made, which stays forgotten when that is restored.

Where people talk now says what that was: the database of a folder, its copies and its log if it is
lost, or the tables of a server.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath

import apsw
import structlog

from bot.clock import Clock
from bot.errors import ArchiveError, StorageError
from bot.memory import layout, uses, versions
from bot.memory.night import record as nights
from bot.recovery import TRANSCRIPTS, Restored, note, rebuilt
from bot.sessions import approvals, page_logins, removals, snapshots, transcript_files
from bot.sessions.belongings import Belongings
from bot.sessions.erasing import Mark
from bot.sessions.removals import NOTHING, Removals
from bot.storage import Database, Transaction, backup, changes
from bot.storage.files import DATABASE_NAME
from bot.storage.sqlite_sql import SqliteTransaction

_MODE = 0o700
Sizes = Mapping[str, int]

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Forgotten:
    """What was forgotten where people talk now.

    `removed` are entries and people, `results` the long results of tools that are there, of the
    `sessions` that are known there, `spaces` how often something was forgotten in each space, and
    `workspace` is where the notes are that say nothing of it any more.
    """

    workspace: Path
    removed: Removals = NOTHING
    results: frozenset[str] = frozenset()
    sessions: frozenset[str] = frozenset()
    spaces: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Settled:
    """How much was forgotten since, and whom a backup still held who was erased since."""

    count: int
    erased: tuple[Belongings, ...] = ()


async def of_folder(folder: Path, workspace: Path, scratch: Path, clock: Clock) -> Forgotten:
    """What was forgotten in a storage folder; `scratch` takes its database if that is lost.

    Raises:
        ArchiveError: its copies and its log cannot be read.
    """
    path = folder / DATABASE_NAME
    try:
        is_sound = not backup.is_new(path) and await asyncio.to_thread(backup.is_sound, path)
        if is_sound:  # it is only looked at, so that also a newer version's does
            return await asyncio.to_thread(_looked_at, path, workspace)
        if backup.newest_first(path, 0) or changes.paths(path):
            database = await rebuilt(folder, scratch, clock)
            try:
                return await database.read(partial(of_database, workspace=workspace))
            finally:
                await database.close()
        return Forgotten(workspace)
    except (StorageError, apsw.Error) as exc:  # it may be what a backup is restored for
        log.warning("archive.database_unreadable", error=type(exc).__name__)
        return Forgotten(workspace)
    except OSError as exc:
        raise ArchiveError(
            f"What {folder} keeps beside its database cannot be read: {exc.strerror}. It says what "
            "was forgotten, so nothing is restored without it. Nothing was changed: mend that, or "
            "move it away."
        ) from exc


def _looked_at(path: Path, workspace: Path) -> Forgotten:
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return of_database(SqliteTransaction(connection), workspace)
    finally:
        connection.close()


def of_database(tx: Transaction, workspace: Path) -> Forgotten:
    """What was forgotten in a database; `workspace` has its notes."""
    return Forgotten(
        workspace,
        removals.of(tx),
        frozenset(str(row[0]) for row in tx.execute("SELECT id FROM artifacts")),
        frozenset(str(row[0]) for row in tx.execute("SELECT id FROM sessions")),
        tuple(versions.numbers(tx).items()),
    )


async def settle(database: Database, forgotten: Forgotten, name: str, now: int) -> Settled:
    """Let a restored database know what was forgotten since.

    What was asked, who was let in and what notes said before may be over since, too.

    Raises:
        StorageError: the disk does not take it.
    """

    def work(tx: Transaction) -> Settled:
        count, erased = removals.apply(tx, forgotten.removed, now)
        for id_, session in tx.execute("SELECT id, session_id FROM artifacts"):
            if session in forgotten.sessions and id_ not in forgotten.results:
                tx.execute("DELETE FROM artifacts WHERE id = ?", (id_,))
                count += 1
        for space, number in forgotten.spaces:
            tx.execute(
                "INSERT INTO forgotten_spaces(space, number) VALUES (?, ?) ON CONFLICT(space) "
                "DO UPDATE SET number = max(forgotten_spaces.number, excluded.number)",
                (space, number),
            )
        approvals.drop_all(tx)
        page_logins.drop_all(tx)
        versions.clear(tx)
        uses.clear(tx)
        snapshots.drop_all(tx)
        nights.clear(tx)
        changes.renew(tx)
        note(tx, Restored(now, name, counts={"forgotten": count}))
        return Settled(count + len(erased), tuple(each.theirs for each in erased))

    return await database.write(work)


def marks(forgotten: Forgotten, known: Iterable[Mark]) -> list[Mark]:
    """Who was erased, of whom a restored database does not know."""
    salts = {mark.salt for mark in known}
    return [mark for mark in forgotten.removed.erased if mark.salt not in salts]


def leave(marked: Collection[Mark], unpacked: Path, workspace: Path, sizes: Sizes) -> None:
    """Take the files out of a backup of whoever was erased since; for a thread.

    `unpacked` is its database, with transcripts beside it, and `sizes` how long the
    transcripts must be now: the others are written anew by the next start, or not at all.

    Raises:
        ArchiveError: one cannot be removed.
    """
    transcripts, people = unpacked.parent / TRANSCRIPTS, workspace / layout.PEOPLE
    try:
        for folder in [*people.iterdir()] if people.is_dir() else []:
            if any(mark.is_of(f"{layout.PEOPLE}/{folder.name}") for mark in marked):
                shutil.rmtree(folder)
        for path in [*transcript_files.everything(transcripts)]:
            name, _, kept = path.name.partition(".jsonl")
            if kept or sizes.get(name) != path.stat().st_size:
                path.unlink()
    except OSError as exc:
        raise ArchiveError(f"{exc.filename} cannot be removed: {exc.strerror}.") from exc


def keep_notes(workspace: Path, forgotten: Forgotten, before: Mapping[str, int]) -> int:
    """Have the notes as they are now of whoever had something forgotten since; how many there are.

    Nothing says which words those were, so what the backup has of these notes is taken out of its
    `workspace`. `before` is how often something had been forgotten when it was made.

    Raises:
        ArchiveError: the disk does not take them.
    """
    spaces = {space for space, number in forgotten.spaces if number > before.get(space, 0)}
    if not spaces:
        return 0
    try:
        for path in _notes(workspace, spaces):
            (workspace / path).unlink()
        kept = 0
        for path in _notes(forgotten.workspace, spaces):
            target = workspace / path
            target.parent.mkdir(mode=_MODE, parents=True, exist_ok=True)
            shutil.copy2(forgotten.workspace / path, target)
            with target.open("rb") as file:
                os.fsync(file.fileno())
            kept += 1
    except OSError as exc:
        raise ArchiveError(f"A note cannot be kept: {exc.strerror}. Nothing was changed.") from exc
    return kept


def _notes(workspace: Path, spaces: set[str]) -> list[PurePosixPath]:
    """The notes of these spaces, by their paths below the workspace."""
    found: list[PurePosixPath] = []
    for parent, _, names in os.walk(workspace):
        for name in names:
            path = PurePosixPath(Path(parent, name).relative_to(workspace).as_posix())
            located = layout.locate(path)
            is_plain = Path(parent, name).is_file() and not Path(parent, name).is_symlink()
            if located is not None and located.space in spaces and is_plain:
                found.append(path)
    return found
