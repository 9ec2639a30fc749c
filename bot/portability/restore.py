"""Restoring a backup: checked whole beside what is there, then swapped, or put into a server.

What was forgotten after the backup was made stays forgotten.
"""

from __future__ import annotations

import tempfile
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

import apsw
import structlog

from bot.channel import reveal
from bot.clock import Clock
from bot.config import Config
from bot.errors import ArchiveError, ArchiveRefused
from bot.portability import archive as archives
from bot.portability import forgotten, places, seal, swap
from bot.portability.archive import DAMAGED, Advance, Manifest, refused
from bot.portability.backup import stage
from bot.portability.forgotten import Forgotten
from bot.portability.move import Move
from bot.portability.rows import all_tables
from bot.portability.work import Copying, in_thread, nobody, unheard
from bot.sessions import entries
from bot.storage import Transaction, files, scalar, scalars
from bot.storage.files import DataDirLock
from bot.storage.fulltext import match_query
from bot.storage.sqlite import SqliteDatabase
from bot.storage.sqlite_sql import SqliteTransaction

_STEPS = 100_000  # of SQLite, between two looks whether to stop
_ASKED = 20  # of the newest entries that are indexed
_HITS = 50  # among which one of them has to be when its own words are asked for

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
    """A backup that lies in a folder and is what it was."""

    manifest: Manifest
    database: Path


Since = Callable[[Path, Path], Awaitable[Forgotten]]
"""Finds out what was forgotten since a database was copied; the folder is for what it needs."""


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
    """Put what a backup holds in the place of a storage folder and a workspace.

    `since` finds out what was forgotten where people talk now, if that is not in this folder.

    Raises:
        ArchiveRefused: the file cannot be restored; nothing was touched.
        StorageBusy: a program runs on the folder.
        ArchiveError: the disk does not take it; nothing was touched, or, from where the names
            change on, the message says what completes it.
    """
    place = swap.Place(folder, workspace)
    with ExitStack() as undoing:
        if not place.was_there:
            undoing.callback(swap.remove_empty, folder)
        undoing.enter_context(DataDirLock(folder))
        files.must_not_be_restoring(folder)
        files.must_not_be_erasing(folder)
        place.must_be_movable()
        place.clear()
        undoing.callback(place.clear)  # unless it was begun: then all is said in the folder
        found = await unpack(archive, passphrase, place.new, place.workspace, advance)
        if since is None:
            known = await forgotten.of_folder(
                *(folder, place.old_workspace, found.database, place.restoring / "now"), clock=clock
            )
        else:
            known = await since(found.database, place.restoring)
        count, kept = await forgotten.settle(
            found.database, place.workspace, known, archive.name, clock()
        )
        place.begin(clock())
        aside = swap.finish_interrupted(folder)
    _restored(found, count)
    return Done(found.manifest, aside, count, kept)


async def to_server(
    archive: Path,
    url: str,
    config: Config,
    passphrase: Passphrase,
    *,
    clock: Clock,
    since: Since | None = None,
    advance: Advance = unheard,
    copying: Copying = nobody,
) -> Done | None:
    """Put what a backup holds into an empty database, or go on with that; None if it is there.

    `advance` hears of what is read of the archive, then `copying` how far the database is. Until
    all is in the database nothing runs on it.

    Raises:
        ArchiveRefused: the file cannot be restored; nothing was touched.
        StorageBusy: nodes run on the database.
        StorageError: it is not empty, or cannot be used.
        ConfidantError: a note cannot be a row; nothing was touched.
    """
    async with stage(config.storage.folder) as place:
        scratch = place / "restored"
        workspace = scratch / archives.WORKSPACE
        workspace.mkdir(mode=0o700, parents=True)
        found = await unpack(archive, passphrase, scratch, workspace, advance)
        known = await since(found.database, place) if since is not None else Forgotten(workspace)
        count, kept = await forgotten.settle(
            found.database, workspace, known, archive.name, clock()
        )
        name = f"{archive.name} ({found.manifest.digest[:16]})"
        async with (
            places.folder(scratch, workspace) as source,
            places.server(url, config.storage.node_timeout) as target,
        ):
            move = Move(replace(source, name=name), target, clock, advance=copying)
            moved = await move.run()
    if moved.was_done:
        return None
    _restored(found, count)
    return Done(found.manifest, forgotten=count, kept=kept, others=moved.others)


def forgotten_in(config: Config, clock: Clock) -> Since:
    """What finds out what was forgotten where the configuration says that people talk now."""

    async def since(database: Path, place: Path) -> Forgotten:
        if reveal(config.storage.url):
            return await forgotten.of_server(config, database, place / "now")
        folder, workspace = config.storage.folder, config.workspace
        return await forgotten.of_folder(folder, workspace, database, place / "now", clock=clock)

    return since


def _restored(found: Unpacked, count: int) -> None:
    log.info("archive.restored", members=len(found.manifest.members), forgotten=count)


