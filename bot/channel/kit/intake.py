"""Incoming messages of an account: parts put together again, in order within a chat.

An album comes as one message a picture, a long paste as one message for each part the app cut it
into. A platform that keeps what is not acknowledged keeps the parts until the last of them came;
one that brings the next part only after the one before was acknowledged has them kept on disk, by
`Reassembly`. Either way a crash costs nothing.

What was missed is stored before what is new: a chat is read back from the newest message that was
stored in it, so were a newer one stored first, a crash in between would hide the others for good.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from operator import itemgetter
from typing import Generic, NamedTuple, TypeVar

import structlog

from bot.channel import ChannelConfig, ChatType, Foreign, Inbound, Media
from bot.channel.kit.json_access import parse_json
from bot.channel.kit.supervisor import Stopped, Supervisor, pause
from bot.channel.kit.text import units

LONG = 4000  # UTF-16 units of a part of a paste; an app cuts at a good place before …
FULL = 4096  # … it has to
MAX_PARTS = 20  # of one message
MAX_DATES = 2000  # ms between two parts of a paste, as a platform dates them in whole seconds

_KEPT = "update "  # what the names of kept updates begin with

X = TypeVar("X")


@dataclass(frozen=True, slots=True)
class Patience:
    """Seconds to wait for further parts of a message."""

    album: float = 0.5  # after a part of an album, in which the next one may come …
    paste: float = 1.5  # … and after a part of a long paste
    together: float = 10.0  # from the first part on, at most


# --- what belongs together: pure -----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Part:
    """A message that may belong together with its neighbours; `album` names its album."""

    inbound: Inbound
    album: str = ""


def continues(parts: Sequence[Part], part: Part) -> bool:
    """True when a message continues what these parts of one message began."""
    last = parts[-1]
    if len(parts) >= MAX_PARTS or _author(last.inbound) != _author(part.inbound):
        return False
    if last.album or part.album:
        return last.album == part.album
    gap = part.inbound.sent_at - last.inbound.sent_at
    if _authors(last.inbound) != _authors(part.inbound):
        return False
    new = part.inbound
    is_plain = not (new.media or new.edit_of or new.text.startswith("/"))
    return _is_cut(last.inbound) and is_plain and 0 <= gap <= MAX_DATES


def merged(parts: Sequence[Part]) -> Inbound:
    """One message of several parts.

    It has the id of the last part: should a part come so late that the others were stored already,
    and all of them come again after a crash, the whole is another message and nothing is lost.
    """
    first, last = parts[0].inbound, parts[-1].inbound
    media: tuple[Media, ...] = sum((part.inbound.media for part in parts), ())
    return replace(
        first,
        message_id=last.message_id,
        text=_text([part.inbound.text for part in parts]),
        foreign=_foreign(parts),
        media=media,
        reply_to=next((p.inbound.reply_to for p in parts if p.inbound.reply_to), None),
        mentions_bot=any(part.inbound.mentions_bot for part in parts),
    )


def _text(texts: Sequence[str]) -> str:
    """The words of all parts; one that is full was cut in the middle of a word."""
    words = ""
    for before, text in zip(("", *texts), texts, strict=False):
        words += f"\n{text}" if words and text and units(before) < FULL else text
    return words


def _foreign(parts: Sequence[Part]) -> tuple[Foreign, ...]:
    """The forwarded parts of all; a long message that was forwarded in pieces is one again."""
    found: list[Foreign] = []
    for each in (foreign for part in parts for foreign in part.inbound.foreign):
        last = found[-1] if found else None
        goes_on = last is not None and last.kind == each.kind == "forwarded"
        if last is not None and goes_on and last.author == each.author:
            found[-1] = replace(last, text=_text([last.text, each.text]))
        else:
            found.append(each)
    return tuple(found)


def _author(inbound: Inbound) -> tuple[str, str, str]:
    return inbound.chat, inbound.thread, inbound.sender


def _authors(inbound: Inbound) -> list[tuple[str, str]]:
    """The authors of what a message passes on; none when it is the sender's own."""
    return [(part.kind, part.author) for part in inbound.foreign]


def _is_cut(inbound: Inbound) -> bool:
    """True if a message is as long as one that an app had to cut."""
    forwarded = (part.text for part in inbound.foreign if part.kind == "forwarded")
    words = inbound.text or next(forwarded, "")
    if inbound.media or inbound.edit_of or len(words) < LONG // 2:
        return False
    return units(words) >= LONG


@dataclass(slots=True)
class Pending(Generic[X]):
    """A unit to store: a message with all its parts, or something else of a chat.

    Times are of any clock, in seconds. `extra` is what else a platform has to do with it.
    """

    chat: str  # within a chat the order counts
    numbers: list[int]  # of its updates
    parts: list[Part]
    began: float  # when the first part came …
    grew: float  # … and the last one
    extra: X | None = None
    is_closed: bool = False  # nothing can follow any more

    @property
    def message(self) -> Inbound:
        """All its parts as one message, in the order they were written."""
        if len(self.parts) == 1:
            return self.parts[0].inbound
        pairs = sorted(zip(self.numbers, self.parts, strict=True), key=itemgetter(0))
        return merged([part for _, part in pairs])

    def waits(self, now: float, most: Patience) -> float:
        """Seconds in which something may follow; 0 or less when it is whole."""
        if self.is_closed or not 0 < len(self.parts) < MAX_PARTS:
            return 0.0
        last = self.parts[-1]
        if not last.album and not _is_cut(last.inbound):
            return 0.0
        longest = most.album if last.album else most.paste
        return min(self.grew + longest, self.began + most.together) - now


