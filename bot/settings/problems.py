"""Mistakes in the configuration, as sentences a person can act on."""

from __future__ import annotations

import difflib
import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, time
from typing import Any, cast, get_args

from pydantic import BaseModel, ValidationError

from bot.settings.fields import Key, Shape, lookup, shape_at, shape_of
from bot.unicode import well_formed

MAX_DEPTH = 12  # of nested tables and lists; the deepest option is at 6
_SHOWN = 60  # characters of a wrong value or name that are repeated in the message

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
_LIMITS = {
    "greater_than": "is too small: it must be above {gt}",
    "greater_than_equal": "is too small: it must be at least {ge}",
    "less_than": "is too large: it must be below {lt}",
    "less_than_equal": "is too large: it must be at most {le}",
    "string_too_short": "is too short: it needs {min_length} or more characters",
    "string_too_long": "is too long: it may have {max_length} characters",
    "too_short": "is too short: it needs {min_length} or more entries",
    "too_long": "is too long: it may have {max_length} entries",
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
        return f"{quoted(value)} is not one of {choices}" + (
            f'; did you mean "{meant}"?' if meant else ""
        )
    sentence = f"{quoted(value)} is not {_EXPECTED[shape.kind]}"
    if shape.kind == "text" and isinstance(value, int | float) and not isinstance(value, bool):
        return f'{sentence}: write "{quoted(value)}"'
    return sentence


def unusable(value: object, key: Key) -> Iterator[tuple[Key, str]]:
    """What TOML and variables can hold and no option takes: the place, and why."""
    if len(key) > MAX_DEPTH:
        yield key, "this is nested too deeply"
    elif isinstance(value, dict | list):
        held = cast("dict[str | int, object] | list[object]", value)
        for name, inner in held.items() if isinstance(held, dict) else enumerate(held):
            yield from unusable(inner, (*key, name))
    elif isinstance(value, date | time):  # datetimes are dates
        yield key, "dates and times are not used here; if it is text, put it in quotes"
    elif isinstance(value, float) and not math.isfinite(value):
        yield key, "this must be a finite number"
    elif isinstance(value, int) and value.bit_length() > 63:
        yield key, "this number is too large"
    elif isinstance(value, str) and "\0" in value:
        yield key, "this text has a NUL character in it"
    elif isinstance(value, str) and value != well_formed(value):
        yield key, "this text is not valid UTF-8"


def from_validation(model: type[BaseModel], data: object, error: ValidationError) -> list[Problem]:
    """Pydantic's errors, one problem each."""
    errors = error.errors(include_url=False, include_input=False)
    return [_problem(model, data, dict(each)) for each in errors]


def _problem(model: type[BaseModel], data: object, error: dict[str, Any]) -> Problem:
    kind: str = error["type"]
    loc: Key = error["loc"]
    context: dict[str, Any] = error.get("ctx", {})
    if loc and loc[-1] == "[key]":
        return Problem(loc[:-1], _bad_name(model, loc[:-1], kind))
    value, shape = lookup(data, loc), shape_at(model, loc)
    if kind == "extra_forbidden":
        return Problem(loc, _unknown(model, loc, is_table=isinstance(value, dict)), named=True)
    if kind == "missing":
        message = f'{table_name(loc[:-1])} needs "{loc[-1]}"'
        return Problem(loc, message, needs=(loc,), named=True)
    if shape is not None and (kind.endswith("_type") or kind == "literal_error"):
        return Problem(loc, not_a(shape, value))
    if kind in _LIMITS:
        said = "this" if shape is not None and shape.kind == "secret" else quoted(value)
        limits = {name: quoted(each) for name, each in context.items()}
        return Problem(loc, f"{said} {_LIMITS[kind].format(**limits)}")
    message = str(error["msg"]).removeprefix("Value error, ")
    needs = tuple((*loc, *path) for path in context.get("needs", ((),)))
    return Problem((*loc, *context.get("path", ())), message, needs=needs, named=True)


def _unknown(model: type[BaseModel], key: Key, *, is_table: bool) -> str:
    """The sentence for a name the models do not have."""
    parent, name = key[:-1], word(str(key[-1]))
    shape = shape_at(model, parent)
    siblings = list(shape.model.model_fields) if shape is not None and shape.model else []
    if parent == ("channels",):
        installed = ", ".join(sorted(siblings)) or "none"
        meant = nearest(name, siblings)
        hint = f"; did you mean [channels.{meant}]?" if meant else ""
        return f'no channel "{name}" is installed (installed: {installed}){hint}'
    if parent:
        return f'unknown option "{name}" in {table_name(parent)}{suggestion(name, siblings)}'
    if is_table:
        return f"unknown section [{name}]{suggestion(name, siblings, '[{}]')}"
    tables = ((home, shape_at(model, (home,))) for home in siblings)
    homes = (
        f"it belongs to [{home}]"
        for home, table in tables
        if table is not None and table.model is not None and name in table.model.model_fields
    )
    home = next(homes, "options stand below a [section] line")
    return f'unknown option "{name}" before the first section; {home}'


def _bad_name(model: type[BaseModel], key: Key, kind: str) -> str:
    """The sentence for a name in a table of names (an account, a chat type) that cannot be one."""
    said = f"{quoted(str(key[-1]))} cannot be a name in {table_name(key[:-1])}"
    if kind == "string_pattern_mismatch":
        return f"{said}: use small letters, digits, - and _"
    table = shape_at(model, key[:-2])
    field = table.model.model_fields.get(str(key[-2])) if table and table.model else None
    names = shape_of(get_args(field.annotation)[0]).choices if field is not None else ()
    return f"{said}{suggestion(str(key[-1]), names)}"
