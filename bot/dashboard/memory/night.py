"""What the last night changed in the visitor's notes, and taking it back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from urllib.parse import urlencode

import structlog
from aiohttp import web

from bot.channel.visitor import shared
from bot.dashboard import pages
from bot.dashboard.memory.browsing import FILES, link_to, number_of
from bot.dashboard.memory.forms import form_of
from bot.dashboard.pages import Visits
from bot.errors import ToolError
from bot.i18n import text
from bot.identity import Conversation
from bot.memory.night.edits import Edit, Kind
from bot.memory.night.keeper import Keeper, TakenBack
from bot.upkeep import nights

NIGHT = f"{FILES}/night"
MOST_SHOWN = 100  # entries

log = structlog.stdlib.get_logger(__name__)


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
        """Where they are; each visitor sees what was done with what is theirs."""
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
            for edit, spot in spots[:MOST_SHOWN]
        ]

    async def _done(self, request: web.Request) -> web.Response:
        who, sent = self._visits.of(request), await form_of(request, 0) or {}
        if not who.view.private:
            return pages.refuse_status(request, 404)
        if (answer := sent.get("answer", "")) in {"yes", "no"}:
            return await self._answer(request, who, sent.get("day", ""), agrees=answer == "yes")
        try:
            done = await self._keeper.take_back(who.view)
        except ToolError as error:
            return _refused(request, error)
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
        except ToolError as error:
            return _refused(request, error)
        return pages.see(NIGHT)


def _refused(request: web.Request, error: ToolError) -> web.Response:
    name = text(pages.language(request), "memory_page.night.title")
    return pages.page(request, "memory_unreadable.html", 409, path=name, why=str(error))
