"""The base of all adapters to services: connecting, retrying, what is known of their models.

A `ServiceConnection` sends requests, a `ReplyReader` reads the events of a reply. What a service
refuses is left out, as far as the request makes sense without it.
"""

from __future__ import annotations

import asyncio
import importlib
import random
import time
import zlib
from abc import abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

import structlog
from pydantic import NonNegativeInt, TypeAdapter

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
from bot.agent.models.wire import DONE, Json, ReplyReader, dump
from bot.channel import reveal
from bot.channel.kit.json_access import mapping
from bot.clock import Clock, system_clock
from bot.config import ServiceConfig
from bot.errors import (
    ModelAuth,
    ModelBlind,
    ModelError,
    ModelFailed,
    ModelRateLimited,
    ModelUnreachable,
)
from bot.messages import Opaque, Text, ToolResult, ToolUse

if TYPE_CHECKING:  # what it imports takes a while: `warm_up` does, in a thread
    from bot.agent.models.connection import ServiceConnection

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
