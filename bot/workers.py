"""One worker for each key, in order, over rows that are safe in the database.

The window in memory is bounded: what does not fit stays in its table and is loaded again when the
worker gets there. Starting up is the same thing: every key with rows waiting begins empty-handed.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Generic, Protocol, TypeVar

import structlog

from bot import fencing
from bot.backoff import Backoff
from bot.errors import FenceLost
from bot.fencing import Fence


class Numbered(Protocol):
    """A row: its id grows in the order in which rows were stored."""

    @property
    def id(self) -> int:
        """The row's id."""
        ...


RETRY_DELAY = 1.0  # seconds; doubles with each failure in a row
LAST_DELAY = 16.0  # seconds

log = structlog.get_logger(__name__)

K = TypeVar("K", bound=Hashable)
R = TypeVar("R", bound=Numbered)


@dataclass(slots=True)
class Backlog(Generic[R]):
    """The backlog of one key: a window in memory, and a mark when the table holds more."""

    rows: deque[R] = field(default_factory=deque[R])
    more: bool = False
    loaded: set[int] = field(default_factory=set[int])  # ids that last came from the table
    arrived: asyncio.Event = field(default_factory=asyncio.Event)

    def take(self, most: int = 1) -> list[R]:
        """Remove and return up to `most` rows, oldest first."""
        return [self.rows.popleft() for _ in range(min(most, len(self.rows)))]


class Workers(Generic[K, R]):
    """Runs `handle(key, backlog)` again and again while a key has rows, one at a time a key.

    `handle` takes what it wants from the backlog and returns when its table no longer shows that
    as waiting. `load` returns up to `limit` waiting rows of a key, oldest first.
    """

    def __init__(
        self,
        handle: Callable[[K, Backlog[R]], Awaitable[None]],
        load: Callable[[K, int], Awaitable[Sequence[R]]],
        window: int,
        *,
        fence_of: Callable[[K], Fence | None] | None = None,
    ) -> None:
        """Each key's work is done behind `fence_of` it, if any, and ends when that is lost."""
        self._handle = handle
        self._load = load
        self._window = window
        self._fence_of = fence_of
        self._backlogs: dict[K, Backlog[R]] = {}
        self._tasks: dict[K, asyncio.Task[None]] = {}
        self._stopping = False

    def put(self, key: K, row: R) -> bool:
        """Hand over a stored row; False when the window is full and it waits in its table."""
        backlog = self._backlog(key)
        if row.id in backlog.loaded:
            return True  # the table was faster: it is here already, or even done
        has_room = len(backlog.rows) < self._window
        if has_room and not backlog.more:
            backlog.rows.append(row)
            backlog.arrived.set()
        else:
            backlog.more = True
        return has_room

    def look(self, key: K) -> None:
        """Let the key's worker look into the table, as at a start."""
        self._backlog(key).more = True

    async def run(self, key: K) -> None:
        """Work for what a key's table has now; cancelled, its worker is as well.

        A worker that is still there was fenced off: the key was taken away, and comes back.
        """
        await self.end(lambda other: other == key)
        self.look(key)
        task = self._tasks.get(key)
        if task is None:
            return
        try:
            await asyncio.wait({task})
        finally:
            task.cancel()

    async def end(self, keys: Callable[[K], bool]) -> None:
        """End the workers of some keys at once; what they had waits in its table."""
        ending = [task for key, task in self._tasks.items() if keys(key)]
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)

    async def reload(self, key: K, backlog: Backlog[R]) -> None:
        """Read a key's rows again, while its `handle` runs: others may have stored some."""
        await self._refill(key, backlog)

    def waiting(self, key: K) -> int:
        """The number of rows that wait in memory for a key."""
        backlog = self._backlogs.get(key)
        return len(backlog.rows) if backlog else 0

    @property
    def active(self) -> int:
        """The number of keys that have a worker now."""
        return len(self._tasks)

    async def stop(self, grace: float) -> None:
        """Begin nothing new, let running work finish for `grace` seconds, then cancel it."""
        self._stopping = True
        await self.drain(grace)

    async def drain(self, grace: float) -> None:
        """Let every worker empty its backlog for up to `grace` seconds, then cancel it."""
        loop = asyncio.get_running_loop()
        end = loop.time() + grace
        while self._tasks and (left := end - loop.time()) > 0:
            await asyncio.wait(self._tasks.values(), timeout=left)
        self._stopping = True
        late = list(self._tasks.values())
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)

    def _backlog(self, key: K) -> Backlog[R]:
        task = self._tasks.get(key)
        if task is not None and not task.done():
            return self._backlogs[key]
        backlog = self._backlogs[key] = Backlog()
        if not self._stopping:
            task = self._tasks[key] = asyncio.create_task(self._work(key, backlog))
            task.add_done_callback(partial(self._ended, key))
        return backlog

    def _ended(self, key: K, task: asyncio.Task[None]) -> None:
        """Let go of a key's worker, also of one that was cancelled before it began."""
        if self._tasks.get(key) is task:
            del self._tasks[key]
            del self._backlogs[key]

    async def _work(self, key: K, backlog: Backlog[R]) -> None:
        backoff = Backoff(RETRY_DELAY, LAST_DELAY)
        # Not behind the fence of whoever put the first row here.
        fencing.put(self._fence_of(key) if self._fence_of is not None else None)
        structlog.contextvars.clear_contextvars()  # the same
        while not self._stopping:
            try:
                if backlog.rows:
                    await self._handle(key, backlog)
                    backoff.reset()
                elif backlog.more:
                    await self._refill(key, backlog)
                else:
                    return
            except FenceLost:
                log.warning("worker.fenced")
                return
            except Exception:
                # What was taken is still waiting in its table: begin again from there.
                log.exception("worker.failed")
                backlog.rows.clear()
                backlog.more = True
                await asyncio.sleep(backoff.next())

    async def _refill(self, key: K, backlog: Backlog[R]) -> None:
        backlog.more = False  # a row put from here on is in memory, or sets it again
        stored = await self._load(key, self._window)
        backlog.loaded = {row.id for row in stored}
        if len(stored) == self._window:
            # What came meanwhile is further down the table; it is loaded when its time comes.
            backlog.more = True
            backlog.rows = deque(stored)
        else:
            merged = {row.id: row for row in (*stored, *backlog.rows)}
            backlog.rows = deque(merged[id_] for id_ in sorted(merged))
