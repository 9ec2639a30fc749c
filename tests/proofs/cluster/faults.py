"""What goes wrong in a cluster: each fault begins, lasts a while, and is over when it returns."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from tests.proofs.cluster.cluster import NODE_TIMEOUT, Cluster, Node
from tests.proofs.cluster.people import People

TAKEOVER = 10.0  # seconds within which another node has the connection to Telegram
BEYOND = NODE_TIMEOUT + 1.0  # seconds: longer than a node may be silent
PER_WORD = 0.15  # seconds between two messages, about


@dataclass
class Rounds:
    """Rounds of random faults while people write.

    `takeovers` are the seconds until another node had the connection to Telegram.
    """

    cluster: Cluster
    people: People
    seed: int
    takeovers: list[float] = field(default_factory=list)
    done: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._chance = random.Random(self.seed)  # noqa: S311 - chance, not a secret
        self._deck: list[str] = []

    async def run(self, count: int) -> None:
        """Let so many things go wrong, one after another; after each all is answered."""
        for _ in range(count):
            await self.round(self._next())

    async def round(self, name: str) -> None:
        """Let one thing go wrong while people write."""
        self.done.append(name)
        try:
            async with self.people.page.open():
                async with self.people.writing(PER_WORD):
                    await asyncio.sleep(self._chance.uniform(0.1, 0.6))
                    began = time.monotonic()
                    await FAULTS[name](self)
                    self.people.faults.append((began, time.monotonic()))
                    await asyncio.sleep(self._chance.uniform(0.1, 0.4))
                await self.people.settled()
        except BaseException:
            print(f"seed {self.seed}, round {len(self.done)}: {name}")
            raise

    def _next(self) -> str:
        """The next fault: each comes once before one comes again."""
        if not self._deck:
            self._deck = [*FAULTS]
            self._chance.shuffle(self._deck)
        return self._deck.pop()

    # --- the faults -------------------------------------------------------------------------------

    async def a_node_is_killed(self) -> None:
        """Any node but the owner."""
        await self._killed(self._another())

    async def the_owner_is_killed(self) -> None:
        """The node that has the connection to Telegram."""
        await self._killed(self._owner(), taken_over=True)

    async def a_node_sleeps_in_a_turn(self) -> None:
        """The node that asked the model stands still before it has the whole answer."""
        asked = asyncio.get_running_loop().create_future()

        async def hold(_name: str, port: int) -> None:
            if not asked.done():
                node = self.cluster.asking(port)
                self.cluster.pause(node)
                asked.set_result(node)

        self.cluster.model.before_end = hold
        node = await asyncio.wait_for(asked, 30)
        self.cluster.model.before_end = None
        await asyncio.sleep(BEYOND)
        self.cluster.resume(node)

    async def the_owner_sleeps(self) -> None:
        """The owner stands still for longer than it may, and wakes up."""
        node = self._owner()
        began = time.monotonic()
        self.cluster.pause(node)
        await self._taken_over(node, began)
        await asyncio.sleep(self._chance.uniform(0, 1))
        self.cluster.resume(node)

    async def a_node_loses_the_database(self) -> None:
        """Its connections break, and no new one is made."""
        node = self._chance.choice(self.cluster.nodes)
        node.database.cut()
        await asyncio.sleep(BEYOND)
        node.database.mend()

    async def the_owner_hears_nothing(self) -> None:
        """Nothing comes through between the owner and the database, and nothing breaks."""
        node = self._owner()
        began = time.monotonic()
        node.database.freeze()
        await self._taken_over(node, began)
        await asyncio.sleep(self._chance.uniform(0, 1))
        node.database.mend()

    async def the_database_is_killed(self) -> None:
        """For everybody."""
        await self.cluster.restart_database(self._chance.uniform(0, 1.5))

    async def a_link_is_slow(self) -> None:
        """Everything between a node and the database takes longer."""
        node = self._chance.choice(self.cluster.nodes)
        node.database.delay = 0.04
        await asyncio.sleep(1.5)
        node.database.delay = 0.0

    async def telegram_breaks_off(self) -> None:
        """The owner's connections to Telegram break: a send may have arrived, or not."""
        node = self._owner()
        for _ in range(3):
            node.telegram.cut()
            await asyncio.sleep(self._chance.uniform(0, 0.3))
            node.telegram.mend()
            await asyncio.sleep(0.2)

    async def _killed(self, node: Node, *, taken_over: bool = False) -> None:
        began = time.monotonic()
        await self.cluster.kill(node)
        if taken_over:
            await self._taken_over(node, began)
        await self.cluster.start(node)

    async def _taken_over(self, node: Node, since: float) -> None:
        """Wait until another node has the connection to Telegram."""
        telegram = self.cluster.telegram

        def taken() -> bool:
            return any(call.node != node.number for call in telegram.polls(since))

        try:
            await telegram.wait_for(taken, TAKEOVER)
        except TimeoutError:
            raise AssertionError(f"nobody took over within {TAKEOVER:g} s") from None
        first = next(call for call in telegram.polls(since) if call.node != node.number)
        self.takeovers.append(first.at - since)

    def _owner(self) -> Node:
        owner = self.cluster.owner()
        assert owner is not None
        return owner

    def _another(self) -> Node:
        others = [node for node in self.cluster.nodes if node is not self.cluster.owner()]
        return self._chance.choice(others)


FAULTS: dict[str, Callable[[Rounds], Awaitable[None]]] = {
    fault.__name__: fault
    for fault in (
        Rounds.a_node_is_killed,
        Rounds.the_owner_is_killed,
        Rounds.a_node_sleeps_in_a_turn,
        Rounds.the_owner_sleeps,
        Rounds.a_node_loses_the_database,
        Rounds.the_owner_hears_nothing,
        Rounds.the_database_is_killed,
        Rounds.a_link_is_slow,
        Rounds.telegram_breaks_off,
    )
}
