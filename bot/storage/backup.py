"""Verified backups of the database, and what is done when the database itself is damaged.

A backup counts only after it was opened and checked. A damaged database is never deleted: it is
set aside, the newest sound copy takes its place, and the log of changes brings that forward.

Before a newer version of the program changes the tables it keeps a copy, one of each version, which
`put_back` takes up again.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

import apsw
import structlog

from bot import __version__
from bot.clock import DAY_MS
from bot.errors import StorageCorrupt, StorageError, StorageFull
from bot.storage import changes, files, schema
from bot.storage.sqlite_sql import SqliteTransaction, mapped

FOLDER = files.BACKUPS
DAMAGED, OLDER = "damaged", "older"  # in the names of databases that are set aside
STAGE = "archive.partial"  # in it: where a backup of everything is put together, or tried
BEFORE_UPGRADE = "before-upgrade"
KEPT_VERSIONS = 3  # of the tables, each with its latest copy
KEPT_DAYS = 30  # what people forget since then is still in a copy
PAGES_PER_STEP = 1_000  # copied at a time, so that the writer is never held up for long
_MAGIC = b"SQLite format 3\0"
CHECK_BELOW = 64_000_000  # bytes; a larger database is checked by its backups, not at each start

log = structlog.get_logger(__name__)


def make(database: Path, kept: int, now: int, every_ms: float = 0) -> Path:
    """Copy a live database, verify the copy, drop the oldest beyond `kept`; the new backup.

    One that was made sooner than `every_ms` after the one before it goes once there is a newer one.

    Raises:
        StorageError: it could not be written; earlier backups are untouched.
        StorageCorrupt: the copy is damaged, so the database is.
    """
    final = database.parent / FOLDER / _name(database, now)
    with _told("The backup could not be written"):
        _copied(database, final)
        found = newest_first(database, now)
        if len(found) > 2 and 0 <= _made_at(found[1]) - _made_at(found[2]) < every_ms:
            found.pop(1).unlink(missing_ok=True)
        for old in found[kept:]:
            old.unlink(missing_ok=True)
        log.info("storage.backup", size=final.stat().st_size)
    return final


def keep(database: Path, version: int) -> Path:
    """Copy a database whose tables are of a version before they are changed; the copy.

    It takes the place of an earlier one of that version; of the oldest versions none is kept.

    Raises:
        StorageError: it could not be written; earlier copies are untouched.
        StorageCorrupt: the copy is damaged, so the database is.
    """
    final = database.parent / BEFORE_UPGRADE / f"{database.stem}-version-{version}.db"
    with _told("The copy that is made before an upgrade could not be written"):
        try:
            _copied(database, final)
        except apsw.FullError as exc:
            raise StorageFull(
                f"There is no room in {final.parent} for the copy that is made before an upgrade "
                f"({database.stat().st_size:,} bytes). Nothing was changed: make room and start "
                "again, or start the version before."
            ) from exc
        for old in before_upgrades(database)[KEPT_VERSIONS:]:
            old.unlink(missing_ok=True)
        log.info("storage.copied_before_upgrade", version=version, size=final.stat().st_size)
    return final


def before_upgrades(database: Path) -> list[Path]:
    """The copies from before upgrades, those of the newest version first."""
    found = (database.parent / BEFORE_UPGRADE).glob(f"{database.stem}-version-*.db")
    return sorted((each for each in found if number_of(each)), key=number_of, reverse=True)


def number_of(copy: Path) -> int:
    """The version of the tables in a copy from before an upgrade, by its name; 0 for none."""
    number = copy.stem.rpartition("-")[2]
    return int(number) if number.isascii() and number.isdecimal() else 0


def drop_old(database: Path, now: int) -> None:
    """Remove copies from before upgrades that were made long ago.

    Raises:
        StorageError: one cannot be removed; it is tried again.
    """
    with _told("A copy from before an upgrade could not be removed"):
        for each in before_upgrades(database):
            if each.stat().st_mtime * 1000 < now - KEPT_DAYS * DAY_MS:
                each.unlink()
                log.info("storage.copy_dropped", name=each.name)


def _copied(database: Path, final: Path) -> None:
    """Copy a live database to a file, which gets its name once the copy is verified."""
    folder, beside = final.parent, final.with_suffix(".tmp")
    folder.mkdir(exist_ok=True, mode=0o700)
    _remove_unfinished(database, folder)
    try:
        copy(database, beside)
        if not is_sound(beside):
            raise StorageCorrupt
        beside.replace(final)
        files.sync_folder(folder)
    finally:
        _remove_unfinished(database, folder)


def copy(
    database: Path, target: Path, advance: Callable[[int], object] = lambda _size: None
) -> None:
    """Copy a live database as it is at this moment, whatever is written to it meanwhile.

    `advance` hears how many bytes more were copied; what it raises ends the copying.

    Raises:
        apsw.Error: it cannot be read, or the copy not be written.
        OSError: the copy cannot be made.
    """
    files.create(target)
    with (
        closing(apsw.Connection(str(database), flags=apsw.SQLITE_OPEN_READONLY)) as reader,
        closing(apsw.Connection(str(target))) as writer,
    ):
        # Within a transaction the pages are those of its beginning, so copying never starts over.
        SqliteTransaction(reader).execute("BEGIN; SELECT 1 FROM sqlite_schema")
        with writer.backup("main", reader, "main") as copying:
            size = int(SqliteTransaction(reader).execute("PRAGMA page_size")[0][0])
            while not copying.done:
                copying.step(PAGES_PER_STEP)
                advance(PAGES_PER_STEP * size)


def newest_first(database: Path, now: int) -> list[Path]:
    """The backups of a database by the time in their names.

    Those from after `now` come last: the clock was wrong when they were made.
    """
    latest = _name(database, now)
    found = (database.parent / FOLDER).glob(f"{database.stem}-*.db")
    return sorted(found, key=lambda path: (path.name <= latest, path.name), reverse=True)


def is_sound(path: Path) -> bool:
    """True for a file that is a whole SQLite database.

    Raises:
        StorageError: that cannot be told now: the disk is full, say, or the file may not be read.
    """
    try:
        with closing(apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)) as connection:
            if _has_content(path.with_name(f"{path.name}-wal")):
                # The file may be damaged, and closing would write the log to it.
                connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
            return SqliteTransaction(connection).execute("PRAGMA quick_check(1)") == [("ok",)]
    except (apsw.CorruptError, apsw.NotADBError):
        return False
    except apsw.Error as exc:
        raise mapped(exc) from exc


def check(database: Path) -> None:
    """Look at a database before it is opened; a new or a very large one passes.

    Raises:
        StorageCorrupt: it is damaged.
        StorageError: that cannot be told now.
    """
    if not is_new(database) and database.stat().st_size <= CHECK_BELOW and not is_sound(database):
        raise StorageCorrupt


def is_new(database: Path) -> bool:
    """True if nothing has been stored in a database yet."""
    return not _has_content(database)


def newest_sound(database: Path, now: int) -> Path | None:
    """The newest backup that can take the database's place.

    Raises:
        StorageError: that cannot be told now.
    """
    for path in newest_first(database, now):
        if is_sound(path) and schema.BASELINE <= tables_of(path)[0] <= schema.VERSION:
            return path
    return None


def replace(
    database: Path, copy: Path | None, id_: str, now: int, word: str = DAMAGED
) -> Path | None:
    """Put a copy, or without one an empty database, in the place of one that is set aside.

    `word` says what that was. The copy is the beginning of the log `id_`, unless it says itself
    where it is. Where the one that was there is now, if there was any.

    Raises:
        StorageError: the disk does not take it; the database is still there.
    """
    aside = _take_up(database, copy, f"{word}-{_moment(now)}", id_)
    log.error("storage.restored", backup=copy.name if copy is not None else "")
    return aside


def put_back(database: Path, copy: Path, now: int) -> Path | None:
    """Put a copy in the place of a database, which is set aside: where it is, if there was one.

    What was done since then is brought back by the log of changes at the next start.

    Raises:
        StorageError: it is no copy that this program can use, or the disk does not take it;
            nothing was changed.
    """
    version = usable_version(copy)
    aside = _take_up(database, copy, f"before-restore-{_moment(now)}", "")
    log.info("storage.put_back", version=version)
    return aside


def usable_version(copy: Path) -> int:
    """The version of the tables in a copy that can take the database's place.

    Raises:
        StorageError: it cannot, or that cannot be told now.
    """
    version, program = tables_of(copy) if is_sound(copy) else (0, "")
    if not version:
        raise StorageError(f"{copy} is no whole database of Confidant's. Nothing was changed.")
    if version > schema.VERSION:
        raise StorageError(
            f"{copy} has tables of version {version}, made by a newer Confidant ({program}); this "
            f"is {__version__} and knows version {schema.VERSION}. Nothing was changed."
        )
    schema.must_be_known(version, str(copy))
    return version


def is_database(path: Path) -> bool:
    """True for a file that begins as SQLite's do.

    Raises:
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        return file.read(len(_MAGIC)) == _MAGIC


