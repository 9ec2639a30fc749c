"""Wakes the program's jobs, by name: some every so often, some once at a moment.

A clock that jumps changes nothing for long: all are planned anew by the time that goes by.

It only wakes. What is due is in the database, and each job decides by the clock it is given; so a
wake too many, too early or too late does no harm, and none has to be stored.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import structlog

from bot.clock import Clock

LOOK_SECONDS = 5.0  # between looks at the machine's clock
JUMP_SECONDS = 2.0  # that it moves between two looks beyond the time that went by
STOP_GRACE = 5.0  # seconds a running job may take to finish when the program stops

# Late is better than never, several missed times are one, and what comes again and again never
# overlaps itself. A wake for one moment does, as no other one would make up for it.
_RULES: Final = {"misfire_grace_time": None, "coalesce": True}
_OVERLAPS: Final = 1_000

_MODULES: Final = (
    "apscheduler.schedulers.asyncio",
    "apscheduler.triggers.interval",
    "apscheduler.triggers.date",
    "apscheduler.executors.asyncio",
)

Job = Callable[[], Awaitable[object]]

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Wake:
    """A job before the start, or for the start: how it was asked for."""

    job: Job
    seconds: float = 0.0  # between wakes; 0 for once
    first: float = 0.0  # seconds until the first wake, counted from the start
    at: int | None = None  # ms since the epoch


@dataclass
class Scheduler:
    """APScheduler over the running loop. `failed` hears of every job that ended in an error.

    `jumps` counts how often the machine's clock has jumped.
    """

    clock: Clock
    failed: Callable[[str], None] = lambda _name: None
    jumps: int = 0
    _planned: dict[str, _Wake] = field(default_factory=dict[str, _Wake])
    _running: set[asyncio.Task[Any]] = field(default_factory=set[asyncio.Task[Any]])
    _scheduler: Any = None
    _is_closing: bool = False

    def every(self, name: str, seconds: float, job: Job, *, first: float | None = None) -> None:
        """Wake a job every so many seconds, the first time after `first`."""
        self._plan(name, _Wake(job, seconds, seconds if first is None else first))

    def once(self, name: str, at: int, job: Job) -> None:
        """Wake a job when the clock says `at` (ms); replaces one of that name not yet woken."""
        self._plan(name, _Wake(job, at=at))

    async def start(self) -> None:
        """Begin to wake; what was asked for before is counted from now."""
        # Its imports take some milliseconds, which a start has better uses for.
        modules = await asyncio.to_thread(lambda: [importlib.import_module(m) for m in _MODULES])
        if self._is_closing:
            return
        # It tells of every wake that found its job still running, which is as it should be.
        logging.getLogger("apscheduler").setLevel(logging.ERROR)
        self._scheduler = modules[0].AsyncIOScheduler(timezone=UTC)
        self._scheduler.start()
        for name, wake in self._planned.items():
            self._add(name, wake)

    async def watch(self) -> None:
        """Wake what comes again and again at once, and plan the rest anew, when the clock jumps.

        What APScheduler plans goes by the machine's clock; set back by hours, nothing would run.
        """
        ahead = _ahead()
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            before, ahead = ahead, _ahead()
            if abs(ahead - before) < JUMP_SECONDS or self._scheduler is None:
                continue
            self.jumps += 1
            log.warning("clock.jumped", seconds=round(ahead - before))
            for name in {job.id for job in self._scheduler.get_jobs()}:
                self._add(name, replace(self._planned[name], first=0))

    async def close(self) -> None:
        """Wake nobody any more, and let running jobs finish for a moment."""
        self._is_closing = True
        if self._scheduler is None:
            return
        self._scheduler.pause()
        await asyncio.sleep(0)  # what was woken just now begins, and can be waited for
        running = self._running - {asyncio.current_task()}
        if running:
            _, late = await asyncio.wait(running, timeout=STOP_GRACE)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        self._scheduler.shutdown(wait=False)
        await asyncio.sleep(0)  # APScheduler does it in the loop's next round
        self._scheduler = None

    def _plan(self, name: str, wake: _Wake) -> None:
        if self._is_closing:
            return
        self._planned[name] = wake
        if self._scheduler is not None:
            self._add(name, wake)

    def _add(self, name: str, wake: _Wake) -> None:
        now = datetime.now(UTC)
        seconds = wake.first if wake.at is None else max(0, wake.at - self.clock()) / 1000
        when = now + timedelta(seconds=seconds)
        kind = {
            "trigger": "interval",
            "seconds": wake.seconds,
            "next_run_time": when,
            "max_instances": 1,
        }
        if wake.at is not None:
            kind = {"trigger": "date", "run_date": when, "max_instances": _OVERLAPS}
        self._scheduler.add_job(
            self._run, args=(name, wake.job), id=name, replace_existing=True, **kind, **_RULES
        )

    async def _run(self, name: str, job: Job) -> None:
        task = asyncio.current_task()
        if task is None:
            return
        self._running.add(task)
        structlog.contextvars.clear_contextvars()  # not those of whoever planned it
        try:
            await job()
        except asyncio.CancelledError:
            if not self._is_closing:
                raise
        except Exception as exc:  # noqa: BLE001 - a job that fails is woken again
            # Only the kind: an exception's own words may hold what a person said.
            log.error("job.failed", job=name, error=type(exc).__name__)  # noqa: TRY400
            self.failed(name)
        finally:
            self._running.discard(task)


def _ahead() -> float:
    """The seconds the machine's clock is ahead of the one that never jumps."""
    return time.time() - time.monotonic()
