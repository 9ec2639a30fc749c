"""Models that other packages bring, by entry point: the contract of docs/writing-a-model.md."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bot.agent.models import Model
from bot.agent.models.catalog import TextStore
from bot.config import ServiceConfig
from bot.errors import ConfigError
from bot.settings import model_kinds
from bot.settings.plugins import loaded, source_of


@dataclass(frozen=True, slots=True)
class ModelPlugin:
    """What an entry point of the group `confidant.models` names.

    `create` makes the adapter for one `[models.<name>]`; it loads nothing slow and asks nobody: the
    first request does. Small texts, such as the sizes of models, outlive a restart in the store.
    """

    kind: str
    create: Callable[[ServiceConfig, TextStore], Model]


def installed(kind: str) -> ModelPlugin:
    """The plug-in for a kind of service.

    Raises:
        ConfigError: no package brings it, or the one that does cannot be used.
    """
    entry = model_kinds().get(kind)
    if entry is None:
        raise ConfigError(f'no installed package brings models of the kind "{kind}"')
    source = source_of("kind of models", entry)
    plugin = loaded(source, entry)
    if not isinstance(plugin, ModelPlugin):
        raise ConfigError(f"{source} is no plug-in: it names a {type(plugin).__name__}")
    if plugin.kind != kind:
        raise ConfigError(f'{source} calls itself "{plugin.kind}"')
    return plugin
