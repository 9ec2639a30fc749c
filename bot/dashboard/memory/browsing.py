"""`/memory`: what is remembered, entry by entry, the files it is in, and the sources of each."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, tzinfo
from functools import partial
from itertools import groupby
from typing import Any, Literal
from urllib.parse import urlencode

from aiohttp import web
from cachetools import LRUCache

from bot.channel.kit.markdown_html import render
from bot.clock import moment
from bot.context import sentences
from bot.dashboard.pages import MEMORY, NO_STORE, Pages, Visit, in_menu, part_of, route, see, whole
from bot.i18n import text
from bot.identity.view import SHARED_SPACE, MemoryView
from bot.memory import claims, entries, layout, markdown, uses
from bot.memory.claims import Aging, Claim
from bot.memory.entries import Remembered
from bot.memory.memory import Lookup, Memory, is_note
from bot.memory.note_store import MAX_WRITE
from bot.memory.notes import Excerpt, Listed, is_day_note
from bot.memory.search import Hit
from bot.messages import BEFORE, Quote
from bot.sessions import browsing
from bot.sessions.browsing import FoundMessage
from bot.sessions.entries import number_of
from bot.sessions.store import Session
from bot.storage import Database, Transaction
from bot.unicode import one_line
from bot.views.memory import (
    MAX_WORDS,
    day_in_words,
    how_far,
    mode_of,
    on_day,
    place_of,
    remembered,
    seen,
    source_of,
    status_of,
    told_of,
    where_found,
    why_found,
    words_found,
)

# A note as the page shows it: what belongs together, whose words it is, and on which lines. Pure.
#
# Every line of the file can be linked to, whatever stands in it; nothing in a note reaches the
# page but through `bot.channel.kit.markdown_html`.

Whose = Literal["owner", "agent", "imported", "untrusted", "hand"]
DEEPEST = 6  # level of a heading

_DAY = r"\d{4}-\d\d-\d\d"
_MARK = re.compile(
    rf"(?P<day>{_DAY})?(?: ?confirmed {_DAY})?(?:, )?(?:in (?P<path>.+) until (?P<until>{_DAY})|"
    rf"until (?P<struck>{_DAY}), (?P<why>same as|ended by|moved to|let go)(?: (?P<other>.+))?)?"
)
_LEAD = re.compile(r"^ {0,3}[-*+][ \t]+")
_BOX = re.compile(r"\A<p>\[([ xX])\] ")  # of an entry that is a task
_AROUND = re.compile(r"</?(?:p|ul|ol|li|blockquote|pre|hr)[^<>]*>")  # the words of a heading
_DRAWN_HEADING = re.compile(r"<(/?)h[1-6]>")


@dataclass(frozen=True, slots=True)
class Source:
    """The source of an entry: whose words, since when, and until when it was true.

    `why` says why it was struck out at night: "same" as, or "moved" to, what stands in `path`;
    empty when it is not true any more.
    """

    whose: Whose
    day: str = ""
    until: str = ""
    path: str = ""
    why: str = ""


@dataclass(frozen=True, slots=True)
class Block:
    """Lines `first` to `last` of a file, from 1, as HTML that needs no further care.

    `level` is that of a heading on the page, 0 for anything else; `is_old` says that it is no
    longer true.
    """

    first: int
    last: int
    html: str
    level: int = 0
    source: Source | None = None
    is_old: bool = False

    @property
    def lines(self) -> range:
        """The numbers of its lines."""
        return range(self.first, self.last + 1)


def note_blocks(text: str, first: int = 1) -> list[Block]:
    """The blocks of a part of a note that begins at line `first`, in order."""
    marked = text.split("\n")
    shown = entries.uncommented(text).split("\n")
    drawn: list[Block] = []
    level = 1
    for start, end, is_entry in entries.pieces(shown):
        words, raw = shown[start:end], marked[start:end]
        place = (start + first, end + first - 1)
        heading = None if is_entry else markdown.HEADING.match(words[0])
        if heading is not None:
            # Levels are never left out, whatever the note does: a reader goes by them.
            level = min(level + 1, len(heading["level"]) + 1, DEEPEST)
            title = _AROUND.sub("", _html(heading["title"])).strip()
            drawn.append(Block(*place, title, level))
            continue
        # An entry's mark is on its first line, a section's on any.
        marks = (found for line in (raw[:1] if is_entry else raw) if (found := source_in(line)))
        source = next(marks, Source("hand") if is_entry else None)
        body = _dedented(words) if is_entry else "\n".join(words)
        is_struck = "~~" in body and not markdown.entry_words(body)
        old = is_entry and (bool(source and source.until) or is_struck)
        html = _html(body)
        if is_entry:
            html = _boxed(html)
        drawn.append(Block(*place, html, 0, source, old))
    return drawn


def source_in(line: str) -> Source | None:
    """The source of an entry, by the mark on its first line; None if it has none."""
    by, _, about = markdown.mark_of(line).partition(" ")
    whose: Whose
    match by:
        case "owner" | "agent" | "imported" | "untrusted":
            whose = by
        case _:
            return None
    found = _MARK.fullmatch(about.strip(", "))
    if found is None:
        return Source(whose)
    path = found["path"] or found["other"] or ""
    until = found["until"] or found["struck"] or ""
    why = {"same as": "same", "moved to": "moved"}.get(found["why"] or "", "")
    return Source(whose, found["day"] or "", until, path if layout.is_note(path) else "", why)


def _dedented(lines: Sequence[str]) -> str:
    """An entry without its bullet, its further lines moved to the left with it."""
    lead = _LEAD.match(lines[0])
    width = lead.end() if lead else 0
    rest = (line[min(width, len(line) - len(line.lstrip())) :] for line in lines[1:])
    return "\n".join([lines[0][width:], *rest])


def _html(body: str) -> str:
    """Words of a note; a heading inside is none of the page's."""
    return _DRAWN_HEADING.sub(r"<\1p>", render(body, rich=True))


