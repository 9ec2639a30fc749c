"""The fake Telegram as the cluster's proof uses it: it knows which node calls."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from tests.fakes.telegram import FakeTelegram


@dataclass(frozen=True, slots=True)
class Came:
    """A call of a method; `port` is that of the caller's own proxy."""

    at: float  # time.monotonic()
    port: int
    method: str


class WatchedTelegram(FakeTelegram):
    """Notes through whose proxy each poll and each send came."""

    def __init__(self) -> None:
        super().__init__(record_calls=False)
        self.came: list[Came] = []

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        method = request.path.rpartition("/")[2].lower()
        if method in {"getupdates", "sendmessage"}:
            port = int(request.headers["Host"].rpartition(":")[2])
            self.came.append(Came(time.monotonic(), port, method))
        return await super()._handle(request)

    def polls(self, since: float = 0.0) -> list[Came]:
        """Polls from a moment on."""
        return [call for call in self.came if call.method == "getupdates" and call.at >= since]

    def owner(self) -> int:
        """The port of the proxy whose node polled last; 0 before the first poll."""
        return next((call.port for call in reversed(self.came) if call.method == "getupdates"), 0)

    def push_said(self, chat: int, person: int, text: str, **extra: Any) -> None:
        """Somebody writes, in a room or alone with the bot."""
        if chat < 0:
            self.say(chat, person, text, **extra)
        else:
            self.push_text(chat, text, **extra)
