"""Searching memory in the page: what was found, where it stands, and why it was found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from aiohttp import web

from bot.channel.visitor import shared
from bot.clock import Clock, moment, to_the_minute
from bot.commands.memory import MAX_WORDS, mode_of, whys
from bot.dashboard import pages
from bot.dashboard.memory.browsing import FILES, link_to
from bot.dashboard.visits import Visits
from bot.i18n import text
from bot.identity import Conversation
from bot.memory import layout, markdown
from bot.memory.claims import FADED
from bot.memory.lookup import Lookup, is_note
from bot.memory.search import Hit

SEARCH = f"{FILES}/search"


@dataclass(frozen=True, slots=True)
class Found:
    """A passage as the page shows it; `link` is empty for what was said."""

    where: str
    link: str
    words: Sequence[str]
    why: str


class MemorySearching:
    """Searches what the visitor's view permits."""

    def __init__(self, visits: Visits, lookup: Lookup, clock: Clock) -> None:
        self._visits = visits
        self._lookup = lookup
        self._clock = clock

    def routes(self) -> list[web.RouteDef]:
        """Where it is."""
        return shared([web.get(SEARCH, self._search)])

    async def _search(self, request: web.Request) -> web.Response:
        who, language = self._visits.of(request), pages.language(request)
        query = " ".join(request.query.get("q", "").split())
        if len(query) > MAX_WORDS:
            return pages.refuse_status(request, 400)
        hits: Sequence[Hit] = ()
        mode = ""
        if query and who.view.space:
            found = await self._lookup.find(who.view, query, moment(self._clock(), who.zone).date())
            hits, mode = found.hits, mode_of(language, found)
        return pages.page(
            request,
            "memory_search.html",
            query=query,
            most=MAX_WORDS,
            mode=mode,
            found=[_shown(hit, who, language) for hit in hits],
        )


def _shown(hit: Hit, who: Conversation, language: str) -> Found:
    words = markdown.readable(hit.snippet).strip().splitlines()
    why = whys(language, hit.why)
    if hit.strength < FADED:
        why = f"{why} · {text(language, 'memory.aged.faded')}"
    if not is_note(hit):
        said = to_the_minute(hit.at, who.zone)
        return Found(text(language, "memory.said", when=said), "", words, why)
    path = layout.shown(hit.space, hit.path)
    lines = f"{hit.start_line}-{hit.end_line}" if hit.end_line > hit.start_line else hit.start_line
    return Found(f"{path}:{lines}", link_to(path, hit.start_line), words, why)
