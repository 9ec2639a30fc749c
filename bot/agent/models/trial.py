"""Asking a service, before anything rests on it, whether it answers and which models it has."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

from bot.agent.models import Checked, Model
from bot.agent.models.openai import OpenAIModel
from bot.agent.models.registry import open_service
from bot.config import ModelsConfig
from bot.context.budget import NARROW, TOO_SMALL

WIDE = 32_768  # tokens: room for a long conversation, and in the memory of most machines


@asynccontextmanager
async def opened(config: ModelsConfig, service: str) -> AsyncGenerator[Model]:
    """A service as it is configured, for as long as it is asked; nothing of it is kept."""
    model = open_service(config.kind_of(service), config.services[service], _NothingKept())
    try:
        yield model
    finally:
        await model.close()


async def names_of(config: ModelsConfig, service: str) -> Sequence[str]:
    """Ask a service which models it has; none of one that cannot be asked.

    Raises:
        ModelError: its subclass says what is wrong: the key, the address, the way there.
    """
    async with opened(config, service) as model:
        return sorted(await model.fetch_names()) if isinstance(model, Checked) else ()


async def window_to_set(config: ModelsConfig, service: str, name: str) -> int | None:
    """What a model's window has to be set to, in tokens, for conversations to fit; 0 is nothing.

    None when it is too small and its server cannot be asked for another one.

    Raises:
        ModelError: the service does not know the model, or cannot be asked.
    """
    if config.services[service].window:
        return 0
    async with opened(config, service) as model:
        told = (await model.check(name)).max_input_tokens if isinstance(model, Checked) else 0
        if not 0 < told < NARROW:
            return 0
        if isinstance(model, OpenAIModel) and await model.can_widen(name, WIDE):
            return WIDE
        return None if told < TOO_SMALL else 0


class _NothingKept:
    """A store for sizes that are asked for once."""

    async def get(self, key: str) -> str | None:
        return None

    async def set(self, key: str, text: str) -> None:
        pass
