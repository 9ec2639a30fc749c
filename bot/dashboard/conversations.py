"""A person's own conversations: `/conversations` lists and searches them, below it each is read.

They are those of the visitor's own identities, wherever they wrote from; anybody else's, and every
room's, is answered as if it were not there.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from itertools import groupby
from typing import Any, Final

import structlog
from aiohttp import web

from bot.channel.kit.markdown_html import render
from bot.channel.visitor import shared
from bot.clock import Clock, moment
from bot.dashboard import pages
from bot.dashboard.pages import Visits, sent
from bot.i18n import text
from bot.identity import Conversation
from bot.sessions import browsing, entries, imported, store
from bot.sessions.browsing import Cursor, Found, Lines, Listed
from bot.sessions.entries import Entry
from bot.sessions.store import Session
from bot.storage import Database, fulltext
from bot.tool_results import excerpt
from bot.unicode import well_formed

LISTED: Final = 40  # conversations of a page
LINES: Final = 60  # lines of a page
RESULTS: Final = 20  # messages found, of a page
MAX_QUERY: Final = 400  # characters
EXCERPT: Final = 280  # characters

_CURSOR = re.compile(r"([0-9]{1,15})\.([0-9a-z-]{1,64})")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_NUMBER = re.compile(r"[1-9][0-9]{0,9}")

log = structlog.stdlib.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Visit:
    """Whoever looks, and the words and the time they see it in."""

    conversation: Conversation
    language: str
    now: datetime

    @property
    def people(self) -> tuple[str, ...]:
        """The identities whose conversations are theirs."""
        return self.conversation.view.people

    @property
    def zone(self) -> tzinfo:
        """Where they live."""
        return self.conversation.zone

    def say(self, key: str, **values: object) -> str:
        """A sentence of these pages."""
        return text(self.language, f"conversations.{key}", **values)

    def who(self, channel: str, *, is_own: bool) -> str:
        """Who said something: they, or whom they talked with."""
        bot = self.conversation.config.agent.name
        return self.say("you") if is_own else imported.name_of(channel) or bot

    def at(self, ms: int) -> datetime:
        """A time on their clock."""
        return moment(ms, self.zone)

    def day(self, ms: int) -> str:
        """The day of a time, in words."""
        day = self.at(ms)
        if day.date() == self.now.date():
            return self.say("today")
        if day.date() == self.now.date() - timedelta(days=1):
            return self.say("yesterday")
        weekday = self.say("weekdays").split()[day.weekday()]
        return self.say("day", weekday=weekday, date=f"{day:%Y-%m-%d}")

    def place(self, channel: str) -> str:
        """Where a conversation is, or was, in words."""
        if name := imported.name_of(channel):
            return self.say("imported", name=name)
        return self.say("page") if channel == "web" else channel.replace("_", " ").capitalize()

    def title(self, named: str, opening: str) -> str:
        """What a conversation is called: what its person named it, or its first words."""
        return named or opening or self.say("untitled")


@dataclass(frozen=True, slots=True)
class Own:
    """A conversation of whoever looks: what they named it, if they did, and what it is called."""

    visit: Visit
    session: Session
    named: str
    title: str


class ConversationPages:
    """Lists, searches, shows, names and hands out a visitor's conversations."""

    def __init__(self, database: Database, visits: Visits, clock: Clock) -> None:
        self._database = database
        self._visits = visits
        self._clock = clock

    def routes(self) -> list[web.RouteDef]:
        """Where they are; each shows a visitor what is theirs."""
        return shared(
            [
                web.get("/conversations", self._list),
                web.get("/conversations/{id}.md", self._markdown),
                web.get("/conversations/{id}.jsonl", self._jsonl),
                web.get("/conversations/{id}", self._open),
                web.post("/conversations/{id}/title", self._rename),
            ]
        )

    def _visit(self, request: web.Request) -> Visit:
        conversation = self._visits.of(request)
        now = moment(self._clock(), conversation.zone)
        return Visit(conversation, pages.language(request), now)

    # --- which there are --------------------------------------------------------------------------

    async def _list(self, request: web.Request) -> web.Response:
        visit = self._visit(request)
        if query := request.query.get("q", "").strip()[:MAX_QUERY]:
            return await self._search(request, visit, query)
        after = request.query.get("after", "")
        matched = _CURSOR.fullmatch(after)
        if after and matched is None:
            return pages.refuse_status(request, 400)
        cursor = Cursor(int(matched[1]), matched[2]) if matched else None
        found = await self._database.read(
            lambda tx: browsing.listed(tx, visit.people, LISTED + 1, cursor)
        )
        shown = found[:LISTED]
        last = shown[-1].cursor if len(found) > LISTED else None
        return pages.page(
            request,
            "conversations.html",
            query="",
            days=[
                {"name": day, "items": [_item(visit, each) for each in items]}
                for day, items in groupby(shown, key=lambda each: visit.day(each.at))
            ],
            is_first=cursor is None,
            older=f"{last.at}.{last.session_id}" if last is not None else "",
        )

    async def _search(self, request: web.Request, visit: Visit, query: str) -> web.Response:
        wanted = request.query.get("page", "1")
        number = int(wanted) if _NUMBER.fullmatch(wanted) else 0
        if not 1 <= number <= browsing.MAX_FOUND // RESULTS:
            return pages.refuse_status(request, 400)
        view, first = visit.conversation.view, (number - 1) * RESULTS
        found = await self._database.read(
            lambda tx: browsing.found(tx, view, query, first, RESULTS + 1)
        )
        results = await asyncio.to_thread(
            lambda: [_result(visit, query, each) for each in found[:RESULTS]]
        )
        return pages.page(
            request,
            "conversations.html",
            query=query,
            results=results,
            number=number,
            is_more=len(found) > RESULTS and number < browsing.MAX_FOUND // RESULTS,
        )

    # --- one of them ------------------------------------------------------------------------------

    async def _own(self, request: web.Request) -> Own:
        """The conversation they ask for.

        Raises:
            web.HTTPNotFound: it is not theirs, or there is none.
        """
        visit, id_ = self._visit(request), request.match_info["id"]

        def look(tx: store.Transaction) -> tuple[Session, str, str] | None:
            session = browsing.own(tx, visit.people, id_)
            if session is None:
                return None
            named = browsing.title_of(tx, id_)
            return session, named, named or browsing.opening_of(tx, session)

        found = await self._database.read(look)
        if found is None:
            raise web.HTTPNotFound
        session, named, opening = found
        return Own(visit, session, named, visit.title(named, opening))

    async def _open(self, request: web.Request) -> web.Response:
        own = await self._own(request)
        visit, session = own.visit, own.session
        asked = {name: request.query[name] for name in _WAYS if name in request.query}
        if len(asked) > 1 or not all(map(_NUMBER.fullmatch, asked.values())):
            return pages.refuse_status(request, 400)
        way, number = next(((way, int(n)) for way, n in asked.items()), ("before", None))
        lines: Lines = await self._database.read(lambda tx: _WAYS[way](tx, session, number, LINES))
        numbers = [entries.number_of(entry.id) for entry in lines.said]
        return pages.page(
            request,
            "conversation.html",
            id=session.id,
            title=own.title,
            named=own.named,
            longest=browsing.MAX_TITLE,
            about=visit.say(
                "about",
                place=visit.place(session.channel),
                day=visit.day(session.started_at),
                count=session.entry_count,
            ),
            days=await asyncio.to_thread(_drawn, visit, session.channel, lines),
            older=min(numbers) if lines.older and numbers else 0,
            newer=max(numbers) if lines.newer and numbers else 0,
            at=number if way == "at" else 0,
        )

    async def _rename(self, request: web.Request) -> web.Response:
        session = (await self._own(request)).session
        given = (await sent(request)).get("title")
        if given is None:
            return pages.refuse_status(request, 400)
        words, now = well_formed(_CONTROL.sub(" ", given)), self._clock()
        await self._database.write(lambda tx: browsing.name(tx, session.id, words, now))
        log.info("conversation.named", session=session.id, is_named=bool(words.strip()))
        return pages.see(f"/conversations/{session.id}")

    # --- to take along ----------------------------------------------------------------------------

    async def _jsonl(self, request: web.Request) -> web.StreamResponse:
        session = (await self._own(request)).session
        response = await _download(request, f"{session.id}.jsonl", "application/jsonl")
        await response.write(f"{store.header_of(session)}\n".encode())
        async for lines in self._everything(session):
            await response.write("".join(f"{line}\n" for line in lines).encode())
        return response

    async def _markdown(self, request: web.Request) -> web.StreamResponse:
        own = await self._own(request)
        visit, session = own.visit, own.session
        response = await _download(request, f"{session.id}.md", "text/markdown")
        await response.write(f"# {own.title}\n".encode())
        day = ""
        async for lines in self._everything(session):
            said = [entry for entry in map(entries.parse, lines) if browsing.is_line(entry)]
            for entry in browsing.in_order(said):
                before, at = day, visit.at(entry.said_or_at)
                day = f"\n## {at:%Y-%m-%d}\n"
                who = visit.who(session.channel, is_own=entry.role == "user")
                words = f"\n**{who}**, {at:%H:%M}\n\n{entry.shown}\n"
                words = words if day == before else f"{day}{words}"
                await response.write(words.encode())
        return response

    async def _everything(self, session: Session) -> AsyncIterator[list[str]]:
        """All lines of a conversation's file, some at a time; without what was forgotten."""
        seq: int = 0
        while True:
            after = seq
            lines, seq = await self._database.read(
                lambda tx, after=after: browsing.everything(tx, session, after)
            )
            if not lines:
                return
            yield lines


