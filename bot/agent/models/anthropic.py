"""Claude, or anything else that speaks the Messages API, through Anthropic's SDK.

The SDK does the transport: connections, retries, errors. The events are read here, because its
own stream helper costs three times the processor time of the whole call.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import random
from collections.abc import AsyncGenerator, Sequence
from typing import TYPE_CHECKING, Final

import structlog

from bot.agent.models import Reply, Request, TextDelta, Window
from bot.agent.models.catalog import Catalog, TextStore
from bot.agent.models.wire import Accumulator, body_of, load
from bot.clock import Clock, system_clock
from bot.config import AnthropicConfig
from bot.errors import (
    ModelAuth,
    ModelError,
    ModelOverloaded,
    ModelRateLimited,
    ModelUnreachable,
)

if TYPE_CHECKING:  # loading it takes a second: `warm_up` does, in a thread
    from anthropic import AsyncAnthropic

DEFAULT_URL = "https://api.anthropic.com"
NO_KEY = "no-key"  # for an endpoint of one's own that wants none
CONNECT_TIMEOUT = 10.0  # seconds
CATALOG_TIMEOUT = 20.0  # seconds
MAX_RETRIES = 2
FIRST_PAUSE = 0.5  # seconds between two tries; doubles
LAST_PAUSE = 8.0  # seconds
LONGEST_PAUSE = 15.0  # seconds the service may ask for; more is told
PASSING = (ModelOverloaded, ModelRateLimited, ModelUnreachable)  # it may work in a moment
KNOWN_NAMES = ("claude-sonnet-5-5", "claude-haiku-5-5", "claude-opus-5-5", "claude-fable-5-2")
STREAM_HEADERS: Final = {"Content-Type": "application/json", "Accept": "text/event-stream"}

log = structlog.get_logger(__name__)


class AnthropicModel:
    """A `Model` on the Messages API.

    `window_store` keeps the sizes of models across restarts.
    """

    name = "anthropic"

    def __init__(
        self,
        config: AnthropicConfig,
        *,
        window_store: TextStore,
        max_retries: int = MAX_RETRIES,
        clock: Clock = system_clock,
    ) -> None:
        self._url = config.base_url.strip() or DEFAULT_URL
        self._own_endpoint = self._url != DEFAULT_URL
        self._key = config.api_key.get_secret_value().strip() if config.api_key else ""
        self._timeout = config.timeout
        self._max_retries = max_retries
        self._loading: asyncio.Task[AsyncAnthropic] | None = None
        self._closed = False
        self._catalog = Catalog(
            self.check,
            self._fetch_names,
            window_store,
            endpoint=self._url,
            known_names=() if self._own_endpoint else KNOWN_NAMES,
            clock=clock,
        )

    async def warm_up(self) -> None:
        """Load the SDK, in a thread; the first call waits for it in any case.

        Raises:
            ModelError: it cannot be loaded.
        """
        await self._ready()

    async def stream(self, request: Request) -> AsyncGenerator[TextDelta | Reply]:
        """Write one reply: the words as they come, then the whole.

        Raises:
            ModelError: one of its subclasses for everything that can go wrong.
        """
        client = await self._ready()
        from anthropic import AsyncStream  # noqa: PLC0415 - loaded by now

        from bot.agent.models.failures import model_error  # noqa: PLC0415 - the same

        longest = self._catalog.known_output(request.model)
        max_tokens = min(request.max_tokens, longest) if longest else request.max_tokens
        for number in range(self._max_retries + 1):
            reply, has_begun = Accumulator(), False
            try:
                stream = await client.post(
                    "/v1/messages",
                    cast_to=object,
                    content=body_of(request, max_tokens),
                    # The SDK would sit out whatever it is told to, and knows nothing of the stream.
                    options={"headers": STREAM_HEADERS, "max_retries": 0},
                    stream=True,
                    stream_cls=AsyncStream[object],
                )
                async with stream:
                    async for sse in AsyncStream.raw_events(stream.response):
                        if not sse.data or reply.done:
                            continue
                        if words := reply.feed(load(sse.data)):
                            has_begun = True
                            yield TextDelta(words)
                whole = reply.reply()
            except Exception as failure:
                error = model_error(failure)
                pause = _pause(error, number, request.deadline)
                if has_begun or pause is None or number == self._max_retries:
                    log.warning("model.failed", model=request.model, error=str(error))
                    if error is failure:
                        raise
                    raise error from failure
                log.info("model.again", model=request.model, error=str(error), seconds=pause)
            else:
                if reply.unknown_stop:
                    log.warning("model.unknown_stop", model=request.model, stop=reply.unknown_stop)
                yield whole
                return
            await asyncio.sleep(pause)

    async def window(self, model: str) -> Window:
        """The sizes of a model as the service told them; never raises."""
        return await self._catalog.window(model)

    async def check(self, model: str) -> Window:
        """Ask the service for a model's sizes now: does it take the key, does it know the model?

        Raises:
            ModelError: its subclass says which of these is not so, or that nobody answered.
        """
        client = await self._ready()
        from bot.agent.models.failures import model_error  # noqa: PLC0415 - needs the SDK

        try:
            info = await client.models.retrieve(model, timeout=CATALOG_TIMEOUT)
        except Exception as error:
            raise model_error(error) from error
        return Window(info.max_input_tokens or 0, info.max_tokens or 0)

    async def names(self) -> tuple[str, ...]:
        """The names of the service's models; never raises."""
        return await self._catalog.names()

    async def close(self) -> None:
        """Release connections."""
        self._closed = True
        await self._catalog.close()
        if self._loading is None:
            return
        loading, self._loading = self._loading, None
        try:
            client = await loading
        except ModelError:
            return
        await client.close()

    async def _fetch_names(self) -> Sequence[str]:
        page = await (await self._ready()).models.list(limit=1000, timeout=CATALOG_TIMEOUT)
        return [info.id for info in page.data if info.lifecycle != "retired"]

    async def _ready(self) -> AsyncAnthropic:
        """The client, loaded once however many ask; one caller's cancellation stops no other.

        Raises:
            ModelError: it cannot be loaded, there is no key, or this model is closed.
        """
        if self._closed:
            raise ModelUnreachable("the model is closed")
        if not self._key and not self._own_endpoint:
            raise ModelAuth("there is no key")
        if self._loading is None or (self._loading.done() and self._loading.exception()):
            self._loading = asyncio.create_task(self._load())
        return await asyncio.shield(self._loading)

    async def _load(self) -> AsyncAnthropic:
        try:
            return await asyncio.to_thread(self._build)
        except Exception as error:
            log.exception("model.sdk_unusable")
            raise ModelError("the SDK cannot be used") from error

    def _build(self) -> AsyncAnthropic:
        import anthropic  # noqa: PLC0415 - takes a second

        importlib.import_module("bot.agent.models.failures")  # its imports are slow too
        # The SDK logs whole requests at debug level; what people say never goes to a log.
        logging.getLogger("anthropic").setLevel(logging.WARNING)
        key = self._key or NO_KEY
        client = anthropic.AsyncAnthropic(
            api_key=key,
            base_url=self._url,
            timeout=anthropic.Timeout(self._timeout, connect=min(CONNECT_TIMEOUT, self._timeout)),
            max_retries=self._max_retries,
            open_telemetry=False,
            # Proxies and certificates of the environment are not part of the configuration.
            http_client=anthropic.DefaultAioHttpClient(trust_env=False),
        )
        # Takes out what ANTHROPIC_CUSTOM_HEADERS put in. Others than Anthropic's own service read
        # the key from the header it had at first.
        headers = {"X-Api-Key": key} if self._own_endpoint else {}
        client._custom_headers = headers  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
        _ = client.models  # its module is loaded on first use
        return client


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