def tables_of(path: Path) -> tuple[int, str]:
    """The version of the tables in a sound database that nobody uses, and the program's.

    Raises:
        StorageError: it cannot be read.
    """
    try:
        with closing(apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)) as connection:
            return version_of(SqliteTransaction(connection))
    except apsw.Error as exc:
        raise mapped(exc) from exc


def version_of(tx: SqliteTransaction) -> tuple[int, str]:
    """The version of the tables, 0 while there are none, and the program's that made them."""
    if not tx.execute("SELECT 1 FROM sqlite_schema WHERE name = 'schema_versions'"):
        return 0, ""
    rows = tx.execute("SELECT * FROM schema_versions ORDER BY version DESC LIMIT 1")
    return (int(rows[0][0]), str((*rows[0], "")[2])) if rows else (0, "")


def _take_up(database: Path, copy: Path | None, word: str, id_: str) -> Path | None:
    """Put a copy in the place of a database, which gets a name with `word` in it: where it is."""
    beside = database.with_suffix(".restoring")
    with _told("The backup could not be restored"):
        # Before anything is moved, so that a full disk changes nothing.
        if copy is not None:
            with copy.open("rb") as source, files.made(beside) as target:
                shutil.copyfileobj(source, target)
        else:
            beside.unlink(missing_ok=True)
            files.create(beside)
        if id_:
            changes.adopt(beside, id_)
        # An earlier one is never overwritten.
        aside = files.free_name(database.with_name(f"{database.name}.{word}"))
        for part in ("", "-wal", "-shm"):
            replaced = database.with_name(database.name + part)
            if replaced.exists():
                suffix = aside.name.removeprefix(database.name)
                replaced.rename(replaced.with_name(replaced.name + suffix))
        beside.replace(database)
    return aside if aside.exists() else None


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


def _made_at(backup: Path) -> float:
    """The time in a backup's name, in ms since the epoch."""
    said = backup.stem.partition("-")[2]
    with suppress(ValueError):
        return datetime.strptime(f"{said}+0000", "%Y%m%d-%H%M%S%z").timestamp() * 1000
    return 0.0


def _moment(now: int) -> str:
    return f"{datetime.fromtimestamp(now / 1000, UTC):%Y%m%d-%H%M%S}"


def _remove_unfinished(database: Path, folder: Path) -> None:
    """Copies that a crash or a full disk left unfinished, with SQLite's files beside them."""
    for left in folder.glob(f"{database.stem}-*.tmp*"):
        left.unlink(missing_ok=True)
