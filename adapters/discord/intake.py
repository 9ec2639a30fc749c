"""From raw events to the engine: in order within a chat, until stored; what is left out counted.

Discord has no acknowledgement: what was handed over is gone there. So everything waits here until
it is on disk, and what finds no room to wait is read again from the chat's history.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

import structlog

from adapters.discord import presses
from adapters.discord.history import History
from adapters.discord.inbound import CHANNEL, CREATED, Identity, Ignored, normalise
from adapters.discord.pace import Pace
from adapters.discord.places import Place, Places, Room
from adapters.discord.presses import Interaction, interaction_of
from adapters.discord.replies import Replies
from adapters.discord.shapes import Json, identity, integer
from adapters.waits import Backoff, Stopped, pause
from bot.channel import Engine, Health, Inbound
from bot.errors import StorageError

MAX_LANE = 200  # events of one chat that wait …
MAX_WAITING = 5000  # … and of all chats together
# Tries of a message that fails for another reason than storage: a fault of ours must not block
# the chat for ever.
MAX_FAULTS = 5
REMEMBERED_TRIGGERS = 1024  # rooms whose newest message to the bot is kept in mind

_log = structlog.get_logger()


@dataclass(slots=True)
class _Lane:
    """The events of one chat; its history after the message id `after` is to be read first."""

    events: deque[tuple[str, Json]] = field(default_factory=deque[tuple[str, Json]])
    after: int | None = None
    lost_from: int = 0  # the first message that found no room, or 0


class Intake:
    """What one account does with the messages and interactions it gets."""

    def __init__(
        self,
        *,
        account: str,
        engine: Engine,
        places: Places,
        history: History,
        replies: Replies,
        report: Callable[[Health, str], None],
        spawn: Callable[[Coroutine[Any, Any, None]], object],
        pace: Pace,
        stopping: asyncio.Event,
    ) -> None:
        self.me = Identity("")
        self.triggers: OrderedDict[str, str] = OrderedDict()  # rooms → what the bot answers there
        self._account = account
        self._engine = engine
        self._places = places
        self._history = history
        self._replies = replies
        self._report = report
        self._spawn = spawn
        self._pace = pace
        self._stopping = stopping
        self._lanes: dict[str, _Lane] = {}
        self._waiting = 0
        self._gate = asyncio.Event()
        self._behind: set[str] = set()  # chats whose history is yet to be read
        self._even = asyncio.Event()  # none is
        self._failing: set[str] = set()  # chats whose newest message cannot be stored now

    @property
    def waiting(self) -> int:
        """How many events wait to be stored."""
        return self._waiting

    @property
    def is_idle(self) -> bool:
        """True when everything that was said so far is stored."""
        return self._gate.is_set() and not self._lanes

    async def caught_up(self) -> None:
        """Wait until everything that was missed is stored.

        Raises:
            Stopped: the account stops first.
        """
        await self._happened(self._even)

    def hold(self) -> None:
        """Let events wait until it is known what came before them."""
        self._gate.clear()

    def release(self, after: dict[str, int]) -> None:
        """Go on, in each of these chats with what came after a message first."""
        self._behind |= after.keys()
        self._reached()
        for chat, message in after.items():
            self._lane(chat).after = message
        self._gate.set()

    def offer(self, kind: str, data: Json) -> None:
        """Take an event; returns at once."""
        chat = identity(data, "channel_id")
        if not chat:
            self.leave_out("malformed")
            return
        lane = self._lane(chat)
        if lane.lost_from or len(lane.events) >= MAX_LANE or self._waiting >= MAX_WAITING:
            self._overflow(lane, kind, data)
            return
        lane.events.append((kind, data))
        self._waiting += 1

    def _lane(self, chat: str) -> _Lane:
        lane = self._lanes.get(chat)
        if lane is None:
            lane = self._lanes[chat] = _Lane()
            self._spawn(self._work(chat, lane))
        return lane

    def _overflow(self, lane: _Lane, kind: str, data: Json) -> None:
        self.leave_out("overflow")
        number = int(identity(data, "id") or 0)
        if kind == CREATED and number and not lane.lost_from:
            # From here on the chat's history is read once what waits is stored.
            lane.lost_from = number
            _log.error("discord.intake.full", account=self._account, waiting=self._waiting)

    async def _work(self, chat: str, lane: _Lane) -> None:
        """Store the events of one chat in order, until there are none."""
        try:
            while True:
                await self._happened(self._gate)
                if lane.after is not None:
                    after, lane.after = lane.after, None
                    await self._catch_up(chat, lane, after)
                elif lane.events:
                    kind, data = lane.events[0]
                    await self._handle(chat, kind, data)
                    lane.events.popleft()
                    self._waiting -= 1
                elif lane.lost_from:
                    lane.after, lane.lost_from = lane.lost_from - 1, 0
                else:
                    break
        except Stopped:
            pass  # what is left is read from the chat's history the next time
        finally:
            self._waiting -= len(lane.events)
            lane.events.clear()
            self._lanes.pop(chat, None)
            self._failing.discard(chat)

    async def _happened(self, event: asyncio.Event) -> None:
        """Wait for something.

        Raises:
            Stopped: the account stops first.
        """
        if event.is_set() and not self._stopping.is_set():
            return
        stopped = asyncio.ensure_future(self._stopping.wait())
        happened = asyncio.ensure_future(event.wait())
        try:
            await asyncio.wait({stopped, happened}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopped.cancel()
            happened.cancel()
        if self._stopping.is_set():
            raise Stopped

    async def _catch_up(self, chat: str, lane: _Lane, after: int) -> None:
        missed = await self._history.missed(chat, after)
        if missed:
            _log.info("discord.history.read", account=self._account, messages=len(missed))
        for kind, message in missed:
            await self._handle(chat, kind, {**message, "channel_id": chat})
        # What came as an event meanwhile is stored; its text there may be an older one.
        read = {identity(message, "id") for _, message in missed}
        fresh = [e for e in lane.events if e[0] != CREATED or identity(e[1], "id") not in read]
        self._waiting -= len(lane.events) - len(fresh)
        lane.events = deque(fresh)
        if lane.after is None:
            self._behind.discard(chat)
            self._reached()

    def _reached(self) -> None:
        if self._behind:
            self._even.clear()
        else:
            self._even.set()

    async def _handle(self, chat: str, kind: str, data: Json) -> None:
        try:
            read = await self._read(chat, kind, data)
        except Stopped:
            raise
        except Exception as error:  # noqa: BLE001  # whatever it holds, the others must go on
            self.leave_out("unreadable")
            name = type(error).__name__
            _log.warning("discord.event.unreadable", account=self._account, error=name)
            return
        if read is not None:
            await self._store(chat, *read)

    async def _read(
        self, chat: str, kind: str, data: Json
    ) -> tuple[Inbound, Interaction | None] | None:
        """The message in an event, or None after counting why there is none."""
        if kind == presses.EVENT:
            interaction = interaction_of(data)
            found = presses.normalise(data, self._account, self.me)
            if interaction is None or found is None:
                self.leave_out("interaction")
            elif self._replies.repeated(interaction):
                self.leave_out("repeated")
            else:
                self._places.keep(chat, presses.place_in(data))
                return found, interaction
            if interaction is not None:
                self._replies.dismiss(interaction)
            return None
        # Most of what is left out can be told without knowing the place.
        first = normalise(kind, data, self._account, self.me, Room(Place("group")))
        if isinstance(first, Ignored):
            self.leave_out(first.reason)
            return None
        room = self._places.room(await self._place(chat, data))
        result = normalise(kind, data, self._account, self.me, room)
        return None if isinstance(result, Ignored) else (result, None)

    async def _place(self, chat: str, data: Json) -> Place:
        known = self._places.place(chat)
        if known is not None:
            return known
        server = identity(data, "guild_id")
        if integer(data, "channel_type") == 1 and not server:
            return self._places.learn({"id": chat, "type": 1})
        found = await self._history.place(chat)
        # Who may not know where this is takes it for a room: there nothing private shows.
        return found or Place("channel" if server else "group", "", server)

    async def _store(self, chat: str, found: Inbound, interaction: Interaction | None) -> None:
        """Store one message, however often it takes.

        Raises:
            Stopped: the account stops first.
        """
        if interaction is not None:
            self._replies.opened(interaction)
        else:
            self._remember(found)
        backoff = Backoff(self._pace.first, self._pace.longest)
        for fault in range(MAX_FAULTS):
            try:
                await self._receive(chat, found, backoff)
            except Stopped:
                raise
            except Exception:  # noqa: BLE001  # see MAX_FAULTS
                _log.exception("discord.store.fault", account=self._account, tries=fault + 1)
                if await pause(backoff.next(), self._stopping):
                    raise Stopped from None
            else:
                break
        else:
            self.leave_out("fault")
            return
        if interaction is not None:
            self._replies.stored(interaction)

    async def _receive(self, chat: str, found: Inbound, backoff: Backoff) -> None:
        """Store one message, as often as storing fails.

        Raises:
            Stopped: the account stops first.
        """
        while True:
            try:
                await self._engine.receive(found)
            except StorageError as error:
                delay = backoff.next()
                self._unstored(chat, error, delay)
                if await pause(delay, self._stopping):
                    raise Stopped from None
            else:
                break
        if chat in self._failing:
            self._failing.discard(chat)
            if not self._failing:
                self._report(Health.UP, "")

    def _remember(self, found: Inbound) -> None:
        """What the bot answers next in a room, so that a reply is one from its first word."""
        if found.chat_type == "direct" or not found.mentions_bot:
            return
        self.triggers[found.chat] = found.message_id
        self.triggers.move_to_end(found.chat)
        if len(self.triggers) > REMEMBERED_TRIGGERS:
            self.triggers.popitem(last=False)

    def _unstored(self, chat: str, error: StorageError, delay: float) -> None:
        self._failing.add(chat)
        name = type(error).__name__
        _log.error("discord.store.failed", account=self._account, error=name, retry_in=delay)
        self._report(
            Health.DEGRADED,
            f"New messages cannot be stored; they wait in memory. Trying again in {delay:g} s.",
        )

    def leave_out(self, why: str) -> None:
        """Count something that becomes no message."""
        self._engine.dropped(CHANNEL, why)
        _log.debug("discord.event.ignored", account=self._account, reason=why)
