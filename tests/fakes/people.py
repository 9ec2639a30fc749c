"""A person at the page, and one at a pipe."""

from __future__ import annotations

import io
import json
import queue
from collections.abc import Callable
from typing import Any

import aiohttp


class Tab:
    """A page that is open, as far as the wire goes."""

    def __init__(self) -> None:
        self.frames: list[dict[str, Any]] = []
        self._ws: aiohttp.ClientWebSocketResponse | None = None

    async def open(self, client: aiohttp.ClientSession, url: str) -> None:
        self._ws = await client.ws_connect(f"{url}chat/ws", headers={"Origin": url.rstrip("/")})
        await self.send(type="hello", version=1)
        await self.until(lambda: self.frames[-1:] and self.frames[-1]["type"] == "history")

    async def close(self) -> None:
        assert self._ws is not None
        await self._ws.close()

    async def send(self, **frame: object) -> None:
        assert self._ws is not None
        await self._ws.send_str(json.dumps(frame))

    async def until(self, ready_: Callable[[], object]) -> None:
        assert self._ws is not None
        while not ready_():
            self.frames.append(json.loads(await self._ws.receive_str()))

    def said(self) -> list[dict[str, Any]]:
        return [f for f in self.frames if f["type"] == "message" and f["role"] == "bot"]


class Keyboard(io.StringIO):
    """A pipe that somebody writes into later."""

    def __init__(self) -> None:
        super().__init__()
        # A thread's queue: who reads is the console's own thread, which outlives a test's loop.
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()

    def type(self, line: str) -> None:
        self._lines.put(line)

    def readline(self, size: int = -1) -> str:
        return self._lines.get()
