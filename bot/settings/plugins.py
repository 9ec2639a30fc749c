"""The installed channels (entry points `confidant.channels`) and the model that includes them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from pydantic import Field, create_model

from bot.channel import ChannelConfig, ChannelPlugin
from bot.config import ChannelsConfig, Config, LiveHere
from bot.errors import ConfigError
from bot.settings.fields import Key, shape_at

GROUP = "confidant.channels"
MODELS_GROUP = "confidant.models"
TOOLS_GROUP = "confidant.tools"

# Variables with names of their own; a channel adds its own through `ChannelPlugin.env`.
PLAIN_NAMES: Mapping[str, Key] = {
    "ANTHROPIC_API_KEY": ("models", "anthropic", "api_key"),
    "OPENAI_API_KEY": ("models", "openai", "api_key"),
}


def installed_channels() -> dict[str, ChannelPlugin]:
    """Every installed channel by name, in the order of their names.

    Raises:
        ConfigError: a channel's package cannot be used; the message names it.
    """
    found: dict[str, ChannelPlugin] = {}
    for entry in sorted(entry_points(group=GROUP), key=lambda each: each.name):
        plugin = _load(entry)
        # One distribution can be listed twice (an editable install and its source folder).
        if found.setdefault(entry.name, plugin) is not plugin:
            raise ConfigError(f'two packages bring a channel "{entry.name}": uninstall one of them')
    return found


def model_kinds() -> dict[str, EntryPoint]:
    """The kinds of services that other packages bring, by name; nothing is loaded."""
    return {entry.name: entry for entry in entry_points(group=MODELS_GROUP)}


def has_tools() -> bool:
    """True when other packages bring tools; which ones, they say only once they are loaded."""
    return bool(entry_points(group=TOOLS_GROUP))


def _load(entry: EntryPoint) -> ChannelPlugin:
    source = source_of("channel", entry)
    plugin = loaded(source, entry)
    if not isinstance(plugin, ChannelPlugin):
        raise ConfigError(f"{source} is no channel: it names a {type(plugin).__name__}")
    if plugin.name != entry.name or not plugin.name.isidentifier():
        raise ConfigError(f'{source} calls itself "{plugin.name}", which cannot be its name')
    return plugin


def source_of(what: str, entry: EntryPoint) -> str:
    """What an entry point brings, and which package it is of, for whoever has to mend it."""
    package = entry.dist.name if entry.dist is not None else "unknown package"
    return f'the {what} "{entry.name}" ({package}, {entry.value})'


def loaded(source: str, entry: EntryPoint) -> object:
    """What an entry point names.

    Raises:
        ConfigError: its package, called `source`, cannot be imported.
    """
    try:
        return entry.load()
    except Exception as error:  # whatever a package does when it is imported
        reason = f"{type(error).__name__}: {error}"
        raise ConfigError(f"{source} cannot be loaded: {reason}") from error


def config_model(plugins: Mapping[str, ChannelPlugin]) -> type[Config]:
    """The model of the whole configuration, with a table for each channel.

    Raises:
        ConfigError: a channel's configuration has no defaults, so it cannot be left out.
    """
    return _model(tuple((name, plugin.config) for name, plugin in plugins.items()))


@lru_cache(maxsize=16)  # to make one takes 10 ms, and each start needs it more than once
def _model(channels_of: tuple[tuple[str, type[ChannelConfig]], ...]) -> type[Config]:
    fields: dict[str, Any] = {}
    for name, config in channels_of:
        _require_defaults(name, config)
        fields[name] = (config, Field(default_factory=config))
    channels = create_model("Channels", __base__=ChannelsConfig, **fields)
    channels.__doc__ = ChannelsConfig.__doc__
    whole: Any = {"channels": (LiveHere[channels], Field(default_factory=channels))}
    model = create_model("Configuration", __base__=Config, **whole)
    model.__doc__ = Config.__doc__
    return model


def _require_defaults(name: str, config: type[ChannelConfig]) -> None:
    missing = [option for option, field in config.model_fields.items() if field.is_required()]
    if missing:
        raise ConfigError(f'the channel "{name}" has options without a default: {missing}')


def plain_names(plugins: Mapping[str, ChannelPlugin], model: type[Config]) -> dict[str, Key]:
    """The variables with names of their own, and the options they set.

    Raises:
        ConfigError: a channel's variable sets an option it does not have.
    """
    names = dict(PLAIN_NAMES)
    for channel, plugin in plugins.items():
        for variable, option in plugin.env.items():
            key: Key = ("channels", channel, *option)
            if shape_at(model, key) is None:
                raise ConfigError(f'the channel "{channel}" has no option for {variable}')
            names[variable] = key
    return names