MOST_QUOTE = 80  # characters of an entry in the name of its button


@dataclass(frozen=True, slots=True)
class Age:
    """The age of an entry in words, and its buttons."""

    told: Sequence[str]
    is_faded: bool
    claim: str = ""
    words: str = ""
    can_be_confirmed: bool = False
    can_be_struck: bool = False


def of_note(
    language: str, path: str, text: str, first: int, aging: Aging, *, space: str, changes: bool
) -> dict[int, Age]:
    """The ages of the entries in a part of a note that begins at line `first`, by their lines.

    Where the visitor `changes` the note, each has a button that strikes it out, and those that can
    be confirmed have one until they are.
    """
    found: dict[int, Age] = {}
    for claim in claims.of_note(path, text):
        told = told_of(language, claim, aging, space)
        found[claim.first + first - 1] = Age(
            told,
            not claim.is_over and aging.is_faded(claim, space),
            claim.digest,
            " ".join(claim.text.split())[:MOST_QUOTE],
            changes and claim.can_be_confirmed and claim.confirmed != aging.today,
            changes and not claim.is_over,
        )
    return found


FILES = MEMORY
FILE = f"{FILES}/file"
ADVANCED = f"{FILES}/advanced"
OF_ALL = f"{FILES}/shared"  # where the owner changes what is shared with everyone
LISTED = 100  # files of one page
SHOWN_LINES = 1_000  # of a file on one page
SHOWN_CHARACTERS = 200_000
REMEMBERED = 4  # views whose list is kept while its pages are turned

_DIGEST = re.compile(r"[0-9a-f]{32}")


Order = Literal["new", "topic"]


@dataclass(frozen=True, slots=True)
class Spot:
    """A place in a list of entries that a form leads back to; `of_all` are those shared."""

    order: Order = "new"
    part: int = 1
    of_all: bool = False

    @classmethod
    def read(cls, sent: Mapping[str, str], *, of_all: bool = False) -> Spot:
        """The place that a query or a form names; the beginning for anything else."""
        order = "topic" if sent.get("order") == "topic" else "new"
        return cls(order, whole(sent.get("part", ""), 1), of_all)

    def link(self, told: str = "", **more: object) -> str:
        """Its address; `told` is the key of a text to show there."""
        query = {"of": "all"} if self.of_all else {}
        query |= {
            "order": self.order,
            "part": self.part,
            **({"told": told} if told else {}),
            **more,
        }
        return f"{FILES}?{urlencode(query)}"


@dataclass(frozen=True, slots=True)
class Row:
    """An entry in the list: its words as HTML, what is told of it, and what names it to forms."""

    entry: Remembered
    html: str
    told: Sequence[str]
    short: str  # in the names of its buttons
    quote: str  # the words that forgetting looks for
    has_source: bool


