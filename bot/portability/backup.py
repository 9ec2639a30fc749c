"""Making a backup while the program runs: one moment of the database, and all that goes with it.

The database is copied first, and transcripts are written as that copy has them, so that they belong
to the same moment. Notes are read after it. Everything is put together beside, under a name of its
own, which the file gets only when all of it is on the disk.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import io
import os
import shutil
import stat
import tempfile
from collections.abc import AsyncGenerator, Callable, Generator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import apsw

from bot.channel import reveal
from bot.clock import Clock
from bot.config import Config
from bot.errors import ArchiveBusy, ArchiveError
from bot.portability import archive, places
from bot.portability.archive import (
    Advance,
    Copying,
    Head,
    Manifest,
    Writer,
    in_thread,
    nobody,
    unheard,
)
from bot.portability.move import Move
from bot.portability.places import all_tables
from bot.sessions import store
from bot.storage import Transaction, backup, files
from bot.storage.files import DATABASE_NAME
from bot.storage.records import MOVE, drop_under
from bot.storage.sqlite_sql import SqliteTransaction, mapped

_SPOOLED = 16_000_000  # bytes of a note that are read at once; a larger one goes through a file
_MODE = 0o700


@dataclass(frozen=True, slots=True)
class Content:
    """The contents of a backup.

    `database` is a copy that nobody else uses, `storage` the storage folder, which may be within
    the workspace, `settings` the configuration without secrets.
    """

    database: Path
    workspace: Path
    storage: Path
    settings: str


@dataclass(frozen=True, slots=True)
class MadeBackup:
    """A backup that was made; `left` counts links and other things that are no plain files."""

    path: Path
    size: int
    manifest: Manifest
    left: int


@asynccontextmanager
async def stage(folder: Path) -> AsyncGenerator[Path]:
    """An empty folder of this machine's to put a backup together in; one at a time.

    Raises:
        ArchiveBusy: another backup is being made.
        ArchiveError: the folder cannot be used.
    """
    place = folder / backup.FOLDER / backup.STAGE
    lock = await asyncio.to_thread(_locked, place)
    try:
        await asyncio.to_thread(_empty, place)
        try:
            yield place
        finally:
            await asyncio.to_thread(_empty, place)
    finally:
        os.close(lock)


def _locked(place: Path) -> int:
    """Make a folder, unless it is there, and lock it."""
    try:
        place.parent.mkdir(mode=_MODE, parents=True, exist_ok=True)  # parents get another mode
        place.mkdir(mode=_MODE, exist_ok=True)
        lock = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as exc:
        raise ArchiveError(f"{place} cannot be used: {exc.strerror}.") from exc
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as exc:
        os.close(lock)
        raise ArchiveBusy from exc
    except OSError as exc:
        os.close(lock)
        raise ArchiveError(f"{place} cannot be locked: {exc.strerror}.") from exc
    return lock


def _empty(place: Path) -> None:
    for path in place.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


async def make(
    config: Config,
    target: Path,
    passphrase: str | None,
    settings: str,
    *,
    clock: Clock,
    begin: Callable[[int], object] = unheard,
    advance: Advance = unheard,
    copying: Copying = nobody,
) -> MadeBackup:
    """Write a backup of everything there is now; programs may run meanwhile.

    `begin` hears about how many bytes there are, once that is known, and `advance` of each;
    `copying` how far the copy of a server's database is, which comes first.

    Raises:
        ArchiveError: it could not be made; nothing is left of it.
        StorageError: the database cannot be read.
        ConfigError: it is a server's, and the extra for it is not installed.
    """
    folder, url, workspace = config.storage.folder, reveal(config.storage.url), config.workspace
    _check_target(target, workspace)
    async with stage(folder) as place:
        head = Head(clock(), "server" if url else "folder")
        copy = place / DATABASE_NAME
        if url:
            await _copy_server(url, config.storage.cluster, place, clock, copying)
            workspace = place / places.WORKSPACE
        else:
            await in_thread(lambda step: _copy(folder, copy, step))
        content = Content(copy, workspace, folder, settings)
        begin(await in_thread(lambda _step: _size_of(content)))
        return await in_thread(
            lambda step: pack(content, target, head, passphrase, advance=step), advance
        )


def _check_target(target: Path, workspace: Path) -> None:
    if target.exists():
        raise ArchiveError(f"{target} is there already. Nothing was changed: choose another name.")
    if not target.parent.is_dir():
        raise ArchiveError(f"There is no folder {target.parent}. Make it first.")
    if target.resolve().is_relative_to(workspace.resolve()):
        raise ArchiveError(f"{target} is in the workspace, which is backed up: choose elsewhere.")


async def _copy_server(
    url: str, cluster: str, folder: Path, clock: Clock, copying: Copying
) -> None:
    """Make an empty folder a storage folder with everything that a server has, notes as files.

    Raises:
        StorageError: the server cannot be used, or the disk does not take it.
        ConfidantError: a note cannot be written.
    """
    async with places.server_now(url, cluster) as source, places.folder(folder) as target:
        await Move(source, target, clock, advance=copying).run()
        # It is nothing that was moved, but what was there.
        await target.database.write(lambda tx: drop_under(tx, MOVE))


def _copy(folder: Path, target: Path, advance: Advance) -> None:
    """Copy the database of a storage folder."""
    database = folder / DATABASE_NAME
    files.must_not_be_restoring(folder)
    files.must_not_be_erasing(folder)
    if not database.exists():
        raise ArchiveError(f"There is no database in {folder}: nothing can be backed up.")
    with _told(target.parent):
        backup.copy(database, target, advance)


def pack(
    content: Content,
    target: Path,
    head: Head,
    passphrase: str | None,
    *,
    advance: Advance = unheard,
) -> MadeBackup:
    """Write a backup; for a thread.

    Raises:
        ArchiveError: it could not be written; nothing is left of it.
    """
    with (
        _told(target),
        files.made(target) as file,
        tempfile.TemporaryFile(dir=content.database.parent) as plain,
    ):
        writer = Writer(file if passphrase is None else plain, head, advance)
        left = _fill(writer, content)
        with _transaction(content.database) as tx:
            manifest = writer.finish({each.name: each.count(tx) for each in all_tables()})
        if passphrase is not None:
            plain.seek(0)
            archive.seal(plain, file, passphrase, advance)
        size = file.tell()
    return MadeBackup(target, size, manifest, left)


@contextmanager
def _told(where: Path) -> Generator[None]:
    """Say what the disk or the database does not take."""
    try:
        yield
    except apsw.FullError as exc:
        raise _not_made(where, "the disk is full") from exc
    except apsw.Error as exc:
        raise mapped(exc) from exc
    except OSError as exc:
        why = "the disk is full" if exc.errno == errno.ENOSPC else str(exc.strerror)
        raise _not_made(where, why) from exc


def _not_made(where: Path, why: str) -> ArchiveError:
    return ArchiveError(
        f"The backup was not made: {where}: {why}. What was there before is as it was."
    )


def _fill(writer: Writer, content: Content) -> int:
    """Add everything; how many things had to be left."""
    with content.database.open("rb") as file:
        writer.add(archive.DATABASE, file)
    with _transaction(content.database) as tx:
        for id_, changed_at in tx.execute("SELECT id, last_user_at FROM sessions ORDER BY id"):
            data = "".join(f"{line}\n" for line in store.lines(tx, str(id_))).encode()
            name = f"{archive.TRANSCRIPTS}/{id_}.jsonl"
            writer.add(name, io.BytesIO(data), int(changed_at) * 1_000_000)
    left = 0
    for path in _notes(content):
        left += not _add(writer, path, content)
    if content.settings:
        writer.add(archive.SETTINGS, io.BytesIO(content.settings.encode()))
    return left


def _add(writer: Writer, path: Path, content: Content) -> bool:
    """Add a file as it is now; False for what is none, or has gone.

    What does not fit into memory is put beside the copy of the database for a while.
    """
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as exc:
        if exc.errno in {errno.ENOENT, errno.ELOOP, errno.ENXIO}:
            return False
        raise ArchiveError(
            f"The backup was not made: {path} cannot be read ({exc.strerror}). Mend that, or take "
            "it away."
        ) from exc
    with os.fdopen(file, "rb") as source:
        status = os.fstat(source.fileno())
        if not stat.S_ISREG(status.st_mode):
            return False
        # It may be changed while it is read, so it is read once.
        with tempfile.SpooledTemporaryFile(_SPOOLED, dir=str(content.database.parent)) as copy:
            shutil.copyfileobj(source, copy, archive.CHUNK)
            copy.seek(0)
            name = path.relative_to(content.workspace).as_posix()
            writer.add(f"{archive.WORKSPACE}/{name}", copy, status.st_mtime_ns)
    return True


def _notes(content: Content) -> Iterator[Path]:
    """Everything in the workspace, but what may hold secrets, and the storage folder."""

    def refuse(error: OSError) -> None:
        raise ArchiveError(
            f"The backup was not made: {error.filename} cannot be looked into ({error.strerror})."
        ) from error

    workspace, own = content.workspace, content.storage.resolve()
    if not workspace.is_dir():
        return
    for parent, inner, names in os.walk(workspace, onerror=refuse):
        inner[:] = sorted(name for name in inner if Path(parent, name).resolve() != own)
        links = [name for name in inner if Path(parent, name).is_symlink()]
        for name in sorted((*names, *links)):
            if name != ".env" and not name.startswith(".env."):
                yield Path(parent, name)


def _size_of(content: Content) -> int:
    """About how many bytes go into a backup; notes may change meanwhile."""
    with _transaction(content.database) as tx:
        size = int(tx.execute("SELECT coalesce(sum(mirror_bytes), 0) FROM sessions")[0][0])
    for path in (content.database, *_notes(content)):
        with suppress(OSError):  # it has gone
            size += path.lstat().st_size
    return size


@contextmanager
def _transaction(database: Path) -> Generator[Transaction]:
    with closing(apsw.Connection(str(database), flags=apsw.SQLITE_OPEN_READONLY)) as connection:
        yield SqliteTransaction(connection)
