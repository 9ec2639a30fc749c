"""Reading a platform's JSON, whatever its shape, and making its words fit to be kept: pure.

Nothing here raises but `parse_json`: what is not of the expected kind reads as None or as empty.
"""

from __future__ import annotations

import json
import re
from typing import Any, Literal, cast

import orjson

MAX_LABEL = 128  # characters of a name that are kept
_LONGEST_NUMBER = 20  # digits of an id

Json = dict[str, Any]

_SURROGATE = re.compile("[\ud800-\udfff]")
_GAP = re.compile(
    r"[\s\x00-\x1f\x7f\xad\u061c\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069\ufeff]+"
)
_BLANK = re.compile(
    r"[\s\x00-\x1f\x7f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200f\u202a-\u202e"
    r"\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0]+"
)


def parse_json(payload: bytes | str) -> object:
    """The value of a JSON text, even of one with broken UTF-8 or half a surrogate pair.

    Raises:
        ValueError: it is not JSON.
    """
    try:
        return orjson.loads(payload)
    except ValueError:
        words = payload.decode("utf-8", "replace") if isinstance(payload, bytes) else payload
        try:
            return json.loads(words)
        except RecursionError:
            raise ValueError("nested too deeply") from None


def mapping(value: object) -> Json:
    """A mapping, or an empty one."""
    return cast("Json", value) if isinstance(value, dict) else {}


def child(parent: Json, key: str) -> Json:
    """The mapping below a key, or an empty one."""
    return mapping(parent.get(key))


def children(parent: Json, key: str, most: int | None = None) -> list[Json]:
    """The mappings among the first items of the list below a key."""
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


def identifier(parent: Json, key: str) -> str:
    """An id that is a number or digits, as text without zeros before it; empty when neither."""
    value: object = parent.get(key)
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value) if 0 < value < 10**_LONGEST_NUMBER else ""
    if not isinstance(value, str) or not value.isascii() or not value.isdecimal():
        return ""
    return (value.lstrip("0") or "") if len(value) <= _LONGEST_NUMBER else ""


def number(parent: Json, key: str) -> int:
    """A number that is not negative, also when it comes as digits; 0 when it is none."""
    return int(identifier(parent, key) or 0)


def text(parent: Json, key: str) -> str:
    """The string below a key, as any database takes it, or an empty one."""
    value: object = parent.get(key)
    return storable(value) if isinstance(value, str) else ""


def texts(parent: Json, key: str) -> list[str]:
    """The strings of the list below a key."""
    value: object = parent.get(key)
    items = cast("list[object]", value) if isinstance(value, list) else []
    return [storable(item) for item in items if isinstance(item, str)]


def storable(words: str) -> str:
    """The words without what databases refuse: null characters and lone surrogates."""
    if not words.isascii():
        words = _SURROGATE.sub("\ufffd", words)
    return words.replace("\0", "\ufffd") if "\0" in words else words


def label(words: str, limit: int = MAX_LABEL) -> str:
    """Somebody else's words as part of one of our lines: no line breaks, no brackets."""
    return _GAP.sub(" ", words[: 4 * limit]).replace("[", "(").replace("]", ")").strip()[:limit]


def media_kind(mime: str) -> Literal["photo", "audio", "video", "document"]:
    """The kind of a file, by the type that a platform gives it."""
    match mime.partition("/")[0]:
        case "image":
            return "photo"
        case "audio" | "video" as kind:
            return kind
        case _:
            return "document"


def is_blank(words: str) -> bool:
    """True when nothing of a text shows."""
    return not words or not _BLANK.sub("", words)