def append_or_merge(lane: list[Pending[X]], pending: Pending[X]) -> None:
    """Add a message to its chat's, or to the parts of the message it goes on."""
    if pending.parts:
        who = pending.parts[0].inbound
        before = next((each for each in reversed(lane) if _is_of(each, who)), None)
        if before is not None and not before.is_closed:
            if not pending.is_closed and continues(before.parts, pending.parts[0]):
                before.numbers += pending.numbers
                before.parts += pending.parts
                before.grew = pending.grew
                return
            before.is_closed = True
    lane.append(pending)


def _is_of(pending: Pending[X], who: Inbound) -> bool:
    """True if the same person said it in the same place."""
    if not pending.parts:
        return False
    other = pending.parts[0].inbound
    return (other.thread, other.sender) == (who.thread, who.sender)


# --- what is kept until it is whole --------------------------------------------------------------


@dataclass(slots=True)
class _PendingChat(Generic[X]):
    """The queue of one chat, in order; `coming` are still being written to the disk."""

    pending: list[Pending[X]] = field(default_factory=list[Pending[X]])
    coming: int = 0
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    worker: asyncio.Task[None] | None = None


class Reassembly(Generic[X]):
    """Keeps what one account was brought until it is whole: chats side by side, each in order.

    Args:
        store: stores a whole message; it is called until that works.
    """

    def __init__(
        self,
        supervisor: Supervisor,
        store: Callable[[Pending[X]], Awaitable[None]],
        most: Patience,
    ) -> None:
        self._supervisor = supervisor
        self._store = store
        self._most = most
        self._lanes: dict[str, _PendingChat[X]] = {}

    def must_wait(self, pending: Pending[X]) -> bool:
        """True when something may follow it, or has to be stored before it."""
        return pending.chat in self._lanes or pending.waits(pending.grew, self._most) > 0

    async def hold(self, update: object, pending: Pending[X]) -> None:
        """Keep an update until its message is whole; when this returns it is on disk.

        Raises:
            StorageError: it could not be kept.
        """
        (number,) = pending.numbers
        lane = self._lane(pending.chat)
        lane.coming += 1
        try:
            await self._keep(number, json.dumps(update))
        finally:
            lane.coming -= 1
            lane.changed.set()
        self._enter(pending, lane)

    async def hand_over(self, update: object, pending: Pending[X]) -> None:
        """Keep an update for the node that holds what is not whole yet, which has to be told.

        Raises:
            StorageError: it could not be kept.
        """
        (number,) = pending.numbers
        await self._keep(number, json.dumps(update))

    async def abandon(self) -> None:
        """Leave everything that is kept to another node."""
        workers = [lane.worker for lane in self._lanes.values() if lane.worker is not None]
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)

    async def kept(self) -> dict[int, object]:
        """The updates an earlier run of the program held, by number, the first one first.

        Raises:
            StorageError: they cannot be read.
        """
        supervisor = self._supervisor
        kept = await supervisor.engine.kept(supervisor.channel, supervisor.account)
        found = {
            int(name.removeprefix(_KEPT)): parse_json(text)
            for name, text in kept.items()
            if name.startswith(_KEPT)
        }
        return dict(sorted(found.items()))

    def resume(self, pending: Pending[X]) -> None:
        """Go on with what was kept, as if it came now."""
        self._enter(pending, self._lane(pending.chat))

    async def forget(self, numbers: Sequence[int]) -> None:
        """Keep these updates no longer; should that fail for good, they are second copies.

        Raises:
            Stopped: the account stops before that.
        """
        for number in numbers:
            await self._supervisor.insist("forget.failed", partial(self._keep, number, ""))

    async def _keep(self, number: int, text: str) -> None:
        supervisor = self._supervisor
        name = f"{_KEPT}{number}"
        await supervisor.engine.keep(supervisor.channel, supervisor.account, name, text)

    def _lane(self, chat: str) -> _PendingChat[X]:
        lane = self._lanes.get(chat)
        if lane is None:
            lane = self._lanes[chat] = _PendingChat[X]()
            lane.worker = self._supervisor.spawn(self._work(chat, lane))
        return lane

    def _enter(self, pending: Pending[X], lane: _PendingChat[X]) -> None:
        if not any(pending.numbers[0] in each.numbers for each in lane.pending):
            append_or_merge(lane.pending, pending)
            lane.changed.set()

    async def _work(self, chat: str, lane: _PendingChat[X]) -> None:
        """Store what waits in a chat in order; what a stop leaves goes on with the next start."""
        try:
            while lane.pending or lane.coming:
                lane.changed.clear()
                wait = self._most.together
                if lane.pending:
                    wait = lane.pending[0].waits(time.monotonic(), self._most)
                if wait > 0:
                    await self._supervisor.unless_stopped(pause(wait, lane.changed))
                    continue
                pending = lane.pending[0]
                pending.is_closed = True
                await self._supervisor.store(partial(self._store, pending))
                lane.pending.pop(0)
                await self.forget(pending.numbers)
        finally:
            del self._lanes[chat]


# --- in order, and after what was missed ----------------------------------------------------------


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
