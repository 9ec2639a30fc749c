"""A person's own conversations: `/conversations` lists and searches them, below it each is read.

They are those of the visitor's own identities, wherever they wrote from; anybody else's, and every
room's, is answered as if it were not there.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta, tzinfo
from itertools import groupby
from typing import Any, Final, get_args
from uuid import uuid4

import structlog
from aiohttp import web

from bot.channel.http import shared
from bot.channel.kit.markdown_html import render
from bot.clock import moment
from bot.core import Core
from bot.dashboard import pages
from bot.dashboard.memory.browsing import link_to
from bot.dashboard.pages import ONCE, Receive, Visits, in_menu, sent
from bot.i18n import text
from bot.identity import Conversation
from bot.messages import excerpt
from bot.sessions import browsing, deleting, entries, store
from bot.sessions.browsing import Cursor, Lines, Listed
from bot.sessions.entries import Entry
from bot.sessions.store import Session, Shelf
from bot.storage import fulltext
from bot.unicode import well_formed
from bot.upkeep.deletions import Deletions, Note

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
    def key(self) -> str:
        """The session key of their chat in the page."""
        return self.conversation.place.key

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
        return self.say("you") if is_own else entries.imported_name(channel) or bot

    def at(self, ms: int) -> datetime:
        """A time on their clock."""
        return moment(ms, self.zone)

    def day(self, ms: int) -> str:
        """The day of a time, in words."""
        if not ms:
            return self.say("undated")
        day = self.at(ms)
        if day.date() == self.now.date():
            return self.say("today")
        if day.date() == self.now.date() - timedelta(days=1):
            return self.say("yesterday")
        weekday = self.say("weekdays").split()[day.weekday()]
        return self.say("day", weekday=weekday, date=f"{day:%Y-%m-%d}")

    def clock(self, ms: int) -> str:
        """The time of day on their clock; empty for what has no date."""
        return f"{self.at(ms):%H:%M}" if ms else ""

    def place(self, channel: str) -> str:
        """Where a conversation is, or was, in words."""
        if name := entries.imported_name(channel):
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


@in_menu("/conversations")
class ConversationPages:
    """Lists, searches, shows, names and hands out a visitor's conversations."""

    def __init__(self, core: Core, visits: Visits, receive: Receive, deletions: Deletions) -> None:
        """`receive` takes what a visitor says: a button says what could be typed."""
        self._core = core
        self._visits = visits
        self._receive = receive
        self._deletions = deletions

    def routes(self) -> list[web.RouteDef]:
        """The routes; each shows a visitor what is theirs."""
        return shared(
            [
                web.get("/conversations", self._list),
                web.get("/api/conversations", self._api_list),
                web.get("/api/conversations/{id}", self._api_open),
                web.get("/conversations/{id}.md", self._markdown),
                web.get("/conversations/{id}.jsonl", self._jsonl),
                web.get("/conversations/{id}", self._open),
                web.post("/conversations/{id}/title", self._rename),
                web.post("/conversations/{id}/shelf", self._shelve),
                web.post("/conversations/{id}/continue", self._resume),
                web.get("/api/conversations/{id}/notes", self._api_notes),
                web.get("/conversations/{id}/delete", self._ask),
                web.post("/conversations/{id}/delete", self._delete),
                web.post("/conversations/{id}/restore", self._restore),
            ]
        )

    def _visit(self, request: web.Request) -> Visit:
        conversation = self._visits.of(request)
        now = moment(self._core.clock(), conversation.zone)
        return Visit(conversation, pages.language(request), now)

    # --- which there are --------------------------------------------------------------------------

    async def _list(self, request: web.Request) -> web.Response:
        visit = self._visit(request)
        if query := _query(request):
            return await self._search(request, visit, query)
        cursor = _cursor(request)
        shelf: Shelf = "archived" if "archived" in request.query else ""
        is_deleted = "deleted" in request.query

        def look(tx: store.Transaction) -> tuple[list[Session], list[Listed], list[Listed]]:
            if is_deleted:
                return deleting.own(tx, visit.people), [], []
            pinned = browsing.pinned(tx, visit.people) if cursor is None and not shelf else []
            return [], pinned, browsing.listed(tx, visit.people, LISTED + 1, cursor, shelf=shelf)

        deleted, pinned, found = await self._core.database.read(look)
        shown, older = _part(found)
        days = groupby(shown, key=lambda each: visit.day(each.at))
        return pages.page(
            request,
            "conversations.html",
            query="",
            visit=visit,
            shelf="deleted" if is_deleted else shelf,
            deleted=deleted,
            days=[
                *([(visit.say("pinned"), pinned)] if pinned else []),
                *((day, list(items)) for day, items in days),
            ],
            is_first=cursor is None,
            older=older,
        )

    async def _search(self, request: web.Request, visit: Visit, query: str) -> web.Response:
        wanted = request.query.get("page", "1")
        number = int(wanted) if _NUMBER.fullmatch(wanted) else 0
        if not 1 <= number <= browsing.MAX_FOUND // RESULTS:
            return pages.refuse_status(request, 400)
        view, first = visit.conversation.view, (number - 1) * RESULTS
        found = await self._core.database.read(
            lambda tx: browsing.found(tx, view, query, first, RESULTS + 1)
        )
        results = await asyncio.to_thread(
            lambda: [(each, list(_marked(query, each.entry.text))) for each in found[:RESULTS]]
        )
        return pages.page(
            request,
            "conversations.html",
            visit=visit,
            query=query,
            results=results,
            number_of=entries.number_of,
            number=number,
            is_more=len(found) > RESULTS and number < browsing.MAX_FOUND // RESULTS,
        )

    # --- beside the chat --------------------------------------------------------------------------

    async def _api_list(self, request: web.Request) -> web.Response:
        """A page of the list, or with `q` the conversations in which the words were said."""
        visit, query, cursor = self._visit(request), _query(request), _cursor(request)

        def look(tx: store.Transaction) -> tuple[list[Listed], list[Listed], Session | None]:
            pinned: list[Listed] = []
            if query:
                found = browsing.listed_with(tx, visit.conversation.view, query, LISTED)
            else:
                pinned = browsing.pinned(tx, visit.people) if cursor is None else []
                found = browsing.listed(tx, visit.people, LISTED + 1, cursor)
            return pinned, found, store.current(tx, visit.key)

        pinned, found, current = await self._core.database.read(look)
        listed, older = _part(found)

        def item(each: Listed) -> Mapping[str, object]:
            is_current = current is not None and each.id == current.id
            is_new = is_current and not each.name
            return {
                "id": each.id,
                "title": visit.say("new") if is_new else visit.title(each.title, each.opening),
                "named": each.title,
                "at": each.at,
                "place": visit.place(each.channel),
                "shelf": each.shelf,
                "current": is_current,
            }

        body = {"pinned": [*map(item, pinned)], "items": [*map(item, listed)], "older": older}
        return web.json_response(body, headers=pages.NO_STORE)

    async def _api_open(self, request: web.Request) -> web.Response:
        """Lines of a conversation, as the chat shows them: the newest, or those `before` one."""
        own = await self._own(request)
        before = request.query.get("before", "")
        if before and not _NUMBER.fullmatch(before):
            raise web.HTTPBadRequest
        number = int(before) if before else None
        lines = await self._core.database.read(
            lambda tx: browsing.before(tx, own.session, number, LINES)
        )
        body = {
            "title": own.title,
            "place": own.visit.place(own.session.channel),
            "is_earlier": _is_earlier(own),
            "items": await asyncio.to_thread(_items, lines),
            "before": str(entries.number_of(lines.said[0].id)) if lines.older else "",
        }
        return web.json_response(body, headers=pages.NO_STORE)

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

        found = await self._core.database.read(look)
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

        def look(tx: store.Transaction) -> tuple[Lines, int]:
            return _WAYS[way](tx, session, number, LINES), browsing.count_of(tx, session)

        lines, count = await self._core.database.read(look)
        numbers = [entries.number_of(entry.id) for entry in lines.said]
        return pages.page(
            request,
            "conversation.html",
            title=own.title,
            named=own.named,
            longest=browsing.MAX_TITLE,
            visit=visit,
            session=session,
            count=count,
            once=uuid4().hex if _is_earlier(own) else "",
            shelves=_SHELVES,
            days=await asyncio.to_thread(_drawn, visit, lines),
            older=min(numbers) if lines.older and numbers else 0,
            newer=max(numbers) if lines.newer and numbers else 0,
            at=number if way == "at" else 0,
        )

    async def _rename(self, request: web.Request) -> web.Response:
        session = (await self._own(request)).session
        given = (await sent(request)).get("title")
        if given is None:
            return pages.refuse_status(request, 400)
        words, now = well_formed(_CONTROL.sub(" ", given)), self._core.clock()
        await self._core.database.write(lambda tx: browsing.name(tx, session.id, words, now))
        log.info("conversation.named", session=session.id, is_named=bool(words.strip()))
        return pages.see(f"/conversations/{session.id}")

    async def _shelve(self, request: web.Request) -> web.Response:
        own = await self._own(request)
        given = (await sent(request)).get("shelf")
        if (shelf := next((each for each in _SHELVES if each == given), None)) is None:
            return pages.refuse_status(request, 400)
        id_, key, once = own.session.id, own.visit.key, uuid4().hex

        def work(tx: store.Transaction) -> bool:
            store.change(tx, id_, shelf=shelf)
            current = store.current(tx, key)
            return shelf == "archived" and current is not None and current.id == id_

        if await self._core.database.write(work):  # what is put away does not go on
            origin = own.visit.conversation.origin
            await self._receive(pages.said(origin, "/new", once, self._core.clock()))
        return pages.see(f"/conversations/{id_}")

    async def _resume(self, request: web.Request) -> web.Response:
        own = await self._own(request)
        once = (await sent(request)).get("once", "")
        if not ONCE.fullmatch(once) or own.session.key != own.visit.key:
            return pages.refuse(request, 400, "bad_request")
        if _is_earlier(own):  # else it was pressed twice
            origin, said = own.visit.conversation.origin, f"/continue {own.session.id}"
            await self._receive(pages.said(origin, said, once, self._core.clock()))
        return pages.see("/")

    # --- deleting it ------------------------------------------------------------------------------

    async def _notes(self, own: Own) -> list[Note]:
        view = own.visit.conversation.view
        return await self._deletions.notes_of(view, own.session) if view.space else []

    async def _api_notes(self, request: web.Request) -> web.Response:
        notes = await self._notes(await self._own(request))
        return web.json_response(
            {"notes": [asdict(each) for each in notes]}, headers=pages.NO_STORE
        )

    async def _ask(self, request: web.Request) -> web.Response:
        own = await self._own(request)
        return pages.page(
            request,
            "conversation_delete.html",
            title=own.title,
            session=own.session,
            notes=await self._notes(own),
            link=link_to,
        )

    async def _delete(self, request: web.Request) -> web.Response:
        own = await self._own(request)
        notes = {name.removeprefix("note-") for name in await sent(request) if "note-" in name}
        await self._deletions.delete(own.visit.conversation.view, own.session, notes)
        return pages.see("/conversations?deleted")

    async def _restore(self, request: web.Request) -> web.Response:
        visit, id_ = self._visit(request), request.match_info["id"]
        found = await self._core.database.read(lambda tx: deleting.own(tx, visit.people, id_))
        if not found:
            raise web.HTTPNotFound
        await self._deletions.restore(visit.conversation.view, found[0])
        return pages.see(f"/conversations/{id_}")

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
                before, ms = day, entry.said_or_at
                day = f"\n## {visit.at(ms):%Y-%m-%d}\n" if ms else f"\n## {visit.day(ms)}\n"
                who = visit.who(session.channel, is_own=entry.role == "user")
                words = f"\n**{who}**{', ' if ms else ''}{visit.clock(ms)}\n\n{entry.shown}\n"
                words = words if day == before else f"{day}{words}"
                await response.write(words.encode())
        return response

    async def _everything(self, session: Session) -> AsyncIterator[list[str]]:
        """All lines of a conversation's file, some at a time; without what was forgotten."""
        seq: int = 0
        while True:
            after = seq
            lines, seq = await self._core.database.read(
                lambda tx, after=after: browsing.everything(tx, session, after)
            )
            if not lines:
                return
            yield lines


