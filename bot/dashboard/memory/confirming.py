"""The button that says of an entry that it is still true."""

from __future__ import annotations

import structlog
from aiohttp import web

from bot.channel.visitor import shared
from bot.clock import Clock, moment
from bot.dashboard import pages
from bot.dashboard.memory.browsing import FILES, link_to
from bot.dashboard.memory.forms import form_of
from bot.dashboard.visits import Visits
from bot.errors import NotVisible, ToolError
from bot.memory.memory import Memory

CONFIRM = f"{FILES}/confirm"
MOST_BODY = 4_096  # bytes

log = structlog.stdlib.get_logger(__name__)


class MemoryConfirming:
    """The visitor's own entries; what is shared with everyone has no button."""

    def __init__(self, visits: Visits, memory: Memory, clock: Clock) -> None:
        self._visits = visits
        self._memory = memory
        self._clock = clock

    def routes(self) -> list[web.RouteDef]:
        """Where it is."""
        return shared([web.post(CONFIRM, self._confirm)])

    async def _confirm(self, request: web.Request) -> web.Response:
        """Note that an entry is still true; it is told by its words, wherever it stands by now."""
        who, form = self._visits.of(request), await form_of(request, MOST_BODY)
        if form is None:
            return pages.refuse_status(request, 413)
        path, day = form.get("path", ""), moment(self._clock(), who.zone).date()
        try:
            async with self._memory.notes.watching(who.view) as watch:
                place = await self._memory.notes.confirm(
                    who.view, path, form.get("claim", ""), day, watch=watch
                )
        except NotVisible:
            return pages.refuse_status(request, 404)
        except ToolError as error:
            return pages.page(request, "memory_unreadable.html", 409, path=path, why=str(error))
        if place is None:
            return pages.see(f"{link_to(path)}&confirmed=no")
        log.info("memory.confirmed", by="page")
        return pages.see(link_to(path, place.line).replace("#", "&confirmed=yes#", 1))
