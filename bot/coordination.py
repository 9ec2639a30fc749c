"""Coordination of the programs on one database: what they tell each other, and agree on.

One program alone (`Alone`) agrees with itself and only looks whether the command line wrote
something. Many nodes on one PostgreSQL have `bot.cluster`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Literal, Protocol

import structlog

from bot.channel import Address
from bot.errors import StorageClosed, StorageError
from bot.fencing import Fence
from bot.storage import SharedDatabase
from bot.storage.sqlite import SqliteDatabase

LOOK_SECONDS = 2.0  # how soon what the command line wrote is noticed
MOST_MENTIONED = 7_900  # bytes of an event that is stored nowhere; NOTIFY carries 8 000

# books: who is linked, paired, or moved; outbox: there is something to send for an account;
# stop: a turn is to end; show: what a channel shows on every node; notes: Markdown was written;
# account: something for the node that has an account; settings: options were changed for all;
# forgotten: somebody had words forgotten.
Topic = Literal["books", "outbox", "stop", "show", "notes", "account", "settings", "forgotten"]

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Event:
    """Something another program did; `name` says what it is about, `body` is the topic's own."""

    topic: Topic
    name: str = ""
    body: str = ""


@dataclass(frozen=True, slots=True)
class Standing:
    """The standing of a node among all, as it last looked.

    Attributes:
        nodes: how many are alive, this one among them.
        is_registered: the others count it as one of them.
        is_connected: its direct connection stands, over which it is told of their doings.
        is_deaf: what is told over it does not arrive, so it looks for it every second.
        clock_ahead: how far the database's clock is ahead of this machine's, in ms.
        owned: how many accounts and other things it alone does.
        jobs: how many turns wait for any node to take them up.
        oldest_job: for how long the first of these has waited, in ms.
        takeovers: how many nodes it gave up, and turns of such nodes it gave back.
        reruns: how many transactions were run again, after a collision or a lost connection.
    """

    nodes: int
    is_registered: bool
    is_connected: bool
    owned: int
    jobs: int
    oldest_job: int
    takeovers: int
    reruns: int
    is_deaf: bool = False
    clock_ahead: int = 0


def account_name(address: Address) -> str:
    """The name under which the account of an address is owned, such as "telegram/default"."""
    return f"{address.channel}/{address.account}"


Hear = Callable[[Event], Awaitable[None]]


class Coordination(Protocol):
    """The coordination of programs on one database."""

    @property
    def is_shared(self) -> bool:
        """True when other nodes may run on the same database."""
        ...

    def on(self, topic: Topic, hear: Hear) -> None:
        """Have `hear` called for what others do; before `start`.

        What it raises is logged. An event may come twice, or stand for several.
        """
        ...

    async def publish(self, event: Event) -> None:
        """Tell the other nodes; not this one. What is missed there is not repeated.

        Raises:
            StorageError: the database does not take it.
        """
        ...

    async def mention(self, event: Event) -> None:
        """The same, with nothing stored: who does not listen just now never hears of it.

        More than `MOST_MENTIONED` bytes are told nobody.

        Raises:
            StorageError: the database does not take it.
        """
        ...

    def owning(self, name: str) -> AbstractAsyncContextManager[asyncio.Event]:
        """Be the only node that does something, such as "telegram/default".

        Entering waits for as long as another one does. The event is set when it is lost; what
        only one may do must end then.
        """
        ...

    def owns(self, name: str) -> bool:
        """True while this node is sure to be the one that does it."""
        ...

    def fence(self, name: str) -> Fence | None:
        """The fence for what is written about something that one node does.

        None where nobody else could take it over.
        """
        ...

    def own_fence(self) -> Fence | None:
        """The same for what this node does by itself: it counts for as long as the node lives."""
        ...


class SharedTurns(Protocol):
    """Turns that any node takes up, one at a time for each session key."""

    def fence_of(self, key: str) -> Fence | None:
        """The fence for what the lane of a key writes."""
        ...

    def start(self, run_lane: Callable[[str], Awaitable[None]]) -> None:
        """Take up lanes from now on; `run_lane` answers all that waits for a key."""
        ...

    def stop(self) -> None:
        """Begin no more; what runs goes on."""
        ...

    async def close(self) -> None:
        """Let go of everything, once what ran has ended."""
        ...


@dataclass(frozen=True, slots=True)
class Shared:
    """A database that many nodes have in common, and what they tell each other there."""

    database: SharedDatabase
    coordination: Coordination


async def told(hear: Hear, event: Event) -> None:
    """Tell one listener of an event; what it raises is logged, and the others hear of it too.

    Raises:
        StorageError: the database cannot be used; it may be told once more.
    """
    try:
        await hear(event)
    except StorageError:
        raise
    except Exception as error:
        log.exception("coordination.hear_failed", topic=event.topic, error=type(error).__name__)


class Alone:
    """One program, beside which only the command line writes now and then."""

    is_shared = False

    def __init__(self, database: SqliteDatabase) -> None:
        self._database = database
        self._hear: list[tuple[Topic, Hear]] = []

    def on(self, topic: Topic, hear: Hear) -> None:
        """See `Coordination.on`."""
        self._hear.append((topic, hear))

    async def publish(self, event: Event) -> None:
        """Nobody else is there."""

    async def mention(self, event: Event) -> None:
        """Nobody else is there."""

    @asynccontextmanager
    async def owning(self, name: str) -> AsyncGenerator[asyncio.Event]:
        """It is never lost."""
        yield asyncio.Event()

    def owns(self, name: str) -> bool:
        """Always."""
        return True

    def fence(self, name: str) -> Fence | None:
        """None: it cannot be lost."""
        return None

    def own_fence(self) -> Fence | None:
        """None: it cannot be lost."""
        return None

    async def run(self) -> None:
        """Look for what another process wrote, until cancelled or closed."""
        changed = False
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                changed = await self._database.changed_outside() or changed
                if changed:
                    # It may have been anything: let in, joined, forgotten, or to be sent.
                    for topic, hear in self._hear:
                        if topic in {"books", "outbox", "forgotten"}:
                            await told(hear, Event(topic))
                    changed = False
            except StorageClosed:
                return
            except StorageError as exc:
                log.warning("storage.look_failed", error=type(exc).__name__)
