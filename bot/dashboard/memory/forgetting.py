"""Forgetting in the page: what would go is shown, a button does it, and what went is told.

The words are in no address, so neither a log of requests nor a browser's history keeps them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from urllib.parse import urlencode

import structlog
from aiohttp import web

from bot.channel.http import shared
from bot.clock import Clock, moment
from bot.dashboard import pages
from bot.dashboard.memory.browsing import FILES, Spot, link_to, number_of
from bot.dashboard.pages import Visits, form_of
from bot.errors import ToolError
from bot.identity import Conversation
from bot.identity.view import SHARED_SPACE, MemoryView
from bot.memory import claims, markdown
from bot.memory.memory import Forgetter, Forgotten, Memory
from bot.memory.night.edits import Edit, Kind
from bot.memory.night.keeper import Keeper, TakenBack
from bot.unicode import one_line
from bot.unit_of_work import Committer, UnitOfWork
from bot.upkeep import nights
from bot.views.memory import MAX_WORDS, counted, went, would_go

FORGET, DONE = f"{FILES}/forget", f"{FILES}/forgotten"
MOST_BODY = 64 * 1024  # bytes
MOST_SHOWN = 50  # entries of a preview
MOST_QUOTE = 300  # characters of an entry

# What is told afterwards, in this order: how many of each there were.
COUNTS = (
    *("entries", "files", "versions", "messages", "beside", "prompts", "results", "chunks"),
    *("titles", "planned", "queued", "unsent", "folders"),
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
        """The routes; each visitor forgets what is theirs."""
        return shared(
            [
                web.get(FORGET, _drawn),
                web.post(FORGET, self._ask),
                web.post(DONE, self._forget),
                web.get(DONE, self._done),
            ]
        )

    async def _ask(self, request: web.Request) -> web.Response:
        """Show what would go; nothing is changed."""
        who, words = self._visits.of(request), await _words(request)
        if not words or not who.view.space:
            return await _drawn(request, problem="memory_page.forget_what")
        found = await self._forgetter.preview(who.view, words)
        if found.is_empty:
            return await _drawn(request, words, problem="memory_page.forget_nowhere")
        return await _drawn(
            request,
            words,
            spots=found.spots[:MOST_SHOWN],
            quote=_quote,
            more=max(0, len(found.spots) - MOST_SHOWN),
            elsewhere=counted(pages.language(request), "would", would_go(found)),
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
            return await _drawn(request, words, problem="memory_page.refused", reason=str(error))
        log.info("memory.forgotten", by="page")
        return pages.see(f"{DONE}?{_counted(*commit.result)}")

    async def _done(self, request: web.Request) -> web.Response:
        told = {name: number_of(request, name, 0) for name in COUNTS}
        return pages.page(
            request,
            "memory_forgotten.html",
            told=counted(pages.language(request), "did", told),
            later="later" in request.query,
        )


def _quote(words: str) -> str:
    return one_line(markdown.plain(words), MOST_QUOTE)


async def _words(request: web.Request) -> str:
    form = await form_of(request, MOST_BODY)
    words = " ".join(form.get("words", "").split())
    return words if len(words) <= MAX_WORDS else ""


async def _drawn(
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
    cleared = done.cleared
    counts = {
        "entries": sum(count for _, count in cleared.files),
        "files": len(cleared.files),
        "chunks": cleared.chunks,
        **went(done, unsent),
    }
    return urlencode({**counts, **({"later": 1} if cleared.is_indexed else {})})


CONFIRM, WRONG = f"{FILES}/confirm", f"{FILES}/wrong"
MOST_CONFIRMATION = 4_096  # bytes


class MemoryConfirming:
    """The visitor's own entries; what is shared with everyone has no button."""

    def __init__(self, visits: Visits, memory: Memory, clock: Clock) -> None:
        self._visits = visits
        self._memory = memory
        self._clock = clock

    def routes(self) -> list[web.RouteDef]:
        """The route."""
        return shared([web.post(CONFIRM, self._judge), web.post(WRONG, self._judge)])

    async def _judge(self, request: web.Request) -> web.Response:
        """Note that an entry is still true, or strike it out; it is told by its words."""
        who, form = self._visits.of(request), await form_of(request, MOST_CONFIRMATION)
        path, day = form.get("path", ""), moment(self._clock(), who.zone).date()
        claim, notes = form.get("claim", ""), self._memory.notes
        spot = Spot.read(form) if "order" in form else None
        async with notes.watching(who.view) as watch:
            if request.path == WRONG:
                paths = [path, *await self._saying(who.view, form.get("words", ""), claim)]
                is_struck = False
                for each in dict.fromkeys(paths):
                    done = await self._memory.let_go(who.view, each, claim, day, watch=watch)
                    is_struck = is_struck or done
                log.info("memory.struck", by="page")
                told = "struck" if is_struck else "not-struck"
                if spot is not None:
                    return pages.see(spot.link(told))
                return pages.see(f"{link_to(path)}&confirmed={told}")
            place = await notes.confirm(who.view, path, claim, day, watch=watch)
        if place is None:
            return pages.see(f"{link_to(path)}&confirmed=no")
        log.info("memory.confirmed", by="page")
        return pages.see(link_to(path, place.line).replace("#", "&confirmed=yes#", 1))

    async def _saying(self, view: MemoryView, words: str, claim: str) -> list[str]:
        """The visitor's own notes with an entry of this `Claim.digest` that holds some words."""
        spots = await self._memory.find(view, words[:MAX_WORDS]) if words else ()
        own = [spot for spot in spots if not spot.path.startswith(f"{SHARED_SPACE}/")]
        return [
            spot.path
            for spot in own
            if any(each.digest == claim for each in claims.of_note(spot.path, spot.text))
        ]


