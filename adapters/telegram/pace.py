"""How long to wait between tries, and waiting that a stop cuts short."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pace:
    """Waits in seconds; tests make them short."""

    first: float = 2.0  # after the first failure, doubled after each further one
    longest: float = 30.0
    rejected: float = 60.0  # after a rejected token, which only a person can mend
    probe: int = 1  # the long poll after a failure, to know soon whether it is over


class Backoff:
    """Doubling waits, until something succeeds."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._next = pace.first

    def next(self) -> float:
        """The wait after one more failure, in seconds."""
        delay = self._next
        self._next = min(self._next * 2, self._pace.longest)
        return delay

    def reset(self) -> None:
        """Begin again with the shortest wait."""
        self._next = self._pace.first


async def pause(seconds: float, stopping: asyncio.Event) -> bool:
    """Wait, but not past a stop; whether it is time to stop."""
    try:
        async with asyncio.timeout(seconds):
            await stopping.wait()
    except TimeoutError:
        return False
    return True
