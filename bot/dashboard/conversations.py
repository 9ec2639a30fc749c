"""A person's own conversations: `/conversations` lists and searches them, below it each is read.

They are those of the visitor's own identities, wherever they wrote from; anybody else's, and every
room's, is answered as if it were not there.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import groupby
from typing import Any, Final, get_args
from uuid import uuid4

import structlog
from aiohttp import web

from bot.channel.kit.markdown_html import render
from bot.dashboard.memory.browsing import address_of
from bot.dashboard.pages import NO_STORE, ONCE, Pages, Receive, Visit, in_menu, route, see
from bot.messages import excerpt
from bot.sessions import browsing, deleting, entries, store
from bot.sessions.browsing import Cursor, Lines, Listed
from bot.sessions.entries import Entry
from bot.sessions.store import Session, Shelf
from bot.storage import Database, fulltext
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
class Own:
    """A conversation of whoever looks: what they named it, if they did, and its first words."""

    visit: Visit
    session: Session
    named: str
    opening: str

    @property
    def title(self) -> str:
        """Its title: the name it was given, or its first words."""
        return _title(self.visit, self.named, self.opening)

    @property
    def is_earlier(self) -> bool:
        """True for a conversation of the page that is over, and could be continued in the page."""
        session, key = self.session, self.visit.conversation.place.key
        return session.turns > 0 and bool(session.ended_by) and session.key == key


@in_menu("/conversations")
class ConversationPages(Pages):
    """Lists, searches, shows, names and hands out a visitor's conversations."""

    def __init__(self, database: Database, receive: Receive, deletions: Deletions) -> None:
        """`receive` takes what a visitor says: a button says what could be typed."""
        self._database = database
        self._receive = receive
        self._deletions = deletions

    # --- which there are --------------------------------------------------------------------------

    @route("GET", "/conversations", shared=True)
    async def _list(self, visit: Visit) -> web.Response:
        if query := _query(visit):
            return await self._search(visit, query)
        cursor, people = _cursor(visit), visit.view.people
        shelf: Shelf = "archived" if "archived" in visit.request.query else ""
        is_deleted = "deleted" in visit.request.query

        def look(tx: store.Transaction) -> tuple[list[Session], list[Listed], list[Listed]]:
            if is_deleted:
                return deleting.own(tx, people), [], []
            pinned = browsing.pinned(tx, people) if cursor is None and not shelf else []
            return [], pinned, browsing.listed(tx, people, LISTED + 1, cursor, shelf=shelf)

        deleted, pinned, found = await self._database.read(look)
        shown, older = _part(found)
        days = groupby(shown, key=lambda each: visit.day(each.at))
        return visit.page(
            "conversations.html",
            query="",
            shelf="deleted" if is_deleted else shelf,
            deleted=deleted,
            days=[
                *([(visit.say("conversations.pinned"), pinned)] if pinned else []),
                *((day, list(items)) for day, items in days),
            ],
            is_first=cursor is None,
            older=older,
            title=partial(_title, visit),
        )

    async def _search(self, visit: Visit, query: str) -> web.Response:
        number = visit.number("page", 0) if "page" in visit.request.query else 1
        if not 1 <= number <= browsing.MAX_FOUND // RESULTS:
            raise web.HTTPBadRequest
        view, first = visit.view, (number - 1) * RESULTS
        found = await self._database.read(
            lambda tx: browsing.found(tx, view, query, first, RESULTS + 1)
        )
        results = await asyncio.to_thread(
            lambda: [(each, list(_marked(query, each.entry.text))) for each in found[:RESULTS]]
        )
        return visit.page(
            "conversations.html",
            who=partial(_who, visit),
            query=query,
            results=results,
            number_of=entries.number_of,
            number=number,
            is_more=len(found) > RESULTS and number < browsing.MAX_FOUND // RESULTS,
        )

    # --- beside the chat --------------------------------------------------------------------------

    @route("GET", "/api/conversations", shared=True)
    async def _api_list(self, visit: Visit) -> web.Response:
        """A page of the list, or with `q` the conversations in which the words were said."""
        query, cursor, people = _query(visit), _cursor(visit), visit.view.people

        def look(tx: store.Transaction) -> tuple[list[Listed], list[Listed], Session | None]:
            pinned: list[Listed] = []
            if query:
                found = browsing.listed_with(tx, visit.view, query, LISTED)
            else:
                pinned = browsing.pinned(tx, people) if cursor is None else []
                found = browsing.listed(tx, people, LISTED + 1, cursor)
            return pinned, found, store.current(tx, visit.conversation.place.key)

        pinned, found, current = await self._database.read(look)
        listed, older = _part(found)

        def item(each: Listed) -> Mapping[str, object]:
            is_current = current is not None and each.id == current.id
            is_new, title = is_current and not each.name, _title(visit, each.title, each.opening)
            return {
                "id": each.id,
                "title": visit.say("conversations.new") if is_new else title,
                "named": each.title,
                "at": each.at,
                "place": visit.place(each.channel),
                "shelf": each.shelf,
                "current": is_current,
            }

        body = {"pinned": [*map(item, pinned)], "items": [*map(item, listed)], "older": older}
        return web.json_response(body, headers=NO_STORE)

    @route("GET", "/api/conversations/{id}", shared=True)
    async def _api_open(self, visit: Visit) -> web.Response:
        """Lines of a conversation, as the chat shows them: the newest, or those `before` one."""
        own, before = await self._own(visit), visit.query("before")
        if before and not _NUMBER.fullmatch(before):
            raise web.HTTPBadRequest
        number = int(before) if before else None
        lines = await self._database.read(
            lambda tx: browsing.before(tx, own.session, number, LINES)
        )
        body = {
            "title": own.title,
            "place": visit.place(own.session.channel),
            "is_earlier": own.is_earlier,
            "items": await asyncio.to_thread(_items, lines),
            "before": str(entries.number_of(lines.said[0].id)) if lines.older else "",
        }
        return web.json_response(body, headers=NO_STORE)

    # --- one of them ------------------------------------------------------------------------------

    async def _own(self, visit: Visit) -> Own:
        """The conversation they ask for.

        Raises:
            web.HTTPNotFound: it is not theirs, or there is none.
        """
        id_ = visit.request.match_info["id"]

        def look(tx: store.Transaction) -> Own | None:
            session = browsing.own(tx, visit.view.people, id_)
            if session is None:
                return None
            named = browsing.title_of(tx, id_)
            return Own(visit, session, named, named or browsing.opening_of(tx, session))

        found = await self._database.read(look)
        if found is None:
            raise web.HTTPNotFound
        return found

    # Before the next one, which would take these names for ids.
    @route("GET", "/conversations/{id}.jsonl", shared=True)
    async def _jsonl(self, visit: Visit) -> web.StreamResponse:
        session = (await self._own(visit)).session
        response = await _download(visit.request, f"{session.id}.jsonl", "application/jsonl")
        await response.write(f"{store.header_of(session)}\n".encode())
        async for lines in self._everything(session):
            await response.write("".join(f"{line}\n" for line in lines).encode())
        return response

    @route("GET", "/conversations/{id}.md", shared=True)
    async def _markdown(self, visit: Visit) -> web.StreamResponse:
        own = await self._own(visit)
        session = own.session
        response = await _download(visit.request, f"{session.id}.md", "text/markdown")
        await response.write(f"# {own.title}\n".encode())
        day = ""
        async for lines in self._everything(session):
            said = [entry for entry in map(entries.parse, lines) if browsing.is_line(entry)]
            for entry in browsing.in_order(said):
                before, ms = day, entry.said_or_at
                day = f"\n## {visit.at(ms):%Y-%m-%d}\n" if ms else f"\n## {visit.day(ms)}\n"
                who = _who(visit, session.channel, is_own=entry.role == "user")
                words = f"\n**{who}**{', ' if ms else ''}{visit.clock(ms)}\n\n{entry.shown}\n"
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

    @route("GET", "/conversations/{id}", shared=True)
    async def _open(self, visit: Visit) -> web.Response:
        own = await self._own(visit)
        session, query = own.session, visit.request.query
        asked = {name: query[name] for name in _WAYS if name in query}
        if len(asked) > 1 or not all(map(_NUMBER.fullmatch, asked.values())):
            raise web.HTTPBadRequest
        way, number = next(((way, int(n)) for way, n in asked.items()), ("before", None))

        def look(tx: store.Transaction) -> tuple[Lines, int]:
            return _WAYS[way](tx, session, number, LINES), browsing.count_of(tx, session)

        lines, count = await self._database.read(look)
        numbers = [entries.number_of(entry.id) for entry in lines.said]
        return visit.page(
            "conversation.html",
            title=own.title,
            named=own.named,
            longest=browsing.MAX_TITLE,
            who=partial(_who, visit),
            session=session,
            count=count,
            once=uuid4().hex if own.is_earlier else "",
            shelves=_SHELVES,
            days=await asyncio.to_thread(_drawn, visit, lines),
            older=min(numbers) if lines.older and numbers else 0,
            newer=max(numbers) if lines.newer and numbers else 0,
            at=number if way == "at" else 0,
        )

    @route("POST", "/conversations/{id}/title", shared=True)
    async def _rename(self, visit: Visit) -> web.Response:
        session = (await self._own(visit)).session
        given = (await visit.form()).get("title")
        if given is None:
            raise web.HTTPBadRequest
        words, now = well_formed(_CONTROL.sub(" ", given)), visit.now
        await self._database.write(lambda tx: browsing.name(tx, session.id, words, now))
        log.info("conversation.named", session=session.id, is_named=bool(words.strip()))
        return see(f"/conversations/{session.id}")

    @route("POST", "/conversations/{id}/shelf", shared=True)
    async def _shelve(self, visit: Visit) -> web.Response:
        id_, key = (await self._own(visit)).session.id, visit.conversation.place.key
        given = (await visit.form()).get("shelf")
        if (shelf := next((each for each in _SHELVES if each == given), None)) is None:
            raise web.HTTPBadRequest

        def work(tx: store.Transaction) -> bool:
            store.change(tx, id_, shelf=shelf)
            current = store.current(tx, key)
            return shelf == "archived" and current is not None and current.id == id_

        if await self._database.write(work):  # what is put away does not go on
            await self._receive(visit.says("/new", uuid4().hex))
        return see(f"/conversations/{id_}")

    @route("POST", "/conversations/{id}/continue", shared=True)
    async def _resume(self, visit: Visit) -> web.Response:
        own, once = await self._own(visit), (await visit.form()).get("once", "")
        if not ONCE.fullmatch(once) or own.session.key != visit.conversation.place.key:
            raise web.HTTPBadRequest
        if own.is_earlier:  # else it was pressed twice
            await self._receive(visit.says(f"/continue {own.session.id}", once))
        return see("/")

    # --- deleting it ------------------------------------------------------------------------------

    async def _notes(self, own: Own) -> list[Note]:
        view = own.visit.view
        return await self._deletions.notes_of(view, own.session) if view.space else []

    @route("GET", "/api/conversations/{id}/notes", shared=True)
    async def _api_notes(self, visit: Visit) -> web.Response:
        notes = await self._notes(await self._own(visit))
        return web.json_response({"notes": [asdict(each) for each in notes]}, headers=NO_STORE)

    @route("GET", "/conversations/{id}/delete", shared=True)
    async def _ask(self, visit: Visit) -> web.Response:
        own = await self._own(visit)
        return visit.page(
            "conversation_delete.html",
            title=own.title,
            session=own.session,
            notes=await self._notes(own),
            link=address_of,
        )

    @route("POST", "/conversations/{id}/delete", shared=True)
    async def _delete(self, visit: Visit) -> web.Response:
        session = (await self._own(visit)).session
        notes = {name.removeprefix("note-") for name in await visit.form() if "note-" in name}
        await self._deletions.delete(visit.view, session, notes)
        return see("/conversations?deleted")

    @route("POST", "/conversations/{id}/restore", shared=True)
    async def _restore(self, visit: Visit) -> web.Response:
        view, id_ = visit.view, visit.request.match_info["id"]
        found = await self._database.read(lambda tx: deleting.own(tx, view.people, id_))
        if not found:
            raise web.HTTPNotFound
        await self._deletions.restore(view, found[0])
        return see(f"/conversations/{id_}")


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
            **NO_STORE,
        }
    )
    await response.prepare(request)
    return response


