"""Talk's numbers, which come as numbers or as digits: pure, and never an error."""

from __future__ import annotations

from bot.channel.kit.shapes import Json

_LONGEST_NUMBER = 20  # digits


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
