"""Calling a platform over HTTP, and reading its JSON, whatever its shape.

What an answer's status means, and why there is none. Words are made fit to be kept. Nothing that
reads JSON raises but `parse_json`: what is not of the expected kind reads as None or as empty.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Literal, cast

import aiohttp
import orjson
from yarl import URL

from bot.errors import ChannelError, SendLater, SendRefused, SendTransient
from bot.net.connection import ProxyFailed, session, why

__all__ = ["download", "exchange", "failure", "read", "session", "why"]

LATER = 30.0  # seconds, when a platform asks to wait and does not say how long
_BLOCK = 1 << 16  # bytes read at once


class TooLarge(Exception):
    """An answer is longer than what was asked for."""


class Unreachable(SendTransient):
    """A platform did not answer; `reason` says why, without an address or a secret.

    `sent` is False when it cannot have got the request.
    """

    def __init__(self, platform: str, reason: str, *, sent: bool = True) -> None:
        super().__init__(f"{platform} cannot be reached: {reason}")
        self.reason, self.sent = reason, sent


class TooSlow(Unreachable):
    """It did not answer in time."""


class TooLong(Unreachable):
    """It answered with more than an answer."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a platform answered."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    body: bytes = field(repr=False, default=b"")

    @property
    def json(self) -> Json:
        """The mapping in it, or an empty one."""
        try:
            return mapping(parse_json(self.body))
        except ValueError:
            return {}  # a page of some proxy


async def exchange(
    calls: aiohttp.ClientSession,
    method: str,
    url: URL,
    *,
    platform: str,
    most: int,
    **request: Any,
) -> Answer:
    """One HTTP exchange. It follows no redirect, which would take secrets along.

    No more than `most` bytes of the answer are read, and `platform` is what people call it. All
    else is as for `aiohttp.ClientSession.request`.

    Raises:
        Unreachable, TooSlow, TooLong: there was no answer.
    """
    try:
        async with calls.request(method, url, allow_redirects=False, **request) as response:
            return Answer(response.status, response.headers, await read(response, most))
    except TooLarge:
        raise TooLong(platform, "too long an answer") from None
    except (aiohttp.ClientConnectorError, ProxyFailed) as error:
        raise Unreachable(platform, why(error), sent=False) from None
    except TimeoutError:
        raise TooSlow(platform, "no answer in time") from None
    except (aiohttp.ClientError, OSError) as error:
        raise Unreachable(platform, why(error)) from None


async def read(response: aiohttp.ClientResponse, most: int) -> bytes:
    """The body of an answer.

    Raises:
        TooLarge: it has more than `most` bytes.
    """
    if (response.content_length or 0) > most:
        raise TooLarge
    body = bytearray()
    async for block in response.content.iter_chunked(_BLOCK):
        body += block
        if len(body) > most:
            raise TooLarge
    return bytes(body)


async def download(
    call: AbstractAsyncContextManager[aiohttp.ClientResponse], most: int, platform: str
) -> bytes:
    """The file a call answers with; no error says the address, which may hold a secret.

    Raises:
        SendLater, SendTransient: it may work later.
        SendRefused: it never will, or it has more than `most` bytes.
    """
    try:
        async with call as response:
            if response.status != 200:
                raise failure(platform, response.status)
            return await read(response, most)
    except TooLarge:
        raise SendRefused("this file is too large") from None
    except TimeoutError:
        raise SendTransient(f"{platform} is too slow with this file") from None
    except (aiohttp.ClientError, OSError) as error:
        raise SendTransient(f"{platform} cannot be reached: {why(error)}") from None


def failure(platform: str, status: int, retry_after: float = 0.0) -> ChannelError:
    """The error of the contract that an HTTP status other than a good one stands for.

    Args:
        platform: what people call it.
        status: of the answer.
        retry_after: seconds the platform asks to wait, 0 when it does not say.
    """
    if status == 429 or (status == 503 and retry_after):
        return SendLater(retry_after or LATER)
    if status >= 500 or status in {408, 425}:
        return SendTransient(f"{platform} failed (HTTP {status})")
    return SendRefused(f"{platform} refuses this (HTTP {status})")


# --- reading JSON ---------------------------------------------------------------------------------


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