def _query(visit: Visit) -> str:
    return visit.query("q").strip()[:MAX_QUERY]


def _cursor(visit: Visit) -> Cursor | None:
    """The start of the requested part of the list; None for the first.

    Raises:
        web.HTTPBadRequest: it begins nowhere.
    """
    after = visit.query("after")
    matched = _CURSOR.fullmatch(after)
    if after and matched is None:
        raise web.HTTPBadRequest
    return Cursor(int(matched[1]), matched[2]) if matched else None


def _part(found: list[Listed]) -> tuple[list[Listed], str]:
    """A page of the list, and where the next one begins, or nothing."""
    shown = found[:LISTED]
    last = shown[-1].cursor if len(found) > LISTED else None
    return shown, f"{last.at}.{last.session_id}" if last is not None else ""


# --- as the templates take it ---------------------------------------------------------------------


def _title(visit: Visit, named: str, opening: str) -> str:
    """A conversation's title: the name its person gave it, or its first words."""
    return named or opening or visit.say("conversations.untitled")


def _who(visit: Visit, channel: str, *, is_own: bool) -> str:
    """The name of whoever said something: they, or whom they talked with."""
    bot = visit.conversation.config.agent.name
    imported = entries.imported_name(channel)
    return visit.say("conversations.you") if is_own else imported or bot


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
    """An excerpt of a message that was found, in pieces; True marks words of the query."""
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
