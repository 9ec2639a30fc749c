"""Verified backups of the database, and what is done when the database itself is damaged.

A backup counts only after it was opened and checked. A damaged database is never deleted: it is
set aside, and what the transcript files hold beyond the backup is read back from them. Until that
is done a mark beside the database says so, so that a crash or a full disk on the way loses nothing.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import apsw
import structlog

from bot.errors import StorageCorrupt, StorageError
from bot.storage import files
from bot.storage.sqlite import SqliteTransaction, mapped

FOLDER = "backups"
READ_BACK_MARK = "read-back.pending"
PAGES_PER_STEP = 1_000  # copied at a time, so that the writer is never held up for long
CHECK_BELOW = 64_000_000  # bytes; a larger database is checked by its backups, not at each start

log = structlog.get_logger(__name__)


def make(database: Path, kept: int, now: int) -> Path:
    """Copy a live database, verify the copy, drop the oldest beyond `kept`; the new backup.

    Raises:
        StorageError: it could not be written; earlier backups are untouched.
        StorageCorrupt: the copy is damaged, so the database is.
    """
    folder = database.parent / FOLDER
    final = folder / _name(database, now)
    beside = final.with_suffix(".tmp")
    with _told("The backup could not be written"):
        folder.mkdir(exist_ok=True, mode=0o700)
        _remove_unfinished(database)
        try:
            copy(database, beside)
            if not is_sound(beside):
                raise StorageCorrupt
            beside.replace(final)
        finally:
            _remove_unfinished(database)
        for old in newest_first(database, now)[kept:]:
            old.unlink(missing_ok=True)
        log.info("storage.backup", size=final.stat().st_size)
    return final


def copy(database: Path, target: Path) -> None:
    """Copy a live database as it is at this moment, whatever is written to it meanwhile.

    Raises:
        apsw.Error: it cannot be read, or the copy not be written.
        OSError: the copy cannot be made.
    """
    files.create(target)
    reader = apsw.Connection(str(database), flags=apsw.SQLITE_OPEN_READONLY)
    writer = apsw.Connection(str(target))
    try:
        # Within a transaction the pages are those of its beginning, so copying never begins anew.
        SqliteTransaction(reader).execute("BEGIN; SELECT 1 FROM sqlite_schema")
        with writer.backup("main", reader, "main") as copying:
            while not copying.done:
                copying.step(PAGES_PER_STEP)
    finally:
        writer.close()
        reader.close()


def newest_first(database: Path, now: int) -> list[Path]:
    """The backups of a database by the time in their names.

    Those from after `now` come last: the clock was wrong when they were made.
    """
    latest = _name(database, now)
    found = (database.parent / FOLDER).glob(f"{database.stem}-*.db")
    return sorted(found, key=lambda path: (path.name <= latest, path.name), reverse=True)


def is_sound(path: Path) -> bool:
    """Whether a file is a whole SQLite database.

    Raises:
        StorageError: that cannot be told now: the disk is full, say, or the file may not be read.
    """
    try:
        connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
        if _has_content(path.with_name(f"{path.name}-wal")):
            # Looking must not change a file that may be damaged: closing would write the log to it.
            connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        try:
            return SqliteTransaction(connection).execute("PRAGMA quick_check(1)") == [("ok",)]
        finally:
            connection.close()
    except (apsw.CorruptError, apsw.NotADBError):
        return False
    except apsw.Error as exc:
        raise mapped(exc) from exc


def check(database: Path) -> None:
    """Look at a database before it is opened; a new or a very large one passes.

    Raises:
        StorageCorrupt: it is damaged, or a restore was interrupted.
        StorageError: that cannot be told now.
    """
    if is_new(database):
        # A database that was emptied or half restored looks new, but its backups know better; one
        # that was moved away on purpose begins empty.
        if newest_first(database, 0) and (database.exists() or read_back_is_due(database)):
            raise StorageCorrupt
        return
    if database.stat().st_size <= CHECK_BELOW and not is_sound(database):
        raise StorageCorrupt


def is_new(database: Path) -> bool:
    """Whether nothing has been stored in a database yet."""
    return not _has_content(database)


def read_back_is_due(database: Path) -> bool:
    """Whether the transcript files may hold more than the database."""
    return database.with_name(READ_BACK_MARK).exists()


def mark_read_back(database: Path, *, due: bool) -> None:
    """Note that the transcript files must be read back, or that they were.

    Raises:
        StorageError: the note could not be made.
    """
    mark = database.with_name(READ_BACK_MARK)
    with _told("The storage folder cannot be written"):
        if due:
            mark.touch(mode=0o600)
        else:
            mark.unlink(missing_ok=True)


def restore(database: Path, now: int) -> Path:
    """Put the newest sound backup in the place of a damaged database, which is set aside.

    Returns the backup it came from.

    Raises:
        StorageCorrupt: there is none; nothing was changed, and the message says what to do.
        StorageError: the disk does not take it; the damaged database is still there.
    """
    for backup in newest_first(database, now):
        if is_sound(backup):
            break
    else:
        raise StorageCorrupt(
            f"The database {database} is damaged and there is no sound backup of it. Nothing was "
            "changed. Put a copy of your own in its place, or move it away to begin empty: the "
            f"transcripts in {database.parent / 'sessions'} are kept and are read back then, and "
            "what people had forgotten stays hidden."
        )
    beside = database.with_suffix(".restoring")
    mark_read_back(database, due=True)
    with _told("The backup could not be restored"):
        _duplicate(backup, beside)  # before anything is moved, so that a full disk changes nothing
        suffix = _free_suffix(database, now)
        for part in ("", "-wal", "-shm"):
            damaged = database.with_name(database.name + part)
            if damaged.exists():
                damaged.rename(damaged.with_name(damaged.name + suffix))
        beside.replace(database)
    log.error("storage.restored", backup=backup.name)
    return backup


@contextmanager
def _told(what: str) -> Generator[None]:
    """Turn what disk and database say into our errors."""
    try:
        yield
    except apsw.Error as exc:
        raise mapped(exc) from exc
    except OSError as exc:
        raise StorageError(f"{what}: {exc.strerror}.") from exc


def _has_content(path: Path) -> bool:
    return path.exists() and path.stat().st_size > 0


def _name(database: Path, now: int) -> str:
    return f"{database.stem}-{_moment(now)}.db"


def _moment(now: int) -> str:
    return f"{datetime.fromtimestamp(now / 1000, UTC):%Y%m%d-%H%M%S}"


def _free_suffix(database: Path, now: int) -> str:
    """What a damaged database is called from now on; an earlier one is never overwritten."""
    base = suffix = f".damaged-{_moment(now)}"
    number = 1
    while database.with_name(database.name + suffix).exists():
        number += 1
        suffix = f"{base}-{number}"
    return suffix


def _duplicate(source: Path, target: Path) -> None:
    try:
        with source.open("rb") as reader, open(target, "wb", opener=files.opener) as writer:
            shutil.copyfileobj(reader, writer)
            writer.flush()
            os.fsync(writer.fileno())
    except OSError:
        target.unlink(missing_ok=True)
        raise


def _remove_unfinished(database: Path) -> None:
    """Copies that a crash or a full disk left unfinished, with SQLite's files beside them."""
    for left in (database.parent / FOLDER).glob(f"{database.stem}-*.tmp*"):
        left.unlink(missing_ok=True)
