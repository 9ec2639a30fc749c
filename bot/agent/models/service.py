"""The base of all adapters to services: connecting, retrying, speed, and who is next.

A `ServiceConnection` sends requests, a `ReplyReader` reads the events of a reply. What a service
refuses is left out, as far as the request makes sense without it.

A server on a small machine reads 40 tokens of a prompt and writes 8 of a reply in a second. A time
limit that suits a data centre makes everything fail there, so limits grow with what was measured.
Many such servers handle only so many requests at once: people come before chores.
"""

from __future__ import annotations

import asyncio
import importlib
import random
import time
import zlib
from abc import abstractmethod
from collections import deque
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Generator,
    Mapping,
    Sequence,
)
from contextlib import (
    AbstractAsyncContextManager,
    aclosing,
    asynccontextmanager,
    contextmanager,
    suppress,
)
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

import structlog
from pydantic import NonNegativeFloat, NonNegativeInt, TypeAdapter, ValidationError

from bot.agent.models import (
    UNKNOWN_WINDOW,
    Model,
    Reply,
    Request,
    TextDelta,
    Usage,
    Window,
    capabilities,
)
from bot.agent.models.capabilities import (
    WEEK,
    Capabilities,
    Facts,
    Ladder,
    LearnedLimit,
    ServiceRefused,
    cleaned,
    fitted,
    is_failure,
    known,
    left_out,
    pictures_lost,
)
from bot.agent.models.connection import DONE
from bot.agent.models.wire import Json, ReplyReader, dump
from bot.channel import reveal
from bot.channel.kit.json_access import mapping
from bot.clock import Clock, system_clock
from bot.config import ServiceConfig
from bot.context import budget
from bot.errors import (
    ModelAuth,
    ModelBlind,
    ModelError,
    ModelFailed,
    ModelPutOff,
    ModelRateLimited,
    ModelUnreachable,
)
from bot.messages import Opaque, Text, ToolResult, ToolUse

if TYPE_CHECKING:
    from bot.agent.models.connection import ServiceConnection

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
        if sent and not budget.is_plausible(read, sent):
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


# --- the base of adapters -------------------------------------------------------------------------


NO_KEY = "no-key"  # for an endpoint of one's own that wants none
CATALOG_TIMEOUT = 20.0  # seconds
MAX_RETRIES = 2
FIRST_PAUSE = 0.5  # seconds between two tries; doubles
LAST_PAUSE = 8.0  # seconds
_CONNECTION = "bot.agent.models.connection"
LONGEST_PAUSE = 15.0  # seconds the service may ask for; more is told
PASSING = (ModelFailed, ModelRateLimited, ModelUnreachable)  # it may work in a moment

log = structlog.get_logger(__name__)

# A service's facts about its models, kept for a week: sizes, names and capabilities.
#
# Nobody waits for the network here longer than a person would: a size that is not known yet is
# fetched in the background while none is told, and an old one serves while it is renewed.

RETRY_AFTER = 600.0  # seconds before a fetch that failed is tried again
NAMES_TIMEOUT = 3.0  # seconds that `/model` waits for a list it has never seen


@dataclass(frozen=True, slots=True)
class _Record:
    """An answer of the service and its time (ms); a size of 0 is one that it did not tell."""

    at: int = 0
    max_input_tokens: NonNegativeInt = 0
    max_output_tokens: NonNegativeInt = 0
    names: tuple[str, ...] | None = None


_RECORD: Final = TypeAdapter(_Record)
_FACTS: Final = TypeAdapter(dict[str, LearnedLimit])
_NOTHING = _Record()

T = TypeVar("T")


class TextStore(Protocol):
    """Somewhere small texts survive a restart."""

    async def get(self, key: str) -> str | None:
        """The text, or None."""
        ...

    async def set(self, key: str, text: str) -> None:
        """Keep a text, replacing the one before."""
        ...


