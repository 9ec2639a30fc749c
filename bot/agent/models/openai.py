"""OpenAI, or anything else that speaks chat completions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from urllib.parse import urlsplit

import structlog

from bot.agent.models import Request, Window
from bot.agent.models.capabilities import Capabilities
from bot.agent.models.openai_windows import GUESS, conversing, entries, sizes, widened
from bot.agent.models.openai_wire import CompletionReader, body_of
from bot.agent.models.service import ServiceModel
from bot.errors import ModelError

log = structlog.get_logger(__name__)


class OpenAIModel(ServiceModel):
    """A `Model` on chat completions."""

    name = "openai"
    default_url = "https://api.openai.com/v1"
    path = "/chat/completions"
    reader = CompletionReader

    def located(self, address: str) -> str:
        """Where the API is; servers themselves tell their address without its path."""
        is_whole = not address or urlsplit(address).path not in {"", "/"}
        return address if is_whole else f"{address.rstrip('/')}/v1"

    @cached_property
    def _root(self) -> str:
        """The address above the API, where servers have others; empty when there is none."""
        has_more = self.has_own_endpoint and self.url.endswith("/v1")
        return self.url.removesuffix("/v1") if has_more else ""

    @cached_property
    def _names(self) -> dict[str, str]:
        """What a server calls a model with the window that was configured, by the model's name."""
        return {}

    def headers(self, key: str) -> Mapping[str, str]:
        """The key."""
        return {"Authorization": f"Bearer {key}"}

    def usual(self, model: str) -> Capabilities:
        """What a model takes before anything was learned of it."""
        return Capabilities(
            limit="max_tokens" if self.has_own_endpoint else "max_completion_tokens"
        )

    async def body(self, request: Request, able: Capabilities) -> bytes:
        """The JSON of a request."""
        longest = self.longest(request, able)
        return body_of(replace(request, model=await self._name(request.model)), longest, able)

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

    async def _name(self, model: str) -> str:
        """The name to ask for a model by, where its window was configured."""
        if not self.config.window or not self._root:
            return model
        if model not in self._names:
            try:
                name = await widened(self.ask, self._root, model, self.config.window)
                self._names[model] = name
            except ModelError as error:
                log.warning("model.window_not_set", model=model, error=str(error))
                return model
        return self._names[model]
