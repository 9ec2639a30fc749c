"""Measured speeds of models, the time limits that follow from them, and queueing for a service.

A server on a small machine reads 40 tokens of a prompt and writes 8 of a reply in a second. A time
limit that suits a data centre makes everything fail there, so limits grow with what was measured.
Many such servers handle only so many requests at once: people come before chores.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from pydantic import NonNegativeFloat, TypeAdapter, ValidationError

from bot.agent.models import Usage
from bot.context import tokens
from bot.errors import ModelPutOff

T = TypeVar("T")

# Before anything was measured: what a 1.5B model does on two cores of a rented machine.
CAUTIOUS_PROMPT: Final = 40.0  # tokens a second
CAUTIOUS_OUTPUT: Final = 8.0
SLOW_PROMPT: Final = 150.0  # below this the usual beginning of a prompt takes over ten seconds
MARGIN: Final = 3.0  # a machine that does something else as well takes this much longer
LONGEST: Final = 3_600.0  # seconds; no limit grows beyond this
ANSWER: Final = 2_000  # tokens of a reply, with the calls before it, that a limit leaves time for
RISE: Final = 1.2  # how much faster one call may make the estimate
LEAST_PROMPT: Final = 200  # tokens; with fewer, the way to the service is what is measured
LEAST_OUTPUT: Final = 16
LEAST_SECONDS: Final = 0.1  # for a reply: one that comes faster was not streamed, or is no matter
HIDDEN: Final = 2  # times the words shown: more tokens than that were thought out of sight


@dataclass(frozen=True, slots=True)
class Speed:
    """Tokens a second that a model reads of a prompt and writes of a reply; 0 is not measured.

    An estimate falls at once and rises slowly: a server that does not say what it had in its cache
    looks faster than it is.
    """

    prompt: NonNegativeFloat = 0.0
    output: NonNegativeFloat = 0.0

    @property
    def is_slow(self) -> bool:
        """True when reading a long prompt was measured to take too long to wait for."""
        return 0 < self.prompt < SLOW_PROMPT

    def seconds(self, prompt: float, output: float) -> float:
        """Seconds that so many tokens may take, with a margin."""
        reading = prompt / (self.prompt or CAUTIOUS_PROMPT)
        return MARGIN * (reading + output / (self.output or CAUTIOUS_OUTPUT))

    def limit(self, configured: float, usual: float, *, prompt: float, output: float) -> float:
        """A time limit in seconds; one that was chosen, so that it is not the `usual`, is kept."""
        if configured != usual:
            return configured
        return max(usual, min(LONGEST, self.seconds(prompt, output)))

    def learn(self, prompt: float = 0.0, output: float = 0.0) -> Speed:
        """The estimate after a call with these speeds; 0 is one that could not be measured."""
        return Speed(_moved(self.prompt, prompt), _moved(self.output, output))


def _moved(known: float, measured: float) -> float:
    if not known or not measured:
        return known or measured
    return min(measured, known * RISE) if measured > known else (known + measured) / 2


_SPEEDS: Final = TypeAdapter(dict[str, Speed])


def to_json(speeds: dict[str, Speed]) -> str:
    """Speeds by model, as they are kept over a restart."""
    rounded = {
        name: replace(each, prompt=round(each.prompt, 2), output=round(each.output, 2))
        for name, each in speeds.items()
    }
    return _SPEEDS.dump_json(rounded).decode()


def from_json(kept: str | None) -> dict[str, Speed]:
    """The stored speeds; none if they cannot be read."""
    try:
        return _SPEEDS.validate_json(kept) if kept else {}
    except ValidationError:
        return {}


class Stopwatch:
    """Times one call: when it was sent, when its first word came, and when it was over."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._thought = False
        self._written = 0  # tokens, about
        self._sent, self._first = now(), 0.0

    def start(self) -> None:
        """The call goes out, perhaps once more."""
        self._sent, self._first = self._now(), 0.0

    def hear(self, tokens: int, *, thought: bool = False) -> bool:
        """Note that about so many more tokens came; True for the first of them."""
        is_first = not self._first
        self._first = self._first or self._now()
        self._thought = self._thought or thought
        self._written += tokens
        return is_first

    @property
    def has_begun(self) -> bool:
        """True once a word came."""
        return bool(self._first)

    def whole(self, speed: Speed, usage: Usage, sent: int = 0) -> Speed:
        """The estimate after a whole reply, by what its service reported of about so many `sent`.

        Nothing is learned of a reply that came in one piece or was thought about out of sight:
        nobody can tell there what was reading and what was writing.
        """
        writing = self._now() - self._first
        if not self._first or (writing < LEAST_SECONDS and self._written >= LEAST_OUTPUT):
            return speed
        if not self._thought and usage.output_tokens > HIDDEN * self._written + LEAST_OUTPUT:
            return speed
        read, wrote = usage.input_tokens + usage.cache_write_tokens, usage.output_tokens
        if sent and not tokens.is_plausible(read, sent):
            return speed
        reading = self._first - self._sent
        return speed.learn(
            read / reading if read >= LEAST_PROMPT and reading > 0 else 0.0,
            wrote / writing if wrote >= LEAST_OUTPUT and writing > 0 else 0.0,
        )

    def broken_off(self, speed: Speed, prompt: int) -> Speed:
        """The estimate after a call that ended in the middle, with about so many tokens to read.

        It was no faster than that: so the limit of the next try is one that can be met.
        """
        if self._first:
            writing = self._now() - self._first
            wrote = self._written / writing if writing > 0 else 0.0
            return speed.learn(output=wrote) if self._written >= LEAST_OUTPUT else speed
        waited = self._now() - self._sent
        most = prompt / waited if prompt >= LEAST_PROMPT and waited > 0 else 0.0
        return speed.learn(most) if 0 < most < (speed.prompt or CAUTIOUS_PROMPT) else speed


# --- time that does not count ---------------------------------------------------------------------

_limits: ContextVar[tuple[asyncio.Timeout, ...]] = ContextVar("limits", default=())


@asynccontextmanager
async def time_limit(seconds: float) -> AsyncGenerator[asyncio.Timeout]:
    """Like `asyncio.timeout`, but waiting for a service that is busy does not count.

    Raises:
        TimeoutError: the time is up.
    """
    async with asyncio.timeout(seconds) as limit:
        token = _limits.set((*_limits.get(), limit))
        try:
            yield limit
        finally:
            _limits.reset(token)


@contextmanager
def standing_still() -> Generator[None]:
    """Let no `time_limit` around this run on for the length of a `with`."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    held = [(limit, when) for limit in _limits.get() if (when := limit.when()) and when > began]
    for limit, _ in held:
        limit.reschedule(None)
    try:
        yield
    finally:
        for limit, when in held:
            if limit.when() is None and not limit.expired():
                limit.reschedule(when + loop.time() - began)


# --- queueing -------------------------------------------------------------------------------------
#
# A chore that runs when a person comes is put off: it is cancelled, and done again later. Between
# two requests of one person a chore does not begin, so that a service with one prompt cache keeps
# what the next request needs.

QUIET: Final = 1.0  # seconds after a person's request in which no chore begins
WAITED: Final = 1.0  # seconds that one request held up another: less may be chance
SEEN: Final = 3  # times that a service did one after the other until it is known to
LASTS: Final = 600.0  # seconds that a place less counts after a service was too busy
PUT_OFF: Final = 20  # times that a chore waits for a place again at once


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
