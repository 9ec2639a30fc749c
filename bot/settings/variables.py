"""What environment variables, `.env` files and secrets in files of their own say."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from dotenv.parser import parse_stream

from bot.settings.fields import Shape, child
from bot.settings.problems import Problem, not_a, word

FILE_PREFIX = "file:"
_MAX_SECRET_BYTES = 64 * 1024  # a key or token is far shorter; this is some other file
_BOOLEANS = {
    **dict[str, bool].fromkeys(("true", "1", "yes", "on"), True),
    **dict[str, bool].fromkeys(("false", "0", "no", "off"), False),
}


@dataclass(frozen=True, slots=True)
class Variable:
    """One variable; `origin` is how messages name it: `NAME`, or `.env:3: NAME`."""

    name: str
    value: str
    origin: str


def from_environ(environ: Mapping[str, str]) -> list[Variable]:
    """The variables of a process."""
    return [Variable(name, value, word(name)) for name, value in environ.items()]


def from_dotenv(text: str, name: str) -> tuple[list[Variable], list[Problem]]:
    """The variables of a `.env` file of that name; one that comes twice keeps its last value."""
    found: dict[str, Variable] = {}
    problems: list[Problem] = []
    for binding in parse_stream(io.StringIO(text)):
        raw = binding.original.string
        line = binding.original.line + raw[: len(raw) - len(raw.lstrip())].count("\n")
        if binding.error:
            problems.append(Problem((), "this is not a NAME=value line", f"{name}:{line}"))
        elif binding.key is not None and binding.value is not None:
            origin = f"{name}:{line}: {word(binding.key)}"
            found[binding.key] = Variable(binding.key, binding.value, origin)
    return list(found.values()), problems


def decode(text: str, shape: Shape) -> object:
    """The value a variable's text stands for, of the kind its option takes.

    Lists are JSON or comma-separated, tables JSON.

    Raises:
        ValueError: with a sentence that says what it is not.
    """
    text = text.strip()
    items = child(shape, 0) if shape.kind == "list" else None
    if items is not None and not text.startswith("["):
        if items.kind in {"table", "map", "list"}:
            raise ValueError('this must be a JSON list such as [{"action": "allow"}]')
        return [decode(each, items) for each in text.split(",") if each.strip()]
    if shape.kind in {"list", "table", "map"}:
        value = _from_json(text, list if shape.kind == "list" else dict)
        if items is not None and items.kind == "text":
            # ["telegram:42", 42]: an id that happens to be a number was still meant as an id.
            ids = cast("list[object]", value)
            return [str(each) if type(each) is int else each for each in ids]
        return value
    try:
        if shape.kind == "bool":
            return _BOOLEANS[text.lower()]
        if shape.kind in {"int", "float"}:
            return int(text) if shape.kind == "int" else float(text)
    except (KeyError, ValueError):
        raise ValueError(not_a(shape, text)) from None
    return text


def _from_json(text: str, wanted: type) -> object:
    described = 'a list such as ["a", "b"]' if wanted is list else 'a table such as {"name": …}'
    try:
        value: object = json.loads(text)
    except RecursionError:
        raise ValueError("this is nested too deeply") from None
    except ValueError:
        raise ValueError(f"this is not valid JSON for {described}") from None
    if not isinstance(value, wanted):
        raise ValueError(f"this must be {described}")  # noqa: TRY004 - a sentence for a person
    return value


def secret_in(name: str, folder: Path) -> str:
    """The secret in a file, as container platforms hand them out; `folder` is for relative names.

    Raises:
        ValueError: with a sentence on why there is no secret to be had; never with its content.
    """
    path = folder / name
    try:
        if path.stat().st_size > _MAX_SECRET_BYTES:
            raise ValueError(f"the file {name} is too large to hold only a secret")
        secret = path.read_bytes().decode("utf-8-sig").strip()
    except UnicodeDecodeError:  # its message would repeat the content
        raise ValueError(f"the file {name} is not text") from None
    except OSError as error:
        raise ValueError(f"the file {name} cannot be read: {error.strerror}") from error
    if not secret:
        raise ValueError(f"the file {name} is empty")
    if "\0" in secret or "\n" in secret:
        raise ValueError(f"the file {name} holds more than one line of text")
    return secret
