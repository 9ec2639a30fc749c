"""Forgetting in the page: what would go is shown, a button does it, and what went is told.

The words are in no address, so neither a log of requests nor a browser's history keeps them.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlencode

import structlog
from aiohttp import web

from bot.channel.visitor import shared
from bot.clock import Clock, moment
from bot.commands.memory import MAX_WORDS
from bot.dashboard import pages
from bot.dashboard.memory.browsing import FILES, link_to, number_of
from bot.dashboard.memory.forms import form_of
from bot.dashboard.pages import Visits
from bot.errors import NotVisible, ToolError
from bot.i18n import text
from bot.memory import markdown
from bot.memory.forgetter import Forgetter, Forgotten
from bot.memory.memory import Memory
from bot.unicode import one_line
from bot.unit_of_work import Committer, UnitOfWork

FORGET, DONE = f"{FILES}/forget", f"{FILES}/forgotten"
MOST_BODY = 64 * 1024  # bytes
MOST_SHOWN = 50  # entries of a preview
MOST_QUOTE = 300  # characters of an entry

# What is told afterwards, in this order: how many of each there were.
COUNTS = (
    *("entries", "files", "versions", "messages", "beside", "prompts", "results", "chunks"),
    *("titles", "planned", "unsent"),
)

log = structlog.stdlib.get_logger(__name__)


class MemoryForgetting:
    """The visitor's own memory; what stands in shared/ stays."""

    def __init__(
        self, visits: Visits, forgetter: Forgetter, committer: Committer, clock: Clock
    ) -> None:
        self._visits = visits
        self._forgetter = forgetter
        self._committer = committer
        self._clock = clock

    def routes(self) -> list[web.RouteDef]:
        """Where they are; each visitor forgets what is theirs."""
        return shared(
            [
                web.get(FORGET, self._form),
                web.post(FORGET, self._ask),
                web.post(DONE, self._forget),
                web.get(DONE, self._done),
            ]
        )

    async def _form(self, request: web.Request) -> web.Response:
        return _drawn(request)

    async def _ask(self, request: web.Request) -> web.Response:
        """Show what would go; nothing is changed."""
        who, words = self._visits.of(request), await _words(request)
        if not words or not who.view.space:
            return _drawn(request, problem="memory_page.forget_what")
        found = await self._forgetter.preview(who.view, words)
        if found.is_empty:
            return _drawn(request, words, problem="memory_page.forget_nowhere")
        said = sum(mention.says for mention in found.held.mentions)
        beside = len(found.held.mentions) - said
        told = {
            "messages": said,
            "beside": beside,
            "results": len(found.held.results),
            "versions": found.versions,
            "titles": len(found.held.titles),
            "planned": found.held.planned,
        }
        return _drawn(
            request,
            words,
            spots=[(spot.path, spot.line, _quote(spot.text)) for spot in found.spots[:MOST_SHOWN]],
            more=max(0, len(found.spots) - MOST_SHOWN),
            elsewhere=_in_words(request, "would", told),
        )

    async def _forget(self, request: web.Request) -> web.Response:
        who, words = self._visits.of(request), await _words(request)
        if not words or not who.view.space:
            return pages.refuse_status(request, 400)
        now = self._clock()
        try:
            async with self._forgetter.forgetting(who.view, words, now) as complete:

                def work(unit: UnitOfWork) -> tuple[Forgotten, int]:
                    done = complete(unit.tx)
                    return done, unit.forget(done.sessions, done.keys, words)

                commit = await self._committer.commit(now, work, until_stored=True)
        except ToolError as error:
            return _drawn(request, words, problem="memory_page.refused", reason=str(error))
        log.info("memory.forgotten", by="page")
        return pages.see(f"{DONE}?{_counted(*commit.result)}")

    async def _done(self, request: web.Request) -> web.Response:
        told = {name: number_of(request, name, 0) for name in COUNTS}
        later = "later" in request.query
        return pages.page(
            request,
            "memory_forgotten.html",
            told=_in_words(request, "did", told),
            later=later,
        )


async def _words(request: web.Request) -> str:
    form = await form_of(request, MOST_BODY)
    words = " ".join((form or {}).get("words", "").split())
    return words if len(words) <= MAX_WORDS else ""


def _drawn(
    request: web.Request, words: str = "", *, problem: str = "", reason: str = "", **values: object
) -> web.Response:
    shown = {"spots": (), "more": 0, "elsewhere": (), **values}
    return pages.page(
        request,
        "memory_forget.html",
        400 if problem else 200,
        words=words,
        problem=problem,
        reason=reason,
        asks=bool(values),
        most=MAX_WORDS,
        link=link_to,
        **shown,
    )


def _counted(done: Forgotten, unsent: int) -> str:
    gone, cleared = done.gone, done.cleared
    said = sum(mention.says for mention in gone.mentions)
    counts = {
        "entries": sum(count for _, count in cleared.files),
        "files": len(cleared.files),
        "versions": done.versions,
        "messages": said,
        "beside": len(gone.mentions) - said,
        "prompts": len(gone.prompts),
        "results": gone.results,
        "chunks": cleared.chunks,
        "titles": gone.titles,
        "planned": gone.planned,
        "unsent": unsent,
    }
    return urlencode({**counts, **({"later": 1} if cleared.is_indexed else {})})


def _in_words(request: web.Request, how: str, told: Mapping[str, int]) -> list[str]:
    language, files = pages.language(request), told.get("files", 0)
    keys = [(f"{how}.{name}", count) for name, count in told.items() if count and name != "files"]
    return [text(language, f"memory_page.{key}", count=count, files=files) for key, count in keys]


def _quote(words: str) -> str:
    return one_line(markdown.plain(words), MOST_QUOTE)


CONFIRM, WRONG = f"{FILES}/confirm", f"{FILES}/wrong"
MOST_CONFIRMATION = 4_096  # bytes


class MemoryConfirming:
    """The visitor's own entries; what is shared with everyone has no button."""

    def __init__(self, visits: Visits, memory: Memory, clock: Clock) -> None:
        self._visits = visits
        self._memory = memory
        self._clock = clock

    def routes(self) -> list[web.RouteDef]:
        """Where it is."""
        return shared([web.post(CONFIRM, self._judge), web.post(WRONG, self._judge)])

    async def _judge(self, request: web.Request) -> web.Response:
        """Note that an entry is still true, or strike it out; it is told by its words."""
        who, form = self._visits.of(request), await form_of(request, MOST_CONFIRMATION)
        if form is None:
            return pages.refuse_status(request, 413)
        path, day = form.get("path", ""), moment(self._clock(), who.zone).date()
        try:
            async with self._memory.notes.watching(who.view) as watch:
                place, claim = None, form.get("claim", "")
                if request.path == WRONG:
                    is_struck = await self._memory.let_go(who.view, path, claim, day, watch=watch)
                else:
                    is_struck = False
                    place = await self._memory.notes.confirm(
                        who.view, path, claim, day, watch=watch
                    )
        except NotVisible:
            return pages.refuse_status(request, 404)
        except ToolError as error:
            return pages.page(request, "memory_unreadable.html", 409, path=path, why=str(error))
        if request.path == WRONG:
            log.info("memory.struck", by="page")
            return pages.see(f"{link_to(path)}&confirmed={'struck' if is_struck else 'not-struck'}")
        if place is None:
            return pages.see(f"{link_to(path)}&confirmed=no")
        log.info("memory.confirmed", by="page")
        return pages.see(link_to(path, place.line).replace("#", "&confirmed=yes#", 1))
