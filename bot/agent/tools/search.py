"""`memory_search` and `transcript_search`: what is remembered, and what was said."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, tzinfo
from typing import Any

from cachetools import LRUCache
from pydantic import Field

from bot.agent.tools import MemoryPassage, Parameters, ToolContext, Words, passages
from bot.clock import to_the_minute
from bot.context import sentences, wishes
from bot.context.history import is_canned, origins_of
from bot.errors import NotVisible
from bot.identity.view import SHARED_SPACE, MemoryView, is_owners_own
from bot.memory import layout, markdown
from bot.memory.entries import of_note
from bot.memory.note_store import MAX_WRITE
from bot.memory.notes import Place, SpaceFiles
from bot.memory.search import Findings, Searcher, how
from bot.memory.search import Hit as Found
from bot.messages import CLEAN, Quote, Quoted, excerpt
from bot.plugins import Passage
from bot.sessions import entries
from bot.sessions.browsing import Hit, TranscriptIndex
from bot.sessions.entries import Entry
from bot.storage import fulltext

# --- memory_search -------------------------------------------------------------------------------

MAX_QUERY = 500  # characters
MAX_LIMIT = 20
NEWEST = 10  # notes that are quoted when a query says nothing
MORE = 3  # times as many are looked for when canned answers and questions are among the first


class MemoryQuery(Parameters):
    """Parameters: the query."""

    query: Words = Field(
        max_length=MAX_QUERY,
        description=f"What to look for, at most {MAX_QUERY} characters.",
    )
    limit: int | None = Field(
        None,
        ge=1,
        le=MAX_LIMIT,
        description="Most passages to quote, or twice as many short ones of a list; leave it out "
        "for the usual number.",
    )


class MemorySearch:
    """Searches the partitions of the view, and no others."""

    spec = MemoryQuery.spec(
        "memory_search",
        "Search what is remembered about this person or room, by meaning and by words, in any "
        "language: notes, lasting facts, shared knowledge and past conversations. Use it before "
        "you answer about people, dates, preferences, decisions or anything said before. Answers "
        "quote passages with their file and lines, and how well they match, from 0 to 1; "
        "memory_get shows more of a file.",
        tells_origins=True,
        built_in=True,
        of_memory=True,
        repeatable=True,
        short="Search notes and past conversations for what the person told before.",
        few=("query",),
    )

    def __init__(
        self,
        searcher: Searcher,
        files: SpaceFiles,
        transcripts: TranscriptIndex,
        elsewhere: Elsewhere | None = None,
        others: Callable[[str], Awaitable[list[tuple[str, Passage]]]] | None = None,
    ) -> None:
        """`others` are searches of packages, which the owner's direct chats have too."""
        self._others = others
        self._searcher = searcher
        self._files = files
        self._transcripts = transcripts
        self._elsewhere = elsewhere or Elsewhere()

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> Quoted:
        """Search, and quote what was found.

        Raises:
            ToolError: wrong arguments, or the view has no memory.
        """
        asked = MemoryQuery.from_arguments(arguments)
        if not context.view.partitions:
            raise NotVisible
        if not fulltext.has_content(asked.query) or wishes.asks_to_read(asked.query) == "notes":
            return await self._newest(context, asked.limit or NEWEST)
        found, hits, said = await self._find(asked.query, context, asked.limit)
        mode = f"Searched by {how(found)}."
        beside = await self._beside(asked.query, context)
        if not hits and not beside:
            note = self._elsewhere.note(context)
            head = f"Nothing in memory matches. {mode} {note}".rstrip()
            return Quoted((), head=head, elsewhere=bool(note))
        context.memory.recalled.extend(recalled(hit) for hit in hits if is_file(hit))
        for _, others in await parted(self._files, context.view, hits):
            context.memory.foreign.extend(others)
        shown = {hit.path for hit in hits}
        context.memory.foreign.extend(
            entry.text for entry in said if entry.id in shown and origins_of(entry.content) - CLEAN
        )
        zone = context.now.tzinfo or UTC
        quotes = tuple(_judged(quote(hit, zone), hit) for hit in hits)
        return Quoted((*quotes, *beside), head=mode)

    async def _beside(self, query: str, context: ToolContext) -> tuple[Quote, ...]:
        """Quotes found by searches of packages: somebody else's words."""
        if self._others is None or not is_owners_own(context.view):
            return ()
        found = await self._others(query)
        context.memory.foreign.extend(each.text for _, each in found)
        return tuple(Quote((each.where, f"found by {name}"), each.text) for name, each in found)

    async def _newest(self, context: ToolContext, limit: int) -> Quoted:
        """Quotes of a view's own notes, as `newest` has them."""
        quotes = await newest(self._files, context.view, limit)
        found = Quoted(tuple(quotes), head="The newest notes, as the query names nothing.")
        context.memory.recalled.extend(passages(found))
        return found if quotes else Quoted((), head="Nothing is noted yet.")

    async def _find(
        self, query: str, context: ToolContext, limit: int | None
    ) -> tuple[Findings, list[Found], Sequence[Entry]]:
        """The passages to quote, questions after everything else; and the messages among them.

        Where canned answers and questions took places, more is looked for once, to fill these.
        """
        view, today = context.view, context.now.date()
        found = await self._searcher.search(query, view.partitions, limit, today=today)
        most = len(found.hits) if limit is None or found.many else limit
        hits, said, questions = await self._worth_quoting(view, found.hits)
        if len(hits) - len(questions) < most == len(found.hits):
            wider = await self._searcher.search(query, view.partitions, most * MORE, today=today)
            more = wider.hits
            known = {where(hit) for hit in found.hits}
            new = [hit for hit in more if where(hit) not in known]
            others, also_said, also_asked = await self._worth_quoting(view, new)
            hits, said, questions = hits + others, [*said, *also_said], questions | also_asked
        hits.sort(key=lambda hit: hit.path in questions)
        return found, hits[:most], said

    async def _worth_quoting(
        self, view: MemoryView, found: Sequence[Found]
    ) -> tuple[list[Found], Sequence[Entry], frozenset[str]]:
        """Passages that say something, the messages among them, and which of these only ask."""
        seen = (hit for hit in found if may_see(view, hit))
        hits = [hit for hit in seen if not markdown.says_nothing(hit.snippet)]
        said = await self._transcripts.entries([hit.path for hit in hits if not is_file(hit)])
        canned = {entry.id for entry in said if is_canned(entry.content)}
        questions = await asyncio.to_thread(_questions, said)
        quotable = {entry.id for entry in said} - canned
        return [hit for hit in hits if is_file(hit) or hit.path in quotable], said, questions


