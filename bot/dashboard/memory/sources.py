"""Where memory comes from: the message of an entry."""

from __future__ import annotations

import asyncio
from datetime import date, tzinfo

from aiohttp import web

from bot.channel.visitor import shared
from bot.clock import moment
from bot.context import wording
from bot.dashboard import pages
from bot.dashboard.memory.browsing import FILES, Spot
from bot.dashboard.pages import Visits
from bot.identity.view import MemoryView
from bot.memory import entries, markdown, uses
from bot.memory.claims import Claim
from bot.memory.memory import Memory
from bot.memory.note_store import MAX_WRITE
from bot.sessions import browsing
from bot.sessions.browsing import Found
from bot.sessions.entries import number_of
from bot.storage import Database, Transaction

SOURCE = f"{FILES}/source"
LOOKED_AT = 50  # messages among which the one of an entry is looked for
MOST_QUERY = 400  # characters


class MemorySources:
    """Leads from what is remembered to the visitor's own message that it came from."""

    def __init__(self, visits: Visits, memory: Memory, database: Database) -> None:
        self._visits = visits
        self._memory = memory
        self._database = database

    def routes(self) -> list[web.RouteDef]:
        """The route; each visitor is led to what is theirs."""
        return shared([web.get(SOURCE, self._source)])

    async def _source(self, request: web.Request) -> web.Response:
        """Lead to the message that an entry came from, as far as it can be found."""
        who, query = self._visits.of(request), request.query
        path, digest = query.get("path", ""), query.get("claim", "")
        spot = Spot.read(query)
        said = await self._memory.files.text(who.view, path, MAX_WRITE)
        of_note = await asyncio.to_thread(list, entries.of_note(path, said))
        claim = next((each.claim for each in of_note if each.claim.digest == digest), None)
        if claim is None or claim.said is None:
            return pages.see(spot.link("no-source"))
        view, day, zone = who.view, claim.said, who.zone
        found = await self._database.read(lambda tx: message_of(tx, view, claim, day, zone))
        if found is None:
            return pages.see(spot.link("no-source"))
        number = number_of(found.entry.id)
        return pages.see(f"/conversations/{found.session_id}?at={number}#l{number}")


def message_of(
    tx: Transaction, view: MemoryView, claim: Claim, day: date, zone: tzinfo
) -> Found | None:
    """The message in a person's own conversations that says what a claim of a day does."""
    words = markdown.normal(markdown.untimed(claim.text))
    hits = browsing.found(tx, view, words[:MOST_QUERY], 0, LOOKED_AT)
    own = [hit for hit in hits if (hit.entry.kind, hit.entry.role) == ("message", "user")]
    on_day = [hit for hit in own if moment(hit.entry.said_or_at, zone).date() == day]
    says = (hit for hit in (*on_day, *own) if words in markdown.normal(hit.entry.text))
    like = (hit for hit in on_day if uses.says(wording.words(hit.entry.text), claim))
    return next(says, None) or next(like, None)