class Catalog:
    """Sizes, names and capabilities of one endpoint's models. Nothing here raises.

    `fetch_window` asks the service for a model's sizes, 0 being one it does not tell;
    `fetch_names` asks for the names of all models. With other `options` of their requests it is
    found out anew what they take.
    """

    def __init__(
        self,
        fetch_window: Callable[[str], Awaitable[Window]],
        fetch_names: Callable[[], Awaitable[Sequence[str]]],
        store: TextStore,
        *,
        endpoint: str,
        known_names: tuple[str, ...] = (),
        options: str = "",
        clock: Clock = system_clock,
    ) -> None:
        self._fetch_window = fetch_window
        self._fetch_names = fetch_names
        self._store = store
        self._endpoint = endpoint
        self._known_names = known_names
        self._options = f":{zlib.crc32(options.encode()):x}" if options else ""
        self._clock = clock
        self._learned: dict[str, Facts] = {}  # by model
        self._records: dict[str, _Record] = {}  # by what they tell: "names", "window:<model>"
        self._fetches: dict[str, asyncio.Task[None]] = {}
        self._failed: dict[str, float] = {}  # monotonic times of the last failures
        self._closed = False

    async def window(self, model: str) -> Window:
        """The sizes of a model: what is known, 0 for a window that is not, perhaps not yet."""

        async def fetch() -> _Record:
            window = await self._fetch_window(model)
            return _Record(0, window.max_input_tokens, window.max_output_tokens)

        record = await self._look_up(f"window:{model}", fetch)
        able = await self.able(model, Capabilities())
        windows = (n for n in (record.max_input_tokens, able.window) if n)
        return Window(
            min(windows, default=UNKNOWN_WINDOW.max_input_tokens),
            able.longest(record.max_output_tokens or UNKNOWN_WINDOW.max_output_tokens),
        )

    async def able(self, model: str, usual: Capabilities) -> Capabilities:
        """The capabilities of a model, by what its service said or refused before."""
        if model not in self._learned:
            self._learned.setdefault(model, await self._stored(model))
        able = known(usual, self._learned[model], self._clock())
        most = self._records.get(f"window:{model}", _NOTHING).max_output_tokens
        if most and not 0 < able.output < most:
            return replace(able, output=most)
        return able

    async def learn(self, model: str, facts: Mapping[str, LearnedLimit]) -> None:
        """Keep what was learned of a model, also for the next start and for other processes."""
        if facts:
            learned = {**await self._stored(model), **self._learned.get(model, {}), **facts}
            await self._keep(model, learned)

    async def doubt(self, model: str, usage: Usage) -> None:
        """Forget a limit that a reply went beyond."""
        learned = self._learned.get(model, {})
        used = {"output_limit": usage.output_tokens, "context_full": usage.context_tokens}
        left = {c: each for c, each in learned.items() if used.get(c, 0) <= each.number}
        if len(left) < len(learned):
            await self._keep(model, left)

    async def forget(self, model: str) -> None:
        """Find out anew what a model takes."""
        if self._learned.get(model) or await self._stored(model):
            await self._keep(model, {})

    async def _stored(self, model: str) -> Facts:
        return await self._read(f"learned:{model}{self._options}", _FACTS) or {}

    async def _keep(self, model: str, facts: Facts) -> None:
        self._learned[model] = facts
        try:
            text = _FACTS.dump_json(dict(facts), exclude_defaults=True).decode()
            await self._store.set(self._key(f"learned:{model}{self._options}"), text)
        except Exception as error:  # noqa: BLE001 - then this process alone knows it
            log.warning("model.catalog_not_kept", error=type(error).__name__)

    async def _read(self, what: str, kind: TypeAdapter[T]) -> T | None:
        """A stored record, perhaps from before the last start."""
        try:
            text = await self._store.get(self._key(what))
            return kind.validate_json(text) if text else None
        except Exception as error:  # noqa: BLE001 - a turn must not fail for what can be asked again
            log.warning("model.catalog_unreadable", error=type(error).__name__)
            return None

    async def names(self) -> tuple[str, ...]:
        """The models' names; the first time, this waits a moment for the service."""

        async def fetch() -> _Record:
            return _Record(names=tuple(await self._fetch_names()))

        record = await self._look_up("names", fetch)
        fetching = self._fetches.get("names")
        if record.names is None and fetching is not None:
            await asyncio.wait({fetching}, timeout=NAMES_TIMEOUT)
            record = self._records.get("names", _NOTHING)
        return self._known_names if record.names is None else record.names

    async def close(self) -> None:
        """Stop fetching."""
        self._closed = True
        fetches = list(self._fetches.values())
        for fetch in fetches:
            fetch.cancel()
        await asyncio.gather(*fetches, return_exceptions=True)

    async def _look_up(self, what: str, fetch: Callable[[], Awaitable[_Record]]) -> _Record:
        """The known record; an old one is fetched again in the background, once at a time."""
        if what not in self._records and (stored := await self._read(what, _RECORD)):
            self._records.setdefault(what, stored)
        record = self._records.get(what, _NOTHING)
        # A clock that was set back makes a record from the future: that is old too.
        is_old = not 0 <= self._clock() - record.at <= WEEK
        failed = self._failed.get(what)
        may_try = failed is None or time.monotonic() - failed >= RETRY_AFTER
        if is_old and may_try and not self._closed and what not in self._fetches:
            self._fetches[what] = asyncio.create_task(self._fetch(what, fetch))
        return record

    async def _fetch(self, what: str, fetch: Callable[[], Awaitable[_Record]]) -> None:
        try:
            record = replace(await fetch(), at=self._clock())
            self._records[what] = record
            self._failed.pop(what, None)
            kept = _RECORD.dump_json(record, exclude_defaults=True)
            await self._store.set(self._key(what), kept.decode())
        except Exception as error:  # noqa: BLE001 - nobody waits for it, whatever it was
            self._failed[what] = time.monotonic()
            log.info("model.catalog_unavailable", error=type(error).__name__)
        finally:
            del self._fetches[what]

    def _key(self, what: str) -> str:
        return f"models:{self._endpoint}:{what}"


