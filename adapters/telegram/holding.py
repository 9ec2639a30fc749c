"""What a webhook brought and may not be whole yet.

Telegram brings the next message of a chat only after the one before was accepted, so a part cannot
be left with Telegram until the others are there. It is kept on disk instead, and accepted then.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field

import structlog

from adapters.telegram.api import parse_json
from adapters.telegram.bundles import Bundle, put
from adapters.telegram.inbound import CHANNEL
from adapters.telegram.pace import Pace
from adapters.waits import Backoff, pause
from bot.channel import Engine
from bot.errors import StorageError

_KEPT = "update "  # what the names of kept updates begin with

_log = structlog.get_logger()


@dataclass(slots=True)
class _Lane:
    """The messages of one chat, in order; `coming` are still being written to the disk."""

    bundles: list[Bundle] = field(default_factory=list[Bundle])
    coming: int = 0
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def has(self, number: int) -> bool:
        """Whether an update is a part of what waits here."""
        return any(number in bundle.numbers for bundle in self.bundles)


class Holding:
    """Joins what one account is brought, in order within a chat, side by side across chats.

    Args:
        store: stores a message; False when the channel stopped before it could.
        spawn: runs something in a task that ends with the channel.
    """

    def __init__(
        self,
        *,
        account: str,
        engine: Engine,
        store: Callable[[Bundle], Awaitable[bool]],
        spawn: Callable[[Coroutine[object, object, None]], object],
        pace: Pace,
        stopping: asyncio.Event,
    ) -> None:
        self._account = account
        self._engine = engine
        self._store = store
        self._spawn = spawn
        self._pace = pace
        self._stopping = stopping
        self._lanes: dict[str, _Lane] = {}

    def wants(self, bundle: Bundle) -> bool:
        """Whether something may follow it, or has to be stored before it."""
        return bundle.chat in self._lanes or bundle.waits(bundle.grew, self._pace) > 0

    async def hold(self, update: object, bundle: Bundle) -> None:
        """Keep an update until its message is whole; when this returns it is on disk.

        Raises:
            StorageError: it could not be kept.
        """
        (number,) = bundle.numbers
        lane = self._lane(bundle.chat)
        lane.coming += 1
        try:
            await self._engine.keep(CHANNEL, self._account, _name(number), json.dumps(update))
        finally:
            lane.coming -= 1
            lane.changed.set()
        self._enter(bundle, lane)

    async def kept(self) -> dict[int, object]:
        """The updates an earlier run of the program held, by number, the first one first.

        Raises:
            StorageError: they cannot be read.
        """
        kept = await self._engine.kept(CHANNEL, self._account)
        found = {
            int(name.removeprefix(_KEPT)): parse_json(text.encode())
            for name, text in kept.items()
            if name.startswith(_KEPT)
        }
        return dict(sorted(found.items()))

    def resume(self, bundle: Bundle) -> None:
        """Go on with what was kept, as if it came now."""
        self._enter(bundle, self._lane(bundle.chat))

    async def forget(self, numbers: list[int]) -> None:
        """Keep these updates no longer; should that fail for good, they are second copies."""
        backoff = Backoff(self._pace.first, self._pace.longest)
        for number in numbers:
            while True:
                try:
                    await self._engine.keep(CHANNEL, self._account, _name(number), "")
                except StorageError as error:
                    name = type(error).__name__
                    _log.error("telegram.forget.failed", account=self._account, error=name)
                    if await pause(backoff.next(), self._stopping):
                        return
                else:
                    break

    def close(self) -> None:
        """The channel stops: what is held goes on with the next start."""
        for lane in self._lanes.values():
            lane.changed.set()

    def _lane(self, chat: str) -> _Lane:
        lane = self._lanes.get(chat)
        if lane is None:
            lane = self._lanes[chat] = _Lane()
            self._spawn(self._work(chat, lane))
        return lane

    def _enter(self, bundle: Bundle, lane: _Lane) -> None:
        if not lane.has(bundle.numbers[0]):
            put(lane.bundles, bundle)
            lane.changed.set()

    async def _work(self, chat: str, lane: _Lane) -> None:
        """Store the messages of one chat in order, each once it is whole."""
        try:
            while (lane.bundles or lane.coming) and not self._stopping.is_set():
                lane.changed.clear()
                wait = self._pace.together
                if lane.bundles:
                    wait = lane.bundles[0].waits(time.monotonic(), self._pace)
                if wait > 0:
                    await pause(wait, lane.changed)
                    continue
                bundle = lane.bundles[0]
                bundle.is_closed = True
                if not await self._store(bundle):
                    return
                lane.bundles.pop(0)
                await self.forget(bundle.numbers)
        finally:
            del self._lanes[chat]


def _name(number: int) -> str:
    """What a kept update is called."""
    return f"{_KEPT}{number}"
