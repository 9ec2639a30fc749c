"""Reading JSON of any shape: pure, and never an error."""

from __future__ import annotations

import datetime as dt
import re
from typing import Any, cast

Json = dict[str, Any]

_SURROGATE = re.compile("[\ud800-\udfff]")
_GAP = re.compile(r"[\s\x00-\x1f\x7f\u200b\u200e\u200f\u202a-\u202e\u2066-\u2069]+")
_BLANK = re.compile(
    r"[\s\x00-\x1f\x7f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200f\u202a-\u202e"
    r"\u2060-\u2069\u206a-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0]+"
)
EPOCH = 1_420_070_400_000  # ms; where Discord's ids and times begin
MAX_LABEL = 128  # characters of a name that are kept
MAX_DIGITS = 20  # of an id: they are numbers of 64 bits


def node(value: object) -> Json | None:
    """A mapping, or None."""
    return cast("Json", value) if isinstance(value, dict) else None


def child(parent: Json, key: str) -> Json:
    """A mapping inside a mapping; an empty one when there is none."""
    return node(parent.get(key)) or {}


def children(parent: Json, key: str) -> list[Json]:
    """The mappings in a list inside a mapping."""
    value: object = parent.get(key)
    if not isinstance(value, list):
        return []
    return [cast("Json", item) for item in cast("list[object]", value) if isinstance(item, dict)]


def ids(parent: Json, key: str) -> list[str]:
    """The ids in a list inside a mapping."""
    value: object = parent.get(key)
    if not isinstance(value, list):
        return []
    return [str(item) for item in cast("list[object]", value) if is_id(item)]


def is_id(value: object) -> bool:
    """Whether it is one of Discord's ids: a number of up to 64 bits, as text."""
    return (
        isinstance(value, str)
        and value.isascii()
        and value.isdecimal()
        and len(value) <= MAX_DIGITS
        and int(value) > 0
    )


def identity(parent: Json, key: str) -> str:
    """An id, or empty."""
    value: object = parent.get(key)
    return str(value) if is_id(value) else ""


def integer(parent: Json, key: str) -> int | None:
    """A whole number, or None."""
    value: object = parent.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def text(parent: Json, key: str) -> str:
    """A string that any database takes: no null characters, no lone surrogates."""
    value: object = parent.get(key)
    if not isinstance(value, str):
        return ""
    if not value.isascii():
        value = _SURROGATE.sub("\ufffd", value)
    return value.replace("\0", "\ufffd") if "\0" in value else value


def label(words: str, limit: int = MAX_LABEL) -> str:
    """Somebody else's words as part of one of our lines: no line breaks, no brackets."""
    return _GAP.sub(" ", words[: 4 * limit]).replace("[", "(").replace("]", ")").strip()[:limit]


def is_blank(words: str) -> bool:
    """Whether nothing of a text shows."""
    return not _BLANK.sub("", words)


def moment(stamp: str) -> int | None:
    """A time of Discord's in ms since the epoch, or None when it is none."""
    try:
        at = int(dt.datetime.fromisoformat(stamp).timestamp() * 1000)
    except (OverflowError, ValueError, OSError):
        return None
    return at if at > EPOCH else None
