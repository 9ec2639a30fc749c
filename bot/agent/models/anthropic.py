"""Claude, or anything else that speaks the Messages API."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import cache
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import structlog

from bot.agent.models import Request, Window
from bot.agent.models.anthropic_wire import Accumulator, body_of
from bot.agent.models.capabilities import Capabilities
from bot.agent.models.service import NO_KEY, ServiceModel
from bot.channel.kit.json_access import Json, children, number, text

if TYPE_CHECKING:
    from bot.agent.models.anthropic_client import Client
    from bot.agent.models.connection import Connection

KNOWN_NAMES = ("claude-sonnet-5-5", "claude-haiku-5-5", "claude-opus-5-5", "claude-fable-5-2")
VERSION: Final = "2026-10-21"  # of the protocol, as its makers' own SDK asks for it
MOST_NAMES = 1000
_SDK: Final = "bot.agent.models.anthropic_client"

log = structlog.get_logger(__name__)


class AnthropicModel(ServiceModel):
    """A `Model` on the Messages API."""

    name = "anthropic"
    default_url = "https://api.anthropic.com"
    path = "/v1/messages"
    reader = Accumulator
    known_names = KNOWN_NAMES
    _sdk: asyncio.Task[Callable[[Connection, str], Client] | None] | None = None

    def usual(self, model: str) -> Capabilities:
        """What a model takes: those that think by themselves also tell what, if asked to."""
        if self.has_own_endpoint:
            return Capabilities(thinking=False)
        # Anthropic itself takes thoughts back only behind the very same messages.
        return Capabilities(thinking=model in KNOWN_NAMES, reasoning="turn")

    def headers(self, key: str) -> Mapping[str, str]:
        """The key. Others than Anthropic's own service read it from the header it had at first."""
        said = {"anthropic-version": VERSION, "Authorization": f"Bearer {key}"}
        return {**said, "X-Api-Key": key} if self.has_own_endpoint else said

    async def body(self, request: Request, able: Capabilities) -> bytes:
        """The JSON of a request."""
        return body_of(request, self.longest(request, able), able)

    @asynccontextmanager
    async def opened(
        self, connection: Connection, body: bytes, silence: float | None
    ) -> AsyncGenerator[AsyncIterator[Json]]:
        """The events of a reply; while the SDK is still being loaded they come without it."""
        sdk = self._sdk
        is_there = sdk is not None and sdk.done() and not sdk.cancelled()
        client = sdk.result() if sdk is not None and is_there else None
        way = client(connection, self.key or NO_KEY) if client is not None else connection
        try:
            async with way.stream(self.path, body, silence) as events:
                yield events
        finally:
            if not self._closed:  # for the next one: beside this it would take half of the time
                self._loading_sdk()

    async def load_sdk(self) -> None:
        """Load the SDK, in a thread; no request waits for it."""
        await asyncio.wait({self._loading_sdk()})

    async def close(self) -> None:
        """Release connections."""
        if self._sdk is not None:
            self._sdk.cancel()
        await super().close()

    def _loading_sdk(self) -> asyncio.Task[Callable[[Connection, str], Client] | None]:
        if self._sdk is None:
            self._sdk = asyncio.create_task(_load_sdk())
        return self._sdk

    async def check(self, model: str) -> Window:
        """Ask the service for a model's sizes now.

        Raises:
            ModelError: it does not take the key, does not know the model, or nobody answered.
        """
        info = await self.ask(f"/v1/models/{quote(model, safe='')}")
        return Window(number(info, "max_input_tokens"), number(info, "max_tokens"))

    async def fetch_names(self) -> Sequence[str]:
        """The names of the service's models.

        Raises:
            ModelError: it does not tell them.
        """
        page = await self.ask(f"/v1/models?limit={MOST_NAMES}")
        listed = children(page, "data")
        return [text(each, "id") for each in listed if each.get("lifecycle") != "retired"]


async def _load_sdk() -> Callable[[Connection, str], Client] | None:
    """What makes the client of a connection, once each; None where the SDK cannot be loaded."""
    try:
        return cache((await asyncio.to_thread(importlib.import_module, _SDK)).Client)
    except Exception:
        log.exception("model.sdk_not_loaded")
        return None
