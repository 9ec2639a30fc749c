"""Forgetting in the page: what would go is shown, a button does it, and what went is told.

The words are in no address, so neither a log of requests nor a browser's history keeps them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from functools import partial
from urllib.parse import urlencode

import structlog
from aiohttp import web

from bot.dashboard.memory.browsing import FILES, Spot, link_to
from bot.dashboard.pages import Pages, Visit, route, see
from bot.errors import ToolError
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
MOST_SHOWN = 50  # entries of a preview
MOST_QUOTE = 300  # characters of an entry

# What is told afterwards, in this order: how many of each there were.
COUNTS = (
    *("entries", "files", "versions", "messages", "beside", "prompts", "results", "chunks"),
    *("titles", "planned", "queued", "unsent", "folders"),
)

log = structlog.stdlib.get_logger(__name__)


class MemoryForgetting(Pages):
    """The visitor's own memory; what stands in shared/ stays."""

    def __init__(self, forgetter: Forgetter, committer: Committer) -> None:
        self._forgetter = forgetter
        self._committer = committer

    @route("GET", FORGET, shared=True)
    async def _show(self, visit: Visit) -> web.Response:
        return _drawn(visit)

    @route("POST", FORGET, shared=True)
    async def _ask(self, visit: Visit) -> web.Response:
        """Show what would go; nothing is changed."""
        words = await _words(visit)
        if not words or not visit.view.space:
            return _drawn(visit, problem="memory_page.forget_what")
        found = await self._forgetter.preview(visit.view, words)
        if found.is_empty:
            return _drawn(visit, words, problem="memory.nowhere")
        return _drawn(
            visit,
            words,
            spots=found.spots[:MOST_SHOWN],
            quote=_quote,
            more=max(0, len(found.spots) - MOST_SHOWN),
            elsewhere=counted(visit.language, "would", would_go(found)),
        )

    @route("POST", DONE, shared=True)
    async def _forget(self, visit: Visit) -> web.Response:
        words, now = await _words(visit), visit.now
        if not words or not visit.view.space:
            raise web.HTTPBadRequest
        try:
            async with self._forgetter.forgetting(visit.view, words, now) as complete:

                def work(unit: UnitOfWork) -> tuple[Forgotten, int]:
                    done = complete(unit.tx)
                    return done, unit.forget(done.sessions, done.keys, words)

                commit = await self._committer.commit(now, work, until_stored=True)
        except ToolError as error:
            return _drawn(visit, words, problem="memory_page.refused", reason=str(error))
        log.info("memory.forgotten", by="page")
        return see(visit.own(f"{DONE}?{_counted(*commit.result)}"))

    @route("GET", DONE, shared=True)
    async def _done(self, visit: Visit) -> web.Response:
        told = counted(visit.language, "did", {name: visit.number(name) for name in COUNTS})
        return visit.page("memory_forgotten.html", told=told, later="later" in visit.request.query)


def _quote(words: str) -> str:
    return one_line(markdown.plain(words), MOST_QUOTE)


async def _words(visit: Visit) -> str:
    words = " ".join((await visit.form()).get("words", "").split())
    return words if len(words) <= MAX_WORDS else ""


def _drawn(
    visit: Visit, words: str = "", *, problem: str = "", reason: str = "", **values: object
) -> web.Response:
    shown = {"spots": (), "more": 0, "elsewhere": (), **values}
    return visit.page(
        "memory_forget.html",
        400 if problem else 200,
        words=words,
        problem=problem,
        reason=reason,
        asks=bool(values),
        most=MAX_WORDS,
        link=partial(link_to, visit),
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


class MemoryConfirming(Pages):
    """The visitor's own entries; what is shared with everyone has no button."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    @route("POST", f"{FILES}/wrong", shared=True)
    async def _strike(self, visit: Visit) -> web.Response:
        """Strike an entry out, in every note that has its words."""
        form, view, day = await visit.form(), visit.view, visit.today
        path, claim = form.get("path", ""), form.get("claim", "")
        async with self._memory.notes.watching(view) as watch:
            paths = [path, *await self._saying(view, form.get("words", ""), claim)]
            done = [
                await self._memory.let_go(view, each, claim, day, watch=watch)
                for each in dict.fromkeys(paths)
            ]
        log.info("memory.struck", by="page")
        told = "struck" if any(done) else "not_struck"
        if "order" in form:
            return see(visit.own(Spot.read(form).link(told)))
        return see(f"{link_to(visit, path)}&told={told}")

    @route("POST", f"{FILES}/confirm", shared=True)
    async def _confirm(self, visit: Visit) -> web.Response:
        """Note that an entry is still true."""
        form, view, notes = await visit.form(), visit.view, self._memory.notes
        path, claim = form.get("path", ""), form.get("claim", "")
        async with notes.watching(view) as watch:
            place = await notes.confirm(view, path, claim, visit.today, watch=watch)
        if place is None:
            return see(f"{link_to(visit, path)}&told=not_confirmed")
        log.info("memory.confirmed", by="page")
        return see(link_to(visit, path, place.line).replace("#", "&told=confirmed#", 1))

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


class MemoryNight(Pages):
    """The visitor's own memory; what stands in shared/ is left alone at night."""

    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper

    @route("GET", NIGHT, shared=True)
    async def _shown(self, visit: Visit) -> web.Response:
        view, back = visit.view, visit.number("back", -1)
        if not view.private:
            return visit.page("memory_closed.html")
        night = (await self._keeper.of(view.space)).night
        done = TakenBack(back, visit.number("left")) if back >= 0 else None
        return visit.page(
            "memory_night.html",
            day=f"{night.day:%Y-%m-%d}" if night is not None else "",
            is_undone=night is not None and night.state in {"undoing", "undone"},
            may_undo=night is not None and night.state == "done" and bool(night.edits),
            rows=await self._rows(visit, night.edits if night and night.state != "undone" else ()),
            asked=await self._rows(
                visit, night.questions if night and night.state == "done" else (), asked=True
            ),
            done=nights.undone(visit.language, done) if done is not None else "",
            at=visit.own(NIGHT),
        )

    async def _rows(
        self, visit: Visit, made: Sequence[Edit], *, asked: bool = False
    ) -> Sequence[Row]:
        spots = await self._keeper.spots(visit.view, made, asked=asked)
        return [
            Row(
                f"{spot.path}:{spot.line}",
                link_to(visit, spot.path, spot.line),
                nights.short(spot.text),
                edit.kind,
                other := nights.other_of(edit),
                link_to(visit, other) if other else "",
            )
            for edit, spot in spots[:MOST_NIGHT_SHOWN]
        ]

    @route("POST", NIGHT, shared=True)
    async def _done(self, visit: Visit) -> web.Response:
        """Undo what was done, or answer what was asked on a day."""
        form, view = await visit.form(), visit.view
        if not view.private:
            raise web.HTTPNotFound
        if (answer := form.get("answer", "")) in {"yes", "no"}:
            try:
                day = date.fromisoformat(form.get("day", ""))
                await self._keeper.answer(view, day, agrees=answer == "yes")
            except ValueError:
                raise web.HTTPBadRequest from None
            return see(visit.own(NIGHT))
        done = await self._keeper.take_back(view)
        if done is None:
            return see(visit.own(NIGHT))
        log.info("memory.night_undone", by="page")
        return see(visit.own(f"{NIGHT}?{urlencode({'back': done.back, 'left': done.left})}"))