_SHELVES: Final[tuple[Shelf, ...]] = get_args(Shelf)
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


def _query(request: web.Request) -> str:
    return request.query.get("q", "").strip()[:MAX_QUERY]


def _cursor(request: web.Request) -> Cursor | None:
    """Where the page of the list that is asked for begins; None for the first.

    Raises:
        web.HTTPBadRequest: it begins nowhere.
    """
    after = request.query.get("after", "")
    matched = _CURSOR.fullmatch(after)
    if after and matched is None:
        raise web.HTTPBadRequest
    return Cursor(int(matched[1]), matched[2]) if matched else None


def _part(found: list[Listed]) -> tuple[list[Listed], str]:
    """A page of the list, and where the next one begins, or nothing."""
    shown = found[:LISTED]
    last = shown[-1].cursor if len(found) > LISTED else None
    return shown, f"{last.at}.{last.session_id}" if last is not None else ""


def _is_earlier(own: Own) -> bool:
    """True for a conversation of the page that is over, and could be continued in the page."""
    session = own.session
    return session.turns > 0 and bool(session.ended_by) and session.key == own.visit.key


# --- as the templates take it ---------------------------------------------------------------------


def _drawn(visit: Visit, lines: Lines) -> list[tuple[str, list[Mapping[str, Any]]]]:
    """The lines by day; it takes a while, so it runs in a thread."""
    by_day = groupby(browsing.in_order(lines.said), key=lambda entry: visit.day(entry.said_or_at))
    return [(day, [_line(entry, entry.id in lines.gone) for entry in said]) for day, said in by_day]


