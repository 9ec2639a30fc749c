"""Calling a platform over HTTP: its answers, what their status means, why there are none."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from yarl import URL

from bot.channel.kit.json_access import Json, mapping, parse_json
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
    """The answer of a platform."""

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
