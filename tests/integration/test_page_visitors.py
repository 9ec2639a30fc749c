"""Who may see which page: the owner, somebody the owner let in, and nobody."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry

from adapters.web.channel import Web
from bot.channel import Activity, Address, HistoryItem, Outbound
from bot.channel.visitor import SharedRoute, shared, visitor_of
from bot.config import DashboardConfig
from bot.dashboard import DashboardServer
from bot.dashboard.guard import COOKIE
from bot.dashboard.pages import WAYS, Way, WayPages
from tests.fakes.web_pages import Chat, ready
from tests.support import post, running

TOKEN = "0123456789abcdef0123456789abcdef"

# Every route of the program, and who may use it: "anyone" without being known at all, "visitor"
# whoever was let in, "owner" the owner alone.
ROUTES = {
    "GET /healthz": "anyone",
    "GET /readyz": "anyone",
    "GET /login": "anyone",
    "POST /login": "anyone",
    "GET /enter": "anyone",
    "POST /enter": "anyone",
    "GET /assets/base.css": "anyone",
    "GET /assets/page.css": "anyone",
    "GET /assets/icon-192.png": "anyone",
    "GET /assets/icon-512.png": "anyone",
    "GET /assets/icon-maskable.png": "anyone",
    "GET /manifest.webmanifest": "visitor",
    "GET /sw.js": "visitor",
    "GET /assets/fresh.js": "visitor",
    "GET /assets/memory.css": "visitor",
    "GET /assets/charts.css": "visitor",
    "GET /api/ways": "visitor",
    "GET /api/push": "visitor",
    "POST /api/push": "visitor",
    "DELETE /api/push/{id}": "visitor",
    "GET /assets/conversations.css": "visitor",
    "GET /conversations": "visitor",
    "GET /conversations/{id}": "visitor",
    "GET /conversations/{id}.md": "visitor",
    "GET /conversations/{id}.jsonl": "visitor",
    "POST /conversations/{id}/title": "visitor",
    "GET /": "visitor",
    "GET /chat/ws": "visitor",
    "GET /chat/files/{id}": "visitor",
    "POST /chat/files/{id}": "visitor",
    "DELETE /chat/files/{id}": "visitor",
    "GET /metrics": "owner",
    "GET /api/memory/search": "owner",
    "GET /memory": "visitor",
    "GET /memory/file": "visitor",
    "GET /context": "visitor",
    "POST /context": "visitor",
    "GET /memory/search": "visitor",
    "POST /memory/confirm": "visitor",
    "GET /memory/edit": "visitor",
    "POST /memory/edit": "visitor",
    "POST /memory/add": "visitor",
    "GET /memory/history": "visitor",
    "POST /memory/back": "visitor",
    "GET /memory/shared/edit": "owner",
    "POST /memory/shared/edit": "owner",
    "POST /memory/shared/add": "owner",
    "GET /memory/shared/history": "owner",
    "POST /memory/shared/back": "owner",
    "POST /memory/shared/remove": "owner",
    "GET /memory/night": "visitor",
    "POST /memory/night": "visitor",
    "GET /memory/forget": "visitor",
    "POST /memory/forget": "visitor",
    "GET /memory/forgotten": "visitor",
    "POST /memory/forgotten": "visitor",
    "GET /usage": "visitor",
    "GET /overview": "owner",
    "GET /api/usage": "owner",
    "GET /assets/account.css": "visitor",
    "GET /logins": "owner",
    "POST /logins": "owner",
    "POST /logins/out": "owner",
    "GET /account": "visitor",
    "POST /account/end": "visitor",
    "POST /account/end-others": "visitor",
    "POST /account/logout": "visitor",
    "POST /account/password": "visitor",
    "GET /assets/people.css": "visitor",
    "GET /channels": "owner",
    "POST /channels/check": "owner",
    "POST /channels/activation": "owner",
    "GET /people": "owner",
    "POST /people/approve": "owner",
    "POST /people/block": "owner",
    "POST /people/again": "owner",
    "POST /people/unblock": "owner",
    "POST /people/revoke": "owner",
    "POST /people/part": "owner",
    "GET /assets/settings.css": "visitor",
    "GET /settings": "owner",
    "POST /settings/change": "owner",
    "POST /settings/unset": "owner",
    "POST /settings/secret": "owner",
    "POST /settings/take-back": "owner",
    "GET /settings/start": "owner",
    "POST /settings/start/model": "owner",
    "POST /settings/start/use": "owner",
    "POST /settings/start/telegram": "owner",
    "POST /settings/start/self": "owner",
}
BY_COOKIE = {"owner": {}, "visitor": {COOKIE: "let-in-as-ada"}, "anyone": {COOKIE: "of-nobody"}}
RANKS = ("anyone", "visitor", "owner")


@asynccontextmanager
async def served(*routes: web.RouteDef) -> AsyncIterator[str]:
    """These routes behind the guard, which knows the owner by a token."""

    class Some:
        def routes(self) -> list[web.RouteDef]:
            return list(routes)

    server = DashboardServer(
        DashboardConfig(port=0, token=TOKEN),
        readiness=ready,
        registry=CollectorRegistry(),
        channels=[Some()],
        guest=Chat().guest,
    )
    try:
        yield (await server.start()).url
    finally:
        await server.stop()


async def _own(request: web.Request) -> web.Response:
    return web.Response(text=visitor_of(request).name)


async def test_every_route_of_the_program_has_a_row_here(tmp_path: Path):
    async with running(tmp_path, serves=True) as engine:
        server = engine.app.server
        assert server is not None
        routes = [*server.routes, *Web().routes()]
    found = {
        f"{route.method} {route.path}": route
        for route in routes
        if not route.path.startswith("/static/")
    }
    known = {name for name, route in found.items() if isinstance(route, SharedRoute)}
    assert set(found) == set(ROUTES)
    assert {name for name, who in ROUTES.items() if who == "owner"}.isdisjoint(known)
    assert {name for name, who in ROUTES.items() if who == "visitor"} <= known


@pytest.mark.parametrize("who", RANKS)
async def test_what_is_the_owners_is_nobody_elses(who: str):
    routes = (web.get("/owners/{id}", _own), web.post("/owners/{id}", _own))
    both = shared((web.get("/each/{id}", _own), web.post("/each/{id}", _own)))
    allowed = {"owner": ("owners", "each"), "visitor": ("each",), "anyone": ()}[who]
    headers = {"Authorization": f"Bearer {TOKEN}"} if who == "owner" else {}
    jar = aiohttp.CookieJar(unsafe=True)
    async with (
        served(*routes, *both) as url,
        aiohttp.ClientSession(
            cookies=BY_COOKIE[who], cookie_jar=jar, headers=headers | {"Origin": url.rstrip("/")}
        ) as client,
    ):
        for part in ("owners", "each"):
            for method in ("GET", "HEAD", "POST"):
                async with client.request(method, f"{url}{part}/7") as answer:
                    wanted = 200 if part in allowed else 401 if who == "anyone" else 403
                    assert (part, method, answer.status) == (part, method, wanted)
                    if method != "HEAD" and wanted == 200:
                        assert await answer.text() == ("owner" if who == "owner" else "ada")
        async with client.get(f"{url}nowhere") as answer:
            assert answer.status == (401 if who == "anyone" else 404)


@pytest.mark.parametrize(("who", "language"), [("owner", "en"), ("visitor", "zh")])
async def test_the_menu_has_what_its_visitor_may_open(who: str, language: str):
    jar, cookies = aiohttp.CookieJar(unsafe=True), BY_COOKIE[who]
    headers = {"Accept-Language": language}
    headers |= {"Authorization": f"Bearer {TOKEN}"} if who == "owner" else {}
    async with (
        served(*WayPages("Heron", "Augusta").routes()) as url,
        aiohttp.ClientSession(cookies=cookies, cookie_jar=jar, headers=headers) as client,
        client.get(f"{url}api/ways") as answer,
    ):
        found = await answer.json()
    assert (found["bot"], found["is_owner"]) == ("Heron", who == "owner")
    assert found["called"] == ("Augusta" if who == "owner" else "")
    assert [way["path"] for way in found["ways"]] == [
        way.path for way in WAYS if who == "owner" or not way.is_owners
    ]
    assert found["ways"][0]["label"] == {"en": "Chat", "zh": "聊天"}[language]


@pytest.mark.parametrize(
    ("way", "path", "mark"),
    [
        ("/memory", "/memory", "page"),
        ("/memory", "/memory/file", "true"),
        ("/memory", "/memories", ""),
        ("/", "/", "page"),
        ("/", "/memory", ""),
    ],
)
def test_a_way_is_marked_on_its_page_and_on_those_below_it(way: str, path: str, mark: str):
    assert Way(way, "any").mark(path) == mark


async def test_each_person_sees_their_own_chat_and_nothing_of_anothers():
    async with Chat().served() as chat, chat.page() as owners, chat.page(person="ada") as adas:
        await adas.say(type="send", id="m1", text="mine alone")
        await adas.until("ack")
        (inbound,) = chat.engine.received
        assert (inbound.chat, inbound.sender) == ("ada", "ada")
        address = Address("web", "default", "ada")
        await chat.web.typing(address)
        await chat.web.draft(address, "d1", "half an answer")
        await chat.web.activity(address, Activity("s1", "saving", "begun"))
        await adas.until("draft")
        await post(chat.web, Outbound("o1", address, "an answer"))
        await adas.until("message", id="o1")
        await post(chat.web, Outbound("o2", Address("web", "default", "owner"), "for the owner"))
        await owners.until("message", id="o2")
        kinds = {frame["type"] for frame in owners.frames} - {"commands", "history"}
        assert kinds == {"message"}
        assert [f["id"] for f in owners.frames if f["type"] == "message"] == ["o2"]
        assert "o2" not in {frame.get("id") for frame in adas.frames}
        async with chat.page(person="bob") as bobs:
            assert {frame["type"] for frame in bobs.frames} == {"commands", "history"}


async def test_the_history_asked_for_is_the_persons_own():
    chat = Chat()
    asked: list[Address] = []

    async def history(address: Address, limit: int) -> list[HistoryItem]:
        asked.append(address)
        return []

    chat.engine.history = history  # type: ignore[method-assign]
    async with chat.served(), chat.page(person="ada"), chat.page():
        assert [address.chat for address in asked] == ["ada", "owner"]
