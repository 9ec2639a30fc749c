"""Reading JSON of any shape: pure, and never an error."""

from __future__ import annotations

import re
from typing import Any, cast

MAX_NAME = 128  # characters of a display name that are kept

Json = dict[str, Any]

_SURROGATE = re.compile("[\ud800-\udfff]")
_BLANK = re.compile(r"[\s\x00-\x1f\x7f\u200b\u200e\u200f\u202a-\u202e\u2066-\u2069]+")


def mapping(value: object) -> Json | None:
    """A mapping, or None."""
    return cast("Json", value) if isinstance(value, dict) else None


def node(parent: Json, key: str) -> Json | None:
    """A mapping inside a mapping, or None."""
    return mapping(parent.get(key))


def nodes(parent: Json, key: str, most: int = 100) -> list[Json]:
    """The first mappings of a list inside a mapping."""
    value: object = parent.get(key)
    if not isinstance(value, list):
        return []
    items = cast("list[object]", value)[:most]
    return [cast("Json", item) for item in items if isinstance(item, dict)]


def integer(parent: Json, key: str) -> int | None:
    """A whole number of at most 64 bits, or None."""
    value: object = parent.get(key)
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if -(1 << 63) <= value < 1 << 63 else None


def number(parent: Json, key: str) -> float:
    """A number, or 0."""
    value: object = parent.get(key)
    if isinstance(value, int) and not isinstance(value, bool):
        return integer(parent, key) or 0
    return value if isinstance(value, float) else 0.0


def text(parent: Json, key: str) -> str:
    """A string that any database takes: no null characters, no lone surrogates."""
    value: object = parent.get(key)
    return storable(value) if isinstance(value, str) else ""


def storable(words: str) -> str:
    """The words as any database takes them."""
    if not words.isascii():
        words = _SURROGATE.sub("\ufffd", words)
    return words.replace("\0", "\ufffd") if "\0" in words else words


def label(words: str, limit: int = MAX_NAME) -> str:
    """Somebody else's words as part of one of our lines: no line breaks, no brackets."""
    return _BLANK.sub(" ", words[: 4 * limit]).replace("[", "(").replace("]", ")").strip()[:limit]


def name_of(who: Json) -> str:
    """The display name of a person or chat, on one line; a deleted account has none."""
    full = f"{text(who, 'first_name')} {text(who, 'last_name')}"
    return label(full) or label(text(who, "title")) or label(text(who, "username"))
