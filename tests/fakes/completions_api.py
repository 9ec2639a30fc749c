"""A server of chat completions whose every byte a test decides, for what no mock can be made to do.

`pages` are what it answers beside: by path, a value for JSON, or a function that makes one of the
request's body.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from tests.fakes import model_server, sites
from tests.fakes.model_server import Answer, ModelServer, answers_json, drops, waits

__all__ = ["answers_json", "drops", "waits"]

DONE = b"data: [DONE]\n\n"


@dataclass
class CompletionsApi(ModelServer):
    """Its pages, and which of them it was asked for, beside."""

    pages: dict[str, Any] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    @property
    def base_url(self) -> str:
        return f"{self.root}/v1"

    async def page(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(request.path)
        found = self.pages.get(request.path)
        if callable(found):
            found = found(await request.json() if request.can_read_body else {})
        if isinstance(found, web.Response):
            return found
        if found is None:
            return web.json_response({"error": {"message": "no such page"}}, status=404)
        return web.json_response(found)


@asynccontextmanager
async def running(*answers: Answer) -> AsyncGenerator[CompletionsApi]:
    """Start one on a free port of this machine."""
    api = CompletionsApi(answers=list(answers))
    app = web.Application()
    app.router.add_post("/v1/chat/completions", api.answer)
    app.router.add_route("*", "/{path:.*}", api.page)
    async with sites.serving(app) as api.root:
        yield api


def models(*entries: Mapping[str, Any] | str) -> dict[str, Any]:
    """A list of models."""
    data = [{"id": each, "object": "model"} if isinstance(each, str) else each for each in entries]
    return {"object": "list", "data": data}


# --- answers -------------------------------------------------------------------------------------


def fails(status: int, code: str | None = None, message: str = "", **headers: str) -> Answer:
    """An error as OpenAI sends it."""
    body = {"error": {"message": message, "type": None, "param": None, "code": code}}
    return answers_json(body, status, **headers)


def streams(*events: Mapping[str, Any] | bytes, then: Answer | None = None) -> Answer:
    """A stream of chunks (or raw bytes); see `model_server.streams`."""
    pieces = (event if isinstance(event, bytes) else sse(event) for event in events)
    return model_server.streams(pieces, then)


def sse(event: Mapping[str, Any]) -> bytes:
    return f"data: {json.dumps(event)}\n\n".encode()


def chunk(finish: str | None = None, **delta: Any) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {"id": "c1", "object": "chat.completion.chunk", "choices": [choice]}


def usage(sent: int, written: int, **details: int) -> dict[str, Any]:
    told: dict[str, Any] = {"prompt_tokens": sent, "completion_tokens": written}
    if details:
        told["prompt_tokens_details"] = details
    return {"id": "c1", "choices": [], "usage": told}


def call(index: int | None, name: str | None, arguments: str | None, id_: str | None = None) -> Any:
    made: dict[str, Any] = {"function": {}}
    for place, key, value in (
        (made, "index", index),
        (made, "id", id_),
        (made["function"], "name", name),
        (made["function"], "arguments", arguments),
    ):
        if value is not None:
            place[key] = value
    return made


def says(*pieces: str) -> Answer:
    """A whole reply of words."""
    said = [chunk(content=piece) for piece in pieces]
    return streams(*said, chunk("stop"), usage(3, 2), DONE)


Page = Callable[[Mapping[str, Any]], Any]


def ollama(trained: int, *, default: int = 4096, loaded: bool = False) -> dict[str, Any]:
    """The pages of an Ollama that has qwen3, and loads and derives models."""
    made: dict[str, int] = {}
    running: dict[str, int] = {"qwen3:latest": default} if loaded else {}

    def named(body: Mapping[str, Any]) -> str:
        name = str(body["model"])
        return name if ":" in name else f"{name}:latest"

    def show(body: Mapping[str, Any]) -> Any:
        name = named(body)
        if name not in {"qwen3:latest", *made}:
            return web.json_response({"error": f"model {name!r} not found"}, status=404)
        parameters = f"stop    <|im_end|>\nnum_ctx    {made[name]}" if name in made else ""
        info = {"general.architecture": "qwen3", "qwen3.context_length": trained}
        return {"parameters": parameters, "model_info": info, "details": {"family": "qwen3"}}

    def generate(body: Mapping[str, Any]) -> Any:
        running[named(body)] = made.get(named(body), default)
        return {"done": True}

    def create(body: Mapping[str, Any]) -> Any:
        assert body["from"] in {"qwen3", "qwen3:latest"}
        made[str(body["model"])] = body["parameters"]["num_ctx"]
        return {"status": "success"}

    def ps(_body: Mapping[str, Any]) -> Any:
        return {"models": [{"name": n, "context_length": size} for n, size in running.items()]}

    return {
        "/v1/models": lambda _body: models("qwen3:latest", *made),
        "/api/show": show,
        "/api/generate": generate,
        "/api/create": create,
        "/api/ps": ps,
    }
