"""Checks of the storage folder, its database, its backups and the open-file limit."""

from __future__ import annotations

import asyncio
import os
import re
import resource
import shutil
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Final

import apsw

from bot import housekeeping, recovery
from bot.channel import Finding
from bot.clock import to_the_minute
from bot.config import BackupConfig, Config, StorageConfig
from bot.doctor import Setup
from bot.errors import StorageError
from bot.recovery import Restored
from bot.storage import backup, backup_state, files, schema
from bot.storage.backup_state import BackupState
from bot.storage.files import DATABASE_NAME, ERASING, RESTORE_BEGUN, RESTORING
from bot.storage.records import MOVED, MOVED_FROM, text_of
from bot.storage.sqlite import SqliteTransaction, mapped

BLOCKING: Final = frozenset(
    {
        *("storage.damaged", "storage.damaged_alone", "storage.unreadable", "storage.newer"),
        *("storage.older", "storage.restoring", "storage.moving", "storage.closed"),
        *("storage.erasing", "storage.other_owner"),
        *("server.unusable", "server.problem", "server.moving"),
    }
)
"""After one of these no other check opens the database."""

NO_ROOM: Final = 200_000_000  # bytes; with less, or less than the database has, it is urgent
LITTLE_ROOM: Final = 1_000_000_000  # the same, for a hint
MOUNTS: Final = Path("/proc/mounts")  # what is mounted where, on Linux


async def check(setup: Setup) -> Sequence[Finding]:
    """Check the storage folder, or the PostgreSQL."""
    if setup.is_shared:
        from bot.doctor import server  # noqa: PLC0415 - the running bot needs nothing of it

        kept = await server.check(setup)
    else:
        kept = await asyncio.to_thread(_folder, setup)
    return [*kept, *await asyncio.to_thread(lambda: [*_modes(setup)])]


def _folder(setup: Setup) -> list[Finding]:
    folder = setup.config.storage.folder
    if not folder.exists():
        return [Finding.of("ok", "storage.none", folder=str(folder))]
    if not folder.is_dir() or not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        return [Finding.of("error", "storage.closed", folder=str(folder))]
    database = folder / DATABASE_NAME
    if database.exists() and (owner := database.stat().st_uid) != os.geteuid():
        # SQLite would make files beside it that the bot may not open.
        return [Finding.of("error", "storage.other_owner", path=str(database), owner=owner)]
    return [*_lock(folder), *_place(folder), *_database(setup), *space(setup.config)]


def _lock(folder: Path) -> Iterator[Finding]:
    try:
        held = files.holder(folder)
    except OSError as error:
        yield Finding.of("error", "storage.no_lock", folder=str(folder), why=error.strerror or "")
        return
    if held.is_running:
        yield Finding.of("ok", "storage.runs", process=held.process)
    elif held.process:
        yield Finding.of("warning", "storage.stale_lock", repair="lock", process=held.process)


def _place(folder: Path) -> Iterator[Finding]:
    """Check whether a folder is on a network file system, and can be synced."""
    try:
        kind = files.network_kind(folder.resolve(), MOUNTS.read_text("utf-8", "replace"))
        is_synced = files.sync_folder(folder)
    except OSError:  # no Linux, or no folder of ours: said elsewhere
        return
    if kind:
        yield Finding.of("ok", "storage.network", folder=str(folder), kind=kind)
    if not is_synced:
        yield Finding.of("warning", "storage.no_sync", folder=str(folder))


def _modes(setup: Setup) -> Iterator[Finding]:
    if opened := files.open_to_others(private_files(setup)):
        names = ", ".join(path.name for path in opened[:3]) + (", …" if len(opened) > 3 else "")
        count = len(opened)
        yield Finding.of("warning", "storage.modes", repair="modes", count=count, names=names)
    if folders := housekeeping.writable(setup.config):
        names = ", ".join(map(str, folders))
        yield Finding.of("warning", "storage.writable", repair="modes", names=names)


def private_files(setup: Setup) -> list[Path]:
    """The files that only the program's own account may read."""
    made = [] if setup.is_shared else housekeeping.made_in(setup.config.storage.folder)
    return [*made, *(path for path in setup.secrets if path.exists())]


# --- the database ---------------------------------------------------------------------------------