_WAYS: Final[Mapping[str, Any]] = {
    "before": browsing.before,
    "after": browsing.after,
    "at": browsing.around,
}


async def _download(request: web.Request, name: str, kind: str) -> web.StreamResponse:
    response = web.StreamResponse(
        headers={
            "Content-Disposition": f'attachment; filename="{name}"',
            "Content-Type": f"{kind}; charset=utf-8",
            **pages.NO_STORE,
        }
    )
    await response.prepare(request)
    return response


# --- as the templates take it ---------------------------------------------------------------------


def _item(visit: Visit, listed: Listed) -> Mapping[str, Any]:
    return {
        "id": listed.id,
        "title": visit.title(listed.title, listed.opening),
        "place": visit.place(listed.channel),
        "time": f"{visit.at(listed.at):%H:%M}",
        "count": listed.entries,
    }


def _result(visit: Visit, query: str, found: Found) -> Mapping[str, Any]:
    entry, terms = found.entry, _terms(query)
    return {
        "id": found.session_id,
        "number": entries.number_of(entry.id),
        "when": f"{visit.day(entry.at)} {visit.at(entry.at):%H:%M}",
        "place": visit.place(found.channel),
        "who": visit.who(found.channel, is_own=entry.role == "user"),
        "parts": list(marked(excerpt(" ".join(entry.text.split()), terms, EXCERPT), terms)),
    }


