"""Random values that were used: a signed call counts once."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable

KEPT = 3600.0  # seconds; the engine knows messages by their id for much longer
MOST = 50_000  # values; only calls with a good signature get one in


class Seen:
    """Remembers random values for a while, the oldest going first when there are too many."""

    def __init__(
        self, kept: float = KEPT, most: int = MOST, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._kept = kept
        self._most = most
        self._clock = clock
        self._until: OrderedDict[str, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._until)

    def add(self, value: str) -> bool:
        """Remember a value; False when it was there already."""
        now = self._clock()
        while self._until and next(iter(self._until.values())) <= now:
            self._until.popitem(last=False)
        if value in self._until:
            return False
        self._until[value] = now + self._kept
        if len(self._until) > self._most:
            self._until.popitem(last=False)
        return True

    def forget(self, value: str) -> None:
        """Let a value be used again: what came with it could not be stored."""
        self._until.pop(value, None)
