"""Coming in: with the owner's token, with a name and a password, or by a link that works once."""

from __future__ import annotations

import structlog
from aiohttp import web

from bot.channel import PAGE_OWNER
from bot.dashboard import pages
from bot.dashboard.browsers import Browsers
from bot.dashboard.forms import sent
from bot.dashboard.guard import COOKIE, COOKIE_SECONDS, Guard
from bot.dashboard.passwords import Passwords
from bot.identity import MessageOrigin
from bot.sessions import page_logins

log = structlog.stdlib.get_logger(__name__)


class Entrance:
    """`/login`, and `/enter` for links.

    A link that is only looked at, as chat programs do for a preview, is not used up: that takes a
    press on the button of its page.
    """

    def __init__(
        self, guard: Guard, browsers: Browsers | None = None, passwords: Passwords | None = None
    ) -> None:
        """Without `browsers` there is but the owner, by a cookie that nothing is stored of."""
        self._guard = guard
        self._browsers = browsers
        self._passwords = passwords or Passwords()

    def routes(self) -> list[web.RouteDef]:
        """Where it is."""
        login = [web.get("/login", self._login_page), web.post("/login", self._login)]
        if self._browsers is None:
            return login
        return [*login, web.get("/enter", self._link_page), web.post("/enter", self._enter)]

    # --- the token, or a name and a password ------------------------------------------------------

    async def _login_page(self, request: web.Request) -> web.Response:
        if self._guard.tokens is None or pages.is_known(request):
            return pages.see("/")
        return pages.login(request)

    async def _login(self, request: web.Request) -> web.Response:
        tokens = self._guard.tokens
        if tokens is None:
            return pages.see("/")
        form = await sent(request)
        name = form.get("name", "").strip().lower()
        if name and self._browsers is not None:
            return await self._by_password(request, name, form.get("password", ""), self._browsers)
        verdict = await self._guard.prove(request, form.get("token", ""))
        if verdict == "too_many":
            return pages.refuse(request, 429, "too_many")
        if verdict == "wrong":
            return pages.login(request, status=401, problem="token_wrong")
        return await self._let_in(request, PAGE_OWNER, tokens.issue())

    async def _by_password(
        self, request: web.Request, name: str, typed: str, browsers: Browsers
    ) -> web.Response:
        known = await browsers.person(name) if page_logins.is_name(name) else None
        hashed = known.password if known is not None else ""
        is_right = await self._passwords.matches(hashed, typed)
        match await self._guard.answer(request, is_right=is_right, name=name):
            case "too_many":
                return pages.refuse(request, 429, "too_many_passwords")
            case "wrong":
                return pages.login(request, status=401, problem="password_wrong")
            case "right":
                origin = known.origin if known is not None else None
                return await self._let_in(request, name, page_logins.new_key(), origin)

    # --- by a link --------------------------------------------------------------------------------

    async def _link_page(self, request: web.Request) -> web.Response:
        key = request.query.get("key", "")
        found = await self._browsers.offered(key) if self._browsers is not None else None
        if found is None:
            return pages.refuse(request, 410, "link_gone")
        return pages.page(request, "enter.html", key=key)

    async def _enter(self, request: web.Request) -> web.Response:
        form = await sent(request)
        if self._browsers is None:
            return pages.refuse(request, 400, "bad_request")
        entered = await self._browsers.enter(form.get("key", ""))
        # Nobody finds 256 bits; but whoever tries is as slow as with the token.
        verdict = await self._guard.answer(request, is_right=entered is not None)
        if entered is None:
            number, why = (429, "too_many") if verdict == "too_many" else (410, "link_gone")
            return pages.refuse(request, number, why)
        tokens = self._guard.tokens
        cookie = page_logins.new_key()
        if entered.person == PAGE_OWNER and tokens is not None:
            cookie = tokens.issue()
        return await self._let_in(request, entered.person, cookie, entered.origin)

    async def _let_in(
        self,
        request: web.Request,
        person: str,
        cookie: str,
        origin: MessageOrigin | None = None,
    ) -> web.Response:
        if self._browsers is not None:
            await self._browsers.begin(
                person, cookie, request.headers.get("User-Agent", ""), origin
            )
        response = pages.see("/")
        response.set_cookie(
            COOKIE,
            cookie,
            max_age=COOKIE_SECONDS,
            httponly=True,
            samesite="Strict",
            # Behind a TLS proxy the page's own origin tells that the browser speaks https.
            secure=request.secure or request.headers.get("Origin", "").startswith("https://"),
        )
        log.info("dashboard.login.ok", is_owner=person == PAGE_OWNER)
        return response
