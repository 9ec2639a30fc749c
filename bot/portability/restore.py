"""Restoring a backup: checked whole beside what is there, then swapped, or put into a server.

What was forgotten after the backup was made stays forgotten.

Until all of it lies in `restoring/`, checked and on the disk, nothing that was there is touched.
Then a file says which names have to be changed, and from there on there is only one way: forward,
by this program or by whoever calls `finish_interrupted`. What was there is kept aside.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO

import apsw
import orjson
import structlog

from bot.channel import reveal
from bot.clock import Clock
from bot.config import Config
from bot.errors import ArchiveError, ArchiveRefused, StorageError
from bot.identity.view import AGENTS
from bot.invocation import confidant
from bot.memory import layout, uses, versions
from bot.memory.memory import INDEX_FOLDER
from bot.memory.night import record as nights
from bot.memory.row_notes import space_of
from bot.portability import archive as archives
from bot.portability import places
from bot.portability.archive import (
    DAMAGED,
    JOURNAL,
    WORKSPACE,
    Advance,
    Copying,
    Manifest,
    in_thread,
    nobody,
    refused,
    unheard,
)
from bot.portability.backup import stage
from bot.portability.move import Move
from bot.portability.places import Files, ReadOnly, all_tables
from bot.recovery import TRANSCRIPTS, Restored, note, rebuilt
from bot.sessions import approvals, compactions, entries, erasing, page_logins
from bot.sessions.erasing import NOTHING, WAITING, ErasureMark, Removals
from bot.storage import Database, Transaction, backup, changes, files, scalar, scalars
from bot.storage.files import DATABASE_NAME, RESTORE_BEGUN, RESTORING, DataDirLock
from bot.storage.fulltext import match_query
from bot.storage.records import keep, under
from bot.storage.sqlite import SqliteDatabase, compact
from bot.storage.sqlite_sql import SqliteTransaction

log = structlog.get_logger(__name__)

ASIDE = "before-restore-"  # what the folder of what was there begins with
SETTINGS = "restored-settings.toml"  # what the backup says of the configuration, to be compared
MODE = 0o700  # of folders
_NEW = "new"


class Staging:
    """The folders in which a backup is unpacked, beside those it will replace."""

    def __init__(self, folder: Path, workspace: Path) -> None:
        workspace = workspace.resolve()  # what a link leads to takes part, and the link stays
        self.was_there = folder.exists()
        self.folder = folder
        self.restoring = folder / RESTORING
        self.new = self.restoring / _NEW
        self.old_workspace = workspace
        self.is_inside = workspace.is_relative_to(folder.resolve())
        self.workspace = (
            self.new / WORKSPACE if self.is_inside else files.restored_workspace(workspace)
        )

    def must_be_movable(self) -> None:
        """Make sure that what is there can get other names.

        Raises:
            ArchiveError: it cannot.
        """
        if self.folder.resolve().is_relative_to(self.old_workspace):
            raise ArchiveError(
                f"{self.folder} is in the workspace {self.old_workspace}, so the one cannot be put "
                "aside without the other. Nothing was changed: restore into a workspace of its own "
                "(CONFIDANT_MEMORY__WORKSPACE)."
            )
        for path in (*parts(self.folder), self.old_workspace):
            if path.is_mount():
                raise ArchiveError(
                    f"{path} is a file system of its own, so it cannot be put aside. Nothing was "
                    "changed: restore into a folder inside of it (CONFIDANT_STORAGE__DIR, "
                    "CONFIDANT_MEMORY__WORKSPACE)."
                )

    def clear(self) -> None:
        """Remove what an earlier try left; nothing of it counts unless it was begun."""
        files.clear_unbegun_restore(self.folder, self.old_workspace)

    def begin(self, now: int) -> None:
        """Say what is to be done, once all that is new is on the disk: the way back ends here.

        Raises:
            StorageError: the disk does not take it; nothing was changed.
        """
        try:
            self.workspace.mkdir(mode=MODE, parents=True, exist_ok=True)
            for top in (self.new, self.workspace):
                for parent, _, _ in os.walk(top):
                    Path(parent).chmod(MODE)
                    files.sync_folder(Path(parent))
            files.sync_folder(self.folder)
            files.put(self.restoring / RESTORE_BEGUN, orjson.dumps(self._plan(now)))
        except OSError as exc:
            with suppress(OSError):
                (self.restoring / RESTORE_BEGUN).unlink()
            raise StorageError(
                f"The backup was not restored: {exc.strerror}. Nothing was changed."
            ) from exc

    def _plan(self, now: int) -> dict[str, object]:
        """The names that change: pairs of the old one and the new one, in order."""
        moment = f"{datetime.fromtimestamp(now / 1000, UTC):%Y%m%d-%H%M%S}"
        aside = files.free_name(self.folder / f"{ASIDE}{moment}")
        moved = [(path, aside / path.relative_to(self.folder)) for path in parts(self.folder)]
        if self.old_workspace.exists():
            name = f"{self.old_workspace.name}-{aside.name}"
            beside = files.free_name(self.old_workspace.with_name(name))
            to = aside / WORKSPACE if self.is_inside else beside
            moved.append((self.old_workspace, to))
        put = [
            (path, self.folder / path.name)
            for path in sorted(self.new.iterdir())
            if path != self.workspace
        ]
        put.append((self.workspace, self.old_workspace))
        return {
            "kept": aside.name if moved else "",
            "aside": [(self._named(one), self._named(other)) for one, other in moved],
            "put": [(self._named(one), self._named(other)) for one, other in put],
        }

    def _named(self, path: Path) -> str:
        """By its place in the folder, which may be somewhere else by then."""
        for folder in (self.folder, self.folder.resolve()):
            if path.is_relative_to(folder):
                return str(path.relative_to(folder))
        return str(path)


def parts(folder: Path) -> Iterator[Path]:
    """The files of a storage folder that belong to its database, as far as they are there."""
    names = (DATABASE_NAME, f"{DATABASE_NAME}-wal", f"{DATABASE_NAME}-shm")
    for name in (*names, TRANSCRIPTS, JOURNAL, INDEX_FOLDER, SETTINGS):
        if os.path.lexists(folder / name):
            yield folder / name
    yield from sorted(folder.glob(f"{JOURNAL}.kept-*"))
    stem = Path(DATABASE_NAME).stem
    yield from sorted((folder / backup.FOLDER).glob(f"{stem}-*.db"))
    yield from sorted((folder / backup.FOLDER).glob(f"{stem}-*{changes.SUFFIX}*"))


def finish(folder: Path) -> Path | None:
    """Complete a restore that was interrupted; see `finish_interrupted`.

    Raises:
        ArchiveError: none was.
        StorageBusy: a program runs on the folder.
        StorageError: a name cannot be changed.
    """
    if not (folder / RESTORING / RESTORE_BEGUN).exists():
        raise ArchiveError(f"No restore into {folder} was interrupted. Nothing was changed.")
    with DataDirLock(folder):
        return finish_interrupted(folder)


def finish_interrupted(folder: Path) -> Path | None:
    """Complete a restore that was begun; where what was there before it is now, if there was any.

    Does nothing where none was begun. It can be interrupted anywhere and called again. Only while
    no program runs on the folder.

    Raises:
        StorageError: a name cannot be changed; nothing is lost, and it can be called again.
    """
    begun = folder / RESTORING / RESTORE_BEGUN
    try:
        if not begun.exists():
            return None
        plan = orjson.loads(begun.read_bytes())
        # First what was there goes aside, then what is new takes its names. What has its new name
        # already was moved before.
        for source, target in (*plan["aside"], *plan["put"]):
            _rename(folder / source, folder / target)
        begun.unlink()
        files.sync_folder(begun.parent)
    except OSError as exc:
        raise StorageError(
            f"The restore into {folder} could not be completed: {exc.strerror}. Nothing is lost: "
            f"mend that, and then `{confidant('restore --finish')}` completes it."
        ) from exc
    shutil.rmtree(folder / RESTORING, ignore_errors=True)
    return folder / plan["kept"] if plan["kept"] else None


def _rename(source: Path, target: Path) -> None:
    if not os.path.lexists(source) or os.path.lexists(target):
        return
    target.parent.mkdir(mode=MODE, parents=True, exist_ok=True)
    source.rename(target)
    files.sync_folder(target.parent)
    files.sync_folder(source.parent)


def remove_empty(folder: Path) -> None:
    """Remove a folder in which nothing is but the lock."""
    with suppress(OSError):
        if [path.name for path in folder.iterdir()] == [files.LOCK_NAME]:
            (folder / files.LOCK_NAME).unlink()
            folder.rmdir()


# --- restoring ------------------------------------------------------------------------------------

# What was forgotten after a backup was made stays forgotten when that is restored. Two databases
# tell: the one that is there now (its copies and its log, if it is lost), and that of the backup.


@dataclass(frozen=True, slots=True)
class Forgotten:
    """Everything forgotten where people talk now.

    `spaces` says how often something was in each space, `workspace` where the notes are that say
    nothing of it any more, `results` which long results of tools were removed.
    """

    workspace: Path
    removed: Removals = NOTHING
    spaces: Mapping[str, int] = field(default_factory=dict[str, int])
    results: Collection[str] = ()


async def forgotten_in_folder(
    folder: Path, workspace: Path, then: Path, scratch: Path, *, clock: Clock
) -> Forgotten:
    """Everything forgotten in a storage folder since a database was copied.

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


