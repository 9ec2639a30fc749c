"""Measured speeds of models, and the time limits that follow from them.

A server on a small machine reads 40 tokens of a prompt and writes 8 of a reply in a second. A time
limit that suits a data centre makes everything fail there, so limits grow with what was measured.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Final

from pydantic import NonNegativeFloat, TypeAdapter, ValidationError

from bot.agent.models import Usage
from bot.context import tokens

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
        self.start()

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
