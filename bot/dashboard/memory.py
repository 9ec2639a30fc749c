"""`/api/memory/search`: the owner's memory, for other programs of the owner's."""

from __future__ import annotations

from typing import Protocol

from aiohttp import web

from bot.memory import layout
from bot.memory.search import Findings

MAX_QUERY = 2_000  # characters
MAX_RESULTS = 50
DEFAULT_SPACE = "main"


class MemorySearch(Protocol):
    """A search within what the owner may see."""

    async def search(self, space: str, query: str, limit: int | None) -> Findings | None:
        """Search one space; None for one the owner may not see, or that is not there."""
        ...


class MemoryPages:
    """The memory's part of the HTTP interface, behind the dashboard's guard."""

    def __init__(self, memory: MemorySearch) -> None:
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
        found = await self._memory.search(
            request.query.get("space", "") or DEFAULT_SPACE,
            query,
            int(wanted) if wanted is not None else None,
        )
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
            for hit in found.hits
        ]
        return web.json_response(
            {"results": results, "mode": found.mode}, headers={"Cache-Control": "no-store"}
        )


def _refused(status: int, why: str) -> web.Response:
    return web.json_response({"error": why}, status=status)
