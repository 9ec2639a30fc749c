"""Restoring a backup: checked whole beside what is there, then put in its place by renaming.

Until all of it lies in `restoring/`, checked and on the disk, nothing that was there is touched.
Then a file says which names have to be changed, and from there on there is only one way: forward,
by this program or by whoever calls `finish_interrupted`. What was there is kept aside.

What was forgotten after the backup was made stays forgotten: the journal and the database that are
there say what that was.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath

import apsw
import orjson
import structlog

from bot.archive import container, seal
from bot.archive.container import Advance, Manifest
from bot.clock import Clock
from bot.errors import ArchiveError, StorageError
from bot.memory import layout, versions
from bot.memory.memory import INDEX_FOLDER
from bot.recovery import TRANSCRIPTS, Restored, note
from bot.sessions import approvals, journal_records, page_logins
from bot.storage import Transaction, backup, files, journal, schema
from bot.storage.files import DATABASE_NAME, RESTORE_BEGUN, RESTORING, DataDirLock
from bot.storage.sqlite import SqliteDatabase
from bot.storage.sqlite_sql import SqliteTransaction

ASIDE = "before-restore-"  # what the folder of what was there begins with
SETTINGS = "restored-settings.toml"  # what the backup says of the configuration, to be compared
_NEW = "new"
_MODE = 0o700
_SAYS = frozenset({"forgotten", "dropped"})  # lines of a journal that hold whatever came before

Passphrase = Callable[[], str]

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Done:
    """A backup that was restored.

    `aside` is where what was there is now, None where there was nothing. `forgotten` counts what
    was forgotten since and stays so, `kept` the notes left as they were because of that.
    """

    manifest: Manifest
    aside: Path | None
    forgotten: int = 0
    kept: int = 0


@dataclass(frozen=True, slots=True)
class Forgotten:
    """What was forgotten where a backup is restored to.

    `lines` are those of the journal, `spaces` how often something was in each space.
    """

    lines: tuple[str, ...] = ()
    spaces: tuple[tuple[str, int], ...] = ()


async def restore(
    archive: Path,
    folder: Path,
    workspace: Path,
    passphrase: Passphrase,
    *,
    clock: Clock,
    advance: Advance = lambda _size: None,
) -> Done:
    """Put what a backup holds into a storage folder and its workspace.

    Raises:
        ArchiveRefused: the file cannot be restored; nothing was touched.
        ArchiveError: it cannot be restored here; nothing was touched.
        StorageBusy: a program runs on the folder.
        StorageError: the folder cannot be used.
    """
    place = _Place(folder, workspace)
    with ExitStack() as stack:
        if not place.was_there:  # if all goes well it is not empty then
            stack.callback(_remove_empty, folder)
        stack.enter_context(DataDirLock(folder))
        files.must_not_be_restoring(folder)
        place.must_be_movable()
        place.clear()
        stack.callback(place.clear)
        manifest = await asyncio.to_thread(unpack, archive, passphrase, place.of, advance)
        before = await asyncio.to_thread(check_database, archive.name, manifest, place.database)
        forgotten = await asyncio.to_thread(_forgotten, folder)
        kept = await asyncio.to_thread(_keep_notes, place, forgotten, before)
        count = await _settle(place, forgotten, archive.name, clock())
        place.begin(clock())
        aside = finish_interrupted(folder)
    log.info("archive.restored", members=len(manifest.members), forgotten=count, notes_kept=kept)
    return Done(manifest, aside, count, kept)


def rehearse(
    archive: Path, scratch: Path, passphrase: Passphrase, advance: Advance = lambda _size: None
) -> Manifest:
    """Restore a backup into an empty folder that is thrown away, and look whether all is there.

    Raises:
        ArchiveRefused: it could not be restored.
        ArchiveError: it cannot be read, or the disk does not take it.
    """
    manifest = unpack(archive, passphrase, lambda name: scratch / name, advance)
    check_database(archive.name, manifest, scratch / DATABASE_NAME)
    return manifest


def unpack(
    archive: Path,
    passphrase: Passphrase,
    place: Callable[[str], Path],
    advance: Advance = lambda _size: None,
) -> Manifest:
    """Check a whole backup and write its files to where `place` says; for a thread.

    `advance` hears how many bytes more of the archive were read.

    Raises:
        ArchiveRefused: it cannot be restored.
        ArchiveError: it cannot be read, or the disk does not take it.
    """
    read = 0
    try:
        with (
            archive.open("rb") as file,
            seal.opened(file, archive.name, passphrase) as source,
        ):

            def step(_size: int) -> None:
                nonlocal read
                read, before = file.tell(), read
                advance(read - before)

            return container.unpack(source, archive.name, place, step)
    except OSError as exc:
        raise ArchiveError(
            f"{archive} cannot be restored: {exc.strerror}. Nothing was changed."
        ) from exc


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
            "mend that, and then `confidant restore --finish` completes it."
        ) from exc
    shutil.rmtree(folder / RESTORING, ignore_errors=True)
    return folder / plan["kept"] if plan["kept"] else None


def _rename(source: Path, target: Path) -> None:
    if not os.path.lexists(source) or os.path.lexists(target):
        return
    target.parent.mkdir(mode=_MODE, parents=True, exist_ok=True)
    source.rename(target)
    files.sync_folder(target.parent)
    files.sync_folder(source.parent)


class _Place:
    """Where a backup is unpacked: beside what it will take the place of."""

    def __init__(self, folder: Path, workspace: Path) -> None:
        workspace = workspace.resolve()  # what a link leads to takes part, and the link stays
        self.was_there = folder.exists()
        self.folder = folder
        self.restoring = folder / RESTORING
        self.new = self.restoring / _NEW
        self.old_workspace = workspace
        self.is_inside = workspace.is_relative_to(folder.resolve())
        self.workspace = (
            self.new / container.WORKSPACE
            if self.is_inside
            else workspace.with_name(f".{workspace.name}.restoring")
        )

    @property
    def database(self) -> Path:
        """That of the backup."""
        return self.new / DATABASE_NAME

    def of(self, name: str) -> Path:
        """Where a file of an archive belongs."""
        first, _, rest = name.partition("/")
        if first == container.WORKSPACE:
            return self.workspace / rest
        return self.new / (SETTINGS if name == container.SETTINGS else name)

    def must_be_movable(self) -> None:
        """Make sure that what is there can get other names.

        Raises:
            ArchiveError: it cannot.
        """
        for path in (*_parts(self.folder), self.old_workspace):
            if path.is_mount():
                raise ArchiveError(
                    f"{path} is a file system of its own, so it cannot be put aside. Nothing was "
                    "changed: restore into a folder inside of it (CONFIDANT_STORAGE__DIR, "
                    "CONFIDANT_MEMORY__WORKSPACE)."
                )

    def clear(self) -> None:
        """Remove what an earlier try left; nothing of it counts unless it was begun."""
        for path in (self.restoring, self.workspace):
            if not (self.restoring / RESTORE_BEGUN).exists():
                shutil.rmtree(path, ignore_errors=True)

    def begin(self, now: int) -> None:
        """Say what is to be done, once all that is new is on the disk: the way back ends here.

        Raises:
            StorageError: the disk does not take it; nothing was changed.
        """
        try:
            self.workspace.mkdir(mode=_MODE, parents=True, exist_ok=True)
            (self.new / TRANSCRIPTS).mkdir(mode=_MODE, exist_ok=True)
            for top in (self.new, self.workspace):
                for parent, _, _ in os.walk(top):
                    Path(parent).chmod(_MODE)
                    files.sync_folder(Path(parent))
            beside = self.restoring / f"{RESTORE_BEGUN}.tmp"
            with open(beside, "wb", opener=files.opener) as file:
                file.write(orjson.dumps(self._plan(now)))
                file.flush()
                os.fsync(file.fileno())
            files.sync_folder(self.restoring)
            files.sync_folder(self.folder)
            beside.replace(self.restoring / RESTORE_BEGUN)
        except OSError as exc:
            raise StorageError(
                f"The backup was not restored: {exc.strerror}. Nothing was changed."
            ) from exc

    def _plan(self, now: int) -> dict[str, object]:
        """Which names change: pairs of the old one and the new one, in order."""
        moment = f"{datetime.fromtimestamp(now / 1000, UTC):%Y%m%d-%H%M%S}"
        aside = _free(self.folder / f"{ASIDE}{moment}")
        moved = [(path, aside / path.relative_to(self.folder)) for path in _parts(self.folder)]
        if self.old_workspace.exists():
            name = f"{self.old_workspace.name}-{aside.name}"
            beside = _free(self.old_workspace.with_name(name))
            to = aside / container.WORKSPACE if self.is_inside else beside
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


def _parts(folder: Path) -> Iterator[Path]:
    """What of a storage folder belongs to its database, as far as it is there."""
    names = (DATABASE_NAME, f"{DATABASE_NAME}-wal", f"{DATABASE_NAME}-shm")
    more = (container.JOURNAL, TRANSCRIPTS, INDEX_FOLDER, backup.READ_BACK_MARK, SETTINGS)
    for name in (*names, *more):
        if os.path.lexists(folder / name):
            yield folder / name
    yield from sorted(folder.glob(f"{container.JOURNAL}.kept-*"))
    stem = Path(DATABASE_NAME).stem
    yield from sorted((folder / backup.FOLDER).glob(f"{stem}-*.db"))


def _remove_empty(folder: Path) -> None:
    """Remove a folder in which nothing is but the lock."""
    with suppress(OSError):
        if [path.name for path in folder.iterdir()] == [files.LOCK_NAME]:
            (folder / files.LOCK_NAME).unlink()
            folder.rmdir()


def _free(path: Path) -> Path:
    """A name that nothing has yet."""
    number, free = 1, path
    while os.path.lexists(free):
        number += 1
        free = path.with_name(f"{path.name}-{number}")
    return free


# --- what the backup is, and what was forgotten since ---------------------------------------------


def check_database(name: str, manifest: Manifest, path: Path) -> dict[str, int]:
    """Make sure that a database from a backup is whole; how often was forgotten in each space.

    Raises:
        ArchiveRefused: it is not, or not one of ours.
    """
    try:
        connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
        try:
            tx = SqliteTransaction(connection)
            tx.execute("PRAGMA trusted_schema = OFF")
            if tx.execute("PRAGMA integrity_check(1)") != [("ok",)]:
                raise container.damaged(name)
            found = tx.execute("SELECT type, name FROM sqlite_schema")
            if any(kind not in {"table", "index"} for kind, _ in found):
                raise container.altered(name, "its database does things by itself")
            version = int(tx.execute("SELECT max(version) FROM schema_versions")[0][0])
            if version > schema.VERSION:
                raise container.newer(name, {"program": "unknown", "schema": version})
            names = {str(each) for _, each in found}
            for table, rows in manifest.rows.items():
                if table not in names or rows != tx.execute(f"SELECT count(*) FROM {table}")[0][0]:
                    raise container.altered(name, f"its table {table!r} is not what it was")
            return versions.numbers(tx) if "forgotten_spaces" in names else {}
        finally:
            connection.close()
    except (apsw.Error, TypeError) as exc:
        raise container.damaged(name) from exc


def _forgotten(folder: Path) -> Forgotten:
    """What was forgotten where a backup is restored to, by the journal and the database.

    Raises:
        ArchiveError: the journal cannot be read.
    """
    lines: dict[str, None] = {}
    spaces: dict[str, int] = {}
    path = folder / DATABASE_NAME
    try:
        for file in (journal.file_of(path), *sorted(folder.glob(f"{container.JOURNAL}.kept-*"))):
            position = 0
            while batch := journal.lines(file, position):
                position += sum(map(len, batch))
                lines |= dict.fromkeys(_forgettings(batch))
    except OSError as exc:
        raise ArchiveError(
            f"The journal in {folder} cannot be read: {exc.strerror}. It says what was forgotten, "
            "so nothing is restored without it. Nothing was changed: mend that, or move it away."
        ) from exc
    if path.exists():
        try:
            connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
            try:
                tx = SqliteTransaction(connection)
                rows = tx.execute("SELECT line FROM journal ORDER BY seq")
                lines |= dict.fromkeys(_forgettings([str(row[0]).encode() for row in rows]))
                spaces = versions.numbers(tx)
            finally:
                connection.close()
        except apsw.Error as exc:  # it may be what a backup is restored for
            log.warning("archive.database_unreadable", error=type(exc).__name__)
    return Forgotten(tuple(lines), tuple(spaces.items()))


def _forgettings(batch: list[bytes]) -> Iterator[str]:
    for raw in batch:
        clean = raw.strip(b"\0\n")
        record = journal_records.parse(clean)
        if record is not None and record.kind in _SAYS:
            yield clean.decode()


async def _settle(place: _Place, forgotten: Forgotten, name: str, now: int) -> int:
    """Let the restored database know what was forgotten since; how much that is.

    What was asked, who was let in and what notes said before may be over since, too.
    """
    database = await SqliteDatabase.open(place.database, keeps=False)  # the backup is the copy
    try:
        known = await database.read(journal.digests)
        new = [line for line in forgotten.lines if hash(line) not in known]

        def work(tx: Transaction) -> int:
            if journal.end(tx) == len(journal.HEADER):  # it comes from a server, which has none
                for line in journal_records.everything(tx):
                    tx.note(line)
            subjects: set[str] = set()
            for line in new:
                record = journal_records.parse(line.encode())
                if record is not None:
                    journal_records.apply(tx, line, record, now)
                    tx.note(line)
                    subjects.add(record.subject)
            for space, number in forgotten.spaces:
                tx.execute(
                    "INSERT INTO forgotten_spaces(space, number) VALUES (?, ?) ON CONFLICT(space) "
                    "DO UPDATE SET number = max(forgotten_spaces.number, excluded.number)",
                    (space, number),
                )
            approvals.drop_all(tx)
            page_logins.drop_all(tx)
            versions.clear(tx)
            note(tx, Restored(now, name, counts={"forgotten": len(subjects)}))
            return len(subjects)

        return await database.write(work)
    finally:
        await database.close()


def _keep_notes(place: _Place, forgotten: Forgotten, before: dict[str, int]) -> int:
    """Leave the notes as they are of whoever had something forgotten since; how many there are.

    Nothing says which words those were, so what the backup has of these notes is not put back.

    Raises:
        ArchiveError: the disk does not take them.
    """
    spaces = {space for space, number in forgotten.spaces if number > before.get(space, 0)}
    if not spaces:
        return 0
    try:
        for path in _notes(place.workspace, spaces):
            (place.workspace / path).unlink()
        kept = 0
        for path in _notes(place.old_workspace, spaces):
            target = place.workspace / path
            target.parent.mkdir(mode=_MODE, parents=True, exist_ok=True)
            shutil.copy2(place.old_workspace / path, target)
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