# What the last night changed in the visitor's notes, and taking it back.

NIGHT = f"{FILES}/night"
MOST_NIGHT_SHOWN = 100  # entries


@dataclass(frozen=True, slots=True)
class Row:
    """An entry that was changed: where it stands, what it says, what was done and beside what."""

    where: str
    link: str
    words: str
    kind: Kind
    other: str
    other_link: str


class MemoryNight:
    """The visitor's own memory; what stands in shared/ is left alone at night."""

    def __init__(self, visits: Visits, keeper: Keeper) -> None:
        self._visits = visits
        self._keeper = keeper

    def routes(self) -> list[web.RouteDef]:
        """The routes; each visitor sees what was done with what is theirs."""
        return shared([web.get(NIGHT, self._shown), web.post(NIGHT, self._done)])

    async def _shown(self, request: web.Request) -> web.Response:
        who = self._visits.of(request)
        if not who.view.private:
            return pages.page(request, "memory_closed.html")
        night = (await self._keeper.of(who.view.space)).night
        back = number_of(request, "back", -1)
        left = number_of(request, "left", 0)
        done = TakenBack(back, left) if back >= 0 else None
        return pages.page(
            request,
            "memory_night.html",
            day=f"{night.day:%Y-%m-%d}" if night is not None else "",
            is_undone=night is not None and night.state in {"undoing", "undone"},
            may_undo=night is not None and night.state == "done" and bool(night.edits),
            rows=await self._rows(who, night.edits if night and night.state != "undone" else ()),
            asked=await self._rows(
                who, night.questions if night and night.state == "done" else (), asked=True
            ),
            done=nights.undone(pages.language(request), done) if done is not None else "",
            at=NIGHT,
        )

    async def _rows(
        self, who: Conversation, made: Sequence[Edit], *, asked: bool = False
    ) -> Sequence[Row]:
        spots = await self._keeper.spots(who.view, made, asked=asked)
        return [
            Row(
                f"{spot.path}:{spot.line}",
                link_to(spot.path, spot.line),
                nights.short(spot.text),
                edit.kind,
                other := nights.other_of(edit),
                link_to(other) if other else "",
            )
            for edit, spot in spots[:MOST_NIGHT_SHOWN]
        ]

    async def _done(self, request: web.Request) -> web.Response:
        who, sent = self._visits.of(request), await form_of(request, 0)
        if not who.view.private:
            return pages.refuse_status(request, 404)
        if (answer := sent.get("answer", "")) in {"yes", "no"}:
            return await self._answer(request, who, sent.get("day", ""), agrees=answer == "yes")
        done = await self._keeper.take_back(who.view)
        if done is None:
            return pages.see(NIGHT)
        log.info("memory.night_undone", by="page")
        return pages.see(f"{NIGHT}?{urlencode({'back': done.back, 'left': done.left})}")

    async def _answer(
        self, request: web.Request, who: Conversation, day: str, *, agrees: bool
    ) -> web.Response:
        """Do what was asked on a day, or leave it."""
        try:
            await self._keeper.answer(who.view, date.fromisoformat(day), agrees=agrees)
        except ValueError:
            return pages.refuse_status(request, 400)
        return pages.see(NIGHT)