def _database(setup: Setup) -> Iterator[Finding]:
    folder = setup.config.storage.folder
    path = folder / DATABASE_NAME
    if (folder / RESTORING / RESTORE_BEGUN).exists():
        yield Finding.of("error", "storage.restoring", repair="restore", folder=str(folder))
        return
    if (folder / ERASING).exists():
        yield Finding.of("error", "storage.erasing", folder=str(folder))
        return
    try:
        is_new = backup.is_new(path)
        if is_new and not backup.newest_first(path, setup.clock()):
            yield Finding.of("ok", "storage.empty", folder=str(folder))
            return
        is_sound = not is_new and backup.is_sound(path)  # it is empty, and was not
    except StorageError as error:
        yield Finding.of("error", "storage.unreadable", path=str(path), why=str(error))
        return
    yield from _version(setup, path) if is_sound else _damaged(setup, path)


def _damaged(setup: Setup, path: Path) -> Iterator[Finding]:
    """Report a damaged database, and the backup that replaces it, if any."""
    for spare in backup.newest_first(path, setup.clock()):
        with suppress(StorageError):  # it cannot be read either
            if backup.is_sound(spare):
                yield Finding.of("error", "storage.damaged", path=str(path), backup=spare.name)
                return
    yield Finding.of("error", "storage.damaged_alone", path=str(path))


def _version(setup: Setup, path: Path) -> Iterator[Finding]:
    """Check the schema version of a sound database, and for an incomplete move."""
    version, origin = _read(path)
    megabytes = round(path.stat().st_size / 1_000_000, 1)
    if version > schema.VERSION:
        yield Finding.of("error", "storage.newer", version=version, ours=schema.VERSION)
    elif version < schema.VERSION:
        yield Finding.of("warning", "storage.older", version=version, ours=schema.VERSION)
    elif origin not in {None, MOVED}:
        # Where from, only whoever began it knows: this configuration names nothing else.
        yield Finding.of("error", "storage.moving", place=str(setup.config.storage.folder))
    else:
        yield Finding.of("ok", "storage.sound", megabytes=megabytes, version=version)


def _read(path: Path) -> tuple[int, str | None]:
    try:
        with closing(apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)) as connection:
            tx = SqliteTransaction(connection)
            tables = {row[0] for row in tx.execute("SELECT name FROM sqlite_schema")}
            if not {"schema_versions", "meta"} <= tables:
                return 0, None
            version = int(tx.execute("SELECT max(version) FROM schema_versions")[0][0] or 0)
            return version, text_of(tx, MOVED_FROM)
    except apsw.Error as exc:
        raise mapped(exc) from exc


# --- free space, also for urgent messages ---------------------------------------------------------


def space(config: Config) -> Iterator[Finding]:
    """Check the free space on each disk in use."""
    folder = config.storage.folder
    size = 0
    with suppress(OSError):  # not there yet
        size = (folder / DATABASE_NAME).stat().st_size
    seen: set[int] = set()
    for place in (folder, config.workspace):
        with suppress(OSError):  # said elsewhere
            if place.exists() and (disk := place.stat().st_dev) not in seen:
                seen.add(disk)
                yield _room(place, size)


def _room(place: Path, size: int) -> Finding:
    free = shutil.disk_usage(place).free
    megabytes = free // 1_000_000
    if free < max(NO_ROOM, size):
        return Finding.of("error", "storage.no_room", folder=str(place), megabytes=megabytes)
    if free < max(LITTLE_ROOM, 3 * size):
        return Finding.of("warning", "storage.little_room", folder=str(place), megabytes=megabytes)
    return Finding.of("ok", "storage.room", folder=str(place), megabytes=megabytes)


# Backups: the daily copies of the database, and full ones on another disk.

HOUR_MS: Final = 3_600_000


async def check_backups(setup: Setup) -> Sequence[Finding]:
    """Check the age of backups, and whether one was test-restored."""
    if not setup.has_database:
        return []
    config, now = setup.config, setup.clock()
    found: list[Finding] = []
    if not setup.is_shared:
        found += await asyncio.to_thread(lambda: [*backups_of_database(config.storage, now)])
    read = await setup.read(lambda tx: (backup_state.read(tx), recovery.latest(tx)))
    if read is None:
        return found
    state, restored = read
    found += backups_of_everything(state, config.backup, now)
    if config.backup.target is not None:
        found += await asyncio.to_thread(list[Finding], _place(config.backup.target))
    return found if restored is None else [*found, _restored(restored)]


