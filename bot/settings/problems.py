"""Mistakes in the configuration, as sentences a person can act on."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ValidationError

from bot.settings.fields import Key, Shape, child, lookup, shape_at

_SHOWN = 60  # characters of a wrong value or name that are repeated in the message
_MOST = 200  # errors that are put into words

_EXPECTED: dict[str, str] = {
    "table": "a table of options",
    "map": "a table of names and values",
    "list": 'a list such as ["a", "b"]',
    "secret": "text in quotes",
    "bool": "true or false",
    "int": "a whole number",
    "float": "a number",
    "text": "text in quotes",
}


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake: the place in the configuration it is about, and a sentence on it.

    `where` is set when it is known already, as for a variable; otherwise the place's origin is
    looked up. `needs` are the options a mistake between options is about: when one of them is wrong
    by itself, that comes first. `named` says that the message names the option.
    """

    key: Key
    message: str
    where: str = ""
    needs: tuple[Key, ...] = ()
    named: bool = False


def nearest(name: str, names: Iterable[str]) -> str | None:
    """The name that was probably meant, or None."""
    by_folded = {candidate.lower(): candidate for candidate in names}
    found = difflib.get_close_matches(name.lower(), by_folded, n=1, cutoff=0.6)
    return by_folded[found[0]] if found else None


def suggestion(name: str, names: Sequence[str], form: str = '"{}"') -> str:
    """`; did you mean "x"?`, or the names there are when none comes near."""
    meant = nearest(name, names)
    if meant is not None:
        return f"; did you mean {form.format(meant)}?"
    if not names or len(names) > 12:
        return ""
    return f"; there is {', '.join(form.format(each) for each in sorted(names))}"


def table_name(key: Key) -> str:
    """A table as it is written in the file: `[channels.telegram]`; items by their number."""
    names = [f"{part + 1}" if isinstance(part, int) else word(part) for part in key]
    return f"[{'.'.join(names)}]" if names else "the file's first lines"


def word(name: str) -> str:
    """A name from the file as it may stand in a message: short, on one line, no control codes."""
    text = name if len(name) <= _SHOWN else f"{name[: _SHOWN - 1]}…"
    return text if text.isprintable() else json.dumps(text)[1:-1]


def quoted(value: object) -> str:
    """A wrong value, short and on one line."""
    if isinstance(value, str):
        text = value if len(value) <= _SHOWN else f"{value[: _SHOWN - 1]}…"
        return json.dumps(text, ensure_ascii=not text.isprintable())
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return f"{value}".removesuffix(".0")
    if isinstance(value, dict):
        return "a table"
    return "a list" if isinstance(value, list) else f"{value}"[:_SHOWN]


def not_a(shape: Shape, value: object) -> str:
    """The sentence for a value of the wrong kind, or one that is no choice."""
    if shape.kind == "secret":
        return f"this must be {_EXPECTED['secret']}"  # whatever it is, it may be a secret
    if shape.kind == "choice":
        choices = ", ".join(f'"{choice}"' for choice in shape.choices)
        meant = nearest(value, shape.choices) if isinstance(value, str) else None
        hint = f'; did you mean "{meant}"?' if meant else ""
        return f"{quoted(value)} is not one of {choices}{hint}"
    sentence = f"{quoted(value)} is not {_EXPECTED[shape.kind]}"
    if shape.kind == "text" and isinstance(value, int | float) and not isinstance(value, bool):
        return f'{sentence}: write "{quoted(value)}"'
    return sentence


def unknown(model: type[BaseModel], key: Key, *, is_table: bool) -> str:
    """The sentence for a name the models do not have."""
    parent = key[:-1]
    name = word(str(key[-1]))
    shape = shape_at(model, parent)
    siblings = list(shape.model.model_fields) if shape is not None and shape.model else []
    if parent == ("channels",):
        installed = ", ".join(sorted(siblings)) or "none"
        meant = nearest(name, siblings)
        hint = f"; did you mean [channels.{meant}]?" if meant else ""
        return f'no channel "{name}" is installed (installed: {installed}){hint}'
    if not parent and is_table:
        return f"unknown section [{name}]{suggestion(name, siblings, '[{}]')}"
    if not parent:
        return f'unknown option "{name}" before the first section{_home_of(model, name)}'
    return f'unknown option "{name}" in {table_name(parent)}{suggestion(name, siblings)}'


