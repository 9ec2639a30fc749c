"""One node of many: what it tells the others, hears from them, and is alone in doing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from bot.clock import Clock
from bot.coordination import Event, Hear, Topic
from bot.storage.postgres import PostgresDatabase


class Node:
    """`bot.coordination.Coordination` over PostgreSQL. Make it with `open`."""

    is_shared = True

    def __init__(self, database: PostgresDatabase, clock: Clock) -> None:
        self.database = database
        self.clock = clock
        self._hear: list[tuple[Topic, Hear]] = []

    @classmethod
    async def open(cls, url: str, clock: Clock) -> Node:
        """Connect to the database and make what is missing there.

        Raises:
            StorageError: it cannot be used; the message says what to do.
        """
        return cls(await PostgresDatabase.open(url), clock)

    async def close(self) -> None:
        """Let others have what this node had, and disconnect."""
        await self.database.close()

    async def run(self) -> None:
        """Hear what others say, until cancelled."""

    def on(self, topic: Topic, hear: Hear) -> None:
        """See `Coordination.on`."""
        self._hear.append((topic, hear))

    async def publish(self, event: Event) -> None:
        """See `Coordination.publish`."""

    @asynccontextmanager
    async def owning(self, name: str) -> AsyncGenerator[asyncio.Event]:
        """See `Coordination.owning`."""
        yield asyncio.Event()

    def owns(self, name: str) -> bool:
        """See `Coordination.owns`."""
        return True
