"""Backups: the daily copies of the database, and those of everything on another disk."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import apsw

from bot import recovery
from bot.channel import Finding
from bot.clock import to_the_minute
from bot.config import BackupConfig, StorageConfig
from bot.doctor.setup import Setup
from bot.errors import StorageNotMade
from bot.recovery import Restored
from bot.storage import backup, backup_state
from bot.storage.backup_state import BackupState
from bot.storage.files import DATABASE_NAME
from bot.storage.sqlite import SqliteTransaction

HOUR_MS: Final = 3_600_000


async def check(setup: Setup) -> Sequence[Finding]:
    """How young backups are, and whether one was restored for a test."""
    if not setup.has_database:
        return []
    config, now = setup.config, setup.clock()
    found: list[Finding] = []
    if not setup.is_shared:
        found += await asyncio.to_thread(lambda: [*of_database(config.storage, now)])
    try:
        async with setup.opened() as database:
            state = await database.read(backup_state.read)
            restored = await database.read(recovery.latest)
    except StorageNotMade:  # said of the storage
        return found
    found += of_everything(state, config.backup, now)
    return found if restored is None else [*found, _restored(restored)]


def of_everything(state: BackupState, config: BackupConfig, now: int) -> Iterator[Finding]:
    """How the backups of everything are doing. Pure."""
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
    """What became of a database that was lost once."""
    how = "backup" if restored.backup else "by_hand" if restored.by_hand else "anew"
    return Finding.of(
        "ok",
        f"backups.restored_{how}",
        at=to_the_minute(restored.at, None),
        name=restored.backup,
        entries=restored.entries,
        more=sum(restored.counts.values()),
    )


def of_database(storage: StorageConfig, now: int) -> Iterator[Finding]:
    """Whether the latest backup is as young as it should be, by when something was last written."""
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
    """When a database was made, in ms since the epoch, as it says itself."""
    try:
        connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
        try:
            sql = "SELECT CAST(strftime('%s', min(applied_at)) AS INTEGER) FROM schema_versions"
            return int(SqliteTransaction(connection).execute(sql)[0][0] or 0) * 1000
        finally:
            connection.close()
    except apsw.Error:  # said elsewhere
        return _written(path)


def _written(path: Path) -> int:
    try:
        return int(path.stat().st_mtime * 1000)
    except OSError:
        return 0
