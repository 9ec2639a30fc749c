"""Discord's ids and times: pure."""

from __future__ import annotations

import datetime as dt
from typing import cast

from bot.channel.kit.json_access import Json

EPOCH = 1_420_070_400_000  # ms; where Discord's ids and times begin
MAX_DIGITS = 20  # of an id: they are numbers of 64 bits


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


def moment(stamp: str) -> int | None:
    """A time of Discord's in ms since the epoch, or None when it is none."""
    try:
        at = int(dt.datetime.fromisoformat(stamp).timestamp() * 1000)
    except (OverflowError, ValueError, OSError):
        return None
    return at if at > EPOCH else None


def sent_at(number: str) -> int:
    """When the thing with this id was made, in ms since the epoch."""
    return (int(number) >> 22) + EPOCH


def first_id_at(at: int) -> str:
    """The smallest id something made at a moment (ms since the epoch) can have."""
    return str(max(0, at - EPOCH) << 22)


def number_in(message_id: str) -> str:
    """The platform's number in a message id of ours, such as "12:e34" or "interaction-56"."""
    found = message_id.partition(":")[0].rpartition("-")[2]
    return found if found.isascii() and found.isdecimal() else ""
