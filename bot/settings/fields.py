"""Introspection of the configuration's models: options, their kinds and places."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.metadata import EntryPoint
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, cast, get_args, get_origin, get_type_hints

from pydantic import BaseModel, Field, SecretStr, create_model
from pydantic.fields import FieldInfo

from bot.channel import ChannelConfig, ChannelPlugin
from bot.config import AsWritten, ChannelsConfig, Config, LiveHere, LiveMark
from bot.errors import ConfigError
from bot.plugins import CHANNELS, MODELS, TOOLS, entries, loaded, source_of

Key = tuple[str | int, ...]  # a place in the configuration: ("channels", "telegram", "token")
Kind = Literal["table", "map", "list", "choice", "secret", "bool", "int", "float", "text"]

ENV_PREFIX = "CONFIDANT_"
ENV_DELIMITER = "__"

# In this order: bool is a subclass of int, and everything is one of object.
_KINDS: tuple[tuple[type | tuple[type, ...], Kind], ...] = (
    (BaseModel, "table"),
    (Mapping, "map"),
    ((tuple, list, set, frozenset), "list"),
    (SecretStr, "secret"),
    (bool, "bool"),
    (int, "int"),
    (float, "float"),
    (object, "text"),
)


@dataclass(frozen=True, slots=True)
class Shape:
    """The kind of value a place takes.

    `model` is set for tables, `item` (an annotation) for maps and lists, `choices` for choices;
    `as_written` for maps with names whose case counts.
    """

    kind: Kind
    optional: bool = False
    model: type[BaseModel] | None = None
    item: Any = None
    choices: tuple[str, ...] = ()
    as_written: bool = False


@dataclass(frozen=True, slots=True)
class Option:
    """One option of the reference: where it is, and how it is declared."""

    key: tuple[str, ...]
    field: FieldInfo
    shape: Shape


def shape_of(annotation: Any) -> Shape:
    """The kind of value an annotation stands for."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return shape_of(arguments[0])
    if origin in {Union, UnionType}:  # the configuration has no others than `X | None`
        first = next(each for each in arguments if each is not NoneType)
        return replace(shape_of(first), optional=NoneType in arguments)
    if origin is Literal:
        return Shape("choice", choices=tuple(map(str, arguments)))
    base: type[Any] = origin or annotation
    if not isinstance(base, type):  # pyright: ignore[reportUnnecessaryIsInstance]
        return Shape("text")
    kind: Kind = next(kind for known, kind in _KINDS if issubclass(base, known))
    item = arguments[1 if kind == "map" else 0] if kind in {"map", "list"} else None
    names = get_args(arguments[0]) if kind == "map" and arguments else ()
    return Shape(
        kind,
        model=base if kind == "table" else None,
        item=item,
        as_written=any(isinstance(each, AsWritten) for each in names),
    )


def child(shape: Shape, name: str | int) -> Shape | None:
    """The shape one step down, or None where the models have nothing of that name."""
    if shape.model is not None:
        field = shape.model.model_fields.get(str(name))
        annotation = extras_of(shape.model) if field is None else field.annotation
        return shape_of(annotation) if annotation is not None else None
    return shape_of(shape.item) if shape.kind in {"map", "list"} else None


def extras_of(model: type[BaseModel]) -> Any:
    """The annotation of a table's freely named entries; None where there are none."""
    if model.model_config.get("extra") != "allow":
        return None
    return get_args(get_type_hints(model)["__pydantic_extra__"])[1]


def shape_at(model: type[BaseModel], key: Key) -> Shape | None:
    """The shape of a place, or None where the models have nothing of that name."""
    shape: Shape | None = Shape("table", model=model)
    for name in key:
        shape = child(shape, name) if shape is not None else None
    return shape


def mark_of(field: FieldInfo) -> LiveMark | None:
    """The mark of an option that takes effect at once; None for any other."""
    return next((each for each in field.metadata if isinstance(each, LiveMark)), None)


def mark_at(key: Key) -> LiveMark | None:
    """The mark of an option, or of a table around it; None when it waits for the next start."""
    model: type[BaseModel] | None = Config
    for name in key:
        field = model.model_fields.get(str(name)) if model is not None else None
        if field is None:
            return None
        if (mark := mark_of(field)) is not None:
            return mark
        model = shape_of(field.annotation).model
    return None


def is_live(key: Key) -> bool:
    """True for an option that takes effect at once."""
    return mark_at(key) is not None


def is_shared(key: Key) -> bool:
    """True for an option that takes effect on all nodes when it is changed on one."""
    mark = mark_at(key)
    return mark is not None and mark.is_shared


def options_of(model: type[BaseModel], key: tuple[str, ...]) -> list[Option]:
    """The options of one table, other tables too."""
    return [
        Option((*key, name), field, shape_of(field.annotation))
        for name, field in model.model_fields.items()
    ]


def tables(
    model: type[BaseModel], key: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], type[BaseModel], list[Option]]]:
    """Every table with the options it holds itself, parents first; maps are options."""
    fields = options_of(model, key)
    if key:
        yield key, model, [each for each in fields if each.shape.model is None]
    for each in fields:
        if each.shape.model is not None:
            yield from tables(each.shape.model, each.key)


def env_name(key: Key) -> str:
    """The environment variable of a place."""
    return ENV_PREFIX + ENV_DELIMITER.join(str(part).upper() for part in key)


def lookup(data: object, key: Key) -> object:
    """The value at a place of nested dicts and lists, or None."""
    for name in key:
        try:
            data = cast("Any", data)[name] if isinstance(data, dict | list) else None
        except (LookupError, TypeError):  # no such name; a name in a list
            return None
    return data


# The installed channels (entry points `confidant.channels`) and the model that includes them.

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
    for entry in entries(CHANNELS):
        plugin = _load(entry)
        # One distribution can be listed twice (an editable install and its source folder).
        if found.setdefault(entry.name, plugin) is not plugin:
            raise ConfigError(f'two packages bring a channel "{entry.name}": uninstall one of them')
    return found


def model_kinds() -> dict[str, EntryPoint]:
    """The kinds of services that other packages bring, by name; nothing is loaded."""
    return {entry.name: entry for entry in entries(MODELS)}


def has_tools() -> bool:
    """True when other packages bring tools; which ones, they say only once they are loaded."""
    return bool(entries(TOOLS))


def _load(entry: EntryPoint) -> ChannelPlugin:
    source = source_of("channel", entry)
    plugin = loaded(source, entry)
    if not isinstance(plugin, ChannelPlugin):
        raise ConfigError(f"{source} is no channel: it names a {type(plugin).__name__}")
    if plugin.name != entry.name or not plugin.name.isidentifier():
        raise ConfigError(f'{source} calls itself "{plugin.name}", which cannot be its name')
    return plugin


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
        missing = [each for each, field in config.model_fields.items() if field.is_required()]
        if missing:
            raise ConfigError(f'the channel "{name}" has options without a default: {missing}')
        fields[name] = (config, Field(default_factory=config))
    channels = create_model("Channels", __base__=ChannelsConfig, **fields)
    channels.__doc__ = ChannelsConfig.__doc__
    whole: Any = {"channels": (LiveHere[channels], Field(default_factory=channels))}
    model = create_model("Configuration", __base__=Config, **whole)
    model.__doc__ = Config.__doc__
    return model


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
