"""Making a backup while the program runs: one moment of the database, and all that goes with it.

The database is copied first, and what it says decides the rest: transcripts are written
as it has them, so that they belong to the same moment. Notes are read after it. Everything is put
together beside, under a name of its own, which the file gets only when all of it is on the disk.
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
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import apsw

from bot.archive import container, seal
from bot.archive.container import Head, Manifest, Writer
from bot.archive.work import Advance, Copying, in_thread, nobody, unheard
from bot.channel import reveal
from bot.clock import Clock
from bot.config import Config
from bot.errors import ArchiveBusy, ArchiveError
from bot.move import tables
from bot.recovery import TRANSCRIPTS
from bot.sessions import store, transcript_files
from bot.storage import backup, files
from bot.storage.files import DATABASE_NAME
from bot.storage.sqlite_sql import SqliteTransaction, mapped

PARTIAL = ".partial"  # what a backup's name ends in until it is whole
_SPOOLED = 16_000_000  # bytes of a note that are read at once; a larger one goes through a file
_MODE = 0o700


@dataclass(frozen=True, slots=True)
class Content:
    """What goes into a backup.

    `database` is a copy that nobody else uses. `folder` is the storage folder it belongs to, with
    what only files hold; None for a server. `settings` is the configuration without secrets.
    """

    database: Path
    workspace: Path
    folder: Path | None
    settings: str


@dataclass(frozen=True, slots=True)
class Made:
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
    except OSError as exc:
        os.close(lock)
        raise ArchiveBusy from exc
    return lock


def check_target(target: Path, workspace: Path) -> None:
    """Make sure that a backup can be written there.

    Raises:
        ArchiveError: it cannot.
    """
    if target.exists():
        raise ArchiveError(f"{target} is there already. Nothing was changed: choose another name.")
    if not target.parent.is_dir():
        raise ArchiveError(f"There is no folder {target.parent}. Make it first.")
    if target.resolve().is_relative_to(workspace.resolve()):
        raise ArchiveError(f"{target} is in the workspace, which is backed up: choose elsewhere.")


def size_of(content: Content) -> int:
    """About how many bytes go into a backup; notes may change meanwhile.

    Raises:
        ArchiveError: a folder cannot be looked into.
    """
    with _transaction(content.database) as tx:
        said = int(tx.execute("SELECT coalesce(sum(mirror_bytes), 0) FROM sessions")[0][0])
    notes = sum(map(_size, _files(content.workspace, content.folder)))
    return content.database.stat().st_size + said + notes


def _size(path: Path) -> int:
    """How long a file is, in bytes; 0 for one that has gone."""
    try:
        return path.lstat().st_size
    except OSError:
        return 0


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
) -> Made:
    """Write a backup of everything there is now; programs may run meanwhile.

    `begin` hears about how many bytes there are, once that is known, and `advance` of each;
    `copying` how far the copy of a server's database is, which comes first.

    Raises:
        ArchiveError: it could not be made; nothing is left of it.
        StorageError: the database cannot be read.
        ConfigError: it is a server's, and the extra for it is not installed.
    """
    folder, url = config.storage.folder, reveal(config.storage.url)
    check_target(target, config.workspace)
    async with stage(folder) as place:
        if url:
            from bot.archive import server  # noqa: PLC0415 - its packages are an extra

            head = Head(clock(), "server")
            await server.copied(url, config.storage.cluster, place, clock, copying)
            content = Content(place / DATABASE_NAME, place / container.WORKSPACE, None, settings)
        else:
            head = Head(clock(), "folder")
            copy = place / DATABASE_NAME
            await in_thread(lambda step: _copy(folder, copy, step))
            content = Content(copy, config.workspace, folder, settings)
        begin(await in_thread(lambda _step: size_of(content)))
        return await in_thread(
            lambda step: pack(content, target, head, passphrase, advance=step), advance
        )


def _copy(folder: Path, target: Path, advance: Advance) -> None:
    """Copy the database of a storage folder.

    Raises:
        ArchiveError: there is none, or the copy cannot be written.
        StorageError: it cannot be read.
    """
    database = folder / DATABASE_NAME
    files.must_not_be_restoring(folder)
    files.must_not_be_erasing(folder)
    if not database.exists():
        raise ArchiveError(f"There is no database in {folder}: nothing can be backed up.")
    try:
        backup.copy(database, target, advance)
    except apsw.FullError as exc:
        raise _not_made(target.parent, "the disk is full") from exc
    except apsw.Error as exc:
        raise mapped(exc) from exc
    except OSError as exc:
        raise _not_made(target.parent, str(exc.strerror)) from exc


def pack(
    content: Content,
    target: Path,
    head: Head,
    passphrase: str | None,
    *,
    advance: Advance = unheard,
) -> Made:
    """Write a backup; for a thread.

    Raises:
        ArchiveError: it could not be written; nothing is left of it.
    """
    beside = target.with_name(f".{target.name}{PARTIAL}")
    try:
        beside.unlink(missing_ok=True)
        with open(beside, "xb", opener=files.opener) as file:
            with ExitStack() as stack:
                into: IO[bytes] = file
                if passphrase is not None:
                    into = stack.enter_context(seal.sealing(file, passphrase))
                writer = Writer(into, head, advance)
                left = _fill(writer, content)
                manifest = writer.finish(_rows(content.database))
            file.flush()
            os.fsync(file.fileno())
            size = file.tell()
        beside.replace(target)
        files.sync_folder(target.parent)
    except OSError as exc:
        why = "the disk is full" if exc.errno == errno.ENOSPC else str(exc.strerror)
        raise _not_made(target, why) from exc
    except apsw.FullError as exc:
        raise _not_made(target, "the disk is full") from exc
    except apsw.Error as exc:
        raise mapped(exc) from exc
    finally:
        with suppress(OSError):
            beside.unlink(missing_ok=True)
    return Made(target, size, manifest, left)


def _not_made(where: Path, why: str) -> ArchiveError:
    return ArchiveError(
        f"The backup was not made: {where}: {why}. What was there before is as it was."
    )


def _fill(writer: Writer, content: Content) -> int:
    """Add everything; how many things had to be left."""
    made_at = writer.head.made_at * 1_000_000
    with content.database.open("rb") as file:
        writer.add(container.DATABASE, file, made_at)
    with _transaction(content.database) as tx:
        for session_id, changed_at in tx.execute(
            "SELECT id, last_user_at FROM sessions ORDER BY id"
        ):
            data = "".join(f"{line}\n" for line in store.lines(tx, str(session_id))).encode()
            name = f"{container.TRANSCRIPTS}/{session_id}.jsonl"
            writer.add(name, io.BytesIO(data), int(changed_at) * 1_000_000)
    left = 0
    beside = content.database.parent
    if content.folder is not None:
        for path in sorted(content.folder.glob(f"{container.JOURNAL}.kept-*")):
            left += not _add(writer, path, path.name, beside)
        for path in sorted(transcript_files.everything(content.folder / TRANSCRIPTS)):
            if ".jsonl.kept-" in path.name:
                left += not _add(writer, path, f"{container.TRANSCRIPTS}/{path.name}", beside)
    for path in _files(content.workspace, content.folder):
        name = path.relative_to(content.workspace).as_posix()
        left += not _add(writer, path, f"{container.WORKSPACE}/{name}", beside)
    if content.settings:
        settings = io.BytesIO(content.settings.encode())
        writer.add(container.SETTINGS, settings, made_at)
    return left


def _add(writer: Writer, path: Path, name: str, beside: Path) -> bool:
    """Add a file as it is now; False for what is none, or has gone.

    What does not fit into memory is put into `beside` for a while.
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
        with tempfile.SpooledTemporaryFile(_SPOOLED, dir=str(beside)) as copy:
            shutil.copyfileobj(source, copy, container.CHUNK)
            copy.seek(0)
            writer.add(name, copy, status.st_mtime_ns)
    return True


def _files(workspace: Path, folder: Path | None) -> Iterator[Path]:
    """Everything in the workspace, but what may hold secrets, and what has its own place here."""

    def refuse(error: OSError) -> None:
        raise ArchiveError(
            f"The backup was not made: {error.filename} cannot be looked into ({error.strerror})."
        ) from error

    if not workspace.is_dir():
        return
    own = folder.resolve() if folder is not None else None
    for parent, inner, names in os.walk(workspace, onerror=refuse):
        inner[:] = sorted(name for name in inner if Path(parent, name).resolve() != own)
        links = [name for name in inner if Path(parent, name).is_symlink()]
        for name in sorted((*names, *links)):
            if name != ".env" and not name.startswith(".env."):
                yield Path(parent, name)


def _rows(database: Path) -> dict[str, int]:
    """How many rows each table has."""
    with _transaction(database) as tx:
        return {
            table.name: int(tx.execute(f"SELECT count(*) FROM {table.name}")[0][0])
            for table in tables.known()
        }


@contextmanager
def _transaction(database: Path) -> Generator[SqliteTransaction]:
    connection = apsw.Connection(str(database), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        yield SqliteTransaction(connection)
    finally:
        connection.close()


def _empty(place: Path) -> None:
    for path in place.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
