"""What one account is brought: in order within a chat, and after what was missed there.

What was missed is stored before what is new: a chat is read back from the newest message that was
stored in it, so were a newer one stored first, a crash in between would hide the others for good.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Generic, NamedTuple, TypeVar

import structlog

from bot.channel import ChannelConfig, ChatType
from bot.channel.kit.supervisor import Stopped, Supervisor

# How far every channel that can read back what was missed goes.
MAX_MISSED = 100  # messages of one chat, the newest ones …
MAX_AGE = 24 * 3600 * 1000  # … that are not older, in ms
MAX_CHATS = 500  # looked through after a downtime, those of the newest messages
AT_ONCE = 4  # chats read back

MAX_LANE = 200  # events of one chat that wait in memory …
MAX_WAITING = 5000  # … and of all chats together

_log = structlog.get_logger()
E = TypeVar("E")


def newest_chats(seen: Mapping[str, int]) -> dict[str, int]:
    """The chats to look through, by the newest message seen in each; the newest come first."""
    return dict(sorted(seen.items(), key=itemgetter(1), reverse=True)[:MAX_CHATS])


class Where(NamedTuple):
    """A chat, as the configuration of a room is found by; see `bot.channel.InChat`."""

    chat_type: ChatType
    chat: str
    parent: str = ""
    server: str = ""


def listens(config: ChannelConfig, somewhere: Where) -> bool:
    """True if the bot reads a chat at all: a direct one, or a room it is let into."""
    if somewhere.chat_type == "direct":
        return config.dm_policy != "disabled"
    if config.group_policy == "disabled":
        return False
    listed = config.listed(somewhere)
    return listed.enabled if listed is not None else config.group_policy == "open"


@dataclass(slots=True)
class _ChatQueue(Generic[E]):
    """The events of one chat, with their messages' numbers."""

    events: deque[tuple[int, E]] = field(default_factory=deque[tuple[int, E]])
    after: int | None = None  # what was said after this message is to be read first …
    wait: float = 0.0  # … after so many seconds
    lost_from: int = 0  # the first message that found no room, or 0
    is_read: asyncio.Event = field(default_factory=asyncio.Event)


class Intake(Generic[E]):
    """Chats side by side, each in order, each after its own history.

    A platform that acknowledges nothing hands its events to `offer`: they wait in memory, and what
    finds no room is read back from the chat's history. One that waits for our answer stores what it
    brings by itself, after `settled`. Nothing is stored before `release` was called.

    Args:
        read: stores what was said in a chat after the message with a number, oldest first, and
            returns the numbers of those messages.
        store: stores one event of a chat.
    """

    def __init__(
        self,
        supervisor: Supervisor,
        *,
        read: Callable[[str, int], Awaitable[Collection[int]]],
        store: Callable[[str, E], Awaitable[object]],
    ) -> None:
        self._supervisor = supervisor
        self._read = read
        self._store = store
        self._lanes: dict[str, _ChatQueue[E]] = {}
        self._waiting = 0
        self._gate = asyncio.Event()
        self._at_once = asyncio.Semaphore(AT_ONCE)

    @property
    def waiting(self) -> int:
        """The number of events that wait to be stored."""
        return self._waiting

    @property
    def is_idle(self) -> bool:
        """True when everything that was said so far is stored."""
        return self._gate.is_set() and not self._lanes

    def hold(self) -> None:
        """Let everything wait until it is known what came before it."""
        self._gate.clear()

    def release(self, missed: Mapping[str, int]) -> None:
        """Go on, in each of these chats with what was said after a message first."""
        for chat, after in missed.items():
            self.read_back(chat, after)
        self._gate.set()

    def read_back(self, chat: str, after: int, wait: float = 0.0) -> None:
        """Read a chat's history after a message, before anything else is stored there.

        Args:
            chat: the chat.
            after: the message's number.
            wait: seconds before that.
        """
        lane = self._lane(chat)
        lane.after = after if lane.after is None else min(after, lane.after)
        lane.wait = wait
        lane.is_read.clear()

    def offer(self, chat: str, event: E, number: int = 0) -> None:
        """Take an event; returns at once.

        Args:
            chat: the chat.
            event: what `store` gets.
            number: of the message in it, if that is a new one, by which history knows it.
        """
        lane = self._lane(chat)
        if not lane.lost_from and len(lane.events) < MAX_LANE and self._waiting < MAX_WAITING:
            lane.events.append((number, event))
            self._waiting += 1
            return
        self._supervisor.drop("overflow")
        if number and not lane.lost_from:
            # From here on the chat's history is read once what waits is stored.
            lane.lost_from = number
            name = f"{self._supervisor.channel}.intake.full"
            _log.error(name, account=self._supervisor.account, waiting=self._waiting)

    async def settled(self, chat: str) -> None:
        """Return once what was missed in a chat is stored.

        Raises:
            Stopped: the account stops first.
        """
        if not self._gate.is_set():
            await self._supervisor.happened(self._gate)
        lane = self._lanes.get(chat)
        if lane is not None and not lane.is_read.is_set():
            await self._supervisor.happened(lane.is_read)

    async def caught_up(self) -> None:
        """Return once everything that was missed is stored.

        Raises:
            Stopped: the account stops first.
        """
        while behind := [lane for lane in self._lanes.values() if not lane.is_read.is_set()]:
            await self._supervisor.happened(behind[0].is_read)

    def _lane(self, chat: str) -> _ChatQueue[E]:
        lane = self._lanes.get(chat)
        if lane is None:
            lane = self._lanes[chat] = _ChatQueue[E]()
            lane.is_read.set()
            self._supervisor.spawn(self._work(chat, lane))
        return lane

    async def _work(self, chat: str, lane: _ChatQueue[E]) -> None:
        """Store what waits in a chat; what a stop leaves is read from its history the next time."""
        try:
            while True:
                await self._supervisor.happened(self._gate)
                if lane.after is not None:
                    await self._catch_up(chat, lane)
                elif lane.events:
                    await self._store(chat, lane.events[0][1])
                    lane.events.popleft()
                    self._waiting -= 1
                elif lane.lost_from:
                    self.read_back(chat, lane.lost_from - 1)
                    lane.lost_from = 0
                else:
                    break
        finally:
            self._waiting -= len(lane.events)
            lane.events.clear()
            del self._lanes[chat]

    async def _catch_up(self, chat: str, lane: _ChatQueue[E]) -> None:
        await self._supervisor.pause(lane.wait)
        read: Collection[int] = ()
        async with self._at_once:
            after, lane.after = lane.after or 0, None
            try:
                read = await self._read(chat, after)
            except Stopped:
                raise
            except Exception:  # noqa: BLE001  # a fault of ours must not silence the chat
                self._supervisor.drop("fault")
                name = f"{self._supervisor.channel}.history.fault"
                _log.exception(name, account=self._supervisor.account)
        # What came as an event meanwhile is stored; its text there may be an older one.
        fresh = [event for event in lane.events if not event[0] or event[0] not in read]
        self._waiting -= len(lane.events) - len(fresh)
        lane.events = deque(fresh)
        if lane.after is None:
            lane.is_read.set()
