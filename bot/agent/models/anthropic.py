"""Claude, or anything else that speaks the Messages API, through Anthropic's SDK."""

from __future__ import annotations

import importlib
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Final

from bot.agent.models import Request, Window
from bot.agent.models.anthropic_wire import Accumulator, body_of
from bot.agent.models.service import CATALOG_TIMEOUT, CONNECT_TIMEOUT, NO_KEY, ServiceModel
from bot.agent.models.sse import events
from bot.errors import ModelError, ModelRejected
from bot.messages import without_thoughts

if TYPE_CHECKING:  # loading it takes a second: `warm_up` does, in a thread
    from anthropic import AsyncAnthropic

KNOWN_NAMES = ("claude-sonnet-5-5", "claude-haiku-5-5", "claude-opus-5-5", "claude-fable-5-2")
STREAM_HEADERS: Final = {"Content-Type": "application/json", "Accept": "text/event-stream"}


class AnthropicModel(ServiceModel["AsyncAnthropic"]):
    """A `Model` on the Messages API."""

    name = "anthropic"
    default_url = "https://api.anthropic.com"
    known_names = KNOWN_NAMES

    @cached_property
    def _thinkers(self) -> set[str]:
        """The models that think whether asked to or not, and tell what only when asked."""
        return set() if self.has_own_endpoint else set(KNOWN_NAMES)

    def build(self) -> AsyncAnthropic:
        """The SDK's client, with all that is imported late."""
        import anthropic  # noqa: PLC0415 - takes a second

        importlib.import_module("bot.agent.models.anthropic_failures")  # its imports are slow too
        # The SDK logs whole requests at debug level; what people say never goes to a log.
        logging.getLogger("anthropic").setLevel(logging.WARNING)
        key = self.key or NO_KEY
        client = anthropic.AsyncAnthropic(
            api_key=key,
            base_url=self.url,
            timeout=anthropic.Timeout(self.timeout, connect=min(CONNECT_TIMEOUT, self.timeout)),
            max_retries=self.max_retries,
            open_telemetry=False,
            # Proxies and certificates of the environment are not part of the configuration.
            http_client=anthropic.DefaultAioHttpClient(trust_env=False),
        )
        # Takes out what ANTHROPIC_CUSTOM_HEADERS put in. Others than Anthropic's own service read
        # the key from the header it had at first.
        headers = {"X-Api-Key": key} if self.has_own_endpoint else {}
        client._custom_headers = headers  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
        _ = client.models  # its module is loaded on first use
        return client

    async def dispose(self, client: AsyncAnthropic) -> None:
        """Close its connections."""
        await client.close()

    @asynccontextmanager
    async def opened(
        self, client: AsyncAnthropic, request: Request
    ) -> AsyncGenerator[AsyncIterator[bytes]]:
        """The stream of a reply."""
        from anthropic import AsyncStream  # noqa: PLC0415 - loaded by now

        stream = await client.post(
            "/v1/messages",
            cast_to=object,
            content=body_of(request, self.longest(request), tells_thoughts=self._tells(request)),
            # The SDK would sit out whatever it is told to, and knows nothing of the stream.
            options={"headers": STREAM_HEADERS, "max_retries": 0},
            stream=True,
            stream_cls=AsyncStream[object],
        )
        async with stream:
            yield events(stream.response.aiter_bytes())

    def _tells(self, request: Request) -> bool:
        return request.on_thought is not None and request.model in self._thinkers

    def adapted(self, request: Request, failure: Exception) -> Request | None:
        """What to send when the service refuses thoughts: the wish to hear them, or old ones.

        Newer models take back only what they thought themselves, behind the very same messages. In
        the middle of a turn another one may have stood in, or a result been cut.
        """
        words = str(getattr(failure, "body", ""))
        if "thinking" not in words or not isinstance(self.as_error(failure), ModelRejected):
            return None
        if self._tells(request) and ("thinking." in words or "adaptive" in words):
            self._thinkers.discard(request.model)
            return request
        bare = without_thoughts(request.messages)
        return replace(request, messages=bare) if bare != request.messages else None

    def reader(self) -> Accumulator:
        """What puts the events together."""
        return Accumulator()

    def as_error(self, failure: Exception) -> ModelError:
        """A failure of the SDK as one of ours."""
        from bot.agent.models.anthropic_failures import model_error  # noqa: PLC0415 - needs the SDK

        return model_error(failure)

    async def check(self, model: str) -> Window:
        """Ask the service for a model's sizes now.

        Raises:
            ModelError: it does not take the key, does not know the model, or nobody answered.
        """
        client = await self.client()
        try:
            info = await client.models.retrieve(model, timeout=CATALOG_TIMEOUT)
        except Exception as error:
            raise self.as_error(error) from error
        return Window(info.max_input_tokens or 0, info.max_tokens or 0)

    async def fetch_names(self) -> Sequence[str]:
        """The names of the service's models.

        Raises:
            ModelError: it does not tell them.
        """
        client = await self.client()
        try:
            page = await client.models.list(limit=1000, timeout=CATALOG_TIMEOUT)
        except Exception as error:
            raise self.as_error(error) from error
        return [info.id for info in page.data if info.lifecycle != "retired"]
