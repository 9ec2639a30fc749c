"""`/programs`: keys and webhooks, with which programs talk and report to somebody."""

from __future__ import annotations

from functools import partial
from typing import Final

from aiohttp import web

from bot.channel.http import shared, visitor_of
from bot.clock import to_the_minute
from bot.config import Settings
from bot.dashboard import pages
from bot.dashboard.browsers import Browsers
from bot.dashboard.pages import Visits, in_menu, sent
from bot.sessions.page_logins import MAX_KEY_NAME

HERE: Final = "/programs"
MOST_TEMPLATE: Final = 2_000  # characters


@in_menu(HERE)
class ProgramPages:
    """Each visitor's own. A secret is kept nowhere readable: the answer that makes it shows it."""

    def __init__(self, browsers: Browsers, visits: Visits, settings: Settings) -> None:
        self._browsers = browsers
        self._visits = visits
        self._settings = settings

    def routes(self) -> list[web.RouteDef]:
        """The routes."""
        return shared(
            [
                web.get(HERE, self._page),
                web.post(f"{HERE}/keys", self._make_key),
                web.post(f"{HERE}/keys/revoke", self._revoke),
                web.post(f"{HERE}/hooks", self._make_hook),
                web.post(f"{HERE}/hooks/delete", self._delete_hook),
            ]
        )

    async def _page(
        self,
        request: web.Request,
        *,
        status: int = 200,
        problem: str = "",
        key: str = "",
        secret: str = "",
    ) -> web.Response:
        person = visitor_of(request).name
        return pages.page(
            request,
            "programs.html",
            status,
            keys=await self._browsers.keys(person),
            hooks=await self._browsers.hooks(person),
            when=partial(to_the_minute, zone=self._visits.of(request).zone),
            base=self._settings.now.dashboard.public_url or pages.opened_at(request),
            problem=problem,
            key=key,
            secret=secret,
        )

    async def _make_key(self, request: web.Request) -> web.Response:
        form = await sent(request)
        name = _name(form.get("name", ""))
        if not name:
            return await self._page(request, status=400, problem="no_name")
        person, is_apart = visitor_of(request).name, form.get("talks") == "apart"
        key = await self._browsers.make_key(person, name, is_apart=is_apart)
        if not key:
            return await self._page(request, status=409, problem="too_many")
        return await self._page(request, key=key)

    async def _revoke(self, request: web.Request) -> web.Response:
        key = (await sent(request)).get("key", "")
        await self._browsers.revoke(visitor_of(request).name, key)
        return pages.see(HERE)

    async def _make_hook(self, request: web.Request) -> web.Response:
        form = await sent(request)
        name, template = _name(form.get("name", "")), form.get("template", "").strip()
        if not name:
            return await self._page(request, status=400, problem="no_name")
        if len(template) > MOST_TEMPLATE:
            return await self._page(request, status=400, problem="long")
        secret = await self._browsers.add_hook(visitor_of(request).name, name, template)
        if not secret:
            return await self._page(request, status=409, problem="too_many")
        return await self._page(request, secret=secret)

    async def _delete_hook(self, request: web.Request) -> web.Response:
        hook = (await sent(request)).get("hook", "")
        await self._browsers.delete_hook(visitor_of(request).name, hook)
        return pages.see(HERE)


def _name(typed: str) -> str:
    """What a program is called: it stands in front of what it says, on one line."""
    flat = " ".join(typed.replace("[", "(").replace("]", ")").split())
    return "".join(letter for letter in flat if letter.isprintable())[:MAX_KEY_NAME].strip()
