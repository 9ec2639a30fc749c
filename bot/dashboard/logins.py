"""`/logins`: whom the owner let in to the page, with a link for somebody more, and out again."""

from __future__ import annotations

from collections.abc import Callable

from aiohttp import web

from bot.clock import to_the_minute
from bot.config import DashboardConfig
from bot.dashboard import pages
from bot.dashboard.browsers import Browsers
from bot.dashboard.forms import sent
from bot.dashboard.visits import Visits
from bot.sessions import page_logins

HERE = "/logins"

DashboardNow = Callable[[], DashboardConfig]


class LoginPages:
    """The owner's: names and times, never a word of what somebody said."""

    def __init__(self, browsers: Browsers, visits: Visits, config: DashboardNow) -> None:
        """`config` is what holds now: the token may be another one while the program runs."""
        self._browsers = browsers
        self._visits = visits
        self._config = config

    def routes(self) -> list[web.RouteDef]:
        """Where they are."""
        return [
            web.get(HERE, self._page),
            web.post(HERE, self._invite),
            web.post(f"{HERE}/out", self._take_out),
        ]

    async def _page(self, request: web.Request) -> web.Response:
        return await self._drawn(request)

    async def _drawn(
        self, request: web.Request, *, status: int = 200, problem: str = "", **made: str
    ) -> web.Response:
        zone = self._visits.of(request).zone
        people = [
            {
                "name": person.name,
                "channel": person.seat[0],
                "browsers": len(logins),
                "seen": to_the_minute(logins[0].seen_at, zone) if logins else "",
                "is_out": person.is_out,
            }
            for person, logins in await self._browsers.people()
        ]
        return pages.page(
            request,
            "logins.html",
            status,
            people=people,
            problem=problem,
            invited=made.get("invited", ""),
            link=made.get("link", ""),
            has_token=self._config().has_token,
            is_public=bool(self._config().public_url),
        )

    async def _invite(self, request: web.Request) -> web.Response:
        name = (await sent(request)).get("name", "").strip().lower()
        if not self._config().has_token:
            return await self._drawn(request, status=409, problem="no_token")
        if not page_logins.is_name(name):
            return await self._drawn(request, status=400, problem="bad_name")
        key = page_logins.new_key()
        made = await self._browsers.invite(name, key, pages.language(request))
        if made != "made":
            return await self._drawn(request, status=409, problem=made)
        # The link is kept nowhere, so this answer is the one that shows it: sent again, the form
        # makes another.
        link = f"{self._config().public_url or _own_url(request)}/enter?key={key}"
        return await self._drawn(request, invited=name, link=link)

    async def _take_out(self, request: web.Request) -> web.Response:
        name = (await sent(request)).get("name", "")
        if not page_logins.is_name(name):
            return pages.refuse(request, 400, "bad_request")
        await self._browsers.take_out(name)
        return pages.see(HERE)


def _own_url(request: web.Request) -> str:
    """The address that the owner has the page open at."""
    return request.headers.get("Origin") or f"http://{request.headers.get('Host', '')}"
