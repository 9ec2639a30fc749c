"""Calling a platform over HTTP: its proxy, its answers, and what their status means."""

from __future__ import annotations

import urllib.request
from contextlib import AbstractAsyncContextManager

import aiohttp
from yarl import URL

from bot.errors import ChannelError, SendLater, SendRefused, SendTransient

LATER = 30.0  # seconds, when a platform asks to wait and does not say how long
_BLOCK = 1 << 16  # bytes read at once

Proxy = tuple[URL | None, dict[str, str] | None]  # and what it wants to hear


def proxy_for(address: str) -> Proxy:
    """The environment's proxy for a server.

    Looking it up takes a while; aiohttp's own `trust_env` does it for each request.
    """
    target = URL(address)
    scheme = {"wss": "https", "ws": "http"}.get(target.scheme, target.scheme)
    found = urllib.request.getproxies().get(scheme, "")
    if not found or urllib.request.proxy_bypass(target.host or ""):
        return None, None
    proxy = URL(found)
    if not proxy.user:
        return proxy, None
    login = aiohttp.encode_basic_auth(proxy.user, proxy.password or "")
    return proxy.with_user(None), {"Proxy-Authorization": login}


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
        raise SendTransient(f"{platform} cannot be reached: {type(error).__name__}") from None


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
