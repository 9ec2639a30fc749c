"""The storage folder: whole, complete, for its owner alone, with room."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import apsw

from bot import housekeeping
from bot.channel import Finding
from bot.config import Config
from bot.doctor.setup import Setup
from bot.errors import StorageError
from bot.storage import backup, files, schema
from bot.storage.files import DATABASE_NAME, ERASING, RESTORE_BEGUN, RESTORING
from bot.storage.meta import MOVED, MOVED_FROM, text_of
from bot.storage.sqlite import SqliteTransaction, mapped

BLOCKING: Final = frozenset(
    {
        *("storage.damaged", "storage.damaged_alone", "storage.unreadable", "storage.newer"),
        *("storage.older", "storage.restoring", "storage.moving", "storage.closed"),
        *("storage.erasing", "storage.other_owner"),
        *("server.unusable", "server.problem", "server.moving"),
    }
)
"""After one of these nothing else looks into the database."""

NO_ROOM: Final = 200_000_000  # bytes; with less, or less than the database has, it is urgent
LITTLE_ROOM: Final = 1_000_000_000  # the same, for a hint


async def check(setup: Setup) -> Sequence[Finding]:
    """What there is to say of where everything is kept."""
    if setup.is_shared:
        from bot.doctor import server  # noqa: PLC0415 - the running bot needs nothing of it

        kept = await server.check(setup)
    else:
        kept = await asyncio.to_thread(_folder, setup)
    return [*kept, *await asyncio.to_thread(_modes, setup)]


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
    return [
        *_lock(folder),
        *_database(setup),
        *space(setup.config),
    ]


def _lock(folder: Path) -> Iterator[Finding]:
    held = files.holder(folder)
    if held.is_running:
        yield Finding.of("ok", "storage.runs", process=held.process)
    elif held.process:
        yield Finding.of("warning", "storage.stale_lock", repair="lock", process=held.process)


def _modes(setup: Setup) -> list[Finding]:
    opened = files.open_to_others(private_files(setup))
    if not opened:
        return []
    names = ", ".join(path.name for path in opened[:3]) + (", …" if len(opened) > 3 else "")
    count = len(opened)
    return [Finding.of("warning", "storage.modes", repair="modes", count=count, names=names)]


def private_files(setup: Setup) -> list[Path]:
    """What is for the program's own account only."""
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
    """What takes the place of a damaged database, if anything does."""
    spare = next((each for each in backup.newest_first(path, setup.clock()) if _ok(each)), None)
    if spare is None:
        yield Finding.of("error", "storage.damaged_alone", path=str(path))
    else:
        yield Finding.of("error", "storage.damaged", path=str(path), backup=spare.name)


def _ok(path: Path) -> bool:
    try:
        return backup.is_sound(path)
    except StorageError:
        return False


def _version(setup: Setup, path: Path) -> Iterator[Finding]:
    """Whose version a sound database has, and whether something is still being moved into it."""
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
        connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
        try:
            tx = SqliteTransaction(connection)
            tables = {row[0] for row in tx.execute("SELECT name FROM sqlite_schema")}
            if not {"schema_versions", "meta"} <= tables:
                return 0, None
            version = int(tx.execute("SELECT max(version) FROM schema_versions")[0][0] or 0)
            return version, text_of(tx, MOVED_FROM)
        finally:
            connection.close()
    except apsw.Error as exc:
        raise mapped(exc) from exc


# --- room, also for whoever runs it and does not look ---------------------------------------------


def space(config: Config) -> Iterator[Finding]:
    """How much room there is on each disk that things are kept on."""
    folder = config.storage.folder
    size = _size(folder / DATABASE_NAME)
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


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
