"""How memory grows: how many notes and passages there were, one line a day. Numbers alone."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC
from typing import Final

from bot.clock import Clock, moment
from bot.memory.memory import Memory
from bot.storage import Database
from bot.storage.meta import MetaStore

KEPT: Final = 400  # days
_PREFIX: Final = "growth:"


class MemoryGrowth:
    """Notes down what there is, and tells what there was."""

    def __init__(self, memory: Memory, database: Database, clock: Clock) -> None:
        self._memory = memory
        self._kept = MetaStore(database, clock)
        self._clock = clock

    async def note(self) -> None:
        """Keep what there is today (UTC), and forget the oldest days.

        Raises:
            StorageError: it could not be stored.
        """
        status = await self._memory.index.status()
        today = f"{moment(self._clock(), UTC):%Y-%m-%d}"
        await self._kept.set(f"{_PREFIX}{today}", f"{status.files} {status.chunks}")
        for day in sorted(await self._kept.under(_PREFIX))[:-KEPT]:
            await self._kept.forget(f"{_PREFIX}{day}")

    async def days(self) -> Mapping[str, tuple[int, int]]:
        """Notes and passages on each day that was noted, by its date."""
        found: dict[str, tuple[int, int]] = {}
        for day, words in sorted((await self._kept.under(_PREFIX)).items()):
            notes, _, passages = words.partition(" ")
            found[day] = int(notes), int(passages)
        return found
