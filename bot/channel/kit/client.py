"""Calling a platform over HTTP: its answers, what their status means, why there are none."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

import aiohttp

from bot.errors import ChannelError, SendLater, SendRefused, SendTransient
from bot.net.connection import ProxyFailed, session, why

__all__ = ["ProxyFailed", "TooLarge", "download", "failure", "read", "session", "why"]

LATER = 30.0  # seconds, when a platform asks to wait and does not say how long
_BLOCK = 1 << 16  # bytes read at once


class TooLarge(Exception):
    """An answer is longer than what was asked for."""


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