def _questions(said: Sequence[Entry]) -> frozenset[str]:
    """The ids of messages that only ask; they may be long, so this runs in a thread."""
    return frozenset(
        entry.id for entry in said if entry.role == "user" and sentences.only_asks(entry.text)
    )


def is_file(hit: Found) -> bool:
    """True for a passage of a file, False for one of a conversation."""
    return hit.source != "transcript"


def may_see(view: MemoryView, hit: Found) -> bool:
    """True if a passage is visible in a view: what the index returns is checked again."""
    if not is_file(hit):
        return True  # a conversation: the index was asked for the view's own and no others
    return layout.may_see(view, hit.space, hit.path)


def quote(hit: Found, zone: tzinfo, fact: str = "", *, by_bot: bool = False) -> Quote:
    """A passage with where it stands, or when it was said, and a fact about it.

    What was said may have been said `by_bot`.
    """
    if is_file(hit):
        place, text = recalled(hit).place, markdown.readable(hit.snippet)
        return Quote((where(hit), fact or hit.source), text, place.path, place.line)
    said = to_the_minute(hit.at, zone)
    how = "said by you" if by_bot else "said"
    how = "said to another program" if entries.is_imported(hit.path) else how
    return Quote((said, how, f"message {hit.path}"), hit.snippet, by="said")


def _judged(quoted: Quote, hit: Found) -> Quote:
    """A passage with how well it answers, each of its lines too, and whether it is of the time."""
    lines = tuple((round(line.words, 2), round(line.meaning, 3)) for line in hit.lines)
    if len(lines) != quoted.text.count("\n") + 1:  # a comment of several lines is not quoted
        lines = ()
    match = round(float(hit.score), 2)
    return replace(quoted, match=match, lines=lines, of_time=hit.why.by_date)


