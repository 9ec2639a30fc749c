"""What the configuration's models look like from outside: options, their kinds, their places."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import UnionType
from typing import Annotated, Any, Literal, Union, cast, get_args, get_origin

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

Key = tuple[str | int, ...]  # a place in the configuration: ("channels", "telegram", "token")
Kind = Literal["table", "map", "list", "choice", "secret", "bool", "int", "float", "text"]

ENV_PREFIX = "CONFIDANT_"
ENV_DELIMITER = "__"


@dataclass(frozen=True, slots=True)
class Shape:
    """What kind of value a place takes.

    `model` is set for tables, `item` (an annotation) for maps and lists, `choices` for choices.
    """

    kind: Kind
    optional: bool = False
    model: type[BaseModel] | None = None
    item: Any = None
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Option:
    """One option of the reference: where it is, and how it is declared."""

    key: tuple[str, ...]
    field: FieldInfo
    shape: Shape


def shape_of(annotation: Any) -> Shape:
    """The kind of value an annotation stands for."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return shape_of(get_args(annotation)[0])
    if origin in {Union, UnionType}:
        return _optional(annotation)
    if origin is Literal:
        return Shape("choice", choices=tuple(str(choice) for choice in get_args(annotation)))
    base: Any = origin or annotation
    return _of_type(base, get_args(annotation)) if isinstance(base, type) else Shape("text")


def _of_type(base: type[Any], arguments: tuple[Any, ...]) -> Shape:
    if issubclass(base, BaseModel):
        return Shape("table", model=base)
    if issubclass(base, Mapping):
        return Shape("map", item=arguments[1])
    if issubclass(base, tuple | list | set | frozenset):
        return Shape("list", item=arguments[0])
    return Shape(_scalar(base))


def _optional(annotation: Any) -> Shape:
    """The first real member of a union; the configuration has no others than `X | None`."""
    members = [member for member in get_args(annotation) if member is not type(None)]
    shape = shape_of(members[0])
    return Shape(
        shape.kind,
        optional=len(members) < len(get_args(annotation)),
        model=shape.model,
        item=shape.item,
        choices=shape.choices,
    )


# In this order: bool is a subclass of int.
_SCALARS: tuple[tuple[type, Kind], ...] = (
    (SecretStr, "secret"),
    (bool, "bool"),
    (int, "int"),
    (float, "float"),
)


def _scalar(base: type) -> Kind:
    for known, kind in _SCALARS:
        if issubclass(base, known):
            return kind
    return "text"


def child(shape: Shape, name: str | int) -> Shape | None:
    """The shape one step down, or None where the models have nothing of that name."""
    if shape.kind == "table" and shape.model is not None:
        field = shape.model.model_fields.get(str(name))
        return shape_of(field.annotation) if field is not None else None
    if shape.kind in {"map", "list"}:
        return shape_of(shape.item)
    return None


def shape_at(model: type[BaseModel], key: Key) -> Shape | None:
    """The shape of a place, or None where the models have nothing of that name."""
    shape: Shape | None = Shape("table", model=model)
    for name in key:
        if shape is None:
            return None
        shape = child(shape, name)
    return shape


def tables(
    model: type[BaseModel], key: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], type[BaseModel], list[Option]]]:
    """Every table with the options it holds itself, parents first; maps are options."""
    options: list[Option] = []
    below: list[tuple[str, type[BaseModel]]] = []
    for name, field in model.model_fields.items():
        shape = shape_of(field.annotation)
        if shape.kind == "table" and shape.model is not None:
            below.append((name, shape.model))
        else:
            options.append(Option((*key, name), field, shape))
    if key:
        yield key, model, options
    for name, inner in below:
        yield from tables(inner, (*key, name))


def env_name(key: Key) -> str:
    """The environment variable of a place."""
    return ENV_PREFIX + ENV_DELIMITER.join(str(part).upper() for part in key)


def lookup(data: object, key: Key) -> object:
    """The value at a place of nested dicts and lists, or None."""
    for name in key:
        if isinstance(data, dict) and name in data:
            data = cast("dict[str | int, object]", data)[name]
        elif isinstance(data, list) and isinstance(name, int):
            items = cast("list[object]", data)
            if not 0 <= name < len(items):
                return None
            data = items[name]
        else:
            return None
    return data
