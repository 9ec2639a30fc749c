"""Restoring a backup into a storage folder: checked whole beside what is there, then swapped.

What was forgotten after the backup was made stays forgotten.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import apsw
import structlog

from bot.archive import container, forgotten, seal, swap
from bot.archive.container import Advance, Manifest
from bot.archive.forgotten import Forgotten
from bot.archive.work import in_thread, unheard
from bot.clock import Clock
from bot.errors import ArchiveError, StorageError
from bot.memory import versions
from bot.move import tables
from bot.sessions import erasing, store
from bot.storage import Transaction, files, schema
from bot.storage.files import DataDirLock
from bot.storage.sqlite import SqliteDatabase, compact
from bot.storage.sqlite_sql import SqliteTransaction

_STEPS = 100_000  # of SQLite, between two looks whether to stop

Passphrase = Callable[[], str]

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Done:
    """A backup that was restored.

    `aside` is where what was there is now, None where there was nothing. `forgotten` counts what
    was forgotten since and stays so, `kept` the notes left as they were because of that. `others`
    counts files that are no notes, where only notes have a place.
    """

    manifest: Manifest
    aside: Path | None = None
    forgotten: int = 0
    kept: int = 0
    others: int = 0


@dataclass(frozen=True, slots=True)
class Unpacked:
    """A backup that lies in a folder and is what it was.

    `forgotten` is how often something had been forgotten in each space.
    """

    manifest: Manifest
    database: Path
    forgotten: dict[str, int]


Since = Callable[[Unpacked, Path], Awaitable[Forgotten]]
"""Finds out what was forgotten since a backup was made; the folder is for what it needs."""


async def restore(
    archive: Path,
    folder: Path,
    workspace: Path,
    passphrase: Passphrase,
    *,
    clock: Clock,
    since: Since | None = None,
    advance: Advance = unheard,
) -> Done:
    """Put what a backup holds into a storage folder and its workspace.

    `since` finds out what was forgotten elsewhere, where people talk now, and may use a folder for
    that; without it the folder here is asked.

    Raises:
        ArchiveRefused: the file cannot be restored; nothing was touched.
        ArchiveError: it cannot be restored here; nothing was touched.
        StorageBusy: a program runs on the folder.
        StorageError: the folder cannot be used.
    """
    place = swap.Place(folder, workspace)
    with ExitStack() as stack:
        if not place.was_there:  # if all goes well it is not empty then
            stack.callback(swap.remove_empty, folder)
        stack.enter_context(DataDirLock(folder))
        files.must_not_be_restoring(folder)
        files.must_not_be_erasing(folder)
        place.must_be_movable()
        place.clear()
        stack.callback(place.clear)
        unpacked = await unpack(archive, passphrase, place.of, advance)
        if since is None:
            scratch = place.restoring / "now"
            known = await forgotten.of_folder(folder, place.old_workspace, scratch, clock)
        else:
            known = await since(unpacked, place.restoring)
        kept, count = await settle(unpacked, place.workspace, known, archive.name, clock())
        place.begin(clock())
        aside = swap.finish_interrupted(folder)
    members = len(unpacked.manifest.members)
    log.info("archive.restored", members=members, forgotten=count, notes_kept=kept)
    return Done(unpacked.manifest, aside, count, kept)


async def unpack(
    archive: Path,
    passphrase: Passphrase,
    place: Callable[[str], Path],
    advance: Advance = unheard,
) -> Unpacked:
    """Check a whole backup and write its files to where `place` says.

    `advance` hears how many bytes more of the archive were read.

    Raises:
        ArchiveRefused: it cannot be restored.
        ArchiveError: it cannot be read, or the disk does not take it.
    """

    def work(advance: Advance) -> Unpacked:
        try:
            with (
                archive.open("rb") as file,
                seal.opened(file, archive.name, passphrase) as source,
            ):
                manifest = container.unpack(source, archive.name, place, _reads(file, advance))
        except OSError as exc:
            raise ArchiveError(
                f"{archive} cannot be restored: {exc.strerror}. Nothing was changed."
            ) from exc
        database = place(container.DATABASE)
        return Unpacked(manifest, database, _checked(archive.name, manifest, database, advance))

    found = await in_thread(work, advance)
    for journal in place(container.JOURNAL).parent.glob(f"{container.JOURNAL}*"):
        journal.unlink()  # of the first tables: the database knows what it says
    opened = await SqliteDatabase.open(found.database, keeps=False)  # the backup is the copy
    try:
        await opened.read(lambda tx: _must_have_tables(tx, archive.name))
    finally:
        await opened.close()
    return found


async def settle(
    unpacked: Unpacked, workspace: Path, since: Forgotten, name: str, now: int
) -> tuple[int, int]:
    """Let what was unpacked know what was forgotten since: how many notes are as now, how much.

    Raises:
        ArchiveError: the disk does not take it.
        StorageError: the disk does not take it.
    """
    kept = await asyncio.to_thread(forgotten.keep_notes, workspace, since, unpacked.forgotten)
    database = await SqliteDatabase.open(unpacked.database)
    try:
        erased = forgotten.marks(since, await database.read(erasing.marks))
        settled = await forgotten.settle(database, since, name, now)
        if erased:
            path = unpacked.database
            sizes = await database.read(store.mirror_sizes)
            await asyncio.to_thread(forgotten.leave, erased, path, workspace, sizes)
            await asyncio.to_thread(compact, path)
    except OSError as exc:
        raise ArchiveError(f"{name} cannot be restored: {exc.strerror}.") from exc
    except StorageError as exc:
        raise ArchiveError(f"{name} cannot be restored: {exc} Nothing was changed.") from exc
    finally:
        await database.close()
    return kept, settled.count


def _reads(file: IO[bytes], advance: Advance) -> Advance:
    """Has `advance` hear of what is read of a file, instead of what comes out of it."""
    before = 0

    def step(_size: int) -> None:
        nonlocal before
        now = file.tell()
        before, more = now, now - before
        advance(more)

    return step


def _checked(name: str, manifest: Manifest, path: Path, advance: Advance) -> dict[str, int]:
    """Make sure that a database from a backup is whole; how often was forgotten in each space.

    Raises:
        ArchiveRefused: it is not, or not one of ours.
    """

    def go_on() -> bool:
        advance(0)
        return False

    try:
        connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
        try:
            connection.set_progress_handler(go_on, _STEPS)
            return _look(SqliteTransaction(connection), name, manifest)
        finally:
            connection.close()
    except (apsw.Error, TypeError, ValueError) as exc:
        raise container.damaged(name) from exc


def _look(tx: SqliteTransaction, name: str, manifest: Manifest) -> dict[str, int]:
    tx.execute("PRAGMA trusted_schema = OFF")
    found = tx.execute("SELECT type, name FROM sqlite_schema")
    if any(kind not in {"table", "index"} for kind, _ in found):
        raise container.altered(name, "its database does things by itself")
    if tx.execute("PRAGMA integrity_check(1)") != [("ok",)]:
        raise container.damaged(name)
    version = int(tx.execute("SELECT max(version) FROM schema_versions")[0][0])
    if version > schema.VERSION:
        raise container.newer(name, {"program": "unknown", "schema": version})
    container.must_be_known(name, version)
    names = {str(each) for _, each in found}
    for table, rows in manifest.rows.items():
        quoted = table.replace('"', '""')  # whoever made the file chose the name
        counted = f'SELECT count(*) FROM "{quoted}"'
        if table not in names or rows != tx.execute(counted)[0][0]:
            raise container.altered(name, f"its table {table!r} is not what it was")
    return versions.numbers(tx)


def _must_have_tables(tx: Transaction, name: str) -> None:
    """Make sure that a database has what the program asks of it.

    Raises:
        ArchiveRefused: something is missing.
    """
    for table in tables.known():
        rows = tx.execute("SELECT name FROM pragma_table_info(?)", (table.name,))
        if not {str(column) for (column,) in rows}.issuperset(table.columns):
            raise container.altered(name, f"its table {table.name!r} is not what it was")
