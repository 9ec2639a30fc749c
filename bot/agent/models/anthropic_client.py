"""Sending to a Messages API with the official SDK, on the connections that all services share.

Imported in a thread, and only once such a service is asked: the SDK takes two seconds and 80 MB.
"""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import aiohttp
import anthropic
import httpx2

from bot.agent.models.capabilities import ServiceRefused
from bot.agent.models.connection import MOST_REFUSAL, ServiceConnection, events, limits
from bot.agent.models.wire import Json

logging.getLogger("anthropic").setLevel(logging.WARNING)  # else it may log what is said

_RAW = {"Content-Type": "application/json", "X-Stainless-Raw-Response": "stream"}


class Client:
    """The SDK on a connection. It is closed with that."""

    def __init__(self, way: ServiceConnection, key: str) -> None:
        self._client = anthropic.AsyncAnthropic(
            api_key=key,
            base_url=way.url,
            max_retries=0,  # ours know when the person stops waiting
            timeout=None,
            default_headers=way.headers,
            http_client=httpx2.AsyncClient(transport=_Transport(way.session), trust_env=False),
            open_telemetry=False,
        )

    @asynccontextmanager
    async def stream(
        self, path: str, body: bytes, silence: float | None
    ) -> AsyncGenerator[AsyncIterator[Json]]:
        """The events that a service answers to a body of JSON, for the length of an `async with`.

        They are as the service sent them: the SDK's own reader gives up on one that others
        than Anthropic leave out or make up.

        Raises:
            ServiceRefused: its status is an error.
            aiohttp.ClientError: there is no answer.
        """
        asked: anthropic.RequestOptions = {"headers": _RAW}
        if silence is not None:
            asked["timeout"] = silence
        try:
            answer = await self._client.post(
                path, content=body, cast_to=httpx2.Response, options=asked
            )
        except anthropic.APIStatusError as error:
            headers = error.response.headers
            raise ServiceRefused(error.status_code, headers, error.body) from error
        except anthropic.APIConnectionError as error:
            raise error.__cause__ or error from None
        try:
            yield events(answer.aiter_bytes())
        finally:
            await answer.aclose()


class _Transport(httpx2.AsyncBaseTransport):
    """Sends the SDK's requests over a session of aiohttp: its proxy, certificates and time limits.

    Headers that the environment adds are left out: only the configuration counts.
    """

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session
        lines = os.environ.get("ANTHROPIC_CUSTOM_HEADERS", "").splitlines()
        self._foreign = {line.partition(":")[0].strip().lower() for line in lines}

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        known = request.headers.items()
        silence: float | None = request.extensions["timeout"]["read"]
        answer = await self._session.request(
            request.method,
            str(request.url),
            data=request.content,
            headers={name: value for name, value in known if name not in self._foreign},
            allow_redirects=False,
            auto_decompress=False,
            timeout=self._session.timeout if silence is None else limits(silence),
        )
        body = _Body(answer)
        return httpx2.Response(answer.status, headers=answer.raw_headers, stream=body)


@dataclass(eq=False)
class _Body(httpx2.AsyncByteStream):
    """The body of an answer, as it comes; of a refusal no more than is read."""

    _answer: aiohttp.ClientResponse

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for chunk in self._answer.content.iter_any():
            yield chunk
            size += len(chunk)
            if self._answer.status >= 300 and size > MOST_REFUSAL:
                return

    async def aclose(self) -> None:
        self._answer.close()
