"""What servers of models have in common whose every byte a test decides.

They keep the requests as they came over the wire: headers, and the body as JSON.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass
class ModelServer:
    """What it answers next, and what it was asked."""

    root: str = ""
    answers: list[Answer] = field(default_factory=list)  # the last one serves from then on
    bodies: list[dict[str, Any]] = field(default_factory=list)
    headers: list[Mapping[str, str]] = field(default_factory=list)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.headers.append(request.headers)
        self.bodies.append(await request.json())
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return await answer(request)


def answers_json(body: Any, status: int = 200, **headers: str) -> Answer:
    """A server that does not stream; a header is named with _ for -."""

    async def answer(_: web.Request) -> web.StreamResponse:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return web.json_response(body, status=status, headers=named)

    return answer


def streams(pieces: Iterable[bytes], then: Answer | None = None) -> Answer:
    """A stream of events, which ends cleanly unless `then` does something else."""
    every = tuple(pieces)

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for piece in every:
            await response.write(piece)
        if then is not None:
            await then(request)
        await response.write_eof()
        return response

    return answer


async def drops(request: web.Request) -> web.StreamResponse:
    """Break the connection."""
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


def waits(event: asyncio.Event) -> Answer:
    """Say nothing until the event is set."""

    async def answer(_: web.Request) -> web.StreamResponse:
        await event.wait()
        return web.Response()

    return answer
