"""The command line on a database of nodes: it tells them what it does, and is none of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from bot.cluster import takeover
from bot.cluster.signals import NodeSignals
from bot.coordination import Event, Hear, Topic
from bot.fencing import Fence
from bot.storage.postgres import PostgresDatabase

NAME = "command line"


class Visitor:
    """`bot.coordination.Coordination` of a program that comes and goes; it owns nothing."""

    is_shared = True

    def __init__(self, database: PostgresDatabase) -> None:
        self.database = database

    def on(self, topic: Topic, hear: Hear) -> None:
        """Nothing is heard: it is gone soon."""

    async def publish(self, event: Event) -> None:
        """See `Coordination.publish`."""
        await self.database.write(lambda tx: tx.publish(event.topic, event.name, event.body))

    async def mention(self, event: Event) -> None:
        """Nobody watches what it does."""

    @asynccontextmanager
    async def owning(self, name: str) -> AsyncGenerator[asyncio.Event]:
        """It waits for ever: a visitor owns nothing."""
        await asyncio.Event().wait()
        yield asyncio.Event()

    def owns(self, name: str) -> bool:
        """Never."""
        return False

    def fence(self, name: str) -> Fence | None:
        """No fence: what it writes is never taken over."""
        return None

    def own_fence(self) -> Fence | None:
        """The same."""
        return None


@asynccontextmanager
async def visiting(url: str, cluster: str, *, migrates: bool) -> AsyncGenerator[Visitor]:
    """Come to a database of nodes, and leave it; its tables are changed if it `migrates`.

    Raises:
        StorageError: it cannot be used; the message says what to do.
    """
    signals = NodeSignals(NAME, lambda _name: False)
    database = PostgresDatabase(url, signals, name=takeover.application(NAME))
    prepare = takeover.prepare if migrates else takeover.is_prepared
    await database.start(prepare, cluster=cluster, migrates=migrates)
    try:
        yield Visitor(database)
    finally:
        await database.close()
