"""Random values that were used: a signed call counts once."""

from __future__ import annotations

import time
from collections.abc import Callable

from cachetools import TTLCache

KEPT = 3600.0  # seconds; the engine knows messages by their id for much longer
MOST = 50_000  # values; only calls with a good signature get one in


class Seen:
    """Remembers random values for a while, the oldest going first when there are too many."""

    def __init__(
        self, kept: float = KEPT, most: int = MOST, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._used: TTLCache[str, None] = TTLCache(most, kept, timer=clock)

    def __len__(self) -> int:
        return len(self._used)

    def add(self, value: str) -> bool:
        """Remember a value; False when it was there already."""
        if value in self._used:
            return False
        self._used[value] = None
        return True

    def forget(self, value: str) -> None:
        """Let a value be used again: what came with it could not be stored."""
        self._used.pop(value, None)
