"""The fake Telegram for several nodes with one token: it knows which of them calls."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass

from aiohttp import web

from tests.fakes.telegram import FakeTelegram

_WHOSE = re.compile(r"/node(\d+)(/.*)")


@dataclass(frozen=True, slots=True)
class Came:
    """A call of a node."""

    at: float  # time.monotonic()
    node: int
    method: str


class NodesTelegram(FakeTelegram):
    """Notes which node polls and which one sends, by the address each was given."""

    def __init__(self) -> None:
        super().__init__(record_calls=False)
        self.came: list[Came] = []

    def url_of(self, node: int) -> str:
        """Where a node is to find it."""
        return f"{self.url}/node{node}"

    def polls(self, since: float = 0.0) -> list[Came]:
        """Polls from a moment on."""
        return [call for call in self.came if call.method == "getupdates" and call.at >= since]

    @property
    def owner(self) -> int:
        """The node that polled last; 0 before the first poll."""
        return next((call.node for call in reversed(self.came) if call.method == "getupdates"), 0)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        found = _WHOSE.fullmatch(request.path)
        if found is None:
            return await super()._handle(request)
        method = request.path.rpartition("/")[2].lower()
        if method in {"getupdates", "sendmessage"}:
            self.came.append(Came(time.monotonic(), int(found[1]), method))
        return await super()._handle(request.clone(rel_url=found[2]))
