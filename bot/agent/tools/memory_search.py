"""`memory_search`: what memory says about something, in the person's words or others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, tzinfo
from typing import Any, Protocol

from pydantic import Field

from bot.agent.tools import Recalled, ToolContext
from bot.agent.tools.elsewhere import Elsewhere
from bot.agent.tools.parameters import Parameters, Words
from bot.agent.transcript import origins_of
from bot.errors import NotVisible
from bot.facts import Quote, Quoted
from bot.memory import markdown, paths
from bot.memory.files import SpaceFiles
from bot.memory.notes import Place
from bot.memory.search import Found, Searcher, how
from bot.messages import CLEAN
from bot.scope import MemoryView
from bot.sessions.entries import Entry

MAX_QUERY = 500  # characters
MAX_LIMIT = 20


class Search(Parameters):
    """What to look for."""

    query: Words = Field(
        max_length=MAX_QUERY,
        description=f"What to look for, at most {MAX_QUERY} characters.",
    )
    limit: int | None = Field(
        None,
        ge=1,
        le=MAX_LIMIT,
        description="Most passages to quote; leave it out for the usual number.",
    )


class Transcripts(Protocol):
    """Where conversations are kept."""

    async def entries(self, ids: Sequence[str]) -> Sequence[Entry]:
        """Entries by their ids; what is not there is left out."""
        ...


class MemorySearch:
    """Searches the partitions of the view, and no others."""

    spec = Search.spec(
        "memory_search",
        "Search what is remembered about this person or room, by meaning and by words, in any "
        "language: notes, lasting facts, shared knowledge and past conversations. Use it before "
        "you answer about people, dates, preferences, decisions or anything said before. Answers "
        "quote passages with their file and lines, and how well they match, from 0 to 1; "
        "memory_get shows more of a file.",
        tells_origins=True,
    )

    def __init__(
        self,
        searcher: Searcher,
        files: SpaceFiles,
        transcripts: Transcripts,
        elsewhere: Elsewhere | None = None,
    ) -> None:
        self._searcher = searcher
        self._files = files
        self._transcripts = transcripts
        self._elsewhere = elsewhere or Elsewhere()

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> Quoted:
        """Search, and quote what was found.

        Raises:
            ToolError: wrong arguments, or the view has no memory.
        """
        asked = Search.of(arguments)
        if not context.view.partitions:
            raise NotVisible
        partitions, limit = context.view.partitions, asked.limit
        found = await self._searcher.search(asked.query, partitions, limit)
        seen = (hit for hit in found.hits if may_see(context.view, hit))
        hits = [hit for hit in seen if not markdown.says_nothing(hit.snippet)][:limit]
        note = self._elsewhere.note(context)
        mode = f"Searched by {how(found)}. {note}".rstrip()
        if not hits:
            return Quoted((), head=f"Nothing in memory matches. {mode}", elsewhere=bool(note))
        context.memory.recalled.extend(recalled(hit) for hit in hits if is_file(hit))
        for _, others in await parted(self._files, context.view, hits):
            context.memory.foreign.extend(others)
        said = await self._transcripts.entries([hit.path for hit in hits if not is_file(hit)])
        context.memory.foreign.extend(
            entry.text for entry in said if origins_of(entry.role, entry.content) - CLEAN
        )
        zone = context.now.tzinfo or UTC
        quotes = tuple(replace(quote(hit, zone), match=round(float(hit.score), 2)) for hit in hits)
        return Quoted(quotes, head=mode, elsewhere=bool(note))


def is_file(hit: Found) -> bool:
    """Whether a passage stands in a Markdown file, not in a conversation."""
    return hit.path.endswith(paths.SUFFIX)


def may_see(view: MemoryView, hit: Found) -> bool:
    """Whether a passage is visible in a view: what an index answers is checked once more."""
    if not is_file(hit):
        return True  # a conversation: the index was asked for the view's own and no others
    if hit.space not in view.spaces:
        return False
    try:
        paths.resolve(view, paths.shown(hit.space, hit.path))
    except NotVisible:
        return False
    return True


def quote(hit: Found, zone: tzinfo, fact: str = "") -> Quote:
    """A passage with where it stands, or when it was said, and a fact about it."""
    if is_file(hit):
        place, text = recalled(hit).place, markdown.readable(hit.snippet)
        return Quote((where(hit), fact or hit.source), text, place.path, place.line)
    said = f"{datetime.fromtimestamp(hit.at / 1000, zone):%Y-%m-%d %H:%M}"
    return Quote((said, "said", f"message {hit.path}"), hit.snippet, by="said")


async def parted(
    files: SpaceFiles, view: MemoryView, hits: Sequence[Found]
) -> list[tuple[str, list[str]]]:
    """Each passage without the lines that are, or are part of, what came from elsewhere; and those.

    A passage of a file may hold a part of such an entry without its mark.
    """
    snippets: dict[str, list[str]] = {}
    for hit in hits:
        if is_file(hit):
            snippets.setdefault(paths.shown(hit.space, hit.path), []).append(hit.snippet)
    done = {
        (path, snippet): parts
        for path, some in snippets.items()
        for snippet, parts in zip(some, await files.parted(view, path, some), strict=True)
    }
    return [
        done.get((paths.shown(hit.space, hit.path), hit.snippet), (hit.snippet, [])) for hit in hits
    ]


def recalled(hit: Found) -> Recalled:
    """A passage as what the model now knows."""
    return Recalled(Place(paths.shown(hit.space, hit.path), hit.start_line), hit.snippet)


def where(hit: Found) -> str:
    """A passage's file and lines: `memory/trip.md:3-5`."""
    lines = str(hit.start_line)
    if hit.end_line > hit.start_line:
        lines += f"-{hit.end_line}"
    return f"{paths.shown(hit.space, hit.path)}:{lines}"
