"""Connections to one service: a request goes out, its answer comes in as it is written.

aiohttp alone: a service's own SDK takes a second and 50 MB to load, and twice as long for a request
as everything else in a turn. Imported once a model is asked, and loaded in a thread.
"""

from __future__ import annotations

import ssl
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Final, cast

import aiohttp
import orjson

from bot import __version__
from bot.agent.models.wire import Json
from bot.errors import ModelBadReply

CONNECT_TIMEOUT = 10.0  # seconds
CONNECTIONS = 1000  # at once
MOST_REFUSAL = 1 << 20  # bytes that are read of why something is refused
MOST_ANSWER = 32 << 20  # bytes of an answer that is not streamed
MOST_HEADER = 16_384  # bytes; some services say much in one

_BLOCK = 1 << 16  # bytes read at once
_POSTED: Final = {"Content-Type": "application/json"}
_STREAMED: Final = {**_POSTED, "Accept": "text/event-stream"}


class Refused(Exception):
    """A service answered with a status that is an error.

    `body` is what it says of it, as JSON where it is that; no message of ours quotes it.
    """

    def __init__(self, status: int, headers: Mapping[str, str], body: object) -> None:
        super().__init__(f"status {status}")
        self.status = status
        self.headers = headers
        self.body = body


class Connection:
    """The way to a service at an address.

    Proxies that the environment names are not used, and no answer leads elsewhere: what is
    asked holds the key and what was said.
    """

    def __init__(self, url: str, headers: Mapping[str, str], timeout: float) -> None:
        """Open it in the running loop; `timeout` is the longest silence in seconds."""
        self._url, self._timeout = url.rstrip("/"), _limits(timeout)
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=CONNECTIONS, ssl=trusted()),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"User-Agent": f"Confidant/{__version__}", **headers},
            timeout=self._timeout,
            max_field_size=MOST_HEADER,
        )

    @asynccontextmanager
    async def stream(
        self, path: str, body: bytes, silence: float | None = None
    ) -> AsyncGenerator[aiohttp.ClientResponse]:
        """What a service answers to a body of JSON, for the length of an `async with`.

        `silence` is how many seconds it may say nothing, if not as long as is configured.

        Raises:
            Refused: its status is an error.
            aiohttp.ClientError: there is no answer.
        """
        async with self._session.post(
            self._url + path,
            data=body,
            headers=_STREAMED,
            allow_redirects=False,
            timeout=self._timeout if silence is None else _limits(silence),
        ) as answer:
            await _look(answer)
            yield answer

    async def ask(self, where: str, body: Json | None = None, *, within: float) -> object:
        """The JSON that is answered at a path or a whole address; with a body it is posted.

        Raises:
            Refused: its status is an error.
            ModelBadReply: it is longer than any such answer.
            aiohttp.ClientError: there is no answer.
            TimeoutError: there is none within so many seconds.
        """
        method = "GET" if body is None else "POST"
        data = None if body is None else orjson.dumps(body)
        headers = None if body is None else _POSTED
        url = where if "://" in where else self._url + where
        timeout = aiohttp.ClientTimeout(total=within, sock_connect=CONNECT_TIMEOUT)
        call = self._session.request(
            method, url, data=data, headers=headers, timeout=timeout, allow_redirects=False
        )
        async with call as answer:
            await _look(answer)
            return _parsed(await self.read(answer))

    async def read(self, answer: aiohttp.ClientResponse) -> bytes:
        """An answer that is not streamed.

        Raises:
            ModelBadReply: it is longer than any such answer.
        """
        body, is_whole = await _begin(answer, MOST_ANSWER)
        if not is_whole:
            raise ModelBadReply("the answer does not end")
        return body

    async def close(self) -> None:
        """Close all that is open."""
        await self._session.close()


def _limits(silence: float) -> aiohttp.ClientTimeout:
    return aiohttp.ClientTimeout(
        connect=silence, sock_connect=min(CONNECT_TIMEOUT, silence), sock_read=silence
    )


async def _look(answer: aiohttp.ClientResponse) -> None:
    """Read why a service refuses, if it does.

    Raises:
        Refused: it does.
    """
    if answer.status >= 300:
        body, _ = await _begin(answer, MOST_REFUSAL)
        raise Refused(answer.status, cast("Mapping[str, str]", answer.headers), _parsed(body))


async def _begin(answer: aiohttp.ClientResponse, most: int) -> tuple[bytes, bool]:
    """The beginning of a body, and whether that is all."""
    body = bytearray()
    async for block in answer.content.iter_chunked(_BLOCK):
        body += block
        if len(body) > most:
            return bytes(body[:most]), False
    return bytes(body), True


def _parsed(body: bytes) -> object:
    try:
        return orjson.loads(body)
    except ValueError:
        return body.decode("utf-8", "replace")


def trusted() -> ssl.SSLContext | bool:
    """Whose certificates are believed: the system's, which Python does not find on macOS."""
    if sys.platform != "darwin":
        return True
    import truststore  # noqa: PLC0415 - not on every system

    return truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
