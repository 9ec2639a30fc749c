"""`/memory`: the files a visitor may see, each of them as a page, and what was saved of late."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from functools import partial
from typing import Any
from urllib.parse import urlencode

from aiohttp import web
from cachetools import LRUCache

from bot.channel.visitor import shared, visitor_of
from bot.clock import DAY_MS, Clock, moment, to_the_minute
from bot.commands.memory import (
    MAX_WORDS,
    WHY,
    asked_lines,
    faded_lines,
    how_far,
    mode_of,
    told_of,
    whys,
)
from bot.dashboard import pages
from bot.dashboard.memory import drawing
from bot.dashboard.memory.drawing import Source, source_of
from bot.dashboard.pages import Visits
from bot.errors import NotVisible, ToolError
from bot.i18n import text
from bot.identity import Conversation
from bot.identity.view import SHARED_SPACE, MemoryView, is_owners_own
from bot.memory import claims, dates, layout, markdown, selftest
from bot.memory.claims import FADED, Aging
from bot.memory.files import Excerpt, Listed
from bot.memory.lookup import Lookup, is_note
from bot.memory.memory import Memory, Overview
from bot.memory.search import Hit
from bot.storage import Database, Transaction

MOST_QUOTE = 80  # characters of an entry in the name of its button


@dataclass(frozen=True, slots=True)
class Age:
    """What is told of an entry that makes a `claim`, and which buttons it has."""

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


DAYS = 7
MOST_WORDS = 160  # characters of an entry


@dataclass(frozen=True, slots=True)
class Saved:
    """An entry that the bot wrote: where it stands, what it says, and whose words it is."""

    path: str
    line: int
    words: str
    source: Source


def by_day(notes: Mapping[str, str], today: date) -> list[tuple[date, Sequence[Saved]]]:
    """The last days, today first, with what was saved on each; `notes` are texts by path."""
    days = [today - timedelta(days=number) for number in range(DAYS)]
    found: dict[date, list[Saved]] = {day: [] for day in days}
    for path, note in notes.items():
        for day, saved in _entries(path, note):
            if day is not None and day in found:
                found[day].append(saved)
    return [(day, found[day]) for day in days]


def _entries(path: str, text: str) -> Iterator[tuple[date | None, Saved]]:
    lines = text.split("\n")
    named = dates.first_day(path.rsplit("/", 1)[-1])
    for item in markdown.items(text):
        source = source_of(lines[item.start])
        if source is None or source.until:
            continue
        words = " ".join(markdown.plain(item.text).split())
        short = words if len(words) <= MOST_WORDS else f"{words[:MOST_WORDS]}…"
        day = named or dates.first_day(source.day)
        yield day, Saved(path, item.start + 1, short, source)


FILES = "/memory"
FILE = "/memory/file"
OF_ALL = "/memory/shared"  # where the owner changes what is shared with everyone
LISTED = 100  # files of one page
SHOWN_LINES = 1_000  # of a file on one page
SHOWN_CHARACTERS = 200_000
READ_OF_LATE = 50  # files that are looked through for what was saved
LATE_CHARACTERS = 200_000  # of each of them
REMEMBERED = 4  # views whose list is kept while its pages are turned
MOST_NUMBER = 10_000_000  # of a line or a file that is asked for

_DIGEST = re.compile(r"[0-9a-f]{32}")


Week = Sequence[tuple[date, Sequence[Saved]]]


@dataclass(frozen=True, slots=True)
class Row:
    """A file as a row of the list."""

    path: str
    link: str
    size: str
    changed: str


class MemoryBrowser:
    """Files of the visitor's own space, and of what is shared with everyone."""

    def __init__(self, visits: Visits, memory: Memory, database: Database, clock: Clock) -> None:
        self._visits = visits
        self._memory = memory
        self._database = database
        self._clock = clock
        # Each view's files in the order of the list, and after which edit of the notes.
        self._listed: LRUCache[MemoryView, tuple[int, Sequence[Listed]]] = LRUCache(REMEMBERED)
        # What was saved of late in each view, after which edit, and as of which day.
        self._late: LRUCache[MemoryView, tuple[int, date, Week]] = LRUCache(REMEMBERED)

    def routes(self) -> list[web.RouteDef]:
        """Where they are; each visitor sees what their view permits."""
        return shared([web.get(FILES, self._files), web.get(FILE, self._file)])

    async def _files(self, request: web.Request) -> web.Response:
        who = self._visits.of(request)
        if not who.view.space:
            return pages.page(request, "memory_closed.html")
        language, now = pages.language(request), self._clock()
        is_owner = visitor_of(request).is_owner
        ordered = await self._ordered(who.view)
        overview = await self._memory.overview(who.view, ordered)
        first = number_of(request, "from", 0)
        return pages.page(
            request,
            "memory.html",
            spaces=_spaces(ordered[first : first + LISTED], who, language),
            most=MAX_WORDS,
            before=_pages(first - LISTED) if first else "",
            after=_pages(first + LISTED) if len(ordered) > first + LISTED else "",
            days=[] if first else await self._of_late(who, ordered, now),
            health=_health(language, overview, now, await self._told(who, language, now)),
            link=link_to,
            shares=is_owner,
            at=FILES,
            of_all=OF_ALL,
        )

    async def _file(self, request: web.Request) -> web.Response:
        who, path = self._visits.of(request), request.query.get("path", "")
        first = number_of(request, "line", 1)
        first = max(1, first - (first - 1) % SHOWN_LINES)
        try:
            excerpt = await self._memory.files.read(
                who.view, path, first, SHOWN_LINES, SHOWN_CHARACTERS
            )
        except NotVisible:
            return pages.refuse_status(request, 404)
        except ToolError as error:
            return pages.page(request, "memory_unreadable.html", 503, path=path, why=str(error))
        is_shared = path.startswith(f"{SHARED_SPACE}/")
        drawn = await asyncio.to_thread(drawing.blocks, excerpt.text, first)
        changes = not is_shared or visitor_of(request).is_owner
        return pages.page(
            request,
            "memory_file.html",
            file=path,
            blocks=drawn,
            notes=excerpt.notes,
            link=link_to,
            before=link_to(path, max(1, first - SHOWN_LINES)) if first > 1 else "",
            after=link_to(path, excerpt.last + 1) if excerpt.more and excerpt.text else "",
            first=first,
            last=max(first, excerpt.last),
            is_shared=is_shared,
            changes=changes,
            ages=await self._ages(request, who, path, excerpt),
            confirmed=request.query.get("confirmed", ""),
            at=OF_ALL if is_shared else FILES,
            query=urlencode({"path": path}),
            saved=_saved(request),
        )

    async def _ages(
        self, request: web.Request, who: Conversation, path: str, excerpt: Excerpt
    ) -> Mapping[int, Age]:
        """The ages of the entries of a part of a note."""
        is_shared = path.startswith(f"{SHARED_SPACE}/")
        space, today = who.view.space, moment(self._clock(), who.zone).date()
        work = partial(
            of_note,
            pages.language(request),
            path,
            excerpt.text,
            excerpt.first,
            await self._memory.uses.aging([space], today),
            space=SHARED_SPACE if is_shared else space,
            changes=not is_shared,
        )
        return await asyncio.to_thread(work)

    async def _told(self, who: Conversation, language: str, now: int) -> Sequence[str]:
        """What else there is to say: what is found at night, and how much has faded."""
        faded = await self._memory.faded(who.view, moment(now, who.zone).date())
        return [*await self._asked(who.view, language), *faded_lines(language, faded)]

    async def _asked(self, view: MemoryView, language: str) -> Sequence[str]:
        """What came of the nightly questions, in words: of a view's own space, and its share."""
        sees_others = is_owners_own(view)

        def work(tx: Transaction) -> Sequence[str]:
            others = selftest.of_others(tx) if sees_others else None
            return asked_lines(language, selftest.of_space(tx, view.space), others)

        return await self._database.read(work)

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

    async def _of_late(
        self, who: Conversation, listed: Sequence[Listed], now: int
    ) -> list[tuple[str, str, Sequence[Saved]]]:
        """What was saved on each of the last days, today first."""
        edits, today = self._memory.index.edits, moment(now, who.zone).date()
        known = self._late.get(who.view)
        if known is not None and known[:2] == (edits, today):
            found = known[2]
        else:
            texts = await self._texts_of_late(who.view, listed, now)
            found = await asyncio.to_thread(by_day, texts, today)
            if edits is not None:
                self._late[who.view] = edits, today, found
        return [(_day(who.language, day), f"{day:%Y-%m-%d}", saved) for day, saved in found]

    async def _texts_of_late(
        self, view: MemoryView, listed: Sequence[Listed], now: int
    ) -> Mapping[str, str]:
        """The files of a view's own space that were changed last, by path."""
        since = now - DAYS * DAY_MS - DAY_MS
        own = [each for each in listed if not each.path.startswith(f"{SHARED_SPACE}/")]
        late = sorted((f for f in own if f.changed_at >= since), key=lambda f: -f.changed_at)
        return {
            each.path: await self._memory.files.text(view, each.path, LATE_CHARACTERS)
            for each in late[:READ_OF_LATE]
        }


