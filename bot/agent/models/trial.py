"""Asking a service, before anything rests on it, whether it answers and which models it has."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

from bot.agent.models import Checked, Model
from bot.agent.models.registry import open_service
from bot.config import ModelsConfig


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


class _NothingKept:
    """A store for sizes that are asked for once."""

    async def get(self, key: str) -> str | None:
        return None

    async def set(self, key: str, text: str) -> None:
        pass