def backups_of_everything(state: BackupState, config: BackupConfig, now: int) -> Iterator[Finding]:
    """Findings about full backups. Pure."""
    if config.folder is None:
        yield Finding.of("warning", "backups.all_off")
        return
    folder = str(config.folder)
    troubles = state.troubles(config, now)
    made = to_the_minute(state.made.at, None) if state.made.at else ""
    tested = to_the_minute(state.tested.at, None) if state.tested.at else ""
    for each in troubles:
        record = state.tested if each == "test_failed" else state.made
        is_new = each in {"never_made", "never_tested"}
        values = {"folder": folder, "at": made, "why": record.failure}
        yield Finding("warning" if is_new else "error", id=f"backups.all_{each}", values=values)
    if not troubles:
        name = "all_tested" if tested else "all_made"
        yield Finding.of("ok", f"backups.{name}", folder=folder, at=made, tested=tested)


def _restored(restored: Restored) -> Finding:
    """Report how a lost database was restored."""
    how = "backup" if restored.backup else "by_hand" if restored.by_hand else "anew"
    return Finding.of(
        "ok",
        f"backups.restored_{how}",
        at=to_the_minute(restored.at, None),
        name=restored.backup,
        entries=restored.entries,
        more=sum(restored.counts.values()),
    )


def backups_of_database(storage: StorageConfig, now: int) -> Iterator[Finding]:
    """Check that the latest backup is young enough, by when something was last written."""
    path = storage.folder / DATABASE_NAME
    if backup.is_new(path):
        return
    if not storage.backup_hours:
        yield Finding.of("warning", "backups.off")
        return
    times = [_written(each) for each in backup.newest_first(path, now)]
    newest = max(times, default=0)
    late = 2 * storage.backup_hours * HOUR_MS + HOUR_MS
    written = max(_written(path), _written(path.with_name(f"{path.name}-wal")))
    if not times:
        is_late = written - _begun(path) > late
        level, name = ("error", "none") if is_late else ("ok", "none_yet")
        yield Finding.of(level, f"backups.{name}", hours=storage.backup_hours)
        return
    is_late = written - newest > late
    level, name = ("error", "late") if is_late else ("ok", "made")
    yield Finding.of(
        level, f"backups.{name}", at=to_the_minute(newest, None), count=len(times),
        hours=storage.backup_hours,
    )  # fmt: skip


def _begun(path: Path) -> int:
    """The time a database was created, in ms since the epoch, as it records it."""
    try:
        with closing(apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)) as connection:
            sql = "SELECT CAST(strftime('%s', min(applied_at)) AS INTEGER) FROM schema_versions"
            return int(SqliteTransaction(connection).execute(sql)[0][0] or 0) * 1000
    except apsw.Error:  # said elsewhere
        return _written(path)


def _written(path: Path) -> int:
    try:
        return int(path.stat().st_mtime * 1000)
    except OSError:
        return 0


TOO_FEW: Final = 256  # database, notes, channels and a few browsers
FEW: Final = 1_024

_SOFT = re.compile(r"^Max open files\s+(\d+|unlimited)", re.MULTILINE)


async def check_limits(setup: Setup) -> Sequence[Finding]:
    """Check the open-file limit of the running bot, or else of this process."""
    process = 0
    if not setup.is_shared:
        try:
            held = files.holder(setup.config.storage.folder)
        except OSError:  # said of the storage
            held = files.Holder(is_running=False)
        process = held.process if held.is_running else 0
    limit = _of_process(process) if process else None
    if limit is None:
        limit = _or_endless(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    level = "error" if limit < TOO_FEW else "warning" if limit < FEW else "ok"
    return [Finding.of(level, f"limits.{'enough' if level == 'ok' else 'few'}", count=limit)]


def _of_process(process: int) -> int | None:
    """The limit of a running process; None where the system does not say."""
    try:
        found = _SOFT.search(Path(f"/proc/{process}/limits").read_text("ascii"))
    except (OSError, UnicodeDecodeError):
        return None
    if found is None:
        return None
    return _or_endless(resource.RLIM_INFINITY if found[1] == "unlimited" else int(found[1]))


def _or_endless(limit: int) -> int:
    return 1 << 31 if limit == resource.RLIM_INFINITY else limit