async def forgotten_on_server(config: Config, then: Path, workspace: Path) -> Forgotten:
    """Everything forgotten on a server since a database was copied; `workspace` gets its notes.

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
    async with await SqliteDatabase.open(then) as copy:
        results = await copy.read(
            lambda tx: tx.execute("SELECT id, session_id, at FROM artifacts ORDER BY id")
        )

    def removed(tx: Transaction, id_: str, session_id: str, at: int) -> bool:
        """True for what is not there although its conversation went on behind it."""
        return not tx.execute("SELECT 1 FROM artifacts WHERE id = ?", (id_,)) and bool(
            tx.execute(
                "SELECT 1 FROM entries WHERE session_id = ? AND at >= ? LIMIT 1", (session_id, at)
            )
        )

    def work(tx: Transaction) -> Forgotten:
        gone = tuple(str(row[0]) for row in results if removed(tx, *row))
        known = erasing.removals_of(tx)
        every = Removals(known.hidden | _waiting(tx), known.erased)
        return Forgotten(workspace, every, versions.numbers(tx), gone)

    return await here.read(work)


def _waiting(tx: Transaction) -> frozenset[tuple[str, int]]:
    """The forgotten blocks of entries that are not here, by id and block."""
    found = (key.rsplit("/", 1) for key in under(tx, WAITING))
    return frozenset((id_, int(block)) for id_, block in found)


async def settle_forgotten(
    path: Path, workspace: Path, forgotten: Forgotten, name: str, now: int
) -> tuple[int, int]:
    """Let a database from a backup and its notes know what was forgotten since.

    How much that was, and how many notes are as now because of it. What was asked, who was let in
    and what notes said before may be over since, too.

    Raises:
        ArchiveError: the disk does not take it.
    """
    try:
        async with await SqliteDatabase.open(path) as database:
            before = await database.read(versions.numbers)
            count, erased = await database.write(partial(_settle, forgotten, name, now))
        if erased:
            await asyncio.to_thread(compact, path)
        kept = await asyncio.to_thread(_settle_notes, workspace, forgotten, before, erased)
    except OSError as exc:
        raise ArchiveError(f"A note cannot be kept: {exc.strerror}. Nothing was changed.") from exc
    except StorageError as exc:
        raise ArchiveError(f"{name} cannot be restored: {exc} Nothing was changed.") from exc
    return count, kept


def _settle(
    forgotten: Forgotten, name: str, now: int, tx: Transaction
) -> tuple[int, list[ErasureMark]]:
    known = erasing.removals_of(tx)
    new = forgotten.removed.hidden - known.hidden - _waiting(tx)
    for id_, block in sorted(new):
        # Another backup may have what is not here.
        if not tx.execute("SELECT 1 FROM entries WHERE id = ?", (id_,)):
            keep(tx, f"{WAITING}{id_}/{block}", "", now)
    for id_ in forgotten.results:
        tx.execute("DELETE FROM artifacts WHERE id = ?", (id_,))
    salts = {mark.salt for mark in known.erased}
    erased = [mark for mark in forgotten.removed.erased if mark.salt not in salts]
    erasing.apply_removals(tx, forgotten.removed, now)
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
    workspace: Path,
    forgotten: Forgotten,
    before: Mapping[str, int],
    erased: Collection[ErasureMark],
) -> int:
    """Have the notes as they are now of whoever had something forgotten since; how many there are.

    Nothing says which words those were, so what the backup has of these notes is taken out of its
    `workspace`, and all of whoever was erased. `before` is how often something had been forgotten
    when it was made.
    """
    roots = [workspace, *(workspace / AGENTS).glob("*")]
    people = (folder for root in roots for folder in (root / layout.PEOPLE).glob("*"))
    for folder in [*people]:
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


_STEPS = 100_000  # of SQLite, between two looks whether to stop
_ASKED = 20  # of the newest entries that are indexed
_HITS = 50  # among which one of them has to be when its own words are asked for

Passphrase = Callable[[], str]


@dataclass(frozen=True, slots=True)
class RestoredBackup:
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
) -> RestoredBackup:
    """Put what a backup holds in the place of a storage folder and a workspace.

    `since` finds out what was forgotten where people talk now, if that is not in this folder.

    Raises:
        ArchiveRefused: the file cannot be restored; nothing was touched.
        StorageBusy: a program runs on the folder.
        ArchiveError: the disk does not take it; nothing was touched, or, from where the names
            change on, the message says what completes it.
    """
    place = Staging(folder, workspace)
    with ExitStack() as undoing:
        if not place.was_there:
            undoing.callback(remove_empty, folder)
        undoing.enter_context(DataDirLock(folder))
        files.must_not_be_restoring(folder)
        files.must_not_be_erasing(folder)
        place.must_be_movable()
        place.clear()
        undoing.callback(place.clear)  # unless it was begun: then all is said in the folder
        found = await unpack(archive, passphrase, place.new, place.workspace, advance)
        if since is None:
            known = await forgotten_in_folder(
                *(folder, place.old_workspace, found.database, place.restoring / "now"), clock=clock
            )
        else:
            known = await since(found.database, place.restoring)
        count, kept = await settle_forgotten(
            found.database, place.workspace, known, archive.name, clock()
        )
        place.begin(clock())
        aside = finish_interrupted(folder)
    _restored(found, count)
    return RestoredBackup(found.manifest, aside, count, kept)


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
) -> RestoredBackup | None:
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
        count, kept = await settle_forgotten(
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
    return RestoredBackup(found.manifest, forgotten=count, kept=kept, others=moved.others)


def forgotten_in(config: Config, clock: Clock) -> Since:
    """A `Since` for the place where people talk now, by the configuration."""

    async def since(database: Path, place: Path) -> Forgotten:
        if reveal(config.storage.url):
            return await forgotten_on_server(config, database, place / "now")
        folder, workspace = config.storage.folder, config.workspace
        return await forgotten_in_folder(folder, workspace, database, place / "now", clock=clock)

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
        async with await SqliteDatabase.open(found.database) as database:
            answers = await database.read(_answers)
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
        known = {archives.DATABASE: archives.DATABASE, archives.SETTINGS: SETTINGS}
        return folder / known[name] if name in known else None

    def work(advance: Advance) -> Manifest:
        name = archive.name
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with archive.open("rb") as file, tempfile.TemporaryFile(dir=folder) as opened:
                source: IO[bytes] = file
                if archives.is_sealed(file):
                    archives.open_sealed(file, name, passphrase(), opened, advance)
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
    async with await SqliteDatabase.open(database, keeps=False) as opened:  # the backup is the copy
        await opened.read(lambda tx: _must_have_tables(tx, archive.name))
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
        with closing(apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)) as connection:
            connection.set_progress_handler(go_on, _STEPS)
            _look(SqliteTransaction(connection), name, manifest)
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
