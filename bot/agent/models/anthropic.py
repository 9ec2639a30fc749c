"""Claude, or anything else that speaks the Messages API."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from bot.agent.models import Request, Thoughts, Window
from bot.agent.models.anthropic_wire import Accumulator, body_of
from bot.agent.models.service import CATALOG_TIMEOUT, ServiceModel
from bot.agent.models.sse import events
from bot.channel.kit.json_access import Json, children, mapping, number, text
from bot.errors import ModelError, ModelRejected
from bot.messages import without_thoughts

if TYPE_CHECKING:
    from bot.agent.models.connection import Connection

KNOWN_NAMES = ("claude-sonnet-5-5", "claude-haiku-5-5", "claude-opus-5-5", "claude-fable-5-2")
VERSION: Final = "2026-10-21"  # of the protocol, as its makers' own SDK asks for it
MOST_NAMES = 1000


class AnthropicModel(ServiceModel):
    """A `Model` on the Messages API."""

    name = "anthropic"
    default_url = "https://api.anthropic.com"
    known_names = KNOWN_NAMES

    @cached_property
    def _thinkers(self) -> set[str]:
        """The models that think whether asked to or not, and tell what only when asked."""
        return set() if self.has_own_endpoint else set(KNOWN_NAMES)

    def headers(self, key: str) -> Mapping[str, str]:
        """The key. Others than Anthropic's own service read it from the header it had at first."""
        said = {"anthropic-version": VERSION, "Authorization": f"Bearer {key}"}
        return {**said, "X-Api-Key": key} if self.has_own_endpoint else said

    @asynccontextmanager
    async def opened(
        self, connection: Connection, request: Request
    ) -> AsyncGenerator[AsyncIterator[bytes]]:
        """The stream of a reply."""
        # Anthropic itself takes thoughts back only behind the very same messages.
        thoughts: Thoughts = "kept" if self.has_own_endpoint else "turn"
        tells = self._tells(request)
        body = body_of(request, self.longest(request), tells_thoughts=tells, thoughts=thoughts)
        async with connection.stream("/v1/messages", body, request.silence) as answer:
            yield events(answer.content.iter_any())

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

    def reader(self, request: Request, *, waits: bool) -> Accumulator:
        """What puts the events together."""
        return Accumulator(request.tools, waits=waits)

    def as_error(self, failure: Exception) -> ModelError:
        """Whatever was raised on the way there and back, as one of ours."""
        from bot.agent.models.anthropic_failures import model_error  # noqa: PLC0415 - seldom needed

        return model_error(failure)

    async def check(self, model: str) -> Window:
        """Ask the service for a model's sizes now.

        Raises:
            ModelError: it does not take the key, does not know the model, or nobody answered.
        """
        info = await self._ask(f"/v1/models/{quote(model, safe='')}")
        return Window(number(info, "max_input_tokens"), number(info, "max_tokens"))

    async def fetch_names(self) -> Sequence[str]:
        """The names of the service's models.

        Raises:
            ModelError: it does not tell them.
        """
        page = await self._ask(f"/v1/models?limit={MOST_NAMES}")
        listed = children(page, "data")
        return [text(each, "id") for each in listed if each.get("lifecycle") != "retired"]

    async def _ask(self, path: str) -> Json:
        connection = await self.connection()
        try:
            return mapping(await connection.ask(path, within=CATALOG_TIMEOUT))
        except Exception as error:
            raise self.as_error(error) from error
