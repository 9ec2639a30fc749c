"""What programs read: `/healthz`, `/readyz`, `/metrics`, and the owner's memory."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal

import structlog
from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from bot.memory import layout
from bot.memory.memory import OWNER_VIEW, Memory

log = structlog.stdlib.get_logger(__name__)

CheckState = Literal["ok", "degraded", "down"]

MAX_QUERY = 2_000  # characters
MAX_RESULTS = 50
DEFAULT_SPACE = "main"
READINESS_TIMEOUT = 5.0  # seconds a readiness provider may take before it counts as down


@dataclass(frozen=True, slots=True)
class Check:
    """How one part is doing; `detail` is a plain sentence without secrets."""

    name: str
    state: CheckState
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Readiness:
    """How all parts are doing at one moment."""

    checks: tuple[Check, ...] = ()

    @property
    def state(self) -> CheckState:
        """The worst state of any part; without parts, ok."""
        states = {check.state for check in self.checks}
        if "down" in states:
            return "down"
        return "degraded" if "degraded" in states else "ok"

    @property
    def ready(self) -> bool:
        """Whether the bot can serve people: a degraded part does not stop it, one down does."""
        return self.state != "down"


ReadinessProvider = Callable[[], Awaitable[Readiness]]


class HealthPages:
    """How things go, as far as the outside may know it."""

    def __init__(self, readiness: ReadinessProvider, registry: CollectorRegistry) -> None:
        self._readiness = readiness
        self._registry = registry

    def routes(self) -> list[web.RouteDef]:
        """Where they are."""
        return [
            web.get("/healthz", self._alive),
            web.get("/readyz", self._ready),
            web.get("/metrics", self._metrics),
        ]

    async def _alive(self, _request: web.Request) -> web.Response:
        return web.json_response({"status": "alive"}, headers={"Cache-Control": "no-store"})

    async def _ready(self, _request: web.Request) -> web.Response:
        readiness = await self._ask()
        return web.json_response(
            {
                "ready": readiness.ready,
                "state": readiness.state,
                "checks": {
                    check.name: {"state": check.state, "detail": check.detail}
                    for check in readiness.checks
                },
            },
            status=200 if readiness.ready else 503,
            headers={"Cache-Control": "no-store"},
        )

    async def _ask(self) -> Readiness:
        try:
            async with asyncio.timeout(READINESS_TIMEOUT):
                return await self._readiness()
        except TimeoutError:
            detail = f"The checks did not answer within {READINESS_TIMEOUT:g} seconds."
        except Exception:
            log.exception("dashboard.readiness.failed")
            detail = "The checks failed; the log has the reason."
        return Readiness((Check("readiness", "down", detail),))

    async def _metrics(self, _request: web.Request) -> web.Response:
        return web.Response(
            body=generate_latest(self._registry),
            headers={"Content-Type": CONTENT_TYPE_LATEST, "Cache-Control": "no-store"},
        )


class MemoryPages:
    """`/api/memory/search`: the owner's memory, for other programs of the owner's."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    def routes(self) -> list[web.RouteDef]:
        """Where it is."""
        return [web.get("/api/memory/search", self._search)]

    async def _search(self, request: web.Request) -> web.Response:
        query = request.query.get("q", "").strip()
        if not query or len(query) > MAX_QUERY:
            return _refused(400, f"q must be 1 to {MAX_QUERY} characters")
        wanted = request.query.get("k")
        if wanted is not None and not (
            wanted.isascii() and wanted.isdigit() and 1 <= int(wanted) <= MAX_RESULTS
        ):
            return _refused(400, f"k must be a whole number from 1 to {MAX_RESULTS}")
        most = int(wanted) if wanted is not None else None
        space = request.query.get("space", "") or DEFAULT_SPACE
        found = await self._memory.search_space(OWNER_VIEW, space, query, most)
        if found is None:
            return _refused(404, "there is no such space here")
        results = [
            {
                "path": layout.shown(hit.space, hit.path),
                "start_line": hit.start_line,
                "end_line": hit.end_line,
                "score": hit.score,
                "snippet": hit.snippet,
                "source": hit.source,
            }
            for hit in found.hits[:most]
        ]
        return web.json_response(
            {"results": results, "mode": found.mode}, headers={"Cache-Control": "no-store"}
        )


def _refused(status: int, why: str) -> web.Response:
    return web.json_response({"error": why}, status=status)
