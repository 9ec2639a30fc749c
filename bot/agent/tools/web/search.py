"""`web_search`: asks a search service, whichever the operator chose."""

from __future__ import annotations

import asyncio
import contextlib
import html
import os
import re
import sys
import urllib.request
from abc import ABC, abstractmethod
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from http import HTTPStatus
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, cast

import aiohttp
import orjson
import structlog
from pydantic import Field
from yarl import URL

from bot.agent.tools import Parameters, Tool, ToolContext, Words
from bot.agent.tools.web.fetch import Browser, WebFetch
from bot.channel import reveal
from bot.channel.kit.json_access import mapping, text
from bot.config import WebConfig
from bot.errors import ConfigError, PoolFull, ToolError
from bot.files.opener import FileReader
from bot.invocation import installing
from bot.messages import Quote, Quoted
from bot.net.addresses import Guard
from bot.net.connection import session, why
from bot.net.proxy import choose
from bot.shares import SEARCHES, Pool

MAX_QUERY = 400  # characters; Brave takes no more
DEFAULT_RESULTS, MAX_RESULTS = 5, 10
MAX_TITLE, MAX_SNIPPET, MAX_ADDRESS = 200, 600, 2_000  # characters

_TAG = re.compile(r"</?[a-z][^<>]{0,200}>", re.IGNORECASE)

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class WebHit:
    """A result of a search service: somebody else's words, as they came."""

    title: str
    url: str
    snippet: str


class SearchFailed(ToolError):
    """The search service did not answer; the message has neither question nor key."""


class SearchService(ABC):
    """Somebody who searches the web; `name` is what it is called, for people."""

    name: str

    @abstractmethod
    async def search(self, query: str, count: int) -> Sequence[WebHit]:
        """The results, the best first, about as many as were asked for.

        Raises:
            SearchFailed: it cannot be asked, or does not answer; the message says what to do.
        """


class Search(Parameters):
    """Parameters: the query."""

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
        repeatable=True,
    )

    def __init__(self, service: SearchService) -> None:
        self._service = service
        self._pool = Pool(SEARCHES)

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> Quoted:
        """Ask the service.

        Raises:
            ToolError: wrong arguments, or it did not answer.
        """
        asked = Search.from_arguments(arguments)
        try:
            async with self._pool.place(context.person):
                hits = await self._service.search(asked.query, asked.count)
        except PoolFull:
            raise ToolError("too many searches wait for this person; go on with those") from None
        except SearchFailed as error:
            log.warning("web.search.failed", service=self._service.name, reason=str(error))
            raise
        quotes = quotes_of(hits)[: asked.count]
        if not quotes:
            return Quoted((), head="Nothing was found; other words may find more.")
        return Quoted(quotes, head=f"Found by {self._service.name}:")


def quotes_of(hits: Sequence[WebHit]) -> tuple[Quote, ...]:
    """The results as quotes in plain words, each page once, only with an address of the web."""
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


TIMEOUT = 15.0  # seconds
MAX_ANSWER = 2_000_000  # bytes
_SERVER_ERROR = 500
_PLAN_USED_UP = frozenset({402, 432, 433})  # the last two are Tavily's
_BRAVE_KEY = "SUBSCRIPTION_TOKEN_INVALID"  # what Brave answers with a 422

_KEY = "does not take the key: whoever runs the bot has to set another one"