async def newest(files: SpaceFiles, view: MemoryView, limit: int) -> list[Quote]:
    """Quotes of a view's own notes: lasting facts first, then the newest of each other file."""
    curated, quotes = layout.curated_files(view), list[Quote]()
    for each in sorted(
        await files.names(view),
        key=lambda file: (file.path not in curated, -file.changed_at, file.path),
    ):
        if len(quotes) >= limit:
            break
        if each.path.startswith(f"{SHARED_SPACE}/"):
            continue
        text = await files.text(view, each.path, MAX_WRITE)
        told = await asyncio.to_thread(list, of_note(each.path, text))
        own = [one.claim for one in told if one.claim.whose != "untrusted"]
        quotes += [
            Quote((f"{each.path}:{claim.first}", "newest"), claim.text, each.path, claim.first)
            for claim in own[: -limit // 2 - 1 : -1]
        ]
    return quotes[:limit]


async def parted(
    files: SpaceFiles, view: MemoryView, hits: Sequence[Found]
) -> list[tuple[str, list[str]]]:
    """Each passage without the lines that are, or are part of, what came from elsewhere; and those.

    A passage of a file may hold a part of such an entry without its mark.
    """
    some = [(layout.shown(hit.space, hit.path), hit.snippet) for hit in hits if is_file(hit)]
    found = iter(await files.parted(view, some) if some else ())
    return [next(found) if is_file(hit) else (hit.snippet, []) for hit in hits]


def recalled(hit: Found) -> MemoryPassage:
    """A passage as what the model now knows."""
    return MemoryPassage(Place(layout.shown(hit.space, hit.path), hit.start_line), hit.snippet)


def where(hit: Found) -> str:
    """A passage's file and lines: `memory/trip.md:3-5`."""
    lines = str(hit.start_line)
    if hit.end_line > hit.start_line:
        lines += f"-{hit.end_line}"
    return f"{layout.shown(hit.space, hit.path)}:{lines}"


# --- transcript_search ---------------------------------------------------------------------------

DEFAULT_LIMIT = 6


class TranscriptQuery(Parameters):
    """Words to look for."""

    query: Words = Field(
        max_length=MAX_QUERY, description=f"Words to look for, at most {MAX_QUERY} characters."
    )
    limit: int = Field(
        DEFAULT_LIMIT,
        ge=1,
        le=MAX_LIMIT,
        description=f"Most messages to quote; {DEFAULT_LIMIT} if left out.",
    )


class TranscriptSearch:
    """Searches the conversations the view may see, and no others."""

    spec = TranscriptQuery.spec(
        "transcript_search",
        "Search what was said in this person's past conversations with you, by words, in any "
        "language. Use it before you answer a question about the past. Answers quote messages "
        "with their date.",
        tells_origins=True,
        built_in=True,
        of_memory=True,
        repeatable=True,
    )

    def __init__(self, transcripts: TranscriptIndex, elsewhere: Elsewhere | None = None) -> None:
        self._transcripts = transcripts
        self._elsewhere = elsewhere or Elsewhere()

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> Quoted:
        """Search, and quote what was found.

        Raises:
            ToolError: wrong arguments, or the view has no conversations.
        """
        asked = TranscriptQuery.from_arguments(arguments)
        query, limit = asked.query, asked.limit
        if not context.view.keys:
            raise NotVisible
        found = await self._transcripts.search(context.view, query, limit)
        hits = [hit for hit in found if not is_canned(hit.content)][:limit]
        if not hits:
            note = self._elsewhere.note(context)
            head = f"No past message matches. {note}".rstrip()
            return Quoted((), head=head, elsewhere=bool(note))
        strange = (hit.text for hit in hits if origins_of(hit.content) - CLEAN)
        context.memory.foreign.extend(strange)
        zone = context.now.tzinfo or UTC
        quotes = tuple(_quote(hit, query, zone) for hit in hits)
        return Quoted(quotes)


def _quote(hit: Hit, query: str, zone: tzinfo) -> Quote:
    program = entries.imported_name(hit.channel)
    who = hit.role
    if program:  # neither the person nor the model said it here
        who = f"said to {program}, not to you" if hit.role == "user" else f"said by {program}"
    where = (to_the_minute(hit.at, zone), who, f"session {hit.session_id}")
    return Quote(where, excerpt(hit.text, _terms(query)), by="said" if program else hit.role)


def _terms(query: str) -> list[str]:
    """Terms to look for in a message: words, and pairs of characters where there are no spaces."""
    words = query.split()
    pairs = [w[i : i + 2] for w in words if not w.isascii() for i in range(len(w) - 1)]
    return [query, *words, *pairs]


# --- what no search finds ------------------------------------------------------------------------

NOTE = (
    "Not searched: what this person may have said with an account elsewhere that is not joined to "
    "this one. If that is what they ask for, say so once: in a direct chat /link gives a code with "
    "one of the two accounts, and typed with the other it joins both."
)
MAX_TOLD = 1_000  # conversations that are remembered as told


class Elsewhere:
    """Notes, once a conversation, that a person may have said something with another account.

    Args:
        channels: the places there are.
        known: in which of them the configuration knows an account of somebody, by identity.
    """

    def __init__(
        self, channels: Iterable[str] = (), known: Mapping[str, Collection[str]] | None = None
    ) -> None:
        self._places = frozenset(channels)
        self._known = known or {}
        self._told: LRUCache[str, None] = LRUCache(MAX_TOLD)

    def note(self, context: ToolContext) -> str:
        """`NOTE` for a search of a direct chat that found nothing, else empty.

        Empty also when each place here has an account of the person, or this conversation had it.
        """
        people, target = context.view.people, context.target
        if not people or context.session_id in self._told:
            return ""
        known = {target.address.channel} if target is not None else set[str]()
        for person in people:
            channel, is_account, _ = person.partition(":")
            known.update((channel,) if is_account else self._known.get(person, ()))
        if self._places <= known:
            return ""
        self._told[context.session_id] = None
        return NOTE
