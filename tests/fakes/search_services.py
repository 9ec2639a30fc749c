"""SearXNG, Brave Search and Tavily as their documents describe them, on a port of this machine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from tests.fakes import sites

KEY = "the-right-key-0123456789"
PAGES = (
    ("Rust", "https://rust.example/book", "A language for <b>systems</b> &amp; more."),
    ("Python", "https://python.example/docs", "Another\nlanguage."),
)

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass
class SearchServices:
    """What they found, and what they were asked; `answer` takes the place of their own answers."""

    base_url: str = ""
    pages: tuple[tuple[Any, Any, Any], ...] = PAGES
    unresponsive: list[list[str]] = field(default_factory=list)
    answer: Answer | None = None
    asked: list[dict[str, Any]] = field(default_factory=list)

    async def searxng(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(dict(request.query))
        if self.answer is not None:
            return await self.answer(request)
        if request.query.get("format") != "json":
            return web.Response(text="<html>", content_type="text/html")
        rows = [
            {"url": url, "title": title, "content": text, "engine": "mojeek", "publishedDate": None}
            for title, url, text in self.pages
        ]
        found = {"query": request.query["q"], "number_of_results": 0, "results": rows}
        return web.json_response(found | {"unresponsive_engines": self.unresponsive})

    async def brave(self, request: web.Request) -> web.StreamResponse:
        self.asked.append({**request.query, "key": request.headers.get("X-Subscription-Token")})
        if self.answer is not None:
            return await self.answer(request)
        if request.headers.get("X-Subscription-Token") != KEY:
            error = {"code": "SUBSCRIPTION_TOKEN_INVALID", "status": 422, "detail": "invalid"}
            return web.json_response({"type": "ErrorResponse", "error": error}, status=422)
        rows = [
            {"type": "search_result", "title": title, "url": url, "description": text}
            for title, url, text in self.pages[: int(request.query["count"])]
        ]
        found = {"web": {"type": "search", "results": rows}} if rows else {}
        query = {"original": request.query["q"], "more_results_available": False}
        return web.json_response({"type": "search", "query": query, **found})

    async def tavily(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.asked.append({**body, "key": request.headers.get("Authorization")})
        if self.answer is not None:
            return await self.answer(request)
        if request.headers.get("Authorization") != f"Bearer {KEY}":
            detail = {"error": "Unauthorized: missing or invalid API key."}
            return web.json_response({"detail": detail}, status=401)
        rows = [
            {"title": title, "url": url, "content": text, "score": 0.9, "raw_content": None}
            for title, url, text in self.pages[: body["max_results"]]
        ]
        return web.json_response({"query": body["query"], "answer": None, "results": rows})


def status(code: int, text: str = "") -> Answer:
    async def answer(_request: web.Request) -> web.StreamResponse:
        return web.Response(status=code, text=text)

    return answer


def body(data: bytes) -> Answer:
    async def answer(_request: web.Request) -> web.StreamResponse:
        return web.Response(body=data, content_type="application/json")

    return answer


async def redirect(_request: web.Request) -> web.StreamResponse:
    """Somewhere else."""
    raise web.HTTPFound("http://other.example/")


async def never(_request: web.Request) -> web.StreamResponse:
    """No answer at all, until the caller has gone."""
    await asyncio.Event().wait()
    raise AssertionError


@asynccontextmanager
async def running() -> AsyncGenerator[SearchServices]:
    """Start them on a free port of this machine."""
    services = SearchServices()
    app = web.Application()
    app.router.add_get("/searxng/search", services.searxng)
    app.router.add_get("/brave/web/search", services.brave)
    app.router.add_post("/tavily/search", services.tavily)
    async with sites.serving(app, handler_cancellation=True) as services.base_url:
        yield services
