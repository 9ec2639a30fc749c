"""Sources: the message an entry came from, and the quotes a reply was given."""

from __future__ import annotations

import asyncio
from datetime import date, tzinfo

from aiohttp import web

from bot.clock import moment
from bot.context import sentences
from bot.dashboard.memory.browsing import FILES, Spot, address_of
from bot.dashboard.pages import NO_STORE, Pages, Visit, route, see
from bot.identity.view import MemoryView
from bot.memory import entries, markdown, uses
from bot.memory.claims import Claim
from bot.memory.disk import MAX_WRITE
from bot.memory.memory import Memory
from bot.messages import BEFORE, Quote
from bot.sessions import browsing
from bot.sessions.browsing import FoundMessage
from bot.sessions.entries import number_of
from bot.sessions.store import Session
from bot.storage import Database, Transaction
from bot.unicode import one_line
from bot.views.memory import place_of, seen

LOOKED_AT = 50  # messages among which the one of an entry is looked for
MOST_QUERY = 400  # characters
MOST_QUOTED = 300  # characters of what a reply was given


class MemorySources(Pages):
    """Leads from what is remembered to the visitor's own message that it came from."""

    def __init__(self, memory: Memory, database: Database) -> None:
        self._memory = memory
        self._database = database

    @route("GET", "/api/sources", shared=True)
    async def _sources(self, visit: Visit) -> web.Response:
        """The quotes that a reply of the visitor was given, each with its address."""
        reply, view = visit.query("message"), visit.view

        def read(tx: Transaction) -> list[dict[str, str]]:
            session = browsing.own(tx, view.people, reply.rpartition(".")[0])
            if session is None:
                return []
            return [
                {
                    "text": _short(each.text),
                    "where": place_of(visit.language, each),
                    "link": _link_of(tx, view, session, each),
                }
                for each in seen(view, browsing.quotes_of_reply(tx, session, reply))
            ]

        return web.json_response(await self._database.read(read), headers=NO_STORE)

    @route("GET", f"{FILES}/source", shared=True)
    async def _source(self, visit: Visit) -> web.Response:
        """Lead to the message that an entry came from, as far as it can be found."""
        path, digest = visit.query("path"), visit.query("claim")
        view, zone, spot = visit.view, visit.zone, Spot.read(visit.request.query)
        said = await self._memory.files.text(view, path, MAX_WRITE)
        of_note = await asyncio.to_thread(list, entries.of_note(path, said))
        claim = next((each.claim for each in of_note if each.claim.digest == digest), None)
        if claim is None or (day := claim.said) is None:
            return see(visit.own(spot.link("no_source")))
        found = await self._database.read(lambda tx: message_of(tx, view, claim, day, zone))
        if found is None:
            return see(visit.own(spot.link("no_source")))
        return see(_at(found.entry.id))


def _short(words: str) -> str:
    """The entries of a quote in a line, without headings."""
    lines = (markdown.unlisted(line) for line in markdown.readable(words).split("\n"))
    said = [line for line in lines if not markdown.says_nothing(line)]
    return one_line(" · ".join(said), MOST_QUOTED)


def _link_of(tx: Transaction, view: MemoryView, session: Session, quote: Quote) -> str:
    """The address of a quote: its line of a note, its message or its conversation; or empty."""
    if quote.path:
        return address_of(quote.path, quote.line)
    if quote.where[0].startswith(BEFORE):
        before = session.previous or ""
        return f"/conversations/{before}" if browsing.own(tx, view.people, before) else ""
    for what, _, id_ in (fact.partition(" ") for fact in quote.where):
        if what == "message" and browsing.own(tx, view.people, id_.rpartition(".")[0]):
            return _at(id_)
        if what == "session" and browsing.own(tx, view.people, id_):
            return f"/conversations/{id_}"
    return ""


def _at(entry_id: str) -> str:
    number = number_of(entry_id)
    return f"/conversations/{entry_id.rpartition('.')[0]}?at={number}#l{number}"


def message_of(
    tx: Transaction, view: MemoryView, claim: Claim, day: date, zone: tzinfo
) -> FoundMessage | None:
    """The message in a person's own conversations that says what a claim of a day does."""
    words = markdown.normal(markdown.untimed(claim.text))
    hits = browsing.found(tx, view, words[:MOST_QUERY], 0, LOOKED_AT)
    own = [hit for hit in hits if (hit.entry.kind, hit.entry.role) == ("message", "user")]
    on_day = [hit for hit in own if moment(hit.entry.said_or_at, zone).date() == day]
    says = (hit for hit in (*on_day, *own) if words in markdown.normal(hit.entry.text))
    like = (hit for hit in on_day if uses.says(sentences.words(hit.entry.text), claim))
    return next(says, None) or next(like, None)