def _drawn(visit: Visit, channel: str, lines: Lines) -> Sequence[Mapping[str, Any]]:
    """The lines by day; it takes a while, so it runs in a thread."""
    return [
        {
            "name": day,
            "lines": [_line(visit, channel, entry, entry.id in lines.gone) for entry in said],
        }
        for day, said in groupby(
            browsing.in_order(lines.said), key=lambda entry: visit.day(entry.said_or_at)
        )
    ]


def _line(
    visit: Visit,
    channel: str,
    entry: Entry,
    is_gone: bool,  # noqa: FBT001
) -> Mapping[str, Any]:
    words, mine = entry.shown[: browsing.LONGEST], entry.role == "user"
    return {
        "number": entries.number_of(entry.id),
        "mine": mine,
        "who": visit.who(channel, is_own=mine),
        "time": f"{visit.at(entry.said_or_at):%H:%M}",
        "moment": visit.at(entry.said_or_at).isoformat(timespec="seconds"),
        "is_gone": is_gone,
        "text": words if mine else "",
        "html": "" if mine else render(words, rich=True),  # safe, whoever wrote it
        "cut": len(entry.shown) - len(words),
    }


def _terms(query: str) -> list[str]:
    """What is marked of a query: the words that are looked for, each as it may stand in a text."""
    return [phrase.replace(" ", "") for phrase in fulltext.phrases(query)]


def marked(words: str, terms: Sequence[str]) -> Iterator[tuple[str, bool]]:
    """A text in parts, each with whether it is one of the terms, whatever its case."""
    known = sorted(filter(None, terms), key=len, reverse=True)
    if not known:
        yield words, False
        return
    pattern = re.compile("|".join(map(re.escape, known)), re.IGNORECASE)
    end = 0
    for match in pattern.finditer(words):
        yield words[end : match.start()], False
        yield match[0], True
        end = match.end()
    yield words[end:], False
