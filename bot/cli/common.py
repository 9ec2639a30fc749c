"""What the commands share: reading the configuration, opening the database, the event loop."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO, TypeVar

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)
from rich.progress import Progress as Bars

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
        quiet: log errors alone, and warn of nothing.
        form: of the log, before what the configuration says.
        warn: is told what is odd in the configuration; standard error when None.

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
    """What is told where the bot that runs has read other files than this command; or empty."""
    page = served(loaded.config.storage.folder)
    if page is None or page.started_in in {cwd, loaded.file and loaded.file.resolve().parent}:
        return ""
    there = [name for name in READ_THERE if (page.started_in / name).is_file()]
    if not there:
        return ""
    return (
        f"The bot that runs was started in {page.started_in}. This command does not read what is "
        f"set there ({', '.join(there)}): start it there, or name a file with --config."
    )


def _warn(words: str) -> None:
    typer.echo(f"confidant: {words}", err=True)


def local_time(at: int) -> str:
    """A time in ms since the epoch, on this machine's clock."""
    return to_the_minute(at, None)


def reading(config: Config, work: Callable[[Transaction], T]) -> T:
    """Look into the database of a bot that may be running meanwhile, without holding it up.

    Raises:
        StorageError: there is no database yet, or it cannot be used.
    """
    return with_database(config, lambda database: database.read(work))


def writing(config: Config, work: Callable[[Transaction], T]) -> T:
    """Run one transaction on the database of a bot that may be running meanwhile.

    Raises:
        StorageError: there is no database yet, or it cannot be used.
    """
    return with_database(config, lambda database: database.write(work))


def with_database(config: Config, use: Callable[[Database], Coroutine[Any, Any, T]]) -> T:
    """Use the database of a bot that may be running meanwhile.

    Raises:
        StorageError: there is no database yet, or it cannot be used.
    """

    async def once() -> T:
        async with opened_database(config) as database:
            return await use(database)

    return asyncio.run(once())


@asynccontextmanager
async def opened_database(config: Config) -> AsyncGenerator[Database]:
    """The database of a bot that may be running meanwhile, within an `async with`.

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
    """Open a file; tables of an earlier version are changed only while no program runs on them.

    Raises:
        StorageError: one does, or the file cannot be used.
    """
    version, _ = await asyncio.to_thread(backup.tables_of, path)
    if version >= schema.VERSION:
        return await SqliteDatabase.open(path)
    try:
        with DataDirLock(path.parent):
            return await SqliteDatabase.open(path)
    except StorageBusy as busy:
        raise StorageError(
            f"An earlier version of Confidant runs on {path.parent} (tables of version {version}; "
            f"this is {__version__} and knows version {schema.VERSION}). Nothing was changed: "
            "start it again with this version first."
        ) from busy


def loop_runner() -> Callable[[Coroutine[Any, Any, T]], T]:
    """What runs the program's event loop: uvloop, where there is one."""
    if sys.platform == "win32":
        return asyncio.run
    import uvloop  # noqa: PLC0415 - absent on Windows

    return uvloop.run


def counted(count: int, what: str, several: str = "") -> str:
    """So many of something, in words; `several` where it is not `what` with an s."""
    return f"{count:,} {what if count == 1 else several or f'{what}s'}"


# How far something is that takes long: a bar on a terminal, now and then a line elsewhere.
#
# All of it goes to standard error, so that what a command prints can be piped on. Nothing is shown
# before the first step, so a question may be asked until then, and nothing is left of a bar at the
# end: the command says itself what came of it.

PAINT_SECONDS = 0.1  # between two looks of a bar
LINE_SECONDS = 10.0  # between two lines where there is no terminal
BYTES = "bytes"


class Progress:
    """How far one thing is; any thread may say so."""

    _shown: Progress | None = None  # a terminal has room for one

    def __init__(
        self, what: str, total: int | None, unit: str, console: _Console, clock: Callable[[], float]
    ) -> None:
        self._what = what
        amounts = [DownloadColumn()] if unit == BYTES else [MofNCompleteColumn(), TextColumn(unit)]
        self._facts = (TaskProgressColumn(), *amounts, TimeRemainingColumn(compact=True))
        self._bars = Bars(
            *(TextColumn("{task.description}"), BarColumn(30), *self._facts),
            console=console,
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
            get_time=clock,
        )
        self._task = self._bars.add_task(what, total=total)
        self._console = console
        self._clock = clock
        self._at = clock()  # when it was shown last
        self._lock = threading.RLock()

    def advance(self, more: int = 1) -> None:
        """So much more is done."""
        self._bars.advance(self._task, more)
        self._show()

    def at(self, done: int, total: int | None = None) -> None:
        """So much is done by now, of so much where that is known now."""
        self._bars.update(self._task, completed=done, total=total)
        self._show()

    def say(self, line: str) -> None:
        """Print a line to standard output above the bar, quiet or not."""
        self.end()
        typer.echo(line)

    def end(self) -> None:
        """Take the bar away, until the next step."""
        with self._lock, suppress(OSError, ValueError):  # whoever looked is gone; the work is not
            if self._bars.live.is_started:
                self._bars.stop()

    def _show(self) -> None:
        now = self._clock()
        with self._lock, suppress(OSError, ValueError):
            if self._console.paints:
                is_new = not self._bars.live.is_started
                if is_new:
                    if Progress._shown is not None:
                        Progress._shown.end()
                    Progress._shown = self
                    self._bars.start()
                if is_new or now - self._at >= PAINT_SECONDS:
                    self._at = now
                    self._bars.refresh()
            elif now - self._at >= LINE_SECONDS and not self._console.quiet:
                self._at = now
                (task,) = self._bars.tasks
                facts = " ".join(str(each.render(task)).strip() for each in self._facts)
                self._console.file.write(f"{self._what}: {facts}\n")
                self._console.file.flush()


class _Console(Console):
    """Where progress is shown."""

    @property
    def paints(self) -> bool:
        """True where lines can be painted over."""
        return self.is_terminal and not self.is_dumb_terminal and not self.quiet

    def on_broken_pipe(self) -> None:
        """Go on: nobody looks any more."""


@contextmanager
def progress(
    what: str,
    *,
    total: int | None = None,
    unit: str = "",
    quiet: bool = False,
    stream: TextIO | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Generator[Progress]:
    """Show how far something is while it is done, on the loop and in threads alike.

    Args:
        what: what is done, such as "Restoring".
        total: how much there is to do, None where that is not known (`Progress.at` may say it).
        unit: of what; `BYTES` are shown as kB and MB.
        quiet: show nothing: with --quiet, or where machines read.
        stream: standard error when None.
        clock: seconds.
    """
    console = _Console(file=stream, stderr=True, quiet=quiet)
    shown = Progress(what, total, unit, console, clock)
    try:
        yield shown
    finally:
        shown.end()