def _items(lines: Lines) -> list[Mapping[str, Any]]:
    """The lines as the chat page takes them; rendering takes a while, so it runs in a thread."""
    return [
        {
            "id": entry.source or entry.id,
            "role": "user" if line["mine"] else "divider" if entry.mark == "aside" else "bot",
            "text": "" if line["is_gone"] else entry.shown[: browsing.LONGEST],
            "html": "" if line["is_gone"] else line["html"],
            "at": entry.said_or_at,
        }
        for entry in browsing.in_order(lines.said)
        if not browsing.is_aside(entry)
        for line in (_line(entry, entry.id in lines.gone),)
    ]


def _line(entry: Entry, is_gone: bool) -> Mapping[str, Any]:  # noqa: FBT001
    words, mine = entry.shown[: browsing.LONGEST], entry.role == "user"
    return {
        "number": entries.number_of(entry.id),
        "mine": mine,
        "at": entry.said_or_at,
        "is_gone": is_gone,
        "text": words if mine else "",
        "html": "" if mine else render(words, rich=True),  # safe, whoever wrote it
        "cut": len(entry.shown) - len(words),
    }


def _marked(query: str, words: str) -> Iterator[tuple[str, bool]]:
    """What is shown of a message that was found, with the words that were looked for."""
    terms = [phrase.replace(" ", "") for phrase in fulltext.phrases(query)]
    return marked(excerpt(" ".join(words.split()), terms, EXCERPT), terms)


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