class SearchApi(SearchService):
    """A search service with an API over HTTP, at its makers' address if `url` is empty.

    Attributes:
        default_url: their address.
        path: where searches go below it.
        results: the keys that lead to the list of results in an answer.
        snippet: the field of a result that quotes the page.
    """

    default_url = ""
    path = "/search"
    results: tuple[str, ...] = ("results",)
    snippet = "content"

    def __init__(
        self, url: str = "", key: str = "", *, proxy: str = "", timeout: float = TIMEOUT
    ) -> None:
        self._url = (url or self.default_url).rstrip("/") + self.path
        self._key = key
        self._timeout = timeout
        self._proxy = proxy

    @abstractmethod
    def request(self, query: str, count: int) -> dict[str, Any]:
        """Arguments for `aiohttp` beside the address; `method` is GET if left out."""

    def problem(self, status: int, data: object) -> str:
        """Why an answer is none, if it is this service's own way to say so; else empty."""
        return ""

    async def search(self, query: str, count: int) -> Sequence[WebHit]:
        """Ask once; a person waits, so nothing is tried again.

        Raises:
            SearchFailed: see `SearchService.search`.
        """
        status, data = await self._ask(query, count)
        if problem := self.problem(status, data) or _problem(status):
            raise SearchFailed(f"{self.name} {problem}")
        strange = SearchFailed(f"{self.name} answers something else than results")
        for key in self.results:
            if not isinstance(data, dict):
                raise strange
            data = cast("dict[str, object]", data).get(key)
            if data is None:  # Brave leaves out what it has none of
                return []
        if not isinstance(data, list):
            raise strange
        rows = map(mapping, cast("list[object]", data))
        return [
            WebHit(text(row, "title"), text(row, "url"), text(row, self.snippet)) for row in rows
        ]

    async def _ask(self, query: str, count: int) -> tuple[int, object]:
        """The status of an answer, and its JSON; None where it is none.

        Raises:
            SearchFailed: there was no answer.
        """
        name = self.name
        request: dict[str, Any] = {"method": "GET", **self.request(query, count)}
        limit = aiohttp.ClientTimeout(total=self._timeout)
        try:
            async with (
                session(self._proxy, timeout=limit) as client,
                # Not to another address: the key would go there.
                client.request(url=self._url, allow_redirects=False, **request) as answer,
            ):
                body = bytearray()
                async for part in answer.content.iter_any():
                    body += part
                    if len(body) > MAX_ANSWER:
                        raise SearchFailed(f"{name} answers more than a search can have")
        except TimeoutError:
            raise SearchFailed(f"{name} did not answer in time; it may work later") from None
        except aiohttp.ClientError as error:
            said = f"{name} cannot be reached ({why(error)}); it may work later"
            raise SearchFailed(said) from None
        except ValueError:  # what cannot be a header, such as a line end in the key
            raise SearchFailed(f"{name} cannot be asked: is its key a single line?") from None
        try:
            return answer.status, orjson.loads(body)
        except ValueError:
            return answer.status, None


class SearXNG(SearchApi):
    """A SearXNG server, which asks other search engines; its `formats` must have json."""

    name = "SearXNG"

    def request(self, query: str, count: int) -> dict[str, Any]:
        """A question; it gives as many results as it has."""
        return {"params": {"q": query, "format": "json"}}

    def problem(self, status: int, data: object) -> str:
        """That it refuses to answer in JSON, or none of its engines answers."""
        if status == HTTPStatus.FORBIDDEN:
            return "refuses to answer in JSON: its settings.yml needs json in search.formats"
        told = mapping(data)
        if told.get("results") == [] and told.get("unresponsive_engines"):
            return "gets no answer from any of its search engines now"
        return ""


class Brave(SearchApi):
    """The Brave Search API."""

    name = "Brave Search"
    default_url = "https://api.search.brave.com/res/v1"
    path = "/web/search"
    results = ("web", "results")
    snippet = "description"

    def request(self, query: str, count: int) -> dict[str, Any]:
        """A question, with the key."""
        return {
            "params": {"q": query, "count": str(count), "text_decorations": "false"},
            "headers": {"X-Subscription-Token": self._key, "Accept": "application/json"},
        }

    def problem(self, status: int, data: object) -> str:
        """That it does not take the key."""
        is_key = status == HTTPStatus.UNPROCESSABLE_ENTITY and _BRAVE_KEY in str(data)
        return _KEY if is_key else ""


class Tavily(SearchApi):
    """The Tavily search API."""

    name = "Tavily"
    default_url = "https://api.tavily.com"

    def request(self, query: str, count: int) -> dict[str, Any]:
        """A question, with the key."""
        return {
            "method": "POST",
            "json": {"query": query, "max_results": count, "search_depth": "basic"},
            "headers": {"Authorization": f"Bearer {self._key}"},
        }


APIS: Final[Mapping[str, type[SearchApi]]] = {"searxng": SearXNG, "brave": Brave, "tavily": Tavily}


def _problem(status: int) -> str:
    """The problem that the status of an answer tells; empty for none."""
    match status:
        case HTTPStatus.OK:
            return ""
        case HTTPStatus.UNAUTHORIZED | HTTPStatus.FORBIDDEN:
            return _KEY
        case HTTPStatus.TOO_MANY_REQUESTS:
            return "is asked too often; it answers again after a while"
        case _ if status in _PLAN_USED_UP:
            return "has used up what was paid for: whoever runs the bot has to see to it"
        case _ if status >= _SERVER_ERROR:
            return f"failed ({status}); it may work later"
        case _:
            return f"does not take the question ({status})"


