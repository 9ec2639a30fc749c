"""A server with /v1/embeddings whose every answer a test decides."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from bot.testing import HashEmbedder
from tests.fakes import sites

Answer = Callable[["EmbeddingsApi", web.Request], Awaitable[web.StreamResponse]]


@dataclass
class EmbeddingsApi:
    """What it answers next, and what it was asked.

    Without `answers` it makes vectors, of the length of `embedder.dims`; the last of `answers`
    serves from then on.
    """

    base_url: str = ""
    answers: list[Answer] = field(default_factory=list)
    embedder: HashEmbedder = field(default_factory=HashEmbedder)
    bodies: list[dict[str, Any]] = field(default_factory=list)
    headers: list[Mapping[str, str]] = field(default_factory=list)
    asked: asyncio.Event = field(default_factory=asyncio.Event)

    async def embeddings(self, request: web.Request) -> web.StreamResponse:
        self.headers.append(request.headers)
        self.bodies.append(await request.json())
        self.asked.set()
        if not self.answers:
            return await vectors(self, request)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return await answer(self, request)

    @property
    def inputs(self) -> list[list[str]]:
        """The texts of each request."""
        return [body["input"] for body in self.bodies]


async def vectors(api: EmbeddingsApi, _request: web.Request) -> web.StreamResponse:
    """What such a server should answer."""
    return web.json_response({"object": "list", "data": await items(api)})


async def backwards(api: EmbeddingsApi, _request: web.Request) -> web.StreamResponse:
    """The same in another order: `index` says which is which."""
    return web.json_response({"data": (await items(api))[::-1]})


async def items(api: EmbeddingsApi) -> list[dict[str, Any]]:
    rows = await api.embedder.embed(api.inputs[-1])
    return [{"index": at, "embedding": (row * 7).tolist()} for at, row in enumerate(rows)]


async def never(_api: EmbeddingsApi, _request: web.Request) -> web.StreamResponse:
    """No answer at all, until the caller has gone."""
    await asyncio.Event().wait()
    raise AssertionError


def status(code: int, text: str = "") -> Answer:
    async def answer(_api: EmbeddingsApi, _request: web.Request) -> web.StreamResponse:
        return web.Response(status=code, text=text)

    return answer


def body(text: str | bytes) -> Answer:
    async def answer(_api: EmbeddingsApi, _request: web.Request) -> web.StreamResponse:
        data = text.encode() if isinstance(text, str) else text
        return web.Response(body=data, content_type="application/json")

    return answer


@asynccontextmanager
async def running(*answers: Answer) -> AsyncGenerator[EmbeddingsApi]:
    """Start one on a free port of this machine."""
    api = EmbeddingsApi(answers=list(answers))
    app = web.Application(client_max_size=64_000_000)
    app.router.add_post("/v1/embeddings", api.embeddings)
    async with sites.serving(app, handler_cancellation=True) as root:
        api.base_url = f"{root}/v1"
        yield api