@in_menu("/memory")
class MemoryBrowser(Pages):
    """Entries and files in the visitor's own space and shared with everyone, and searching them."""

    def __init__(self, memory: Memory, lookup: Lookup, database: Database) -> None:
        self._memory = memory
        self._lookup = lookup
        self._database = database
        # Each view's files in the order of the list, and after which edit of the notes.
        self._listed: LRUCache[MemoryView, tuple[int, Sequence[Listed]]] = LRUCache(REMEMBERED)
        # What each view's notes say, its own or (True) shared ones, and after which edit.
        self._entries: LRUCache[
            tuple[MemoryView, bool], tuple[int, tuple[Sequence[Remembered], bool]]
        ] = LRUCache(REMEMBERED)

    @route("GET", FILES, shared=True)
    async def _list(self, visit: Visit) -> web.Response:
        """The page of entries, newest first or by topic, a part at a time."""
        view, language = visit.view, visit.language
        if not view.space:
            return visit.page("memory_closed.html")
        spot = Spot.read(visit.request.query)
        of_all, today = visit.query("of") == "all", visit.today
        known, is_whole = await self._remembered(view, of_all=of_all)
        order = entries.by_topic if spot.order == "topic" else entries.newest_first
        part = part_of(await asyncio.to_thread(order, known), str(spot.part))
        space = SHARED_SPACE if of_all else view.space
        aging = await self._memory.uses.aging([space], today)
        group = partial(_topic_of if spot.order == "topic" else _day_of, language, today=today)
        rows = await asyncio.to_thread(
            lambda: [
                (name, [_row(language, each, aging, space) for each in found])
                for name, found in groupby(part.rows, key=group)
            ]
        )
        return visit.page(
            "memory.html",
            groups=rows,
            part=part,
            order=spot.order,
            of_all=of_all,
            is_whole=is_whole,
            has_shared=SHARED_SPACE in view.spaces,
            changes=not of_all or visit.is_owner,
            at=OF_ALL if of_all else FILES,
            saved=_saved(visit),
            file=visit.query("path"),
            most=MAX_WORDS,
            link=partial(link_to, visit),
        )

    async def _remembered(
        self, view: MemoryView, *, of_all: bool
    ) -> tuple[Sequence[Remembered], bool]:
        """The entries of a view; notes are read again only after an edit."""
        edits = self._memory.index.edits
        known = self._entries.get((view, of_all))
        if known is not None and known[0] == edits:
            return known[1]
        listed = await self._ordered(view)
        found = await remembered(self._memory, view, listed, shared=of_all)
        if edits is not None:
            self._entries[view, of_all] = edits, found
        return found

    @route("GET", ADVANCED, shared=True)
    async def _files(self, visit: Visit) -> web.Response:
        view, language = visit.view, visit.language
        if not view.space:
            return visit.page("memory_closed.html")
        ordered = await self._ordered(view)
        status = await status_of(self._memory, self._database, view, visit.today, ordered)
        first = visit.number("from")
        shown = ordered[first : first + LISTED]
        return visit.page(
            "memory_advanced.html",
            spaces=[
                (is_shared, list(rows))
                for is_shared, rows in groupby(shown, lambda each: _is_shared(each.path))
            ],
            size=size_in_words,
            before=visit.own(_pages(first - LISTED)) if first else "",
            after=visit.own(_pages(first + LISTED)) if len(ordered) > first + LISTED else "",
            health=status.lines(language, visit.now),
            trouble=status.trouble(language),
            building=status.index.building,
            how_far=partial(how_far, language),
            link=partial(link_to, visit),
            of_all=OF_ALL,
        )

    @route("GET", FILE, shared=True)
    async def _file(self, visit: Visit) -> web.Response:
        path, first = visit.query("path"), visit.number("line", 1)
        first = max(1, first - (first - 1) % SHOWN_LINES)
        excerpt = await self._memory.files.read(
            visit.view, path, first, SHOWN_LINES, SHOWN_CHARACTERS
        )
        is_shared = _is_shared(path)
        drawn = await asyncio.to_thread(note_blocks, excerpt.text, first)
        return visit.page(
            "memory_file.html",
            file=path,
            blocks=drawn,
            notes=excerpt.notes,
            link=partial(link_to, visit),
            before=link_to(visit, path, max(1, first - SHOWN_LINES)) if first > 1 else "",
            after=link_to(visit, path, excerpt.last + 1) if excerpt.more and excerpt.text else "",
            first=first,
            last=max(first, excerpt.last),
            is_shared=is_shared,
            changes=not is_shared or visit.is_owner,
            ages=await self._ages(visit, path, excerpt),
            at=OF_ALL if is_shared else FILES,
            query=urlencode({"path": path}),
            saved=_saved(visit),
        )

    @route("GET", f"{FILES}/search", shared=True)
    async def _search(self, visit: Visit) -> web.Response:
        language = visit.language
        query = " ".join(visit.query("q").split())
        if len(query) > MAX_WORDS:
            raise web.HTTPBadRequest
        hits: Sequence[Hit] = ()
        mode = ""
        if query and visit.view.space:
            found = await self._lookup.find(visit.view, query, visit.today)
            hits, mode = found.hits, mode_of(language, found)
        return visit.page(
            "memory_search.html",
            query=query,
            most=MAX_WORDS,
            mode=mode,
            found=hits,
            where=partial(where_found, language, zone=visit.zone),
            link=partial(_link_of, visit),
            words=words_found,
            why=partial(why_found, language),
        )

    async def _ages(self, visit: Visit, path: str, excerpt: Excerpt) -> Mapping[int, Age]:
        """The ages of the entries of a part of a note."""
        is_shared, space = _is_shared(path), visit.view.space
        work = partial(
            of_note,
            visit.language,
            path,
            excerpt.text,
            excerpt.first,
            await self._memory.uses.aging([space], visit.today),
            space=SHARED_SPACE if is_shared else space,
            changes=not is_shared,
        )
        return await asyncio.to_thread(work)

    async def _ordered(self, view: MemoryView) -> Sequence[Listed]:
        """A view's files, ordered; they are looked through again only when one was edited."""
        edits = self._memory.index.edits
        known = self._listed.get(view)
        if known is not None and known[0] == edits:
            return known[1]
        ordered = sorted(await self._memory.files.names(view), key=_order)
        if edits is not None:
            self._listed[view] = edits, ordered
        return ordered


