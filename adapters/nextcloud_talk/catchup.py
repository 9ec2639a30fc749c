"""Catching up: each known room is read once from where it was left, and new messages wait for it.

They wait so that the newest message stored in a room is never newer than one that was missed: what
a crash leaves undone is found the next time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any

import structlog

from adapters.missed import AT_ONCE, newest_chats
from adapters.nextcloud_talk.history import History, Unreadable
from adapters.nextcloud_talk.inbound import CHANNEL
from adapters.nextcloud_talk.pace import Pace
from adapters.nextcloud_talk.record import Entry
from adapters.waits import Backoff, Stopped, pause
from bot.channel import Engine, Inbound
from bot.errors import StorageError

GRACE = 5.0  # seconds for what is being stored when the account stops

_log = structlog.get_logger()


@dataclass(slots=True)
class _Room:
    """A room that is to be read from a message on, which is None once it was."""

    after: int | None
    wait: float = 0.0  # seconds before that
    done: asyncio.Event = field(default_factory=asyncio.Event)


class CatchUp:
    """Reads what one account missed, room by room.

    Args:
        listens: whether the bot listens in a room of a kind, a number of Talk's.
        entry: reads an entry of a room's record.
        keep: stores a message.
        rooms: the rooms of `Engine.last_seen`, and the newest message seen in each.
        drop: counts what becomes no message.
    """

    def __init__(
        self,
        *,
        account: str,
        engine: Engine,
        history: History,
        listens: Callable[[str, int], bool],
        entry: Callable[[str, object], Entry],
        keep: Callable[[Inbound], Awaitable[None]],
        rooms: Callable[[Mapping[str, str]], dict[str, int]],
        drop: Callable[[str], None],
        pace: Pace,
        stopping: asyncio.Event,
    ) -> None:
        self._account = account
        self._engine = engine
        self._history = history
        self._listens = listens
        self._entry = entry
        self._keep = keep
        self._known_rooms = rooms
        self._drop = drop
        self._pace = pace
        self._stopping = stopping
        self._rooms: dict[str, _Room] = {}
        self._known = asyncio.Event()
        self._at_once = asyncio.Semaphore(AT_ONCE)
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Begin to read every known room, in tasks of their own."""
        self._spawn(self._begin())

    async def stop(self) -> None:
        """Wait for what is being stored; what is left is found the next time."""
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=GRACE)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    def read(self, room: str, after: int, wait: float = 0.0) -> None:
        """Read a room after some seconds, from the message with this id on."""
        found = self._rooms.get(room)
        if found is not None:
            found.after = after if found.after is None else min(after, found.after)
            return
        found = self._rooms[room] = _Room(after, wait)
        self._spawn(self._work(room, found))

    async def settled(self, room: str) -> None:
        """Return once what was missed in a room is stored, or it takes too long.

        Raises:
            Stopped: the account stops first.
        """
        if self._known.is_set() and room not in self._rooms:
            return
        try:
            async with asyncio.timeout(self._pace.hold):
                await self._unless_stopped(self._known)
                found = self._rooms.get(room)
                if found is not None:
                    await self._unless_stopped(found.done)
        except TimeoutError:
            _log.warning("nextcloud_talk.history.slow", account=self._account)

    async def _unless_stopped(self, event: asyncio.Event) -> None:
        if event.is_set():
            return
        waits = [asyncio.ensure_future(each.wait()) for each in (event, self._stopping)]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        if not event.is_set():
            raise Stopped

    async def _begin(self) -> None:
        backoff = Backoff(self._pace.first, self._pace.longest)
        while True:
            try:
                seen = await self._engine.last_seen(CHANNEL, self._account)
            except StorageError as error:
                name = type(error).__name__
                _log.error("nextcloud_talk.last_seen.failed", account=self._account, error=name)
                if await pause(backoff.next(), self._stopping):
                    return
            else:
                break
        known = self._known_rooms(seen)
        found = newest_chats(known)
        if len(found) < len(known):
            rooms = len(known)
            _log.warning("nextcloud_talk.history.rooms_cut", account=self._account, rooms=rooms)
        for room, after in found.items():
            self.read(room, after)
        self._known.set()

    async def _work(self, room: str, found: _Room) -> None:
        try:
            while found.after is not None:
                if await pause(found.wait, self._stopping):
                    return
                async with self._at_once:
                    after, found.after = found.after, None
                    await self._catch_up(room, after)
        except Stopped:
            return
        except Exception:  # noqa: BLE001  # a fault of ours must not silence the room
            self._drop("fault")
            _log.exception("nextcloud_talk.history.fault", account=self._account)
        self._rooms.pop(room, None)
        found.done.set()

    async def _catch_up(self, room: str, after: int) -> None:
        try:
            if not self._listens(room, await self._history.kind(room)):
                return
            missed = await self._history.missed(room, after, lambda said: self._entry(room, said))
            messages = missed.messages()
            if messages and not await self._history.is_told(room):
                self._drop("switched_off")
                return
        except Unreadable as error:
            self._drop(error.reason)
            _log.info("nextcloud_talk.history.unread", account=self._account, error=str(error))
            return
        for reason, count in missed.ignored.items():
            for _ in range(count):
                self._drop(reason)
        if missed.cut:
            _log.warning("nextcloud_talk.history.cut", account=self._account, kept=len(messages))
        for message in messages:
            await self._store(message)
        if messages:
            _log.info("nextcloud_talk.history.read", account=self._account, messages=len(messages))

    async def _store(self, message: Inbound) -> None:
        """Store one message, however often it takes.

        Raises:
            Stopped: the account stops first.
        """
        backoff = Backoff(self._pace.first, self._pace.longest)
        while True:
            if self._stopping.is_set():
                raise Stopped
            try:
                await self._keep(message)
            except StorageError:
                if await pause(backoff.next(), self._stopping):
                    raise Stopped from None
            except Exception:  # noqa: BLE001  # whatever it holds, the others must go on
                self._drop("fault")
                _log.exception("nextcloud_talk.fault", account=self._account)
                return
            else:
                return

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
