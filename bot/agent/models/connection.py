"""Connections to one service: a request goes out, its answer comes in as it is written.

Whatever goes wrong on it is one of our errors, whose message names the kind, the status and the
request id, never what was sent or answered. Imported once a model is asked, and loaded in a thread.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from email.utils import parsedate_to_datetime
from typing import Final, cast

import aiohttp
import orjson

from bot import __version__
from bot.agent.models.refusals import Refusal, read
from bot.agent.models.sse import events
from bot.agent.models.wire import Json, Refused
from bot.errors import ModelBadReply, ModelError, ModelProxy, ModelTimeout, ModelUnreachable
from bot.net.connection import ProxyTrouble, session, why

CONNECT_TIMEOUT = 10.0  # seconds
CONNECTIONS = 1000  # at once
MOST_REFUSAL = 1 << 20  # bytes that are read of why something is refused
MOST_ANSWER = 32 << 20  # bytes of an answer that is not streamed
MOST_HEADER = 16_384  # bytes; some services say much in one

_BLOCK = 1 << 16  # bytes read at once
_POSTED: Final = {"Content-Type": "application/json"}
_STREAMED: Final = {**_POSTED, "Accept": "text/event-stream"}


class Connection:
    """The way to a service at an address, through a proxy where there is one.

    No answer leads elsewhere: what is asked holds the key and what was said.
    """

    def __init__(
        self, url: str, headers: Mapping[str, str], timeout: float, proxy: str = ""
    ) -> None:
        """Open it in the running loop; `timeout` is the longest silence in seconds."""
        self.url = url.rstrip("/")
        self.headers = {"User-Agent": f"Confidant/{__version__}", **headers}
        self.session = session(
            proxy,
            limit=CONNECTIONS,
            headers=self.headers,
            timeout=limits(timeout),
            max_field_size=MOST_HEADER,
        )

    @asynccontextmanager
    async def stream(
        self, path: str, body: bytes, silence: float | None
    ) -> AsyncGenerator[AsyncIterator[Json]]:
        """The events that a service answers to a body of JSON, for the length of an `async with`.

        A server that does not stream answers with one event for the whole.

        `silence` is how many seconds it may say nothing, if not as long as is configured.

        Raises:
            Refused: its status is an error.
            aiohttp.ClientError: there is no answer.
        """
        async with self.session.post(
            self.url + path,
            data=body,
            headers=_STREAMED,
            allow_redirects=False,
            timeout=self.session.timeout if silence is None else limits(silence),
        ) as answer:
            await _look(answer)
            yield events(answer.content.iter_any())

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
        url = where if "://" in where else self.url + where
        timeout = aiohttp.ClientTimeout(total=within, sock_connect=CONNECT_TIMEOUT)
        call = self.session.request(
            method, url, data=data, headers=headers, timeout=timeout, allow_redirects=False
        )
        async with call as answer:
            await _look(answer)
            text, is_whole = await _begin(answer, MOST_ANSWER)
            if not is_whole:
                raise ModelBadReply("the answer does not end")
            return _parsed(text)

    async def close(self) -> None:
        """Close all that is open."""
        await self.session.close()


def limits(silence: float) -> aiohttp.ClientTimeout:
    """The time limits of a request during which a service may say nothing for so many seconds."""
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


# --- what goes wrong -----------------------------------------------------------------------------

_AGAIN: Final[Mapping[str, bool]] = {"true": True, "false": False}

# First match wins: the particular before the general.
_ON_THE_WAY: Final[tuple[tuple[type[Exception], type[ModelError]], ...]] = (
    (TimeoutError, ModelTimeout),
    (ProxyTrouble, ModelProxy),
    (aiohttp.ClientError, ModelUnreachable),
    (OSError, ModelUnreachable),
    (ValueError, ModelBadReply),
)


def refusal(failure: Exception) -> Refusal | None:
    """What the service said, if it was the service that failed or refused."""
    return read(failure.status, failure.body) if isinstance(failure, Refused) else None


def model_error(failure: Exception) -> ModelError:
    """The error to raise `from` this one."""
    if isinstance(failure, ModelError):
        return failure
    if not isinstance(failure, Refused):
        kinds = (kind for cls, kind in _ON_THE_WAY if isinstance(failure, cls))
        error = next(kinds, ModelError)(why(failure))
        error.told = str(failure) if isinstance(failure, ProxyTrouble) else ""
        return error
    headers = failure.headers
    error = read(failure.status, failure.body).error(
        headers.get("request-id") or headers.get("x-request-id") or ""
    )
    error.wait, error.again = _wait(headers), _AGAIN.get(headers.get("x-should-retry", ""))
    return error


def _wait(headers: Mapping[str, str]) -> float:
    """The seconds to wait that an answer asks for; 0 when it asks for none."""
    for name, unit in (("retry-after-ms", 1000), ("retry-after", 1)):
        try:
            return max(0.0, float(headers.get(name, "")) / unit)
        except ValueError:
            continue
    try:
        until = parsedate_to_datetime(headers.get("retry-after", ""))
    except ValueError:
        return 0.0
    return max(0.0, until.timestamp() - time.time())
