"""Backups by themselves: made as often as `[backup]` says, and the newest one tried now and then.

What is due stands in the database (`bot.storage.backup_state`), so a restart forgets nothing. Of
many nodes one does it at a time; another one then finds nothing due.
"""

from __future__ import annotations

import asyncio
import math
import re
import secrets
from collections.abc import Awaitable, Callable, Collection, Generator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import structlog

from bot.channel import reveal
from bot.clock import DAY_MS, Clock
from bot.config import Config
from bot.coordination import Coordination
from bot.errors import ArchiveBusy, ArchiveError, ConfidantError
from bot.metrics import Metrics
from bot.portability import backup, restore
from bot.storage import Database, backup_state, files
from bot.storage.backup_state import BackupFiles, BackupState, JobRecord, What

LOOK_SECONDS = 60.0  # between two looks what is due
FIRST_SECONDS = 90.0  # a start has better things to do
OWNED = "backups"  # what only one node does at a time
_WEEK_MS = 7 * DAY_MS
_MOMENT = "%Y%m%d-%H%M%S"

log = structlog.get_logger(__name__)


class Backups:
    """Makes and tries the backups of one program; `state` is as it was last read."""

    def __init__(
        self,
        config: Config,
        database: Database,
        coordination: Coordination,
        clock: Clock,
        *,
        metrics: Metrics,
        settings: Callable[[], str],
    ) -> None:
        """`settings` tells the configuration without its secrets."""
        self._config = config
        self._database = database
        self._coordination = coordination
        self._clock = clock
        self._metrics = metrics
        self._settings = settings
        self.state = BackupState()
        self._one_by_one = asyncio.Lock()
        if config.backup.folder is not None:
            metrics.follow(
                "backup_age_seconds",
                "How old the newest backup of everything is.",
                lambda: self._age(self.state.made),
            )
            metrics.follow(
                "backup_test_age_seconds",
                "How long ago a backup of everything was restored for a test.",
                lambda: self._age(self.state.tested),
            )

    async def look(self) -> None:
        """Do what is due."""
        work = {"made": self._make, "tested": self._test}
        async with self._one_by_one:
            for what in ("made", "tested"):
                if await self._is_due(what):
                    async with self._coordination.owning(OWNED):
                        if await self._is_due(what):
                            await self._do(what, work[what])

    async def make_now(self) -> None:
        """Make one, due or not; `state` says how it went."""
        async with self._one_by_one, self._coordination.owning(OWNED):
            self.state = await self._database.read(backup_state.read)
            await self._do("made", self._make)

    async def files(self) -> BackupFiles:
        """The backups there are; none, and why, where their folder cannot be looked into."""
        state, folder = await self._database.read(backup_state.read), self.folder
        try:
            with _told(folder):
                listed = await asyncio.to_thread(found, folder, state.bot)
        except ArchiveError as error:
            return BackupFiles(state, folder, {}, str(error))
        return BackupFiles(state, folder, listed)

    @property
    def folder(self) -> Path:
        """The configured folder; without one, that of the database's own copies."""
        return self._config.backup.target or self._config.storage.folder / files.BACKUPS

    async def _is_due(self, what: What) -> bool:
        self.state = await self._database.read(backup_state.read)
        return self.state.is_due(what, self._config.backup, self._clock())

    async def _do(self, what: What, work: Callable[[], Awaitable[Path]]) -> None:
        self.state = replace(self.state, bot=self.state.bot or secrets.token_hex(3))
        record = self.state.record(what)
        try:
            path = await work()
            size = path.stat().st_size
        except ArchiveBusy:  # somebody makes one by hand; the next look finds out
            return
        except Exception as exc:
            # A sentence may name files, and what notes are called is told to their owner only.
            log.warning("backup.failed", what=what, error=type(exc).__name__)
            self._metrics.backups.labels(what, "failed").inc()
            is_ours = isinstance(exc, ConfidantError)
            why = str(exc) if is_ours else f"It ended in {type(exc).__name__}."
            await self._note(what, record.failed(why, self._clock()))
            if not is_ours:
                raise
            return
        log.info("backup.done", what=what, size=size)
        self._metrics.backups.labels(what, "ok").inc()
        await self._note(what, record.succeeded(path.name, size, self._clock()))
        if what == "made":
            await self._prune(path.parent)

    async def _note(self, what: What, record: JobRecord) -> None:
        self.state = state = self.state.with_record(what, record)
        await self._database.write(lambda tx: backup_state.write(tx, state, self._clock()))

    async def _make(self) -> Path:
        """Write a backup."""
        folder, bot = self.folder, self.state.bot
        with _told(folder):
            await asyncio.to_thread(remove_unfinished, folder, bot)
            is_other = await asyncio.to_thread(is_other_disk, folder, self._config.storage.folder)
        if not is_other and self.state.other_disk == str(folder):
            raise ArchiveError(  # its folder alone is no disk
                f"{folder} was on another disk, which is not mounted now. Mount it, or name "
                "another folder as [backup] folder."
            )
        made = await backup.make(
            self._config,
            folder / name_of(bot, self._clock()),
            reveal(self._config.backup.passphrase) or None,
            self._settings(),
            clock=self._clock,
        )
        self.state = replace(self.state, other_disk=str(folder) if is_other else "")
        return made.path

    async def _test(self) -> Path:
        """Restore the newest backup into a folder that is thrown away."""
        folder = self.folder
        with _told(folder):
            backups = await asyncio.to_thread(found, folder, self.state.bot)
        if not backups:
            raise ArchiveError(f"There is no backup in {folder} that could be tried.")
        newest, passphrase = backups[max(backups)], reveal(self._config.backup.passphrase)
        await restore.rehearse(newest, self._config.storage.folder, lambda: passphrase)
        return newest

    async def _prune(self, folder: Path) -> None:
        """Let go of old backups, unless those that are made now cannot be restored."""
        rules = self._config.backup
        if self.state.tested.failed_at:
            return
        try:
            await asyncio.to_thread(
                prune, folder, self.state.bot, self._clock(), rules.kept, rules.kept_weeks
            )
        except OSError as exc:
            log.warning("backup.not_pruned", error=type(exc).__name__)

    def _age(self, record: JobRecord) -> float:
        return max(0, self._clock() - record.at) / 1000 if record.at else math.nan


