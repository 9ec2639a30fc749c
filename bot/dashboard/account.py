"""`/account`: in which browsers somebody is logged in, ending that, and a password."""

from __future__ import annotations

from aiohttp import web

from bot.channel.visitor import shared, visitor_of
from bot.clock import to_the_minute
from bot.dashboard import pages
from bot.dashboard.browsers import Browsers
from bot.dashboard.forms import sent
from bot.dashboard.guard import COOKIE
from bot.dashboard.passwords import LONGEST, SHORTEST, Passwords
from bot.dashboard.visits import Visits

HERE = "/account"


class AccountPages:
    """Each visitor's own; the owner's log in with the token, everybody else may have a password."""

    def __init__(self, browsers: Browsers, visits: Visits, passwords: Passwords) -> None:
        self._browsers = browsers
        self._visits = visits
        self._passwords = passwords

    def routes(self) -> list[web.RouteDef]:
        """Where they are."""
        return shared(
            [
                web.get(HERE, self._page),
                web.post(f"{HERE}/end", self._end),
                web.post(f"{HERE}/end-others", self._end_others),
                web.post(f"{HERE}/logout", self._log_out),
                web.post(f"{HERE}/password", self._set_password),
            ]
        )

    async def _page(self, request: web.Request) -> web.Response:
        return await self._drawn(request)

    async def _drawn(
        self, request: web.Request, *, status: int = 200, problem: str = ""
    ) -> web.Response:
        visitor, zone = visitor_of(request), self._visits.of(request).zone
        known = None if visitor.is_owner else await self._browsers.person(visitor.name)
        logins = [
            {
                "id": login.id,
                "browser": login.browser,
                "since": to_the_minute(login.made_at, zone),
                "seen": to_the_minute(login.seen_at, zone),
                "is_this": login.id == visitor.login,
            }
            for login in await self._browsers.of(visitor.name)
        ]
        return pages.page(
            request,
            "account.html",
            status,
            logins=logins,
            has_password=known is not None and bool(known.password),
            shortest=SHORTEST,
            problem=problem,
            is_done="done" in request.query,
        )

    async def _end(self, request: web.Request) -> web.Response:
        login = (await sent(request)).get("login", "")
        if not login:
            return pages.refuse(request, 400, "bad_request")
        await self._browsers.end(visitor_of(request).name, login)
        return pages.see(HERE)

    async def _end_others(self, request: web.Request) -> web.Response:
        visitor = visitor_of(request)
        await self._browsers.end(visitor.name, besides=visitor.login)
        return pages.see(HERE)

    async def _log_out(self, request: web.Request) -> web.Response:
        visitor = visitor_of(request)
        if visitor.login:
            await self._browsers.end(visitor.name, visitor.login)
        response = pages.see("/login")
        response.del_cookie(COOKIE)
        return response

    async def _set_password(self, request: web.Request) -> web.Response:
        visitor = visitor_of(request)
        form = await sent(request)
        old, new = form.get("old", ""), form.get("new", "")
        known = None if visitor.is_owner else await self._browsers.person(visitor.name)
        if known is None:
            return pages.refuse(request, 400, "bad_request")
        if known.password and not await self._passwords.matches(known.password, old):
            return await self._drawn(request, status=400, problem="old_wrong")
        if not SHORTEST <= len(new) <= LONGEST:
            return await self._drawn(request, status=400, problem="length")
        hashed = await self._passwords.hash(new)
        await self._browsers.set_password(visitor.name, hashed, besides=visitor.login)
        return pages.see(f"{HERE}?done")
