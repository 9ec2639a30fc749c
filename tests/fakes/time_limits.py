"""Time limits that run out where a test says so, and not by a clock."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Literal
from weakref import WeakKeyDictionary

import pytest


class TimeIsUp(asyncio.Event):
    """A gate at which the time of whoever waits is up, however slow the machine is.

    It ends the innermost `asyncio.timeout` of the task that waits.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        self._limits: WeakKeyDictionary[asyncio.Task[Any], list[asyncio.Timeout]] = (
            WeakKeyDictionary()
        )
        for name in ("timeout", "timeout_at"):
            monkeypatch.setattr(asyncio, name, self._noting(getattr(asyncio, name)))

    def _noting(self, real: Callable[..., asyncio.Timeout]) -> Callable[..., asyncio.Timeout]:
        def limit(when: float | None) -> asyncio.Timeout:
            made, task = real(when), asyncio.current_task()
            if task is not None:
                self._limits.setdefault(task, []).append(made)
            return made

        return limit

    async def wait(self) -> Literal[True]:
        """Wait until the time is up: that raises."""
        task = asyncio.current_task()
        assert task is not None
        for limit in reversed(self._limits[task]):
            try:
                limit.reschedule(0)
            except RuntimeError:  # it is over
                continue
            break
        return await asyncio.Event().wait()
