"""`web_search`: asks a search service, whichever the operator chose."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import structlog
from pydantic import Field

from bot.agent.tools import ToolContext
from bot.agent.tools.parameters import Parameters, Words
from bot.errors import ToolError
from bot.tool_results import Quote, Quoted

MAX_QUERY = 400  # characters; Brave takes no more
DEFAULT_RESULTS, MAX_RESULTS = 5, 10
MAX_TITLE, MAX_SNIPPET, MAX_ADDRESS = 200, 600, 2_000  # characters

_TAG = re.compile(r"</?[a-z][^<>]{0,200}>", re.IGNORECASE)

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Hit:
    """What a search service found: somebody else's words, as they came."""

    title: str
    url: str
    snippet: str


class SearchFailed(ToolError):
    """The search service did not answer; the message has neither question nor key."""


class SearchService(Protocol):
    """Somebody who searches the web."""

    @property
    def name(self) -> str:
        """What it is called, for people."""
        ...

    async def search(self, query: str, count: int) -> Sequence[Hit]:
        """What it finds, the best first, about as many as were asked for.

        Raises:
            SearchFailed: it cannot be asked, or does not answer; the message says what to do.
        """
        ...


class Search(Parameters):
    """What to look for."""

    query: Words = Field(max_length=MAX_QUERY, description="What to look for, in a few words.")
    count: int = Field(
        DEFAULT_RESULTS,
        ge=1,
        le=MAX_RESULTS,
        description=f"How many results; {DEFAULT_RESULTS} if left out.",
    )


class WebSearch:
    """Searches the web."""

    spec = Search.spec(
        "web_search",
        "Search the web, for what is new or not in memory. The query goes to a search service, so "
        "put nothing into it that the person would not tell strangers. Answers quote pages with "
        "their title and address: name the address of what you use.",
    )

    def __init__(self, service: SearchService) -> None:
        self._service = service

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> Quoted:
        """Ask the service.

        Raises:
            ToolError: wrong arguments, or it did not answer.
        """
        asked = Search.of(arguments)
        try:
            hits = await self._service.search(asked.query, asked.count)
        except SearchFailed as error:
            log.warning("web.search.failed", service=self._service.name, reason=str(error))
            raise
        quotes = quotes_of(hits)[: asked.count]
        if not quotes:
            return Quoted((), head="Nothing was found; other words may find more.")
        return Quoted(quotes, head=f"Found by {self._service.name}:")


def quotes_of(hits: Sequence[Hit]) -> tuple[Quote, ...]:
    """What was found, in plain words, each page once; only what has an address of the web."""
    found: dict[str, Quote] = {}
    for hit in hits:
        url = hit.url.strip()
        is_web = url.lower().startswith(("http://", "https://")) and len(url) <= MAX_ADDRESS
        if is_web and not re.search(r"\s", url):
            title, snippet = _plain(hit.title, MAX_TITLE), _plain(hit.snippet, MAX_SNIPPET)
            found.setdefault(url, Quote((title,) if title else (), f"{url}\n{snippet}".strip()))
    return tuple(found.values())


def _plain(text: str, most: int) -> str:
    """A text without tags, entities and line ends, cut."""
    words = " ".join(html.unescape(_TAG.sub("", text[: most * 4])).split())
    return words if len(words) <= most else f"{words[: most - 1]}…"
