"""OpenAI, or anything else that speaks chat completions."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import structlog

from bot.agent.models import Request, Window
from bot.agent.models.catalog import TextStore
from bot.agent.models.openai_windows import GUESS, conversing, entries, sizes, widened
from bot.agent.models.openai_wire import CompletionReader, Dialect, body_of
from bot.agent.models.service import (
    CATALOG_TIMEOUT,
    DONE,
    MAX_RETRIES,
    ServiceModel,
)
from bot.agent.models.sse import events
from bot.agent.models.wire import Json
from bot.channel.kit.json_access import mapping
from bot.clock import Clock, system_clock
from bot.config import ServiceConfig
from bot.errors import ModelError, ModelRejected

if TYPE_CHECKING:
    from bot.agent.models.connection import Connection

log = structlog.get_logger(__name__)


class OpenAIModel(ServiceModel):
    """A `Model` on chat completions."""

    name = "openai"
    default_url = "https://api.openai.com/v1"

    def __init__(
        self,
        config: ServiceConfig,
        *,
        window_store: TextStore,
        max_retries: int = MAX_RETRIES,
        clock: Clock = system_clock,
    ) -> None:
        super().__init__(config, window_store=window_store, max_retries=max_retries, clock=clock)
        if urlsplit(self.url).path in {"", "/"}:  # as the servers themselves say where they are
            self.url = f"{self.url.rstrip('/')}/v1"
        has_more = self.has_own_endpoint and self.url.endswith("/v1")
        self._root = self.url.removesuffix("/v1") if has_more else ""
        self._window = config.window
        self._names: dict[str, str] = {}  # by model, as its server has it with that window
        self._dialects: dict[str, Dialect] = {}  # by model, where more than the usual is known
        self._usual = Dialect() if self.has_own_endpoint else Dialect("max_completion_tokens")

    def headers(self, key: str) -> Mapping[str, str]:
        """The key."""
        return {"Authorization": f"Bearer {key}"}

    @asynccontextmanager
    async def opened(
        self, connection: Connection, request: Request
    ) -> AsyncGenerator[AsyncIterator[bytes]]:
        """The stream of a reply; one event for the whole of a server that does not stream."""
        named = replace(request, model=await self._name(request.model))
        body = body_of(named, self.longest(request), self._dialect(request.model))
        async with connection.stream("/chat/completions", body, request.silence) as answer:
            if answer.content_type == "application/json":
                yield _once(await connection.read(answer))
            else:
                yield events(answer.content.iter_any())

    def reader(self, request: Request, *, waits: bool) -> CompletionReader:
        """What puts the events together."""
        return CompletionReader(request.tools, waits=waits)

    def as_error(self, failure: Exception) -> ModelError:
        """Whatever was raised on the way there and back, as one of ours."""
        from bot.agent.models.openai_failures import model_error  # noqa: PLC0415 - seldom needed

        return model_error(failure)

    def adapted(self, request: Request, failure: Exception) -> Request | None:
        """The same, written anew, when the server says what of it it does not know."""
        from bot.agent.models.openai_failures import told_in  # noqa: PLC0415 - seldom needed

        if not isinstance(self.as_error(failure), ModelRejected):
            return None
        _, sentence = told_in(getattr(failure, "body", None))
        found = self._dialect(request.model).adapted(sentence)
        if found is not None:
            self._dialects[request.model] = found
        return request if found is not None else None

    async def window(self, model: str) -> Window:
        """The sizes of a model as the server told them; never raises."""
        known = await super().window(model)
        return Window(known.max_input_tokens, known.max_output_tokens, assumed=GUESS)

    async def check(self, model: str) -> Window:
        """Ask the server for a model's sizes now.

        Raises:
            ModelError: it does not take the key, does not know the model, or nobody answered.
        """
        return await sizes(self.ask, self._root, model)

    async def can_widen(self, model: str, window: int) -> bool:
        """True when the server gives a model another window on being asked, as Ollama does.

        Raises:
            ModelError: it could not.
        """
        return bool(self._root) and await widened(self.ask, self._root, model, window) != model

    async def fetch_names(self) -> Sequence[str]:
        """The names of the server's models that converse.

        Raises:
            ModelError: it does not tell them.
        """
        return conversing(entries(await self.ask("/models")))

    async def ask(self, where: str, body: Json | None = None, /) -> Json:
        """What the server answers, in its own API or another one below its address.

        Raises:
            ModelError: it does not answer, or with an error.
        """
        connection = await self.connection()
        patience = CATALOG_TIMEOUT if body is None else self.timeout
        try:
            return mapping(await connection.ask(where, body, within=patience))
        except Exception as error:
            raise self.as_error(error) from error

    async def _name(self, model: str) -> str:
        """The name to ask for a model by, where its window was configured."""
        if not self._window or not self._root:
            return model
        if model not in self._names:
            try:
                self._names[model] = await widened(self.ask, self._root, model, self._window)
            except ModelError as error:
                log.warning("model.window_not_set", model=model, error=str(error))
                return model
        return self._names[model]

    def _dialect(self, model: str) -> Dialect:
        return self._dialects.get(model, self._usual)


async def _once(body: bytes) -> AsyncGenerator[bytes]:
    yield body
    yield DONE
