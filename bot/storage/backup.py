"""Verified backups of the database, and what is done when the database itself is damaged.

A backup counts only after it was opened and checked. A damaged database is never deleted: it is
set aside, and what the transcript files hold beyond the backup is read back from them.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import apsw
import structlog

from bot.errors import StorageCorrupt, StorageError
from bot.storage.sqlite import mapped, run

FOLDER = "backups"
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
    moment = datetime.fromtimestamp(now / 1000, UTC)
    final = folder / f"{database.stem}-{moment:%Y%m%d-%H%M%S}.db"
    beside = final.with_suffix(".tmp")
    try:
        folder.mkdir(exist_ok=True, mode=0o700)
        beside.unlink(missing_ok=True)
        _copy(database, beside)
        beside.chmod(0o600)
        if not is_sound(beside):
            raise StorageCorrupt
        beside.replace(final)
    except apsw.Error as exc:
        raise mapped(exc) from exc
    except OSError as exc:
        raise StorageError(f"The backup could not be written: {exc.strerror}.") from exc
    finally:
        beside.unlink(missing_ok=True)
    for old in newest_first(database)[kept:]:
        old.unlink(missing_ok=True)
    log.info("storage.backup", size=final.stat().st_size)
    return final


def newest_first(database: Path) -> list[Path]:
    """The backups of a database; their names sort by time."""
    return sorted((database.parent / FOLDER).glob(f"{database.stem}-*.db"), reverse=True)


def is_sound(path: Path) -> bool:
    """Whether a file is a whole SQLite database."""
    try:
        connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
        try:
            return run(connection, "PRAGMA quick_check(1)") == [("ok",)]
        finally:
            connection.close()
    except apsw.Error:
        return False


def check(database: Path) -> None:
    """Look at a database before it is opened; a new or a very large one passes.

    Raises:
        StorageCorrupt: it is damaged.
    """
    if not database.exists() or database.stat().st_size > CHECK_BELOW:
        return
    if not is_sound(database):
        raise StorageCorrupt


def restore(database: Path, now: int) -> Path:
    """Put the newest sound backup in the place of a damaged database, which is set aside.

    Returns the backup it came from.

    Raises:
        StorageCorrupt: there is none; nothing was changed, and the message says what to do.
    """
    for backup in newest_first(database):
        if is_sound(backup):
            break
    else:
        raise StorageCorrupt(
            f"The database {database} is damaged and there is no sound backup of it. Nothing was "
            "changed. Put a copy of your own in its place, or move it away to begin empty: the "
            f"transcripts in {database.parent / 'sessions'} are kept and are read back then."
        )
    moment = datetime.fromtimestamp(now / 1000, UTC)
    for suffix in ("", "-wal", "-shm"):
        part = database.with_name(database.name + suffix)
        if part.exists():
            part.rename(part.with_name(f"{part.name}.damaged-{moment:%Y%m%d-%H%M%S}"))
    beside = database.with_suffix(".restoring")
    beside.write_bytes(backup.read_bytes())
    beside.chmod(0o600)
    beside.replace(database)
    log.error("storage.restored", backup=backup.name)
    return backup


def _copy(source: Path, target: Path) -> None:
    reader = apsw.Connection(str(source), flags=apsw.SQLITE_OPEN_READONLY)
    writer = apsw.Connection(str(target))
    try:
        with writer.backup("main", reader, "main") as copying:
            while not copying.done:
                copying.step(PAGES_PER_STEP)
    finally:
        writer.close()
        reader.close()