def link_to(visit: Visit, path: str, line: int = 0) -> str:
    """The address of a file, at a line of it, in the memory that a visit is to."""
    return visit.own(address_of(path, line))


def address_of(path: str, line: int = 0) -> str:
    """The address of a file, at a line of it, in the memory of whoever answers in the page."""
    query = {"path": path} | ({"line": line} if line > SHOWN_LINES else {})
    return f"{FILE}?{urlencode(query)}{f'#L{line}' if line else ''}"


def size_in_words(size: int) -> str:
    """A size as people read it."""
    for unit, factor in (("MB", 1_000_000), ("kB", 1_000)):
        if size >= factor:
            return f"{size / factor:.1f} {unit}"
    return f"{size} B"


def _saved(visit: Visit) -> Mapping[str, Any] | None:
    """The last change: the previous version, if any, and the result."""
    base = visit.query("base")
    if "kept" not in visit.request.query or not _DIGEST.fullmatch(base):
        return None
    return {"kept": visit.number("kept"), "base": base}


def _is_shared(path: str) -> bool:
    return path.startswith(f"{SHARED_SPACE}/")


def _order(listed: Listed) -> tuple[bool, bool, int, str]:
    """The sort key of notes: one's own first, lasting facts before others, then the newest."""
    is_shared = _is_shared(listed.path)
    return is_shared, listed.path not in layout.CURATED, -listed.changed_at, listed.path


def _pages(first: int) -> str:
    return f"{ADVANCED}?from={max(0, first)}" if first > 0 else ADVANCED


def _day_of(language: str, each: Remembered, today: date) -> str:
    """The heading of an entry in the order of time."""
    said = each.claim.said
    if said is None:
        return text(language, "memory_page.undated")
    words = day_in_words(language, said, today)
    return words[:1].upper() + words[1:]


def _topic_of(language: str, each: Remembered, today: date) -> str:
    """The heading of an entry in the order of topics."""
    name = each.path.removeprefix(f"{SHARED_SPACE}/").removeprefix(f"{layout.NOTES_FOLDER}/")
    if each.topic:
        return each.topic
    if each.path in layout.CURATED:
        return text(language, f"memory_page.topic.{each.path.removesuffix(layout.SUFFIX)}")
    key = "memory_page.topic.days"
    return text(language, key) if is_day_note(each.path) else name.removesuffix(layout.SUFFIX)


def _row(language: str, each: Remembered, aging: Aging, space: str) -> Row:
    claim, today = aging.aged(each.claim, space), aging.today
    told = [source_of(language, claim, today)]
    if space != SHARED_SPACE:
        when = on_day(language, claim.used, today) if claim.used is not None else ""
        told.append(text(language, f"memory.{'used' if when else 'unused'}", when=when))
    if aging.is_faded(claim, space):
        told.append(text(language, "memory.aged.faded"))
    first = each.words.partition("\n")[0]
    has_source = claim.whose in {"owner", "agent"} and claim.said is not None
    return Row(
        each,
        _boxed(_html(each.words)),
        told,
        one_line(first, MOST_QUOTE),
        " ".join(first.split())[:MAX_WORDS],
        has_source and space != SHARED_SPACE,
    )


def _boxed(html: str) -> str:
    """An entry with the box that it has if it is a task."""
    return _BOX.sub(lambda box: f"<p>{'☐' if box[1] == ' ' else '☑'} ", html)


def _link_of(visit: Visit, hit: Hit) -> str:
    return link_to(visit, layout.shown(hit.space, hit.path), hit.start_line) if is_note(hit) else ""


# --- the message an entry came from, the quotes a reply was given ---------------------------------


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
                    "link": _link_of_source(tx, view, session, each),
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


def _link_of_source(tx: Transaction, view: MemoryView, session: Session, quote: Quote) -> str:
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