def link_to(path: str, line: int = 0) -> str:
    """Where a file is shown, at a line of it."""
    query = {"path": path} | ({"line": line} if line > SHOWN_LINES else {})
    return f"{FILE}?{urlencode(query)}{f'#L{line}' if line else ''}"


def number_of(request: web.Request, name: str, otherwise: int) -> int:
    """A whole number of the query; `otherwise` for anything else."""
    value = request.query.get(name, "")
    is_number = value.isascii() and value.isdigit() and len(value) <= len(str(MOST_NUMBER))
    return int(value) if is_number else otherwise


def size_in_words(size: int) -> str:
    """A size as people read it."""
    for unit, factor in (("MB", 1_000_000), ("kB", 1_000)):
        if size >= factor:
            return f"{size / factor:.1f} {unit}"
    return f"{size} B"


def _saved(request: web.Request) -> Mapping[str, Any] | None:
    """What was changed just now: the version before, if any, and what the change came to."""
    base = request.query.get("base", "")
    if "kept" not in request.query or not _DIGEST.fullmatch(base):
        return None
    return {"kept": number_of(request, "kept", 0), "base": base}


def _spaces(
    listed: Sequence[Listed], who: Conversation, language: str
) -> list[tuple[str, Sequence[Row]]]:
    """The files by space, with what each space is called."""
    named: dict[str, list[Row]] = {}
    for each in listed:
        kind = "shared" if each.path.startswith(f"{SHARED_SPACE}/") else "own"
        named.setdefault(text(language, f"memory_page.space.{kind}"), []).append(
            Row(
                each.path,
                link_to(each.path),
                size_in_words(each.size),
                to_the_minute(each.changed_at, who.zone),
            )
        )
    return list(named.items())


