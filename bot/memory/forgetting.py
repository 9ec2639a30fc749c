"""Letting work that is under way know that something is being forgotten.

A turn or a flush reads first and writes later, perhaps much later. So it watches the space of what
it read: forgetting tells everybody who watches, and whoever comes while it lasts waits until it is
over, and reads nothing of it any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from weakref import WeakValueDictionary


@dataclass(eq=False, slots=True)
class Watch:
    """What was forgotten in a space since somebody began to read it; nothing so far when empty."""

    words: list[str] = field(default_factory=list[str])


class Forgettings:
    """Who watches which space, and which are being forgotten in."""

    def __init__(self) -> None:
        self._watches: dict[str, list[Watch]] = {}
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    @asynccontextmanager
    async def watching(self, space: str) -> AsyncGenerator[Watch]:
        """Hear of what is forgotten in a space; begin before anything of it is read."""
        watch = Watch()
        async with self._lock(space):
            watches = self._watches.setdefault(space, [])
            watches.append(watch)
        try:
            yield watch
        finally:
            watches.remove(watch)
            if not watches:
                self._watches.pop(space, None)

    @asynccontextmanager
    async def forgetting(self, space: str, words: str) -> AsyncGenerator[None]:
        """Tell everybody who watches; nobody begins to before this is over."""
        async with self._lock(space):
            for watch in self._watches.get(space, ()):
                watch.words.append(words)
            yield

    def _lock(self, space: str) -> asyncio.Lock:
        return self._locks.setdefault(space, asyncio.Lock())
