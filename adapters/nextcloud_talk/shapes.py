"""Reading JSON of any shape, and making its words fit to be kept: pure."""

from __future__ import annotations

import json
import re
from typing import Any, cast

import orjson

Json = dict[str, Any]

MAX_NAME = 128  # characters of a name that are kept
_LONGEST_NUMBER = 20  # digits
_SURROGATE = re.compile("[\ud800-\udfff]")
_INVISIBLE = "\x00-\x1f\x7f\u00ad\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufe0f\ufeff"
_GAP = re.compile(rf"[\s{_INVISIBLE}]+")


def parse_json(payload: bytes | str) -> object:
    """The value of a JSON text, even of one with broken UTF-8 or half a surrogate pair.

    Raises:
        ValueError: it is not JSON.
    """
    try:
        return orjson.loads(payload)
    except ValueError:
        text = payload.decode("utf-8", "replace") if isinstance(payload, bytes) else payload
        try:
            return json.loads(text)
        except RecursionError:
            raise ValueError("nested too deeply") from None


def node(value: object) -> Json:
    """A mapping, or an empty one: PHP writes `[]` for those that are empty."""
    return cast("Json", value) if isinstance(value, dict) else {}


def child(parent: Json, key: str) -> Json:
    """The mapping below a key, or an empty one."""
    return node(parent.get(key))


def text(parent: Json, key: str) -> str:
    """A string that any database takes: no null characters, no lone surrogates."""
    value: object = parent.get(key)
    return clean(value) if isinstance(value, str) else ""


def clean(value: str) -> str:
    """A string without null characters and lone surrogates."""
    if not value.isascii():
        value = _SURROGATE.sub("\ufffd", value)
    return value.replace("\0", "\ufffd") if "\0" in value else value


def identifier(parent: Json, key: str) -> str:
    """An id that is a number or digits, as text; empty when it is neither."""
    value: object = parent.get(key)
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value) if 0 < value < 10**_LONGEST_NUMBER else ""
    if not isinstance(value, str) or not value.isascii() or not value.isdecimal():
        return ""
    return (value.lstrip("0") or "") if len(value) <= _LONGEST_NUMBER else ""


def number(parent: Json, key: str) -> int:
    """A number that is not negative, also when it comes as digits; 0 when it is none."""
    return int(identifier(parent, key) or 0)


def label(words: str, limit: int = MAX_NAME) -> str:
    """Somebody else's words as part of one of our lines: no line breaks, no brackets."""
    return _GAP.sub(" ", words[: 4 * limit]).replace("[", "(").replace("]", ")").strip()[:limit]


def blank(words: str) -> bool:
    """Whether there is nothing to see in a text."""
    return not words or not _GAP.sub("", words)
