"""Options from environment variables and from `.env` files.

`CONFIDANT_CHANNELS__TELEGRAM__API_ROOT` sets `api_root` in `[channels.telegram]`: the parts of a
name are joined with two underscores, in any case. Lists are JSON or comma-separated, tables JSON.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from dotenv.parser import parse_stream
from pydantic import BaseModel

from bot.settings.fields import (
    ENV_DELIMITER,
    ENV_PREFIX,
    Key,
    Shape,
    child,
    env_name,
    shape_at,
    tables,
)
from bot.settings.problems import Problem, nearest, not_a, word
from bot.settings.secret import FILE_PREFIX, from_file
from bot.settings.tomlfile import read_text

_FILE_SUFFIX = "_file"
_TRUE = frozenset({"true", "1", "yes", "on"})
_FALSE = frozenset({"false", "0", "no", "off"})


@dataclass(frozen=True, slots=True)
class Variable:
    """One variable; `origin` is how messages name it: `NAME`, or `.env:3: NAME`."""

    name: str
    value: str
    origin: str


@dataclass(frozen=True, slots=True)
class Assignment:
    """A value for one place of the configuration."""

    key: Key
    value: object
    origin: str


@dataclass(slots=True)
class Layer:
    """What one source sets, and what is wrong with it."""

    assignments: list[Assignment] = field(default_factory=list[Assignment])
    problems: list[Problem] = field(default_factory=list[Problem])


class _Bad(ValueError):
    """A value that cannot be read; the message is a sentence for the person."""


def from_environ(environ: Mapping[str, str]) -> list[Variable]:
    """The variables of a process."""
    return [Variable(name, value, word(name)) for name, value in environ.items()]


def from_dotenv(path: Path, name: str) -> tuple[list[Variable], list[Problem]]:
    """The variables of a `.env` file; a name that comes twice keeps its last value.

    Raises:
        ConfigError: the file cannot be read.
    """
    found: dict[str, Variable] = {}
    problems: list[Problem] = []
    for binding in parse_stream(io.StringIO(read_text(path, name))):
        raw = binding.original.string
        line = binding.original.line + raw[: len(raw) - len(raw.lstrip())].count("\n")
        if binding.error:
            problems.append(Problem((), "this is not a NAME=value line", f"{name}:{line}"))
        elif binding.key is not None and binding.value is not None:
            origin = f"{name}:{line}: {word(binding.key)}"
            found[binding.key] = Variable(binding.key, binding.value, origin)
    return list(found.values()), problems


def read(
    model: type[BaseModel],
    variables: Iterable[Variable],
    plain: Mapping[str, Key],
    folder: Path,
) -> Layer:
    """What the variables set, weakest first: plain names, then tables, then single options.

    Args:
        model: the model of the whole configuration.
        variables: those of one source; others than ours are passed over.
        plain: variables with names of their own, such as ANTHROPIC_API_KEY, and what they set.
        folder: where relative names of secret files are looked up.
    """
    reader = _Reader(model, plain, folder)
    known: list[tuple[int, Variable, Key, bool]] = []
    for variable in variables:
        if variable.value.strip():
            known.extend(reader.place(variable))
    layer = reader.layer
    taken: dict[tuple[int, Key], str] = {}
    for rank, variable, key, is_file in sorted(known, key=lambda each: each[0]):
        twin = taken.setdefault((rank, key), variable.name)
        if twin != variable.name:
            message = f"{word(twin)} sets the same option: keep one of them"
            layer.problems.append(Problem(key, message, variable.origin))
            continue
        reader.assign(variable, key, is_file=is_file)
    return layer


class _Reader:
    def __init__(self, model: type[BaseModel], plain: Mapping[str, Key], folder: Path) -> None:
        self.model = model
        self.plain = plain
        self.folder = folder
        self.layer = Layer()

    def place(self, variable: Variable) -> Iterable[tuple[int, Variable, Key, bool]]:
        """(strength, variable, place, whether the value names a file), if it is one of ours."""
        name = variable.name
        if name in self.plain:
            return [(0, variable, self.plain[name], False)]
        if name.upper().endswith("_FILE") and name[: -len(_FILE_SUFFIX)] in self.plain:
            return [(0, variable, self.plain[name[: -len(_FILE_SUFFIX)]], True)]
        if not name.upper().startswith(ENV_PREFIX):
            return []
        parts = tuple(name[len(ENV_PREFIX) :].lower().split(ENV_DELIMITER))
        key = self._known(parts)
        if key is not None:
            return [(len(key), variable, key, False)]
        if parts[-1].endswith(_FILE_SUFFIX):
            key = self._known((*parts[:-1], parts[-1].removesuffix(_FILE_SUFFIX)))
            shape = shape_at(self.model, key) if key else None
            if key and shape and shape.kind == "secret":
                return [(len(key), variable, key, True)]
        self.layer.problems.append(Problem((), self._unknown(name), variable.origin))
        return []

    def _known(self, parts: tuple[str, ...]) -> Key | None:
        if not all(parts):
            return None
        shape = shape_at(self.model, parts)
        if shape is None or "list" in self._kinds_above(parts):
            return None
        return parts

    def _kinds_above(self, parts: tuple[str, ...]) -> set[str]:
        shapes = (shape_at(self.model, parts[:length]) for length in range(len(parts)))
        return {shape.kind for shape in shapes if shape is not None}

    def _unknown(self, name: str) -> str:
        names = [env_name(option.key) for _, _, each in tables(self.model) for option in each]
        meant = nearest(name, names)
        hint = f"; did you mean {meant}?" if meant else ""
        return f"no option has this name{hint}"

    def assign(self, variable: Variable, key: Key, *, is_file: bool) -> None:
        """Turn one variable into values, or into a problem."""
        shape = shape_at(self.model, key)
        if shape is None:  # a plain name of a channel that sets nothing
            raise KeyError(variable.name)
        try:
            if is_file:
                value: object = from_file(variable.value.strip(), self.folder)
            elif shape.kind == "secret":
                value = secret(variable.value, self.folder)
            else:
                value = decode(variable.value, shape)
        except ValueError as error:
            self.layer.problems.append(Problem(key, str(error), variable.origin))
            return
        self._spread(shape, key, value, variable.origin)

    def _spread(self, shape: Shape, key: Key, value: object, origin: str) -> None:
        """A table given as JSON sets its options one by one, so it adds to what is below."""
        if shape.kind in {"table", "map"} and isinstance(value, dict):
            for name, inner in cast("dict[str, object]", value).items():
                below = child(shape, name)
                if below is not None and below.kind == "secret" and isinstance(inner, str):
                    self._secret_in_table((*key, name), inner, origin)
                else:
                    self._spread(below or Shape("text"), (*key, name), inner, origin)
            return
        self.layer.assignments.append(Assignment(key, value, origin))

    def _secret_in_table(self, key: Key, value: str, origin: str) -> None:
        try:
            self.layer.assignments.append(Assignment(key, secret(value, self.folder), origin))
        except ValueError as error:
            self.layer.problems.append(Problem(key, str(error), origin))


def secret(value: str, folder: Path) -> str:
    """A secret given literally, or as `file:/path`.

    Raises:
        ValueError: the file holds none.
    """
    value = value.strip()
    if value.startswith(FILE_PREFIX):
        return from_file(value.removeprefix(FILE_PREFIX), folder)
    return value


def decode(text: str, shape: Shape) -> object:
    """The value a variable's text stands for, of the kind its option takes.

    Raises:
        ValueError: with a sentence that says what it is not.
    """
    stripped = text.strip()
    if shape.kind == "bool":
        if stripped.lower() not in _TRUE | _FALSE:
            raise _Bad(not_a(shape, stripped))
        return stripped.lower() in _TRUE
    if shape.kind == "choice":
        return stripped
    if shape.kind in {"int", "float"}:
        return _number(stripped, shape)
    if shape.kind == "list":
        return _list(stripped, shape)
    if shape.kind in {"table", "map"}:
        return _json(stripped, shape, dict)
    return stripped


def _number(text: str, shape: Shape) -> int | float:
    try:
        return int(text) if shape.kind == "int" else float(text)
    except ValueError:
        raise _Bad(not_a(shape, text)) from None


def _list(text: str, shape: Shape) -> object:
    items = shape_of_items(shape)
    if text.startswith("["):
        value = cast("list[object]", _json(text, shape, list))
        if items.kind == "text":
            # ["telegram:42", 42]: an id that happens to be a number was still meant as an id.
            return [str(each) if type(each) is int else each for each in value]
        return value
    if items.kind in {"table", "map", "list"}:
        raise _Bad('this must be a JSON list such as [{"action": "allow"}]')
    return [decode(each, items) for each in text.split(",") if each.strip()]


def shape_of_items(shape: Shape) -> Shape:
    """The shape of a list's items."""
    return child(shape, 0) or Shape("text")


def _json(text: str, shape: Shape, wanted: type) -> object:
    try:
        value: object = json.loads(text)
    except RecursionError:
        raise _Bad("this is nested too deeply") from None
    except ValueError:
        raise _Bad(f"this is not valid JSON for {_wanted(shape)}") from None
    if not isinstance(value, wanted):
        raise _Bad(f"this must be {_wanted(shape)}")
    return value


def _wanted(shape: Shape) -> str:
    return 'a list such as ["a", "b"]' if shape.kind == "list" else 'a table such as {"name": …}'
