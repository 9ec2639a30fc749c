"""`transcript_search`: the person's own past conversations, word for word."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, tzinfo
from typing import Any, Protocol

from pydantic import Field

from bot.agent.tools import ToolContext
from bot.agent.tools.elsewhere import Elsewhere
from bot.agent.tools.parameters import Parameters, Words
from bot.agent.transcript import origins_of
from bot.errors import NotVisible
from bot.facts import Quote, Quoted, excerpt
from bot.messages import CLEAN
from bot.scope import MemoryView
from bot.sessions.search import Hit

MAX_QUERY = 500  # characters
MAX_LIMIT = 20
DEFAULT_LIMIT = 6


class Search(Parameters):
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


class Transcripts(Protocol):
    """Past conversations, searchable."""

    async def search(self, view: MemoryView, query: str, limit: int) -> Sequence[Hit]:
        """Messages a view may see that match the words, best first."""
        ...


class TranscriptSearch:
    """Searches the conversations the view may see, and no others."""

    spec = Search.spec(
        "transcript_search",
        "Search what was said in this person's past conversations with you, by words, in any "
        "language. Use it before you answer a question about the past. Answers quote messages "
        "with their date.",
        tells_origins=True,
    )

    def __init__(self, transcripts: Transcripts, elsewhere: Elsewhere | None = None) -> None:
        self._transcripts = transcripts
        self._elsewhere = elsewhere or Elsewhere()

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> Quoted:
        """Search, and quote what was found.

        Raises:
            ToolError: wrong arguments, or the view has no conversations.
        """
        asked = Search.of(arguments)
        query, limit = asked.query, asked.limit
        if not context.view.keys:
            raise NotVisible
        hits = await self._transcripts.search(context.view, query, limit)
        note = self._elsewhere.note(context)
        if not hits:
            head = f"No past message matches. {note}".rstrip()
            return Quoted((), head=head, elsewhere=bool(note))
        strange = (hit.text for hit in hits[:limit] if origins_of(hit.role, hit.content) - CLEAN)
        context.memory.foreign.extend(strange)
        zone = context.now.tzinfo or UTC
        quotes = tuple(_quote(hit, query, zone) for hit in hits[:limit])
        return Quoted(quotes, head=note, elsewhere=bool(note))


def _quote(hit: Hit, query: str, zone: tzinfo) -> Quote:
    date = datetime.fromtimestamp(hit.at / 1000, zone)
    where = (f"{date:%Y-%m-%d %H:%M}", hit.role, f"session {hit.session_id}")
    return Quote(where, excerpt(hit.text, _terms(query)), by=hit.role)


def _terms(query: str) -> list[str]:
    """What to look for in a message: the words, and pairs of characters of those without spaces."""
    words = query.split()
    pairs = [w[i : i + 2] for w in words if not w.isascii() for i in range(len(w) - 1)]
    return [query, *words, *pairs]
