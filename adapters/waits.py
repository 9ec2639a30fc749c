"""Waiting between tries, and waiting that a stop cuts short: for every channel."""

from __future__ import annotations

import asyncio


class Stopped(Exception):
    """What waits is given up: its account stops."""


class Backoff:
    """Doubling waits in seconds, from `first` to `longest`, until something succeeds."""

    def __init__(self, first: float, longest: float) -> None:
        self._first = first
        self._longest = longest
        self._next = first

    def next(self) -> float:
        """The wait after one more failure, in seconds."""
        delay = self._next
        self._next = min(self._next * 2, self._longest)
        return delay

    def reset(self) -> None:
        """Begin again with the shortest wait."""
        self._next = self._first


async def pause(seconds: float, stopping: asyncio.Event) -> bool:
    """Wait, but not past a stop; whether it is time to stop."""
    try:
        async with asyncio.timeout(seconds):
            await stopping.wait()
    except TimeoutError:
        return False
    return True
