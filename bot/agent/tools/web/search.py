"""`web_search`: asks a search service, whichever the operator chose."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Literal, Protocol, cast

import aiohttp
import orjson
import structlog
from pydantic import Field

from bot.agent.tools import ToolContext
from bot.agent.tools.parameters import Parameters, Words
from bot.errors import ToolError
from bot.net.connection import session, why
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


BRAVE = "https://api.search.brave.com/res/v1"
TAVILY = "https://api.tavily.com"
TIMEOUT = 15.0  # seconds
MAX_ANSWER = 2_000_000  # bytes
_SERVER_ERROR = 500
_PLAN_USED_UP = frozenset({402, 432, 433})  # the last two are Tavily's
_BRAVE_KEY = "SUBSCRIPTION_TOKEN_INVALID"  # what Brave answers with a 422

_KEY = "does not take the key: whoever runs the bot has to set another one"


@dataclass(frozen=True, slots=True)
class _Question:
    """One request to a service; `key` is in the headers, and nowhere else."""

    method: Literal["GET", "POST"]
    url: str
    timeout: float  # seconds
    params: Mapping[str, str]
    body: Mapping[str, Any] | None = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    proxy: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int
    data: object


class SearXNG:
    """A SearXNG server, which asks other search engines; its `formats` must have json."""

    name = "SearXNG"

    def __init__(self, url: str, *, proxy: str = "", timeout: float = TIMEOUT) -> None:
        self._url = url.rstrip("/")
        self._timeout = timeout
        self._proxy = proxy

    async def search(self, query: str, count: int) -> Sequence[Hit]:
        """What it finds; it gives as many as it has.

        Raises:
            SearchFailed: it does not answer, or not in JSON, or none of its engines does.
        """
        params = {"q": query, "format": "json"}
        asked = _Question("GET", f"{self._url}/search", self._timeout, params, proxy=self._proxy)
        answer = await _ask(self.name, asked)
        if answer.status == HTTPStatus.FORBIDDEN:
            raise SearchFailed(
                "SearXNG refuses to answer in JSON: its settings.yml needs json in search.formats"
            )
        _check(self.name, answer)
        hits = _hits(self.name, answer.data, ("results",), "content")
        if not hits and isinstance(answer.data, dict):
            silent = cast("dict[str, object]", answer.data).get("unresponsive_engines")
            if isinstance(silent, list) and silent:
                raise SearchFailed("none of the search engines that SearXNG asks answers now")
        return hits


class Brave:
    """The Brave Search API."""

    name = "Brave Search"

    def __init__(
        self, key: str, url: str = "", *, proxy: str = "", timeout: float = TIMEOUT
    ) -> None:
        self._key = key
        self._url = (url or BRAVE).rstrip("/")
        self._timeout = timeout
        self._proxy = proxy

    async def search(self, query: str, count: int) -> Sequence[Hit]:
        """What it finds.

        Raises:
            SearchFailed: it does not answer, or does not take the key.
        """
        params = {"q": query, "count": str(count), "text_decorations": "false"}
        headers = {"X-Subscription-Token": self._key, "Accept": "application/json"}
        url = f"{self._url}/web/search"
        answer = await _ask(
            self.name, _Question("GET", url, self._timeout, params, None, headers, self._proxy)
        )
        if answer.status == HTTPStatus.UNPROCESSABLE_ENTITY and _BRAVE_KEY in str(answer.data):
            raise SearchFailed(f"{self.name} {_KEY}")
        _check(self.name, answer)
        return _hits(self.name, answer.data, ("web", "results"), "description")


class Tavily:
    """The Tavily search API."""

    name = "Tavily"

    def __init__(
        self, key: str, url: str = "", *, proxy: str = "", timeout: float = TIMEOUT
    ) -> None:
        self._key = key
        self._url = (url or TAVILY).rstrip("/")
        self._timeout = timeout
        self._proxy = proxy

    async def search(self, query: str, count: int) -> Sequence[Hit]:
        """What it finds.

        Raises:
            SearchFailed: it does not answer, or does not take the key.
        """
        body = {"query": query, "max_results": count, "search_depth": "basic"}
        headers = {"Authorization": f"Bearer {self._key}"}
        url = f"{self._url}/search"
        answer = await _ask(
            self.name, _Question("POST", url, self._timeout, {}, body, headers, self._proxy)
        )
        _check(self.name, answer)
        return _hits(self.name, answer.data, ("results",), "content")


async def _ask(name: str, asked: _Question) -> _Answer:
    """Ask once; a person waits, so nothing is tried again.

    Raises:
        SearchFailed: there was no answer.
    """
    limit = aiohttp.ClientTimeout(total=asked.timeout)
    try:
        async with (
            session(asked.proxy, timeout=limit, headers=asked.headers) as client,
            client.request(
                asked.method,
                asked.url,
                params=asked.params,
                json=asked.body,
                allow_redirects=False,  # or the key would go elsewhere
            ) as answer,
        ):
            body = bytearray()
            async for part in answer.content.iter_any():
                body += part
                if len(body) > MAX_ANSWER:
                    raise SearchFailed(f"{name} answers more than a search can have")
    except TimeoutError:
        raise SearchFailed(f"{name} did not answer in time; it may work later") from None
    except aiohttp.ClientError as error:
        raise SearchFailed(f"{name} cannot be reached ({why(error)}); it may work later") from None
    except ValueError:  # what cannot be a header, such as a line end in the key
        raise SearchFailed(f"{name} cannot be asked: is its key a single line?") from None
    try:
        data: object = orjson.loads(body)
    except ValueError:
        data = None
    return _Answer(answer.status, data)


def _check(name: str, answer: _Answer) -> None:
    """Go on only with an answer to the question.

    Raises:
        SearchFailed: it is none; the message says why, as far as the status tells.
    """
    match answer.status:
        case HTTPStatus.OK:
            return
        case HTTPStatus.UNAUTHORIZED | HTTPStatus.FORBIDDEN:
            raise SearchFailed(f"{name} {_KEY}")
        case HTTPStatus.TOO_MANY_REQUESTS:
            raise SearchFailed(f"{name} is asked too often; it answers again after a while")
        case status if status in _PLAN_USED_UP:
            raise SearchFailed(
                f"what was paid for at {name} is used up: whoever runs the bot has to see to it"
            )
        case status if status >= _SERVER_ERROR:
            raise SearchFailed(f"{name} failed ({status}); it may work later")
        case status:
            raise SearchFailed(f"{name} does not take the question ({status})")


def _hits(name: str, data: object, path: Sequence[str], snippet: str) -> list[Hit]:
    """The results in an answer; what is missing in one is empty.

    Raises:
        SearchFailed: it is no answer of such a service.
    """
    for key in path:
        if not isinstance(data, dict):
            raise SearchFailed(f"{name} answers something else than results")
        data = cast("dict[str, object]", data).get(key)
        if data is None:  # Brave leaves out what it has none of
            return []
    if not isinstance(data, list):
        raise SearchFailed(f"{name} answers something else than results")
    return [
        Hit(_text(row, "title"), _text(row, "url"), _text(row, snippet))
        for row in cast("list[object]", data)
    ]


def _text(row: object, key: str) -> str:
    value = cast("dict[str, object]", row).get(key) if isinstance(row, dict) else None
    return value if isinstance(value, str) else ""
