"""A Messages API whose every byte a test decides, for what aimock cannot be made to do.

It keeps the requests as they came over the wire: headers, and the body as JSON.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass
class MessagesApi:
    """What it answers next, what it knows of models, and what it was asked."""

    base_url: str = ""
    answers: list[Answer] = field(default_factory=list)  # the last one serves from then on
    models: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    models_status: int = 200
    models_gate: asyncio.Event | None = None
    bodies: list[dict[str, Any]] = field(default_factory=list)
    headers: list[Mapping[str, str]] = field(default_factory=list)
    model_requests: list[str] = field(default_factory=list)

    async def messages(self, request: web.Request) -> web.StreamResponse:
        self.headers.append(request.headers)
        self.bodies.append(await request.json())
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return await answer(request)

    async def list_models(self, request: web.Request) -> web.StreamResponse:
        return await self._about_models(request, {"data": list(self.models.values())})

    async def get_model(self, request: web.Request) -> web.StreamResponse:
        return await self._about_models(request, self.models.get(request.match_info["name"]))

    async def _about_models(self, request: web.Request, body: Any) -> web.StreamResponse:
        self.model_requests.append(request.path)
        if self.models_gate is not None:
            await self.models_gate.wait()
        if self.models_status != 200 or body is None:
            return web.Response(status=404 if body is None else self.models_status)
        return web.json_response(body)


@asynccontextmanager
async def running(*answers: Answer) -> AsyncGenerator[MessagesApi]:
    """Start one on a free port of this machine."""
    api = MessagesApi(answers=list(answers))
    app = web.Application()
    app.router.add_post("/v1/messages", api.messages)
    app.router.add_get("/v1/models", api.list_models)
    app.router.add_get("/v1/models/{name}", api.get_model)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0][:2]
        api.base_url = f"http://{host}:{port}"
        yield api
    finally:
        await runner.cleanup()


def model_info(name: str, max_input: int | None, max_output: int | None) -> dict[str, Any]:
    return {
        "type": "model",
        "id": name,
        "display_name": name,
        "created_at": "2026-01-01T00:00:00Z",
        "lifecycle": "active",
        "max_input_tokens": max_input,
        "max_tokens": max_output,
    }


# --- answers -------------------------------------------------------------------------------------


def fails(status: int, kind: str = "", message: str = "", **headers: str) -> Answer:
    """An error as the API sends it."""

    async def answer(_: web.Request) -> web.StreamResponse:
        body = {"type": "error", "error": {"type": kind, "message": message}}
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return web.json_response(body, status=status, headers=named)

    return answer


def streams(*events: Mapping[str, Any] | bytes, then: Answer | None = None) -> Answer:
    """A stream of events (or raw bytes), which ends cleanly unless `then` does something else."""

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for event in events:
            await response.write(event if isinstance(event, bytes) else sse(event))
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


def sse(event: Mapping[str, Any]) -> bytes:
    return f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()


def start(**usage: int) -> dict[str, Any]:
    message: dict[str, Any] = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "content": [],
        "usage": usage,
    }
    return {"type": "message_start", "message": message}


def block(index: int, start: Mapping[str, Any], *deltas: Mapping[str, Any]) -> list[dict[str, Any]]:
    opening = {"type": "content_block_start", "index": index, "content_block": start}
    middle = [{"type": "content_block_delta", "index": index, "delta": d} for d in deltas]
    return [opening, *middle, {"type": "content_block_stop", "index": index}]


def text(index: int, *pieces: str) -> list[dict[str, Any]]:
    deltas = [{"type": "text_delta", "text": piece} for piece in pieces]
    return block(index, {"type": "text", "text": ""}, *deltas)


def end(reason: str | None = "end_turn", **usage: int) -> list[dict[str, Any]]:
    delta = {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": usage}
    return [delta, {"type": "message_stop"}]


def says(*pieces: str) -> Answer:
    """A whole reply of words."""
    return streams(start(input_tokens=1), *text(0, *pieces), *end(output_tokens=1))
