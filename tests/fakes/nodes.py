"""Nodes without a database between them: what one publishes the others hear at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from bot.coordination import Event, Hear, Topic
from bot.errors import StorageError
from bot.fencing import Fence


class FakeNode:
    """`bot.coordination.Coordination` of one node; `told` is what it published.

    `others` are the nodes that hear it, `owned` the names that are its own, with the event for the
    loss of each. With `is_cut_off` it reaches nobody.
    """

    is_shared = True

    def __init__(self) -> None:
        self.told: list[Event] = []
        self.mentioned: list[Event] = []
        self.others: list[FakeNode] = []
        self.owned: dict[str, asyncio.Event] = {}
        self.is_cut_off = False
        self._hear: list[tuple[Topic, Hear]] = []
        self._given = asyncio.Condition()

    def on(self, topic: Topic, hear: Hear) -> None:
        """See `Coordination.on`."""
        self._hear.append((topic, hear))

    async def publish(self, event: Event) -> None:
        """Have every other node hear it."""
        if self.is_cut_off:
            raise StorageError("the database cannot be reached")
        self.told.append(event)
        for other in self.others:
            await other.hear(event)

    async def mention(self, event: Event) -> None:
        """The same; `mentioned` is what was not stored on its way."""
        self.mentioned.append(event)
        await self.publish(event)

    async def hear(self, event: Event) -> None:
        """Hear what another node says."""
        for topic, hear in self._hear:
            if topic == event.topic:
                await hear(event)

    async def give(self, name: str) -> None:
        """Make something this node's, and no other one's."""
        for other in self.others:
            if (lost := other.owned.pop(name, None)) is not None:
                lost.set()
        async with self._given:
            self.owned[name] = asyncio.Event()
            self._given.notify_all()

    @asynccontextmanager
    async def owning(self, name: str) -> AsyncGenerator[asyncio.Event]:
        """Wait until it is given."""
        async with self._given:
            await self._given.wait_for(lambda: name in self.owned)
        yield self.owned[name]

    def owns(self, name: str) -> bool:
        """Whether it was given."""
        return name in self.owned

    def fence(self, name: str) -> Fence | None:
        """None: there is no database to write to."""
        return None

    def own_fence(self) -> Fence | None:
        """None: there is no database to write to."""
        return None


def joined(count: int) -> list[FakeNode]:
    """So many nodes, each of which hears the others."""
    nodes = [FakeNode() for _ in range(count)]
    for node in nodes:
        node.others = [other for other in nodes if other is not node]
    return nodes
