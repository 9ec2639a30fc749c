"""The configuration in effect and its schema, as `confidant config` prints them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from operator import attrgetter
from typing import Any, cast

from pydantic import BaseModel, SecretStr

from bot.config import Config
from bot.settings.fields import Option, options_of, tables
from bot.settings.loader import Loaded
from bot.settings.problems import table_name

MASK = "•••"


def json_schema(model: type[Config]) -> dict[str, Any]:
    """The configuration file's JSON schema, for editors that complete and check TOML by one."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **model.model_json_schema(),
        "title": "Confidant's configuration",
    }


def show(loaded: Loaded) -> str:
    """The configuration in effect as TOML: secrets masked, each value with where it comes from."""
    blocks: list[str] = []
    for key, table, options in tables_in_effect(loaded.config):
        lines = [_line(loaded, option, getattr(table, option.key[-1])) for option in options]
        if lines:
            blocks.append("\n".join([table_name(key), *lines, ""]))
    return "\n".join(blocks)


def tables_in_effect(config: Config) -> Iterator[tuple[tuple[str, ...], BaseModel, list[Option]]]:
    """Every table in effect with its options, those under names of somebody's own too."""
    for key, _, options in tables(type(config)):
        table: BaseModel = attrgetter(".".join(key))(config)
        yield key, table, options
        for name, extra in (table.model_extra or {}).items():
            if isinstance(extra, BaseModel):
                yield (*key, name), extra, options_of(type(extra), (*key, name))


def _line(loaded: Loaded, option: Option, value: object) -> str:
    name = option.key[-1]
    if value is None:
        return f"# {name} is not set"
    origins = loaded.origins.items()
    found = [source for place, source in origins if place[: len(option.key)] == option.key]
    return f"{name} = {toml_value(value)}  # {', '.join(dict.fromkeys(found)) or 'default'}"


def toml_value(value: object) -> str:
    """A value as TOML on one line; tables are inline, without what is at its default."""
    if isinstance(value, SecretStr):
        return toml_value(MASK)
    if isinstance(value, BaseModel):
        names = [name for name in type(value).model_fields if _differs(value, name)]
        value = {name: getattr(value, name) for name in names}
    if isinstance(value, Mapping):
        pairs = cast("Mapping[str, object]", value).items()
        inner = ", ".join(f"{_toml_key(name)} = {toml_value(each)}" for name, each in pairs)
        return f"{{ {inner} }}" if inner else "{}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(toml_value, cast('list[object]', value)))}]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    return _quoted(str(value))


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _differs(table: BaseModel, name: str) -> bool:
    field = type(table).model_fields[name]
    return field.is_required() or getattr(table, name) != field.get_default(
        call_default_factory=True
    )


def _toml_key(name: str) -> str:
    bare = name.isascii() and name.replace("-", "").replace("_", "").isalnum()
    return name if bare else _quoted(name)
