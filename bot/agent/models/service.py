"""What every adapter to a service does the same way: connecting, asking again, closing.

A `Connection` is the way there, a `ReplyReader` reads the events of a reply. The services' own SDKs
do neither, because each costs a multiple of all else that is done for a reply.
"""

from __future__ import annotations

import asyncio
import importlib
import random
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING

import structlog

from bot.agent.models import Reply, Request, TextDelta, Window
from bot.agent.models.catalog import Catalog, TextStore
from bot.agent.models.wire import ReplyReader, load
from bot.clock import Clock, system_clock
from bot.config import ServiceConfig
from bot.errors import (
    ModelAuth,
    ModelError,
    ModelOverloaded,
    ModelRateLimited,
    ModelUnreachable,
)

if TYPE_CHECKING:  # what it imports takes a while: `warm_up` does, in a thread
    from bot.agent.models.connection import Connection

NO_KEY = "no-key"  # for an endpoint of one's own that wants none
CATALOG_TIMEOUT = 20.0  # seconds
MAX_RETRIES = 2
FIRST_PAUSE = 0.5  # seconds between two tries; doubles
LAST_PAUSE = 8.0  # seconds
LONGEST_PAUSE = 15.0  # seconds the service may ask for; more is told
PASSING = (ModelOverloaded, ModelRateLimited, ModelUnreachable)  # it may work in a moment
DONE = b"[DONE]"
_CONNECTION = "bot.agent.models.connection"

log = structlog.get_logger(__name__)


class ServiceModel(ABC):
    """A `Model` of a service, whose connection is made when it is first needed.

    `window_store` keeps the sizes of models across restarts.
    """

    name: str
    default_url: str
    known_names: tuple[str, ...] = ()

    def __init__(
        self,
        config: ServiceConfig,
        *,
        window_store: TextStore,
        max_retries: int = MAX_RETRIES,
        clock: Clock = system_clock,
    ) -> None:
        self.url = config.base_url.strip() or self.default_url
        self.has_own_endpoint = self.url != self.default_url
        self.key = config.api_key.get_secret_value().strip() if config.api_key else ""
        self.timeout = config.timeout
        self.max_retries = max_retries
        self._loading: asyncio.Task[Connection] | None = None
        self._closed = False
        self._thinks_first: set[str] = set()  # models that write only the end of a thought
        self.catalog = Catalog(
            self.check,
            self.fetch_names,
            window_store,
            endpoint=self.url,
            known_names=() if self.has_own_endpoint else self.known_names,
            clock=clock,
        )

    # --- what an adapter brings -------------------------------------------------------------------

    @abstractmethod
    def headers(self, key: str) -> Mapping[str, str]:
        """What every request says beside, with the key it is asked with."""

    @abstractmethod
    def opened(
        self, connection: Connection, request: Request
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """The request, sent: for the length of an `async with` the data of the events that come."""

    @abstractmethod
    def reader(self, request: Request, *, waits: bool) -> ReplyReader:
        """What puts these events together; for `waits` see `OutputFilter`."""

    @abstractmethod
    def as_error(self, failure: Exception) -> ModelError:
        """Whatever was raised on the way there and back, as one of ours."""

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

    def adapted(self, request: Request, failure: Exception) -> Request | None:
        """The request to send at once in place of one that failed: what was learned of that.

        It may be the same, when it is written in another way from now on; None for nothing.
        """
        return None

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
        connection = await self.connection()
        number = 0
        while True:
            reply = self.reader(request, waits=request.model in self._thinks_first)
            has_begun = False
            try:
                async with self.opened(connection, request) as events:
                    async for data in events:
                        words = _words(reply, data)
                        _tell(request, reply, has_begun=has_begun)
                        if reply.replaced:
                            self._thinks_first.add(request.model)
                        if words or reply.replaced:
                            has_begun = True
                            yield TextDelta(words, anew=reply.replaced)
                if (words := reply.end()) or reply.replaced:
                    yield TextDelta(words, anew=reply.replaced)
                whole = reply.reply()
            except Exception as failure:  # noqa: BLE001 - it is raised, or tried again
                request, pause = self._again(failure, request, number, has_begun=has_begun)
            else:
                if reply.unknown_stop:
                    log.warning("model.unknown_stop", model=request.model, stop=reply.unknown_stop)
                yield whole
                return
            number += pause > 0
            await asyncio.sleep(pause)
            if request.on_asked is not None:
                request.on_asked("")

    def _again(
        self, failure: Exception, request: Request, number: int, *, has_begun: bool
    ) -> tuple[Request, float]:
        """What to ask again, and in how many seconds, after so many tries; 0 is at once.

        Raises:
            ModelError: it is not.
        """
        error = self.as_error(failure)
        if not has_begun and (adapted := self.adapted(request, failure)) is not None:
            log.info("model.adapted", model=request.model, error=str(error))
            return adapted, 0
        pause = _pause(error, number, request.deadline)
        if has_begun or pause is None or number == self.max_retries:
            log.warning("model.failed", model=request.model, error=str(error))
            if error is failure:
                raise error
            raise error from failure
        log.info("model.again", model=request.model, error=str(error), seconds=pause)
        return request, pause

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
        if self._loading is None:
            return
        loading, self._loading = self._loading, None
        try:
            connection = await loading
        except ModelError:
            return
        await connection.close()

    async def connection(self) -> Connection:
        """The way to the service, made once however many ask; cancelling one stops no other.

        Raises:
            ModelError: it cannot be made, there is no key, or this model is closed.
        """
        if self._closed:
            raise ModelUnreachable("the model is closed")
        if not self.key and not self.has_own_endpoint:
            raise ModelAuth("there is no key")
        if self._loading is None or (self._loading.done() and self._loading.exception()):
            self._loading = asyncio.create_task(self._load())
        return await asyncio.shield(self._loading)

    async def _load(self) -> Connection:
        try:
            module = await asyncio.to_thread(importlib.import_module, _CONNECTION)
            return module.Connection(self.url, self.headers(self.key or NO_KEY), self.timeout)
        except Exception as error:
            log.exception("model.not_connected")
            raise ModelError("it cannot be connected to") from error

    def longest(self, request: Request) -> int:
        """The longest reply to ask for: no longer than the model can write."""
        known = self.catalog.known_output(request.model)
        return min(request.max_tokens, known) if known else request.max_tokens


def _words(reply: ReplyReader, data: bytes) -> str:
    """The words that an event adds."""
    if not data or reply.done:
        return ""
    if data.startswith(DONE):
        reply.done = True
        return ""
    return reply.feed(load(data))


def _tell(request: Request, reply: ReplyReader, *, has_begun: bool) -> None:
    """Tell what the service says of its tokens, before the first word, and what is thought."""
    if request.on_usage is not None and not has_begun:
        request.on_usage(reply.usage)
    if request.on_thought is not None and (thought := reply.thought()):
        request.on_thought(thought)


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