# Public search engines without a key, by the package ddgs, in a process for each search.

PROGRAM = Path(__file__).with_name("ddgs_program.py")
DDGS_INSTALL = installing("search")
DDGS_TIMEOUT = 20.0  # seconds for the whole search; a tool has 30
ENGINE_SECONDS = 7  # for one engine
_ENGINES = URL("https://duckduckgo.com")
# None of this process's environment goes along but what the engines are reached by.
_KEPT = frozenset(
    {"LD_LIBRARY_PATH", "PATH", "SYSTEMROOT", "DDGS_PROXY", "SSL_CERT_FILE", "PRIMP_CA_BUNDLE"}
)
_REASONS = {
    "missing": "a package is missing: whoever runs the bot has to install confidant-bot[search]",
    "rate": "the search engines are asked too often; they answer again after a while",
    "slow": "the search engines did not answer in time; they may later",
    "nothing": "the search engines found nothing, or refuse to answer programs now",
    "unreachable": "none of the search engines answers programs now; some may later",
}


def ddgs_is_installed() -> bool:
    """True when the package is there; it is not loaded."""
    return find_spec("ddgs") is not None


class Ddgs(SearchService):
    """Engines asked as a browser would; they promise nothing, and may refuse at any time."""

    name = "ddgs"

    def __init__(
        self, *, proxy: str = "", timeout: float = DDGS_TIMEOUT, program: Path = PROGRAM
    ) -> None:
        self._proxy = proxy
        self._timeout = timeout
        self._program = program

    async def search(self, query: str, count: int) -> Sequence[WebHit]:
        """Ask the engines.

        Raises:
            SearchFailed: none of them answers, or the package is missing.
        """
        question = orjson.dumps({"query": query, "count": count, "seconds": ENGINE_SECONDS})
        try:
            async with asyncio.timeout(self._timeout):
                told = await self._asked(question)
        except TimeoutError:
            raise SearchFailed(_REASONS["slow"]) from None
        try:
            answer = cast("dict[str, Any]", orjson.loads(told))
            if reason := answer.get("error"):
                raise SearchFailed(_REASONS[reason])
            return [WebHit(*row) for row in answer["hits"]]
        except (ValueError, KeyError, TypeError, AttributeError):
            raise SearchFailed("the search ended without an answer") from None

    async def _asked(self, question: bytes) -> bytes:
        """The output of the program, which does not outlive this call."""
        environment = {name: value for name, value in os.environ.items() if name in _KEPT}
        if self._proxy or "DDGS_PROXY" not in environment:
            environment.pop("DDGS_PROXY", None)
            if found := choose(_ENGINES, self._proxy, urllib.request.getproxies()):
                environment["DDGS_PROXY"] = found.with_login
        environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",
            str(self._program),
            stdin=PIPE,
            stdout=PIPE,
            stderr=DEVNULL,
            env=environment,
            start_new_session=True,  # an operator's Ctrl-C is for the bot
        )
        try:
            told, _ = await process.communicate(question)
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
        return told


# The tools of the web that a configuration asks for.


def tools_of(config: WebConfig, reader: FileReader, stack: AsyncExitStack) -> Iterator[Tool]:
    """The tools; `stack` closes what they need.

    Raises:
        ConfigError: an internal host is none.
    """
    if config.fetch:
        browser = Browser(guard_of(config), proxy=reveal(config.proxy))
        stack.callback(browser.close)
        yield WebFetch(browser, reader)
    service = service_of(config)
    if service is not None:
        if isinstance(service, Ddgs) and not ddgs_is_installed():
            log.warning("web.search.missing", install=DDGS_INSTALL)
        yield WebSearch(service)


def guard_of(config: WebConfig) -> Guard:
    """The guard over the addresses that may be opened.

    Raises:
        ConfigError: an internal host is none.
    """
    try:
        return Guard.from_hosts(config.internal_hosts)
    except ValueError as error:
        raise ConfigError(f"[tools.web] internal_hosts: {error}") from None


def service_of(config: WebConfig) -> SearchService | None:
    """The configured search service, or None."""
    proxy = reveal(config.proxy)
    if config.search == "ddgs":
        return Ddgs(proxy=proxy)
    api = APIS.get(config.search)
    return api and api(config.search_url, reveal(config.search_key), proxy=proxy)
