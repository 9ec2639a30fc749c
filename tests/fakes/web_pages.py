"""The web chat on a real server, and pages without a browser."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
from prometheus_client import CollectorRegistry

from adapters.web.channel import Web
from bot.channel.http import Visitor
from bot.config import DashboardConfig
from bot.dashboard import DashboardServer, Readiness
from bot.dashboard.guard import COOKIE
from bot.testing import RecordingEngine
from tests.fakes.browsers import BrowsersInMemory


async def ready() -> Readiness:
    return Readiness()


class Chat:
    """The web channel on a real server, and pages that talk with it."""

    def __init__(self, engine: RecordingEngine | None = None) -> None:
        self.web = Web()
        self.engine = engine or RecordingEngine()
        self.url = ""

    async def guest(self, cookie: str) -> Visitor | None:
        """Whoever's cookie says "let in as NAME" is that visitor."""
        known, _, name = cookie.partition("let-in-as-")
        return Visitor(name) if name and not known else None

    @asynccontextmanager
    async def served(self) -> AsyncIterator[Chat]:
        """Serve it, to the end of an `async with`."""
        server = DashboardServer(
            DashboardConfig(port=0),
            readiness=ready,
            registry=CollectorRegistry(),
            channels=[self.web],
            browsers=BrowsersInMemory(self.guest),
        )
        await self.web.start(self.engine)
        self.url = (await server.start()).url
        yield self
        await self.web.stop()
        await server.stop()

    @asynccontextmanager
    async def page(
        self, *, hello: bool = True, person: str = "", **fields: object
    ) -> AsyncIterator[Page]:
        """A page: the owner's, or that of a person who was let in."""
        cookies = {COOKIE: f"let-in-as-{person}"} if person else {}
        jar = aiohttp.CookieJar(unsafe=True)  # which also keeps those of an address
        async with (
            aiohttp.ClientSession(cookies=cookies, cookie_jar=jar) as client,
            client.ws_connect(
                f"{self.url}chat/ws",
                headers={"Origin": self.url.rstrip("/")},
                max_msg_size=0,
            ) as ws,
        ):
            page = Page(ws)
            if hello:
                await page.say(type="hello", version=1, **fields)
                await page.until("history")
            yield page


class Page:
    def __init__(self, ws: aiohttp.ClientWebSocketResponse) -> None:
        self.ws = ws
        self.frames: list[dict[str, Any]] = []

    async def say(self, **frame: object) -> None:
        await self.ws.send_str(json.dumps(frame))

    async def until(self, kind: str, **fields: object) -> dict[str, Any]:
        """The next frame of a kind, with these fields."""
        while True:
            frame = json.loads(await self.ws.receive_str())
            self.frames.append(frame)
            if frame["type"] == kind and fields.items() <= frame.items():
                return frame

    async def closed(self) -> int | None:
        async for message in self.ws:
            self.frames.append(json.loads(message.data))
        return self.ws.close_code