def _order(listed: Listed) -> tuple[bool, bool, int, str]:
    """What is one's own first, with its lasting facts; then what was changed last."""
    is_shared = listed.path.startswith(f"{SHARED_SPACE}/")
    return is_shared, listed.path not in layout.CURATED, -listed.changed_at, listed.path


def _pages(first: int) -> str:
    return f"{FILES}?from={max(0, first)}" if first > 0 else FILES


def _day(language: str, day: date) -> str:
    weekday = text(language, f"memory_page.weekday.{day.weekday()}")
    return f"{weekday} {day:%Y-%m-%d}"


def _health(language: str, found: Overview, now: int, asked: Sequence[str]) -> Mapping[str, Any]:
    """How the index is doing, in words."""
    told = [
        text(language, "memory.files", files=found.files, chunks=found.chunks),
        _part(language, "words", found.words_off),
        _part(language, "meaning", found.vectors_off, model=found.model),
    ]
    if found.synced_at:
        told.append(text(language, "memory.synced", seconds=max(0, now - found.synced_at) // 1000))
    told += asked
    trouble = [text(language, "memory.degraded", part=part) for part in found.degraded]
    building = found.building and {
        "words": how_far(language, found.building),
        "done": found.building.done,
        "total": max(found.building.total, 1),
    }
    return {"told": told, "trouble": trouble, "building": building}


def _part(language: str, name: str, off: str, **values: object) -> str:
    if not off:
        return text(language, f"memory.{name}_on", **values)
    why = text(language, f"memory.why.{off}") if off in WHY else off
    return text(language, f"memory.{name}_off", why=why)


SEARCH = f"{FILES}/search"


@dataclass(frozen=True, slots=True)
class Found:
    """A passage as the page shows it; `link` is empty for what was said."""

    where: str
    link: str
    words: Sequence[str]
    why: str


class MemorySearching:
    """Searches what the visitor's view permits."""

    def __init__(self, visits: Visits, lookup: Lookup, clock: Clock) -> None:
        self._visits = visits
        self._lookup = lookup
        self._clock = clock

    def routes(self) -> list[web.RouteDef]:
        """Where it is."""
        return shared([web.get(SEARCH, self._search)])

    async def _search(self, request: web.Request) -> web.Response:
        who, language = self._visits.of(request), pages.language(request)
        query = " ".join(request.query.get("q", "").split())
        if len(query) > MAX_WORDS:
            return pages.refuse_status(request, 400)
        hits: Sequence[Hit] = ()
        mode = ""
        if query and who.view.space:
            found = await self._lookup.find(who.view, query, moment(self._clock(), who.zone).date())
            hits, mode = found.hits, mode_of(language, found)
        return pages.page(
            request,
            "memory_search.html",
            query=query,
            most=MAX_WORDS,
            mode=mode,
            found=[_shown(hit, who, language) for hit in hits],
        )


def _shown(hit: Hit, who: Conversation, language: str) -> Found:
    words = markdown.readable(hit.snippet).strip().splitlines()
    why = whys(language, hit.why)
    if hit.strength < FADED:
        why = f"{why} · {text(language, 'memory.aged.faded')}"
    if not is_note(hit):
        said = to_the_minute(hit.at, who.zone)
        return Found(text(language, "memory.said", when=said), "", words, why)
    path = layout.shown(hit.space, hit.path)
    lines = f"{hit.start_line}-{hit.end_line}" if hit.end_line > hit.start_line else hit.start_line
    return Found(f"{path}:{lines}", link_to(path, hit.start_line), words, why)