async def rehearse(
    archive: Path, folder: Path, passphrase: Passphrase, advance: Advance = unheard
) -> Manifest:
    """Try a backup in a folder below the storage folder that is thrown away.

    Every file has to be what it was, the database sound, and search has to find what was said last.

    Raises:
        ArchiveRefused: it could not be restored.
        ArchiveError: it cannot be read, the disk does not take it, or another one is at it.
    """
    async with stage(folder) as place:
        found = await unpack(archive, passphrase, place / "restored", None, advance)
        database = await SqliteDatabase.open(found.database)
        try:
            answers = await database.read(_answers)
        finally:
            await database.close()
        if not answers:
            why = "cannot be searched: what was said last is not found by its own words"
            raise refused(archive.name, why)
    return found.manifest


def _answers(tx: Transaction) -> bool:
    """True when search finds what was said last by its own words, or nobody said any."""
    rows = tx.execute(
        """SELECT entries.seq, entries.line, sessions.key FROM entries
            JOIN sessions ON sessions.id = entries.session_id
            WHERE entries.seq IN (SELECT rowid FROM entries_text)
            ORDER BY entries.seq DESC LIMIT ?""",
        (_ASKED,),
    )
    asked = [(int(seq), entries.parse(str(line)).text, str(key)) for seq, line, key in rows]
    asked = [each for each in asked if match_query(each[1])]
    return not asked or any(
        seq in {int(row[0]) for row in tx.search_text(words, _HITS, (key,))}
        for seq, words, key in asked
    )


# --- unpacking ------------------------------------------------------------------------------------


async def unpack(
    archive: Path,
    passphrase: Passphrase,
    folder: Path,
    workspace: Path | None,
    advance: Advance = unheard,
) -> Unpacked:
    """Check a whole backup and write its database and settings into a folder.

    Notes go into `workspace`, or are only checked. Transcripts are too: the next start writes them.
    `advance` hears how many bytes more of the archive were read.

    Raises:
        ArchiveRefused: it cannot be restored.
        ArchiveError: it cannot be read, or the disk does not take it.
    """

    def place(name: str) -> Path | None:
        first, _, rest = name.partition("/")
        if first == archives.WORKSPACE:
            return workspace / rest if workspace is not None else None
        known = {archives.DATABASE: archives.DATABASE, archives.SETTINGS: swap.SETTINGS}
        return folder / known[name] if name in known else None

    def work(advance: Advance) -> Manifest:
        name = archive.name
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with archive.open("rb") as file, tempfile.TemporaryFile(dir=folder) as opened:
                source: IO[bytes] = file
                if seal.is_sealed(file):
                    seal.open_sealed(file, name, passphrase(), opened, advance)
                    opened.seek(0)
                    source = opened
                manifest = archives.unpack(source, name, place, _reads(source, advance))
        except OSError as exc:
            raise ArchiveError(
                f"{archive} cannot be restored: {exc.strerror}. Nothing was changed."
            ) from exc
        _check(name, manifest, folder / archives.DATABASE, advance)
        return manifest

    manifest = await in_thread(work, advance)
    database = folder / archives.DATABASE
    opened = await SqliteDatabase.open(database, keeps=False)  # the backup is the copy
    try:
        await opened.read(lambda tx: _must_have_tables(tx, archive.name))
    finally:
        await opened.close()
    return Unpacked(manifest, database)


def _reads(file: IO[bytes], advance: Advance) -> Advance:
    """Has `advance` hear of what is read of a file, instead of what comes out of it."""
    before = 0

    def step(_size: int) -> None:
        nonlocal before
        now = file.tell()
        before, more = now, now - before
        advance(more)

    return step


def _check(name: str, manifest: Manifest, path: Path, advance: Advance) -> None:
    """Make sure that a database from a backup is whole.

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
            _look(SqliteTransaction(connection), name, manifest)
        finally:
            connection.close()
    except (apsw.Error, TypeError, ValueError) as exc:
        raise refused(name, DAMAGED) from exc


def _look(tx: SqliteTransaction, name: str, manifest: Manifest) -> None:
    tx.execute("PRAGMA trusted_schema = OFF")
    found = tx.execute("SELECT type, name FROM sqlite_schema")
    if any(kind not in {"table", "index"} for kind, _ in found):
        raise archives.altered(name, "its database does things by itself")
    if tx.execute("PRAGMA integrity_check(1)") != [("ok",)]:
        raise refused(name, DAMAGED)
    version = int(scalar(tx, "SELECT max(version) FROM schema_versions"))
    archives.must_be_known(name, version, {"program": "unknown", "schema": version})
    names = {str(each) for _, each in found}
    for table, count in manifest.rows.items():
        quoted = table.replace('"', '""')  # whoever made the file chose the name
        counted = f'SELECT count(*) FROM "{quoted}"'
        if table not in names or count != scalar(tx, counted):
            raise _other(name, table)


def _must_have_tables(tx: Transaction, name: str) -> None:
    """Make sure that a database has what the program asks of it.

    Raises:
        ArchiveRefused: something is missing.
    """
    for table in all_tables():
        found = scalars(tx, "SELECT name FROM pragma_table_info(?)", table.name)
        if not {*found}.issuperset(table.columns):
            raise _other(name, table.name)


def _other(name: str, table: str) -> ArchiveRefused:
    return archives.altered(name, f"its table {table!r} is not what it was")
