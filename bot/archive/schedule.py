"""Backups by themselves: made as often as `[backup]` says, and the newest one tried now and then.

What is due stands in the database (`bot.storage.backup_state`), so a restart forgets nothing, and
of many nodes one does it: whoever begins says so there, and again and again while at it. Whoever is
gone says nothing any more, and after some minutes somebody else begins anew.
"""

from __future__ import annotations

import asyncio
import math
import secrets
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

import structlog

from bot.archive import keeping, making, rehearsal
from bot.channel import reveal
from bot.clock import Clock
from bot.config import Config
from bot.errors import ArchiveBusy, ArchiveError, ConfidantError, StorageError
from bot.metrics import Metrics
from bot.storage import Database, Transaction, backup_state
from bot.storage.backup_state import BackupState, Record, What

LOOK_SECONDS = 60.0  # between two looks what is due, and two signs of life
FIRST_SECONDS = 90.0  # a start has better things to do
_BOTH: Final[tuple[What, ...]] = ("made", "tested")

log = structlog.get_logger(__name__)


class Backups:
    """Makes and tries the backups of one program; `state` is as it was last read."""

    def __init__(
        self,
        config: Config,
        database: Database,
        clock: Clock,
        metrics: Metrics,
        settings: Callable[[], str],
    ) -> None:
        """`settings` tells the configuration without its secrets."""
        self._config = config
        self._database = database
        self._clock = clock
        self._metrics = metrics
        self._settings = settings
        self.state = BackupState()
        self._other_disk = ""
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
        for what in _BOTH:
            self.state = await self._database.read(backup_state.read)
            if not self.state.is_due(what, self._config.backup, self._clock()):
                continue
            if await self._database.write(partial(self._claim, what)):
                await self._do(what)

    def _claim(self, what: What, tx: Transaction) -> bool:
        """Say that this program does it now, if nobody else does."""
        state, now = backup_state.read(tx), self._clock()
        if not state.is_due(what, self._config.backup, now):
            return False
        state = replace(state, bot=state.bot or secrets.token_hex(3))
        record = self._claimed(state.record(what))
        backup_state.write(tx, state.with_record(what, record), now)
        return True

    def _claimed(self, record: Record) -> Record:
        return replace(record, claimed_at=self._clock())

    async def _do(self, what: What) -> None:
        self.state = await self._database.read(backup_state.read)
        work = self._make if what == "made" else self._test
        try:
            async with self._seen(what):
                path, size = await work()
        except ArchiveBusy:  # somebody makes one by hand; the next look finds out
            await self._note(what, _unclaimed)
        except asyncio.CancelledError:
            with suppress(StorageError):  # whoever comes next need not wait
                await self._note(what, _unclaimed)
            raise
        except Exception as exc:
            # A sentence may name files, and what notes are called is told to their owner only.
            log.warning("backup.failed", what=what, error=type(exc).__name__)
            self._metrics.backups.labels(what, "failed").inc()
            why = (
                str(exc)
                if isinstance(exc, ConfidantError)
                else f"It ended in {type(exc).__name__}."
            )
            await self._note(what, lambda record: record.failed(why, self._clock()))
            if not isinstance(exc, ConfidantError):
                raise
        else:
            log.info("backup.done", what=what, size=size)
            self._metrics.backups.labels(what, "ok").inc()
            name, now = path.name, self._clock()
            disk = self._other_disk if what == "made" else None
            await self._note(what, lambda record: record.succeeded(name, size, now), disk)
            if what == "made":
                await self._prune(path)

    async def _make(self) -> tuple[Path, int]:
        """Write a backup; its file and how long that is."""
        folder, bot = self._target(), self.state.bot
        with _told(folder):
            await asyncio.to_thread(keeping.remove_unfinished, folder, bot)
            await self._must_be_mounted(folder)
        made = await making.make(
            self._config,
            folder / keeping.name_of(bot, self._clock()),
            self._passphrase(),
            self._settings(),
            clock=self._clock,
        )
        return made.path, made.size

    async def _must_be_mounted(self, folder: Path) -> None:
        """Make sure that a disk on which backups were is there still: its folder alone is none.

        Raises:
            ArchiveError: it is not.
            OSError: the folder cannot be looked at.
        """
        home = self._config.storage.folder
        is_other = await asyncio.to_thread(keeping.is_other_disk, folder, home)
        if not is_other and self.state.other_disk == str(folder):
            raise ArchiveError(
                f"{folder} was on another disk, which is not mounted now. Mount it, or name "
                "another folder as [backup] folder."
            )
        self._other_disk = str(folder) if is_other else ""

    async def _test(self) -> tuple[Path, int]:
        """Restore the newest backup into a folder that is thrown away."""
        folder = self._target()
        with _told(folder):
            backups = await asyncio.to_thread(keeping.found, folder, self.state.bot)
        if not backups:
            raise ArchiveError(f"There is no backup in {folder} that could be tried.")
        newest = backups[max(backups)]
        home = self._config.storage.folder
        await rehearsal.rehearse(newest, home, lambda: self._passphrase() or "")
        with _told(folder):
            return newest, newest.stat().st_size

    async def _prune(self, path: Path) -> None:
        """Let go of old backups, unless those that are made now cannot be restored."""
        if self.state.tested.failed_at:
            return
        rules, bot = self._config.backup, self.state.bot
        try:
            await asyncio.to_thread(
                keeping.prune, path.parent, bot, self._clock(), rules.kept, rules.kept_weeks
            )
        except OSError as exc:
            log.warning("backup.not_pruned", error=type(exc).__name__)

    def _target(self) -> Path:
        folder = self._config.backup.target
        assert folder is not None, "nothing is due without one"  # noqa: S101
        return folder

    def _passphrase(self) -> str | None:
        return reveal(self._config.backup.passphrase) or None

    async def _note(
        self, what: What, change: Callable[[Record], Record], other_disk: str | None = None
    ) -> None:
        def work(tx: Transaction) -> BackupState:
            state = backup_state.read(tx)
            state = state.with_record(what, change(state.record(what)))
            if other_disk is not None:
                state = replace(state, other_disk=other_disk)
            backup_state.write(tx, state, self._clock())
            return state

        self.state = await self._database.write(work)

    @asynccontextmanager
    async def _seen(self, what: What) -> AsyncGenerator[None]:
        """Give signs of life meanwhile."""

        async def say() -> None:
            while True:
                await asyncio.sleep(LOOK_SECONDS)
                with suppress(StorageError):
                    await self._note(what, self._claimed)

        saying = asyncio.create_task(say())
        try:
            yield
        finally:
            saying.cancel()
            await asyncio.gather(saying, return_exceptions=True)

    def _age(self, record: Record) -> float:
        return max(0, self._clock() - record.at) / 1000 if record.at else math.nan


def _unclaimed(record: Record) -> Record:
    return replace(record, claimed_at=0)


@contextmanager
def _told(folder: Path) -> Generator[None]:
    try:
        yield
    except OSError as exc:
        raise ArchiveError(
            f"The folder for backups, {folder}, cannot be used: {exc.strerror}."
        ) from exc
