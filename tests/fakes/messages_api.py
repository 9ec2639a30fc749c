"""A Messages API whose every byte a test decides, for what aimock cannot be made to do."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from tests.fakes import model_server, sites
from tests.fakes.model_server import Answer, ModelServer, answers_json, drops, waits

__all__ = ["Answer", "drops", "waits"]


@dataclass
class MessagesApi(ModelServer):
    """What it knows of models, beside."""

    models: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    models_status: int = 200
    models_gate: asyncio.Event | None = None
    model_requests: list[str] = field(default_factory=list)

    @property
    def base_url(self) -> str:
        return self.root

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
    app.router.add_post("/v1/messages", api.answer)
    app.router.add_get("/v1/models", api.list_models)
    app.router.add_get("/v1/models/{name}", api.get_model)
    async with sites.serving(app) as api.root:
        yield api


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
    body = {"type": "error", "error": {"type": kind, "message": message}}
    return answers_json(body, status, **headers)


def streams(*events: Mapping[str, Any] | bytes, then: Answer | None = None) -> Answer:
    """A stream of events (or raw bytes); see `model_server.streams`."""
    pieces = (event if isinstance(event, bytes) else sse(event) for event in events)
    return model_server.streams(pieces, then)


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
