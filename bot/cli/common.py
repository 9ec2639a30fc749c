"""Shared by the commands: reading the configuration, opening the database, the event loop."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import typer

from bot import __version__, logs
from bot.clock import to_the_minute
from bot.cluster.extra import visiting
from bot.config import Config, LogConfig, LogForm
from bot.errors import StorageBusy, StorageError
from bot.invocation import confidant
from bot.settings import Loaded
from bot.settings import load as load_settings
from bot.storage import Database, Transaction, backup, files, schema
from bot.storage.files import DATABASE_NAME, DataDirLock, served
from bot.storage.sqlite import SqliteDatabase

T = TypeVar("T")

READ_THERE = ("confidant.toml", ".env")  # by a program that is started in a folder


def load(
    config: Path | None,
    *,
    quiet: bool = False,
    form: LogForm | None = None,
    warn: Callable[[str], None] | None = None,
) -> Loaded:
    """Read the configuration and set up logging.

    Args:
        config: the file; None looks where it usually is.
        quiet: log errors only, and do not warn.
        form: the log's format, instead of the configured one.
        warn: called with each warning about the configuration; None writes to standard error.

    Raises:
        ConfigError: it has mistakes; the message lists them all.
    """
    loaded = load_settings(config, os.environ, Path.cwd())
    if form is not None:
        log = loaded.config.log.model_copy(update={"format": form})
        loaded = replace(loaded, config=loaded.config.model_copy(update={"log": log}))
    logs.configure(LogConfig(level="error") if quiet else loaded.config.log)
    for warning in () if quiet else loaded.warnings:
        (warn or _warn)(warning)
    if missed := _not_read(loaded, Path.cwd()):
        (warn or _warn)(missed)
    return loaded


def _not_read(loaded: Loaded, cwd: Path) -> str:
    """A warning if the running bot reads other files than this command; else empty."""
    page = served(loaded.config.storage.folder)
    if page is None or page.started_in in {cwd, loaded.file and loaded.file.resolve().parent}:
        return ""
    there = [name for name in READ_THERE if (page.started_in / name).is_file()]
    if not there:
        return ""
    return (
        f"The running bot was started in {page.started_in}. This command does not read the files "
        f"there ({', '.join(there)}): run it there, or name a file with --config."
    )


def _warn(words: str) -> None:
    typer.echo(f"confidant: {words}", err=True)


def local_time(at: int) -> str:
    """A time in ms since the epoch as local time."""
    return to_the_minute(at, None)


def reading(config: Config, work: Callable[[Transaction], T]) -> T:
    """Read from the database; the bot may be running and is not held up.

    Raises:
        StorageError: there is no database yet, or it cannot be used.
    """
    return with_database(config, lambda database: database.read(work))


def writing(config: Config, work: Callable[[Transaction], T]) -> T:
    """Run one transaction on the database; the bot may be running.

    Raises:
        StorageError: there is no database yet, or it cannot be used.
    """
    return with_database(config, lambda database: database.write(work))


def with_database(config: Config, use: Callable[[Database], Coroutine[Any, Any, T]]) -> T:
    """Use the database; the bot may be running.

    Raises:
        StorageError: there is no database yet, or it cannot be used.
    """

    async def once() -> T:
        async with opened_database(config) as database:
            return await use(database)

    return asyncio.run(once())


@asynccontextmanager
async def opened_database(config: Config) -> AsyncGenerator[Database]:
    """Open the database for an `async with`; the bot may be running.

    Raises:
        StorageError: there is no database yet, or it cannot be used.
    """
    async with visiting(config) as shared:
        if shared is not None:
            yield shared.database
            return
    path = config.storage.folder / DATABASE_NAME
    if not path.exists():
        raise StorageError(
            f"There is no database in {path.parent} yet: start `{confidant('run')}` once."
        )

    files.must_not_be_erasing(path.parent)
    database = await _opened(path)
    try:
        yield database
    finally:
        await database.close()


async def _opened(path: Path) -> SqliteDatabase:
    """Open a file; older tables are upgraded only while no program uses them.

    Raises:
        StorageError: one is, or the file cannot be used.
    """
    version, _ = await asyncio.to_thread(backup.tables_of, path)
    if version >= schema.VERSION:
        return await SqliteDatabase.open(path)
    try:
        with DataDirLock(path.parent):
            return await SqliteDatabase.open(path)
    except StorageBusy as busy:
        raise StorageError(
            f"An earlier version of Confidant is running on {path.parent}, with schema version "
            f"{version}; this is {__version__}, with {schema.VERSION}. Nothing was changed: "
            "restart it with this version first."
        ) from busy


def loop_runner() -> Callable[[Coroutine[Any, Any, T]], T]:
    """A function that runs the event loop: with uvloop, where there is one."""
    if sys.platform == "win32":
        return asyncio.run
    import uvloop  # noqa: PLC0415 - absent on Windows

    return uvloop.run


def counted(count: int, what: str, several: str = "") -> str:
    """A count with its noun; `several` is the plural if it is not `what` with an s."""
    return f"{count:,} {what if count == 1 else several or f'{what}s'}"
