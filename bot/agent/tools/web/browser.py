"""Opens addresses: checked, within bounds, and as robots.txt asks."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from importlib.metadata import version
from typing import TYPE_CHECKING

import aiohttp
from aiohttp import hdrs
from cachetools import TTLCache
from yarl import URL

from bot.agent.tools.web import fetch
from bot.agent.tools.web.fetch import Download
from bot.errors import ToolError
from bot.net.addresses import Guard
from bot.net.connection import CheckedResolver, Lookup, SystemLookup, connector, session, why

if TYPE_CHECKING:
    from protego import Protego

PROGRAM = "Confidant"  # what robots.txt may call it, in any case
USER_AGENT = f"{PROGRAM}/{version('confidant-bot')} (reads pages that a person asks for)"
ACCEPT = "text/html, application/xhtml+xml, text/plain, application/json, */*;q=0.5"
LONGEST_TYPE = 200  # characters of what a site says that a page is
MOST_SITES = 500  # whose rules are kept …
RULES_KEPT = 3_600.0  # … for so many seconds; RFC 9309, 2.4, allows a day
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_SERVER_ERROR = 500
LONGEST_ROBOTS = 500 * 1024  # bytes that are read of one (RFC 9309, 2.5: at least so many)
_AGENT = re.compile(r"\s*user[-\s]*agent\b[\s:]*([\w*-]*)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Limits:
    """What opening one address may take."""

    bytes: int = 10_000_000  # from the network, and unpacked
    seconds: float = 20.0  # with all redirects; a tool has 30
    redirects: int = 5
    at_once: int = 4  # of everybody together; the others wait


class Browser:
    """Opens addresses for people, each visit with connections of its own and without cookies.

    Args:
        guard: says which addresses may be opened.
        proxy: as the option has it.
        lookup: how names become addresses; this machine's own way if left out.
        limits: what one visit may take.
        now: seconds, for how long a site's rules are kept.
    """

    def __init__(
        self,
        guard: Guard,
        *,
        proxy: str = "",
        lookup: Lookup | None = None,
        limits: Limits | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.guard = guard
        self._proxy = proxy
        self._system = SystemLookup()
        self._lookup = lookup or self._system
        self._limits = limits or Limits()
        self._places = asyncio.Semaphore(self._limits.at_once)
        self._rules: TTLCache[URL, Protego] = TTLCache(MOST_SITES, RULES_KEPT, now)

    async def open(self, address: str) -> Download:
        """What an address has.

        Raises:
            AddressRefused: it, or one that it leads to, may not be opened.
            ToolError: there is nothing, or it cannot be reached, or is not for programs; none of
                the errors repeats the address.
        """
        url = self.guard.url(address)
        try:
            async with asyncio.timeout(self._limits.seconds), self._places, self._visit() as visit:
                return await self._followed(visit, url)
        except TimeoutError:
            raise ToolError("the site takes too long to answer") from None
        except aiohttp.ClientConnectorDNSError:
            raise ToolError("there is no such site, or its name cannot be looked up now") from None
        except aiohttp.ClientSSLError:
            raise ToolError("the site cannot prove that it is the one: no safe connection") from (
                None
            )
        except (aiohttp.ClientError, OSError, ValueError) as error:
            kind = why(error)
            raise ToolError(f"the site cannot be reached, or answers nonsense ({kind})") from None

    def close(self) -> None:
        """Look nothing up any more."""
        self._system.close()

    @asynccontextmanager
    async def _visit(self) -> AsyncGenerator[aiohttp.ClientSession]:
        resolver = CheckedResolver(self.guard, self._lookup)
        async with session(
            connector=connector(resolver, self._proxy),
            headers={
                hdrs.USER_AGENT: USER_AGENT,
                hdrs.ACCEPT: ACCEPT,
                hdrs.ACCEPT_ENCODING: fetch.ENCODINGS,
            },
            auto_decompress=False,
        ) as opened:
            yield opened

    async def _followed(self, visit: aiohttp.ClientSession, url: URL) -> Download:
        seen: set[URL] = set()
        while True:
            await self._ask_robots(visit, url)
            found = await self._once(visit, url, self._limits.bytes)
            if isinstance(found, Download):
                return found
            seen.add(url)
            url = self._next(found, seen)

    def _next(self, url: URL, seen: set[URL]) -> URL:
        """Where a redirect leads, if it may be followed."""
        if url in seen:
            raise ToolError("the site leads in a circle")
        if len(seen) > self._limits.redirects:
            raise ToolError("the site leads from one address to the next")
        return url

    async def _once(self, visit: aiohttp.ClientSession, url: URL, most: int) -> Download | URL:
        """What is there, or the address that it leads to, which was checked."""
        async with visit.get(url, allow_redirects=False) as answer:
            if answer.status in _REDIRECTS and (to := answer.headers.get(hdrs.LOCATION)):
                return self.guard.url(str(url.join(URL(to))))
            if answer.status != HTTPStatus.OK:
                raise _Status(answer.status)
            data, is_whole = await fetch.read(answer, most)
            kind = answer.headers.get(hdrs.CONTENT_TYPE, "")[:LONGEST_TYPE]
            return Download(url, kind, data, is_whole)

    # --- robots.txt -------------------------------------------------------------------------------

    async def _ask_robots(self, visit: aiohttp.ClientSession, url: URL) -> None:
        """Go on only if the site's rules let programs read this.

        Raises:
            ToolError: they do not, or cannot be read.
        """
        site = url.origin()
        rules = self._rules.get(site)
        if rules is None:
            rules = self._rules[site] = await self._read_rules(visit, site)
        if not rules.can_fetch(str(url), PROGRAM):
            raise ToolError(
                "the site asks programs not to read that page (robots.txt); the person can open it"
            )

    async def _read_rules(self, visit: aiohttp.ClientSession, site: URL) -> Protego:
        """The rules of a site: none where there are none, everything closed where it fails."""
        url, seen = site / "robots.txt", set[URL]()
        try:
            while isinstance(found := await self._once(visit, url, LONGEST_ROBOTS), URL):
                seen.add(url)
                if found in seen or len(seen) > self._limits.redirects:
                    return read_robots("")  # RFC 9309, 2.3.1.2: as if there were none
                url = found
        except _Status as error:
            if error.status >= _SERVER_ERROR or error.status == HTTPStatus.TOO_MANY_REQUESTS:
                raise ToolError(
                    "the site does not tell now what programs may read (robots.txt); it may later"
                ) from None
            return read_robots("")
        text = found.data.decode(errors="replace")
        return await asyncio.to_thread(read_robots, text)


def read_robots(text: str) -> Protego:
    """The rules of a robots.txt, for `Protego.can_fetch`.

    All programs but this one are read as one of another name: Protego keeps each rule of a group
    once for each program that it names, which is far too much where a site names thousands.
    """
    from protego import Protego  # noqa: PLC0415 - not needed until the first page

    def known(line: str) -> str:
        found = _AGENT.match(line)
        if found is None:
            return line
        return f"user-agent: {found[1] if found[1].lower() in {PROGRAM.lower(), '*'} else 'other'}"

    return Protego.parse("\n".join(map(known, text.removeprefix("\ufeff").splitlines())))


class _Status(ToolError):
    """A site answered with an error."""

    def __init__(self, status: int) -> None:
        super().__init__(f"the site answered {status}: {_meaning(status)}")
        self.status = status


def _meaning(status: int) -> str:
    match status:
        case HTTPStatus.NOT_FOUND | HTTPStatus.GONE:
            return "there is no such page"
        case HTTPStatus.UNAUTHORIZED | HTTPStatus.FORBIDDEN:
            return "the page is not for everybody"
        case HTTPStatus.TOO_MANY_REQUESTS:
            return "it is asked too often now"
        case _:
            return "it could not show the page"