@contextmanager
def _told(folder: Path) -> Generator[None]:
    try:
        yield
    except OSError as exc:
        raise ArchiveError(
            f"The folder for backups, {folder}, cannot be used: {exc.strerror}."
        ) from exc


# --- the files ------------------------------------------------------------------------------------


def name_of(bot: str, made_at: int) -> str:
    """The name of a backup that is made now (ms), in UTC."""
    return f"confidant-{bot}-{datetime.fromtimestamp(made_at / 1000, UTC):{_MOMENT}}.backup"


def found(folder: Path, bot: str) -> dict[int, Path]:
    """The backups of a bot in a folder, by when they were made, as their names say.

    Raises:
        OSError: it cannot be looked into.
    """
    shape = re.compile(rf"confidant-{re.escape(bot)}-(\d{{8}}-\d{{6}})\.backup")
    backups: dict[int, Path] = {}
    for path in folder.iterdir():
        match = shape.fullmatch(path.name)
        if match is not None:
            with suppress(ValueError):  # no day of any month
                moment = datetime.strptime(match[1], _MOMENT).replace(tzinfo=UTC)
                backups[round(moment.timestamp() * 1000)] = path
    return backups


def is_other_disk(folder: Path, home: Path) -> bool:
    """True when a folder is on another file system than the storage folder, which may come later.

    Raises:
        OSError: one cannot be looked at.
    """
    near = next(each for each in (home.resolve(), *home.resolve().parents) if each.exists())
    return folder.stat().st_dev != near.stat().st_dev


def outlived(made: Collection[int], now: int, kept: int, weeks: int) -> set[int]:
    """Those of the moments (ms) whose backups may go.

    The `kept` newest stay, and the newest of each of the last `weeks` weeks in which there are any.
    What is from after `now` stays too: the clock was wrong then, or is now.
    """
    past = sorted((moment for moment in made if moment <= now), reverse=True)
    newest: dict[int, int] = {}
    for moment in past:
        newest.setdefault(moment // _WEEK_MS, moment)
    staying = {*past[:kept], *list(newest.values())[:weeks]}
    return set(past) - staying


def prune(folder: Path, bot: str, now: int, kept: int, weeks: int) -> int:
    """Remove the backups of a bot that are not kept; how many those were.

    Raises:
        OSError: one cannot be removed.
    """
    backups = found(folder, bot)
    gone = outlived(backups, now, kept, weeks)
    for moment in sorted(gone):
        backups[moment].unlink(missing_ok=True)
    return len(gone)


def remove_unfinished(folder: Path, bot: str) -> None:
    """Remove what a kill left of a bot's backups; only while it makes none.

    Raises:
        OSError: it cannot be removed.
    """
    for path in folder.glob(f".confidant-{bot}-*.backup.partial"):
        path.unlink(missing_ok=True)
