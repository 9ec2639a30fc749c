"""Connections to one service: a request goes out, its answer comes in as it is written.

Whatever goes wrong on it is one of our errors, whose message names the kind, the status and the
request id, never what was sent or answered. Imported once a model is asked, and loaded in a thread.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import Final, cast

import aiohttp
import orjson

from bot import __version__
from bot.agent.models.capabilities import ServiceRefused
from bot.agent.models.wire import DONE, Json, load
from bot.clock import note_server
from bot.errors import ModelBadReply, ModelError, ModelProxy, ModelTimeout, ModelUnreachable
from bot.net.connection import ProxyTrouble, session, why

# Server-sent events, as services stream their replies in them.

MOST_BYTES = 16 * 1024 * 1024  # of one event, or of an answer that is not streamed


@dataclass(slots=True)
class EventReader:
    """Takes bytes however they were cut, and gives the data of each event once it is whole."""

    has_begun: bool = False  # an event came
    _rest: bytes = b""  # a line that is not whole yet
    _data: list[bytes] = field(default_factory=list[bytes])
    _size: int = 0

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """The data of the events that these bytes complete.

        Raises:
            ModelBadReply: one is larger than any reply.
        """
        lines = (self._rest + chunk).split(b"\n")
        self._rest = lines.pop()
        if len(self._rest) > MOST_BYTES:
            raise ModelBadReply("an event of the reply does not end")
        for line in lines:
            if line.startswith(b"data:"):
                self.has_begun = True
                self._data.append(line[5:].removesuffix(b"\r").removeprefix(b" "))
                self._size += len(self._data[-1])
                if self._size > MOST_BYTES:
                    raise ModelBadReply("an event of the reply does not end")
            elif line in {b"", b"\r"} and self._data:
                data, self._data, self._size = b"\n".join(self._data), [], 0
                yield data


async def events(chunks: AsyncIterable[bytes]) -> AsyncGenerator[Json]:
    """The JSON of each event of a stream; `DONE` where it is said that it is over.

    An answer that is none of events is one event if it is JSON.

    Raises:
        ServiceRefused: it is a page for people.
        ModelBadReply: an event is larger than any reply, or no JSON object.
        ValueError: it is no JSON.
    """
    reader, beginning, size = EventReader(), list[bytes](), 0
    async for chunk in chunks:
        if not reader.has_begun and size < MOST_BYTES:
            beginning.append(chunk)
            size += len(chunk)
        for data in reader.feed(chunk):
            if data:
                yield _parsed_event(data)
    for data in reader.feed(b"\n\n"):  # the empty line after the last may be missing
        yield _parsed_event(data)
    if not reader.has_begun and (text := b"".join(beginning).strip()):
        if text[:1] == b"<":
            raise ServiceRefused(200, {}, text.decode("utf-8", "replace"))
        if text[:1] in {b"{", b"["}:
            yield _parsed_event(text)
            yield DONE


def _parsed_event(data: bytes) -> Json:
    if data.startswith(b"[DONE]"):
        return DONE
    event: object = load(data)
    if isinstance(event, list) and event:  # as Gemini wraps its errors
        event = cast("list[object]", event)[0]
    if not isinstance(event, dict):
        raise ModelBadReply("an event of the reply is no object")
    return cast("Json", event)


CONNECT_TIMEOUT = 10.0  # seconds
CONNECTIONS = 1000  # at once
MOST_REFUSAL = 1 << 20  # bytes that are read of why something is refused
MOST_ANSWER = 32 << 20  # bytes of an answer that is not streamed
MOST_HEADER = 16_384  # bytes; some services say much in one

_BLOCK = 1 << 16  # bytes read at once
_POSTED: Final = {"Content-Type": "application/json"}
_STREAMED: Final = {**_POSTED, "Accept": "text/event-stream"}


class ServiceConnection:
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
            ServiceRefused: its status is an error.
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
            ServiceRefused: its status is an error.
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
    """Note what time it is there, and read why a service refuses, if it does.

    Raises:
        ServiceRefused: it does.
    """
    with suppress(KeyError, ValueError):  # it does not say
        date = parsedate_to_datetime(answer.headers["Date"])
        note_server(answer.url.host or "", date.timestamp())
    if answer.status >= 300:
        body, _ = await _begin(answer, MOST_REFUSAL)
        headers = cast("Mapping[str, str]", answer.headers)
        raise ServiceRefused(answer.status, headers, _parsed(body))


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


def model_error(failure: Exception) -> ModelError:
    """The error to raise `from` this one."""
    if isinstance(failure, ModelError):
        return failure
    if not isinstance(failure, ServiceRefused):
        kinds = (kind for cls, kind in _ON_THE_WAY if isinstance(failure, cls))
        error = next(kinds, ModelError)(why(failure))
        error.told = str(failure) if isinstance(failure, ProxyTrouble) else ""
        return error
    headers = failure.headers
    request_id = headers.get("request-id") or headers.get("x-request-id") or ""
    error = failure.refusal.error(request_id)
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