def _home_of(model: type[BaseModel], name: str) -> str:
    """Where an option that stands outside every section belongs."""
    for section, field in model.model_fields.items():
        inner = child(Shape("table", model=model), section)
        if field and inner is not None and inner.model and name in inner.model.model_fields:
            return f"; it belongs to [{section}]"
    return "; options stand below a [section] line"


def from_validation(model: type[BaseModel], data: object, error: ValidationError) -> list[Problem]:
    """Pydantic's errors, one problem each; of very many only the first."""
    errors = error.errors(include_url=False, include_input=False)
    return [_problem(model, data, dict(each)) for each in errors[:_MOST]]


def _problem(model: type[BaseModel], data: object, error: dict[str, Any]) -> Problem:
    kind: str = error["type"]
    loc: tuple[str | int, ...] = error["loc"]
    context: dict[str, Any] = error.get("ctx", {})
    if loc and loc[-1] == "[key]":
        return _bad_name(model, loc[:-1], kind)
    value = lookup(data, loc)
    shape = shape_at(model, loc)
    if kind == "extra_forbidden":
        return Problem(loc, unknown(model, loc, is_table=isinstance(value, dict)), named=True)
    if kind == "missing":
        message = f'{table_name(loc[:-1])} needs "{loc[-1]}"'
        return Problem(loc, message, needs=(loc,), named=True)
    if shape is not None and (kind.endswith("_type") or kind == "literal_error"):
        return Problem(loc, not_a(shape, value))
    limit = _limit(kind, context)
    if limit:
        said = "this" if shape is not None and shape.kind == "secret" else quoted(value)
        return Problem(loc, f"{said} {limit}")
    message = str(error["msg"]).removeprefix("Value error, ")
    needs = tuple((*loc, *path) for path in context.get("needs", ((),)))
    return Problem((*loc, *context.get("path", ())), message, needs=needs, named=True)


def _bad_name(model: type[BaseModel], key: Key, kind: str) -> Problem:
    """A name in a table of names (an account, a chat type) that cannot be one."""
    name, parent = key[-1], key[:-1]
    said = f"{quoted(str(name))} cannot be a name in {table_name(parent)}"
    if kind == "string_pattern_mismatch":
        return Problem(key, f"{said}: use small letters, digits, - and _")
    shape = shape_at(model, parent[:-1])
    field = shape.model.model_fields.get(str(parent[-1])) if shape and shape.model else None
    choices = _key_choices(field.annotation) if field is not None else ()
    return Problem(key, f"{said}{suggestion(str(name), choices)}")


def _key_choices(annotation: Any) -> tuple[str, ...]:
    arguments: tuple[Any, ...] = getattr(annotation, "__args__", ())
    literal: tuple[Any, ...] = getattr(arguments[0], "__args__", ()) if arguments else ()
    return tuple(str(choice) for choice in literal)


def _limit(kind: str, context: dict[str, Any]) -> str:
    sentences = {
        "greater_than": "is too small: it must be above {gt}",
        "greater_than_equal": "is too small: it must be at least {ge}",
        "less_than": "is too large: it must be below {lt}",
        "less_than_equal": "is too large: it must be at most {le}",
        "string_too_short": "is too short: it needs {min_length} or more characters",
        "string_too_long": "is too long: it may have {max_length} characters",
        "too_short": "is too short: it needs {min_length} or more entries",
        "too_long": "is too long: it may have {max_length} entries",
    }
    sentence = sentences.get(kind, "")
    return sentence.format(**{name: quoted(value) for name, value in context.items()})