class ServiceModel(Model):
    """A `Model` of a service, whose connection is made when it is first needed.

    `window_store` keeps the sizes of models across restarts.
    """

    default_url: str
    path: str  # below the address: where requests for a reply go
    reader: type[ReplyReader]  # what puts the events of one together
    known_names: tuple[str, ...] = ()

    def __init__(
        self,
        config: ServiceConfig,
        *,
        window_store: TextStore,
        max_retries: int = MAX_RETRIES,
        clock: Clock = system_clock,
    ) -> None:
        self.url = self.located(config.base_url.strip()) or self.default_url
        self.has_own_endpoint = self.url != self.default_url
        self.key = config.api_key.get_secret_value().strip() if config.api_key else ""
        self.config = config
        self.clock = clock
        self.max_retries = max_retries
        self._loading: dict[_Way, asyncio.Task[ServiceConnection]] = {}
        self._closed = False
        self._thinks_first: set[str] = set()  # models that write only the end of a thought
        self.catalog = Catalog(
            self.check,
            self.fetch_names,
            window_store,
            endpoint=self.url,
            known_names=() if self.has_own_endpoint else self.known_names,
            options=capabilities.written_options(config),
            clock=clock,
        )

    # --- what an adapter brings -------------------------------------------------------------------

    def located(self, address: str) -> str:
        """The address of the API, from the one that was configured."""
        return address

    @abstractmethod
    def headers(self, key: str) -> Mapping[str, str]:
        """The headers of every request, with the key."""

    @abstractmethod
    async def body(self, request: Request, able: Capabilities) -> bytes:
        """The JSON that is sent for a request."""

    def opened(
        self, connection: ServiceConnection, body: bytes, silence: float | None
    ) -> AbstractAsyncContextManager[AsyncIterator[Json]]:
        """A request, sent: for the length of an `async with` the events that come.

        A server that does not stream has one for the whole. The first may take `silence` seconds;
        None is as long as is configured.
        """
        return connection.stream(self.path, body, silence)

    def usual(self, model: str) -> Capabilities:
        """The capabilities assumed of a model before anything was learned of it."""
        return Capabilities()

    @abstractmethod
    async def check(self, model: str) -> Window:
        """Ask the service for a model's sizes now: does it take the key, does it know the model?

        Raises:
            ModelError: its subclass says which of these is not so, or that nobody answered.
        """

    @abstractmethod
    async def fetch_names(self) -> Sequence[str]:
        """Ask the service for the names of its models now.

        Raises:
            ModelError: it does not tell them.
        """

    # --- a model ----------------------------------------------------------------------------------

    async def warm_up(self) -> None:
        """Load what a request needs, in a thread; the first one waits for it in any case.

        Raises:
            ModelError: there is no key, or this model is closed.
        """
        await self.connection()

    async def stream(self, request: Request) -> AsyncGenerator[TextDelta | Reply]:
        """Write one reply: the words as they come, then the whole.

        Raises:
            ModelError: one of its subclasses for everything that can go wrong.
        """
        connection = await self.connection(request.model)
        able = await self.catalog.able(request.model, self.usual(request.model))
        if request.must_see and pictures_lost(request, able):
            raise ModelBlind
        extra = capabilities.option_fields(
            *(self.name, self.url, request.model, self.config.of_model(request.model)),
            thinking=request.thinking,
            longest=able.longest(request.max_tokens),
        )
        request, ladder = replace(request, extra=extra), Ladder(able, extra)
        asking = _Asking(self, request, ladder, await self.body(fitted(request, able), able))
        while True:
            reply = self.reader(request.tools, waits=request.model in self._thinks_first)
            has_begun = False
            try:
                async with (
                    self.opened(connection, asking.body, request.silence) as events,
                    aclosing(self._heard(events, reply, request)) as deltas,
                ):
                    async for delta in deltas:
                        has_begun = True
                        yield delta
                whole = reply.reply()
            except Exception as failure:  # noqa: BLE001 - it is raised, or tried again
                await asyncio.sleep(await asking.again(failure, has_begun=has_begun))
            else:
                if reply.unknown_stop:
                    log.warning("model.unknown_stop", model=request.model, stop=reply.unknown_stop)
                if ladder.guessed:
                    await self.catalog.learn(request.model, ladder.guesses(self.clock()))
                await self.catalog.doubt(request.model, whole.usage)
                yield replace(whole, left_out=left_out(request, ladder))
                return
            if request.on_asked is not None:
                request.on_asked("")

    async def _heard(
        self, events: AsyncIterator[Json], reply: ReplyReader, request: Request
    ) -> AsyncGenerator[TextDelta]:
        """The words of a reply, as its events bring them."""
        has_begun = False
        async for event in events:
            reply.done = reply.done or event is DONE
            if reply.done:
                continue  # whatever follows counts for nothing
            if is_failure(event):
                raise ServiceRefused(200, {}, event)
            words = reply.feed(event)
            if request.on_usage is not None and not has_begun:
                request.on_usage(reply.usage)
            if request.on_thought is not None and (thought := reply.thought()):
                request.on_thought(thought)
            if reply.replaced:
                self._thinks_first.add(request.model)
            if words or reply.replaced:
                has_begun = True
                yield TextDelta(words, anew=reply.replaced)
        if (words := reply.end()) or reply.replaced:
            yield TextDelta(words, anew=reply.replaced)

    def as_error(self, failure: Exception, said: str = "") -> ModelError:
        """Whatever was raised on the way there and back, as one of ours.

        What the service said is cleaned of what was `said` to it.
        """
        from bot.agent.models.connection import model_error  # noqa: PLC0415 - loaded by now

        error = model_error(failure)
        if isinstance(failure, ServiceRefused):
            error.told = cleaned(failure.refusal.sentence, said, self.key)
        return error

    async def window(self, model: str) -> Window:
        """The sizes of a model as the service told them; never raises."""
        return await self.catalog.window(model)

    async def names(self) -> tuple[str, ...]:
        """The names of the service's models; never raises."""
        return await self.catalog.names()

    async def close(self) -> None:
        """Release connections."""
        self._closed = True
        await self.catalog.close()
        for loading in self._loading.values():
            try:
                connection = await loading
            except ModelError:
                continue
            await connection.close()
        self._loading.clear()

    async def connection(self, model: str = "") -> ServiceConnection:
        """The way to the service, for one of its models or for what is asked beside.

        It is made once however many ask; cancelling one stops no other.

        Raises:
            ModelError: it cannot be made, there is no key, or this model is closed.
        """
        if self._closed:
            raise ModelUnreachable("the model is closed")
        if not self.key and not self.has_own_endpoint:
            raise ModelAuth("there is no key")
        config = self.config.of_model(model)
        headers = tuple((name, reveal(value)) for name, value in config.headers.items())
        way = headers, config.timeout, reveal(config.proxy)
        loading = self._loading.get(way)
        if loading is None or (loading.done() and loading.exception()):
            loading = self._loading[way] = asyncio.create_task(self._load(way))
        return await asyncio.shield(loading)

    async def _load(self, way: _Way) -> ServiceConnection:
        more, timeout, proxy = way
        headers = {**dict(more), **self.headers(self.key or NO_KEY)}
        try:
            module = await asyncio.to_thread(importlib.import_module, _CONNECTION)
            return module.ServiceConnection(self.url, headers, timeout, proxy)
        except Exception as error:
            log.exception("model.not_connected")
            raise ModelError("it cannot be connected to") from error

    async def ask(self, where: str, body: Json | None = None, /) -> Json:
        """The answer of the service at a path of its API, or at a whole address.

        With a body it is posted. Answers that are no JSON object are empty.

        Raises:
            ModelError: it does not answer, or with an error.
        """
        connection = await self.connection()
        patience = CATALOG_TIMEOUT if body is None else self.config.timeout
        try:
            return mapping(await connection.ask(where, body, within=patience))
        except Exception as error:
            raise self.as_error(error) from error


