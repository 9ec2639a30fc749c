"""Checks of the arguments a model gives, with errors that tell it what to change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bot.errors import ToolError


def only(arguments: Mapping[str, Any], *names: str) -> None:
    """Refuse arguments a tool does not have.

    Raises:
        ToolError: there is one.
    """
    unknown = sorted(str(name)[:50] for name in arguments if name not in names)
    if unknown:
        raise ToolError(f"unknown argument {unknown[0]!r}; known: {', '.join(names)}")


def text(arguments: Mapping[str, Any], name: str, *, longest: int) -> str:
    """A text with something in it, at most `longest` characters.

    Raises:
        ToolError: it is missing, blank, too long or not text.
    """
    value = arguments.get(name)
    if value is None:
        raise ToolError(f"{name!r} is missing")
    if not isinstance(value, str):
        raise ToolError(f"{name!r} must be text")
    if len(value) > longest:
        raise ToolError(f"{name!r} has {len(value)} characters; at most {longest} are taken")
    if not value.strip():
        raise ToolError(f"{name!r} is empty")
    return value


def integer(arguments: Mapping[str, Any], name: str, *, default: int, low: int, high: int) -> int:
    """A whole number from `low` to `high`.

    Raises:
        ToolError: it is something else.
    """
    value = arguments.get(name, default)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ToolError(f"{name!r} must be a whole number from {low} to {high}")
    return value


def optional(arguments: Mapping[str, Any], name: str, *, longest: int) -> str:
    """A text of at most `longest` characters, or empty when it is left out or blank.

    Raises:
        ToolError: it is too long or not text.
    """
    value = arguments.get(name)
    if value is None or value == "":
        return ""
    return text(arguments, name, longest=longest).strip()


def flag(arguments: Mapping[str, Any], name: str, *, default: bool) -> bool:
    """True or false.

    Raises:
        ToolError: it is something else.
    """
    value = arguments.get(name, default)
    if not isinstance(value, bool):
        raise ToolError(f"{name!r} must be true or false")
    return value
