"""Queueing for a service that handles only so many requests at once: people before chores.

A chore that runs when a person comes is put off: it is cancelled, and done again later. Between
two requests of one person a chore does not begin, so that a service with one prompt cache keeps
what the next request needs.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Final, TypeVar

from bot.agent.models import Request
from bot.agent.models.speed import standing_still
from bot.errors import ModelPutOff

QUIET: Final = 1.0  # seconds after a person's request in which no chore begins
WAITED: Final = 1.0  # seconds that one request held up another: less may be chance
SEEN: Final = 3  # times that a service did one after the other until it is known to
LASTS: Final = 600.0  # seconds that a place less counts after a service was too busy
PUT_OFF: Final = 20  # times that a chore waits for a place again at once

T = TypeVar("T")


def is_chore(request: Request) -> bool:
    """True when nobody waits for what a request is for."""
    return request.purpose != "chat" and not request.is_awaited


async def when_free(work: Callable[[], Awaitable[T]]) -> T:
    """Runs a chore, again each time it was put off because a person needed the model.

    Raises:
        ModelPutOff: that happened too often.
    """
    for _ in range(PUT_OFF):
        with suppress(ModelPutOff):
            return await work()
    return await work()


@dataclass(eq=False, slots=True)
class SlotCall:
    """One request that was sent to a service.

    It `waited` so many seconds for that; `beside` it were running when it was sent. `limit` is what
    puts a chore off.
    """

    began: float
    waited: float
    beside: frozenset[SlotCall]
    has_spoken: bool = False
    limit: asyncio.Timeout | None = None


class Slots:
    """The places of one service; `limit` is how many there are, 0 for any number.

    With None it finds out whether the service does one request after the other: when three times a
    request had its first word only after every one sent before it had ended, and had waited for
    that for a second. Words of two replies at the same time say that it does not. One that is too
    busy for one more takes no more at once for ten minutes. As long as nothing is known, people
    are never held back, and a chore is sent alone and put off as soon as a person comes.
    """

    def __init__(self, limit: int | None = None, *, quiet: float = QUIET) -> None:
        self.limit = limit or 0
        self.learns = self._finds_out = limit is None
        self._quiet = quiet
        self._quiet_until = 0.0
        self._running: set[SlotCall] = set()
        self._people: deque[asyncio.Future[None]] = deque()
        self._chores: deque[asyncio.Future[None]] = deque()
        self._given = 0  # places of those that were woken and have not begun
        self._seen = 0
        self._busy_until = 0.0  # it is known until then how many places there are
        self._timer: asyncio.TimerHandle | None = None

    @asynccontextmanager
    async def taken(self, *, chore: bool) -> AsyncGenerator[SlotCall]:
        """Wait for a place, and have it for the length of an `async with`.

        Raises:
            ModelPutOff: a person needs the place; only chores.
        """
        waited = await self._wait(chore=chore)
        now = asyncio.get_running_loop().time()
        call = SlotCall(now, waited, frozenset(self._running))
        self._running.add(call)
        try:
            if not chore or not (self.limit or self.learns):
                yield call
                return
            try:
                async with asyncio.timeout(None) as call.limit:
                    yield call
            except TimeoutError:
                if call.limit is None or not call.limit.expired():
                    raise
                raise ModelPutOff from None
        finally:
            self._running.discard(call)
            if not chore:
                self._quiet_until = asyncio.get_running_loop().time() + self._quiet
            self._look()

    def adopt(self, limit: int | None) -> None:
        """There are so many places from now on; what was learned stays where that is asked for."""
        if limit is not None or not self._finds_out:
            self.limit, self.learns = limit or 0, limit is None
        self._finds_out = limit is None
        self._look()

    def spoke(self, call: SlotCall) -> None:
        """The first word of a call came."""
        call.has_spoken = True
        if not self.learns or self.limit or not call.beside:
            return
        running = call.beside & self._running
        if any(each.has_spoken for each in running):
            self.learns = False  # two at the same time: nothing is to be found out any more
        elif not running and asyncio.get_running_loop().time() - call.began >= WAITED:
            self._seen += 1
            if self._seen >= SEEN:
                self.limit = 1

    def refused(self, call: SlotCall) -> bool:
        """A service was too busy for a call: true when that showed how many it takes at once."""
        running = len(call.beside & self._running)
        if not self._finds_out or not running or 0 < self.limit <= running:
            return False
        self.limit, self._busy_until = running, asyncio.get_running_loop().time() + LASTS
        return True

    async def _wait(self, *, chore: bool) -> float:
        """Wait for a place; the seconds that took, 0 when there was one."""
        if 0 < self._busy_until < asyncio.get_running_loop().time():
            self.limit, self._busy_until = 0, 0.0
            self._look()
        if not chore and not self.limit:
            self._put_off(len(self._running) if self.learns else 0)
            return 0.0
        since, is_known = asyncio.get_running_loop().time(), self.limit or self.learns
        is_behind = self._people or self._chores or since < self._quiet_until
        if self._has_room(chore=chore) and not (chore and is_known and is_behind):
            return 0.0
        line = self._chores if chore else self._people
        place = asyncio.get_running_loop().create_future()
        line.append(place)
        if chore:
            self._look()
        else:
            self._put_off(len(self._people))
        try:
            with standing_still():
                await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():  # it was given a place, and does not need it
                self._given -= 1
                self._look()
            elif place in line:
                line.remove(place)
            raise
        self._given -= 1
        return asyncio.get_running_loop().time() - since

    def _has_room(self, *, chore: bool) -> bool:
        """True when one more can be sent; as long as nothing is known, a chore goes alone."""
        taken = len(self._running) + self._given
        if self.limit or not (self.learns and chore):
            return not self.limit or taken < self.limit
        return not taken

    def _put_off(self, wanted: int) -> None:
        """Cancel so many chores for people who come, the latest first."""
        found = sorted(self._running, key=lambda call: call.began)
        chores = [each.limit for each in found if each.limit is not None]
        left = [each for each in chores if each.when() is None]
        wanted = max(0, wanted - (len(chores) - len(left)))
        for each in left[len(left) - min(wanted, len(left)) :]:
            each.reschedule(0)

    def _look(self) -> None:
        """Give what is free to whoever is next."""
        loop = asyncio.get_running_loop()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._people or self._chores:
            if not self._has_room(chore=not self._people):
                return
            is_held = bool(self.limit or self.learns) and loop.time() < self._quiet_until
            if is_held and not self._people:
                self._timer = loop.call_at(self._quiet_until, self._look)
                return
            place = (self._people or self._chores).popleft()
            if not place.done():
                self._given += 1
                place.set_result(None)