_Way = tuple[tuple[tuple[str, str], ...], float, str]  # headers, timeout, proxy


@dataclass(slots=True)
class _Asking:
    """A request on its way: what is sent for it now, and how often it was tried."""

    service: ServiceModel
    request: Request
    ladder: Ladder
    body: bytes
    tries: int = 0
    sent: set[int] = field(default_factory=set[int])  # hashes of bodies

    async def again(self, failure: Exception, *, has_begun: bool) -> float:
        """Seconds until `body` is worth sending, after this failure.

        Raises:
            ModelError: it is not.
        """
        request, service = self.request, self.service
        error = service.as_error(failure, _said(request))
        model, why, told = request.model, str(error), error.told
        pause = None
        if not has_begun and self.tries < service.max_retries:
            pause = _pause(error, self.tries, request.deadline)
        if pause is not None:
            self.tries += 1
            log.info("model.again", model=model, error=why, told=told, seconds=pause)
            return pause
        if not has_begun and await self._leave_out(failure):
            able = str(self.ladder.able)
            log.info("model.adapted", model=model, error=why, told=told, able=able)
            return 0.0
        log.warning("model.failed", model=model, error=why, told=told)
        if error is failure:
            raise error
        raise error from failure

    async def _leave_out(self, failure: Exception) -> bool:
        """True if there is something left to leave out, and `body` does."""
        request, service = self.request, self.service
        if not isinstance(failure, ServiceRefused):
            return False
        self.sent.add(hash(self.body))
        while self.ladder.next(failure.refusal, self.ladder.able.longest(request.max_tokens)):
            able = self.ladder.able
            self.body = await service.body(fitted(request, able), able)
            if hash(self.body) not in self.sent:
                break
        await service.catalog.learn(request.model, self.ladder.told(service.clock()))
        if request.must_see and pictures_lost(request, self.ladder.able):
            raise ModelBlind from failure
        return hash(self.body) not in self.sent


def _said(request: Request) -> str:
    """All that a request says, to be looked for in what comes back."""
    said = [request.system]
    for block in (block for message in request.messages for block in message.blocks):
        match block:
            case Text(words) | ToolResult(_, words):
                said.append(words)
            case ToolUse(_, _, arguments):
                said.append(dump(dict(arguments)).decode())
            case Opaque(data):
                said.append(dump(dict(data)).decode())
            case _:
                pass
    said += (f"{spec.description} {dump(dict(spec.schema)).decode()}" for spec in request.tools)
    return "\n".join(said)


def _pause(error: ModelError, number: int, deadline: float | None) -> float | None:
    """Seconds until it is worth asking again after the try of this number; None if it is not."""
    again = isinstance(error, PASSING) if error.again is None else error.again
    if not again:
        return None
    pause = error.wait or min(FIRST_PAUSE * 2**number, LAST_PAUSE) * random.uniform(0.75, 1)  # noqa: S311 - chance, not a secret
    if pause > LONGEST_PAUSE:
        return None  # the person is told, and decides
    if deadline is not None and asyncio.get_running_loop().time() + pause >= deadline:
        return None
    return pause
