"""Fair shares: whatever one person can make the bot do takes a place that is theirs.

Each kind of work has so many places for everybody and fewer for each person, so that nobody can
take them all. Whoever waits is served round robin over people. A person is an account, a member of
a room, or the network somebody comes from before they have logged in.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from bot.errors import PoolFull


@dataclass(frozen=True, slots=True)
class Share:
    """The bounds of one kind of work.

    `at_once` for everybody, `each` for one person, `waiting` more of one person; None where what
    waits is bounded by something else, such as one task for each conversation.
    """

    at_once: int
    each: int
    waiting: int | None


# Where something else bounds what one person can begin, nothing of theirs is refused.
FILES: Final = Share(at_once=24, each=2, waiting=None)  # fetched and opened for messages
FLUSHES: Final = Share(at_once=8, each=2, waiting=None)  # conversations that are saved
HISTORIES: Final = Share(at_once=4, each=1, waiting=None)  # drawn for a window of the chat page
LISTENERS: Final = Share(at_once=1, each=1, waiting=24)  # programs with a model of speech: 6 GB
NOTES: Final = Share(at_once=512, each=48, waiting=0)  # to browsers, with those tried again
OPENERS: Final = Share(at_once=2, each=1, waiting=24)  # programs that open files: 512 MB each
PAGES: Final = Share(at_once=32, each=4, waiting=12)  # of the web, with all their redirects
PASSWORDS: Final = Share(at_once=2, each=1, waiting=64)  # compared: each takes 19 MiB
POSTS: Final = Share(at_once=32, each=4, waiting=None)  # of such notes to a service
REQUESTS: Final = Share(at_once=64, each=6, waiting=64)  # of the page
SEARCHES: Final = Share(at_once=4, each=1, waiting=6)  # of the web, each in a process
SUMMARIES: Final = Share(at_once=8, each=2, waiting=None)  # conversations that are compacted
TALKS: Final = Share(at_once=32, each=8, waiting=0)  # of programs and temporary chats that wait
WRONG: Final = Share(at_once=64, each=4, waiting=0)  # secrets whose answer is held back


def turns(at_once: int) -> Share:
    """The share of turns: one person has a quarter of them. The rest waits in the inbox."""
    return Share(at_once, max(1, at_once // 4), None)


class RoundRobin:
    """Decides whose work is next. Pure; a ticket stands for one piece of work."""

    def __init__(self, share: Share) -> None:
        self.share = share
        self._owners: dict[int, str] = {}  # of every ticket
        self._running: Counter[str] = Counter()
        # People with work that waits; first those who may begin, in the order of their turns.
        self._ready: OrderedDict[str, deque[int]] = OrderedDict()
        self._held: dict[str, deque[int]] = {}
        self._given = 0

    @property
    def running(self) -> int:
        """The number of pieces of work that have a place."""
        return self._running.total()

    def enter(self, person: str) -> int:
        """Put in one piece of somebody's work; its ticket.

        Raises:
            PoolFull: as much of theirs waits as may.
        """
        share = self.share
        line = self._ready.get(person) or self._held.get(person) or deque[int]()
        has_room = self.running < share.at_once
        is_next = not line and self._running[person] < share.each and has_room
        if not is_next and share.waiting is not None and len(line) >= share.waiting:
            raise PoolFull
        self._given += 1
        self._owners[self._given] = person
        line.append(self._given)
        lines = self._ready if self._running[person] < share.each else self._held
        lines[person] = line
        return self._given

    def admit(self) -> list[int]:
        """The tickets that have a place from now on."""
        admitted: list[int] = []
        while self._ready and self.running < self.share.at_once:
            person, line = self._ready.popitem(last=False)
            admitted.append(line.popleft())
            self._running[person] += 1
            if line:
                is_held = self._running[person] >= self.share.each
                (self._held if is_held else self._ready)[person] = line
        return admitted

    def leave(self, ticket: int) -> None:
        """Take a ticket out, whether it has a place or waits for one."""
        person = self._owners.pop(ticket)
        line = self._ready.get(person) or self._held.get(person) or deque[int]()
        if ticket in line:
            line.remove(ticket)
            if not line:
                self._ready.pop(person, None)
                self._held.pop(person, None)
            return
        self._running[person] -= 1
        if not self._running[person]:
            del self._running[person]
        if line and person in self._held:
            self._ready[person] = self._held.pop(person)


class Pool:
    """The places of one kind of work, for whoever has some to do."""

    def __init__(self, share: Share) -> None:
        self._robin = RoundRobin(share)
        self._waiting: dict[int, asyncio.Future[None]] = {}

    @asynccontextmanager
    async def place(self, person: str) -> AsyncGenerator[None]:
        """Wait for a place of a person's, and have it for the length of an `async with`.

        Raises:
            PoolFull: too much of theirs waits already.
        """
        ticket = self._robin.enter(person)
        self._waiting[ticket] = asyncio.get_running_loop().create_future()
        try:
            self._admit()
            await self._waiting[ticket]
            yield
        finally:
            del self._waiting[ticket]
            self._robin.leave(ticket)
            self._admit()

    def _admit(self) -> None:
        for ticket in self._robin.admit():
            place = self._waiting[ticket]
            if not place.done():  # who waited for it was cancelled, and leaves in a moment
                place.set_result(None)


class Budget:
    """A budget for each person: a bucket that empties slowly.

    Each may use `most` at once; `refill` of it comes back every second.
    """

    def __init__(self, most: float, refill: float, now: Callable[[], float]) -> None:
        self._most, self._refill, self._now = most, refill, now
        self._used: dict[str, tuple[float, float]] = {}  # how much, and when that was so

    def is_used_up(self, person: str) -> bool:
        """True when a person has to wait until others had their turn."""
        return self._left(person) >= self._most

    def add(self, person: str, amount: float) -> None:
        """Count what a person has used."""
        self._used[person] = (self._left(person) + amount, self._now())
        for other in [other for other in self._used if self._left(other) <= 0]:
            del self._used[other]

    def _left(self, person: str) -> float:
        used, at = self._used.get(person, (0.0, 0.0))
        return max(0.0, used - (self._now() - at) * self._refill)
