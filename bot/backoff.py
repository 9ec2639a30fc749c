"""Trying again what failed: how long to wait, and background tasks that begin anew."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final

import structlog

FIRST, LONGEST = 1.0, 300.0  # seconds before a background task that failed begins anew

_failures = 0  # of background tasks, since the start of the program
_down: Final = dict[str, str]()  # those that wait to begin anew, and the kind of error they had

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Backoff:
    """Doubling waits in seconds, from `first` to `longest`, until something succeeds."""

    first: float
    longest: float
    _next: float = 0.0  # 0 before the first failure

    def next(self) -> float:
        """The wait after one more failure, in seconds."""
        delay = self._next or self.first
        self._next = min(delay * 2, self.longest)
        return delay

    def reset(self) -> None:
        """Begin again with the shortest wait."""
        self._next = 0.0


def failures() -> int:
    """The number of times that background tasks have failed since the start."""
    return _failures


def down() -> Mapping[str, str]:
    """Background tasks that failed and wait to begin anew, with the kind of error they had."""
    return dict(_down)


def keep(name: str, work: Callable[[], Awaitable[None]]) -> asyncio.Task[None]:
    """A task for work that lasts as long as the program: when it fails, it begins anew.

    It ends when the work returns, or when the task is cancelled.
    """
    return asyncio.create_task(kept(name, work), name=name)


async def kept(name: str, work: Callable[[], Awaitable[None]]) -> None:
    """Do what `keep` does in the task that calls it."""
    global _failures  # noqa: PLW0603 - of the whole program, as its tasks are
    backoff = Backoff(FIRST, LONGEST)
    try:
        while True:
            _down.pop(name, None)
            began = time.monotonic()
            try:
                return await work()
            except asyncio.CancelledError as error:
                if (task := asyncio.current_task()) is None or task.cancelling():
                    raise
                failed: BaseException = error  # something it waited for was cancelled, not this
            except Exception as error:  # noqa: BLE001 - whatever it is, the work has to go on
                failed = error
            if time.monotonic() - began > LONGEST:
                backoff.reset()
            delay = backoff.next()
            kind = _down[name] = type(failed).__name__
            _failures += 1
            log.error("background.failed", task=name, error=kind, seconds=delay, exc_info=failed)
            await asyncio.sleep(delay)
    finally:
        _down.pop(name, None)
