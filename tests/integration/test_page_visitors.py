"""Who may see which page: the owner, somebody the owner let in, and nobody."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib import resources
from itertools import count
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry

from adapters.web import plugin as web_plugin
from adapters.web.channel import Web
from bot import i18n
from bot.app import App, Parts
from bot.channel import Activity, Address, HistoryItem, Inbound, Outbound
from bot.channel.http import SharedRoute, shared, visitor_of
from bot.config import DashboardConfig
from bot.dashboard import DashboardServer, pages
from bot.dashboard.guard import COOKIE
from bot.dashboard.pages import Way, WayPages
from bot.identity import MessageOrigin, Seat
from bot.sessions import page_logins, pairing
from bot.sessions.page_logins import LoginLink
from bot.storage import Transaction
from bot.testing import InMemoryChannel, ScriptedModel
from bot.views import people
from tests.fakes.browsers import BrowsersInMemory
from tests.fakes.page_people import LINK, Browser, browser, browsers, cut, key_in, serving
from tests.fakes.web_pages import Chat, Page, ready
from tests.support import (
    NOON,
    Engine,
    FakeClock,
    beside,
    make_config,
    post,
    running,
    settings_of,
    write_file,
)

TOKEN = "0123456789abcdef0123456789abcdef"

# Who may use a route: "anyone" without being known at all, "visitor" whoever was let in. Every
# other one is the owner's alone.
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
    "GET /drawing/frame.html": "anyone",
    "GET /drawing/frame.js": "anyone",
    "GET /drawing/mermaid.js": "anyone",
    "GET /manifest.webmanifest": "visitor",
    "GET /sw.js": "visitor",
    "GET /assets/fresh.js": "visitor",
    "GET /assets/memory.css": "visitor",
    "GET /assets/charts.css": "visitor",
    "GET /api/ways": "visitor",
    "POST /look": "visitor",
    "GET /api/push": "visitor",
    "POST /api/push": "visitor",
    "DELETE /api/push/{id}": "visitor",
    "GET /assets/conversations.css": "visitor",
    "GET /conversations": "visitor",
    "GET /api/conversations": "visitor",
    "GET /api/conversations/{id}": "visitor",
    "GET /conversations/{id}": "visitor",
    "GET /conversations/{id}.md": "visitor",
    "GET /conversations/{id}.jsonl": "visitor",
    "POST /conversations/{id}/title": "visitor",
    "POST /conversations/{id}/shelf": "visitor",
    "GET /api/conversations/{id}/notes": "visitor",
    "GET /conversations/{id}/delete": "visitor",
    "POST /conversations/{id}/delete": "visitor",
    "POST /conversations/{id}/restore": "visitor",
    "POST /conversations/{id}/continue": "visitor",
    "GET /": "visitor",
    "GET /temporary": "visitor",
    "POST /api/temporary": "visitor",
    "GET /chat/ws": "visitor",
    "GET /chat/files/{id}": "visitor",
    "POST /chat/files/{id}": "visitor",
    "DELETE /chat/files/{id}": "visitor",
    "GET /memory": "visitor",
    "GET /memory/advanced": "visitor",
    "GET /reminders": "visitor",
    "POST /reminders/change": "visitor",
    "GET /reminders/edit": "visitor",
    "POST /reminders/edit": "visitor",
    "GET /memory/source": "visitor",
    "GET /api/sources": "visitor",
    "GET /memory/entry": "visitor",
    "POST /memory/entry": "visitor",
    "GET /memory/file": "visitor",
    "GET /context": "visitor",
    "POST /context": "visitor",
    "GET /memory/search": "visitor",
    "POST /memory/confirm": "visitor",
    "POST /memory/wrong": "visitor",
    "GET /memory/edit": "visitor",
    "POST /memory/edit": "visitor",
    "POST /memory/add": "visitor",
    "GET /memory/history": "visitor",
    "POST /memory/back": "visitor",
    "GET /memory/night": "visitor",
    "POST /memory/night": "visitor",
    "GET /memory/forget": "visitor",
    "POST /memory/forget": "visitor",
    "GET /memory/forgotten": "visitor",
    "POST /memory/forgotten": "visitor",
    "GET /usage": "visitor",
    "GET /assets/account.css": "visitor",
    "GET /account": "visitor",
    "POST /account/end": "visitor",
    "POST /account/end-others": "visitor",
    "POST /account/logout": "visitor",
    "POST /account/password": "visitor",
    "GET /programs": "visitor",
    "POST /programs/keys": "visitor",
    "POST /programs/keys/revoke": "visitor",
    "POST /programs/hooks": "visitor",
    "POST /programs/hooks/delete": "visitor",
    "POST /hooks/{id}": "visitor",
    "POST /v1/chat/completions": "visitor",
    "GET /v1/models": "visitor",
    "GET /v1/models/{model}": "visitor",
    "GET /mcp": "visitor",
    "POST /mcp": "visitor",
    "DELETE /mcp": "visitor",
    "GET /assets/people.css": "visitor",
    "GET /assets/settings.css": "visitor",
    "GET /assets/settings.js": "visitor",
    "GET /assets/scope.js": "visitor",
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
        browsers=BrowsersInMemory(Chat().guest),
    )
    try:
        yield (await server.start()).url
    finally:
        await server.stop()


async def _own(request: web.Request) -> web.Response:
    return web.Response(text=visitor_of(request).name)


async def test_every_route_that_is_not_the_owners_alone_has_a_row_here(tmp_path):
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
    assert set(ROUTES) <= set(found)
    assert known <= set(ROUTES)
    assert {name for name, who in ROUTES.items() if who == "visitor"} <= known
    menu = {f"GET {way.path}": way.is_owners for way in pages.menu()}
    assert menu == {name: name not in known for name in menu if name in found}


@pytest.mark.parametrize("who", RANKS)
async def test_what_is_the_owners_is_nobody_elses(who):
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
async def test_the_menu_has_what_its_visitor_may_open(who, language):
    jar, cookies = aiohttp.CookieJar(unsafe=True), BY_COOKIE[who]
    headers = {"Accept-Language": language}
    headers |= {"Authorization": f"Bearer {TOKEN}"} if who == "owner" else {}
    called = settings_of(agent={"name": "Heron"}, session={"owner_name": "Augusta"})
    async with (
        served(*WayPages(called).routes()) as url,
        aiohttp.ClientSession(cookies=cookies, cookie_jar=jar, headers=headers) as client,
        client.get(f"{url}api/ways") as answer,
    ):
        found = await answer.json()
    assert (found["bot"], found["is_owner"]) == ("Heron", who == "owner")
    assert found["called"] == ("Augusta" if who == "owner" else "")
    assert [way["path"] for way in found["ways"]] == [
        way.path for way in pages.menu() if who == "owner" or not way.is_owners
    ]
    assert found["ways"][0]["label"] == {"en": "Chat", "zh": "聊天"}[language]
    behind = {way["path"]: way["behind"] for way in found["ways"] if way["behind"]}
    wanted = {"/people", "/channels", "/logins", "/overview", "/backups", "/settings"}
    assert behind == (dict.fromkeys(wanted, "Administration") if who == "owner" else {})


@pytest.mark.parametrize(
    ("form", "where", "theme", "language"),
    [
        ({"theme": "dark", "back": "usage?days=7"}, "/usage?days=7", "dark", ""),
        ({"language": "zh", "theme": "system", "back": ""}, "/", "", "zh"),
        ({"theme": "<b>", "language": "xx", "back": "//evil.example"}, "/evil.example", "", ""),
        ({"back": "\t\\/evil.example"}, "/evil.example", "", ""),
    ],
)
async def test_the_menus_switches_are_kept_in_the_browser(form, where, theme, language):
    jar = aiohttp.CookieJar(unsafe=True)
    async with (
        served(*WayPages(settings_of()).routes()) as url,
        aiohttp.ClientSession(cookies=BY_COOKIE["visitor"], cookie_jar=jar) as client,
        client.post(
            f"{url}look", data=form, headers={"Origin": url.rstrip("/")}, allow_redirects=False
        ) as answer,
    ):
        assert (answer.status, answer.headers["Location"]) == (303, where)
        kept = {name: each.value for name, each in answer.cookies.items() if each.value}
        expected = {"confidant_theme": theme, "confidant_language": language}
        assert kept == {name: value for name, value in expected.items() if value}


@pytest.mark.parametrize(
    ("bots", "chosen", "asked", "lang"),
    [
        ("auto", "", "zh-TW,en", "zh-CN"),
        ("auto", "en", "zh-TW,en", "en"),
        ("zh", "", "en-GB", "zh-CN"),
        ("zh", "en", "zh", "en"),
        ("zh", "<b>", "en", "zh-CN"),
    ],
)
async def test_a_page_speaks_what_was_chosen_else_what_the_bot_speaks(
    tmp_path, bots, chosen, asked, lang
):
    headers = {"Accept-Language": asked, "Accept": "text/html"}
    headers |= {"Cookie": f"confidant_language={chosen}; confidant_theme=dark"}
    async with (
        running(tmp_path, serves=True, agent={"language": bots}) as engine,
        aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar(), headers=headers) as client,
    ):
        assert engine.app.address is not None
        async with client.get(f"{engine.app.address.url}usage") as answer:
            assert f'<html lang="{lang}" data-theme="dark">' in await answer.text()
        async with client.get(f"{engine.app.address.url}api/ways") as answer:
            assert (await answer.json())["language"] == bots


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
def test_a_way_is_marked_on_its_page_and_on_those_below_it(way, path, mark):
    assert Way(way).mark(path) == mark


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


CLOSED: dict[str, Any] = {"memory": {"dm_policy": "pairing", "allow_from": []}}
CODE = re.compile(r"\*\*([A-Z2-9]{8})\*\*")
PASSWORD = "correct horse battery"
EVE = {"channel": "memory", "sender": "eve"}


@dataclass
class World:
    engine: Engine
    owner: Browser

    async def does(self, what: str, **fields: str) -> None:
        status, where = await self.owner.post(f"/people/{what}", **(fields or EVE))
        assert (status, where.startswith("/people?told=")) == (303, True)

    async def let_in(self, sender: str = "eve") -> None:
        """Somebody asks, is let in, and told so."""
        found = CODE.search(await self.engine.ask("let me in", sender=sender))
        assert found is not None
        await self.does("approve", channel="memory", code=found[1])
        await self.told(sender, "You're in.")

    async def told(self, sender: str, words: str) -> None:
        await self.engine.channel.wait_until(lambda _: words in self.engine.sent_to(sender)[-1])

    async def link(self, sender: str = "eve") -> str:
        return key_in(await self.engine.ask("/web", sender=sender))

    async def enters(self, browser: Browser, sender: str = "eve") -> str:
        """Come in by a link from the chat; the name that they have in the page."""
        assert await browser.post("/enter", key=await self.link(sender)) == (303, "/")
        return await browser.who()


async def by_block(world: World) -> None:
    await world.does("block")


async def by_revoking(world: World) -> None:
    await world.does("revoke")


async def by_command(world: World) -> None:
    """As `confidant pairing block` does it beside the program."""
    async with beside(world.engine.folder) as database:
        seat = ("memory", "eve")
        assert await database.write(lambda tx: people.block(tx, seat, NOON)) is not None


async def let_in_again(world: World) -> None:
    await world.does("again")
    await world.told("eve", "You're in.")


async def asked_again(world: World) -> None:
    await world.does("unblock")
    await world.let_in()


ENDINGS = {
    "blocked, let in again": (by_block, let_in_again),
    "blocked, asked again": (by_block, asked_again),
    "blocked by command": (by_command, let_in_again),
    "let in no longer, asked again": (by_revoking, World.let_in),
}
Step = Callable[[World], Awaitable[None]]


@pytest.mark.parametrize("way", ENDINGS)
async def test_open_pages_end_at_once_and_old_logins_stay_ended(tmp_path, way):
    out, back = ENDINGS[way]
    async with (
        serving(tmp_path, channels=CLOSED) as engine,
        browsers(engine, 5) as (owner, eve, late, ada, fresh),
    ):
        await owner.log_in()
        world = World(engine, owner)
        await world.let_in()
        await world.let_in("ada")
        name = await world.enters(eve)
        assert await eve.post("/account/password", new=PASSWORD) == (303, "/account?done")
        await world.enters(ada, "ada")
        link, cookie = await world.link(), eve.cookie
        async with eve.chat() as page, ada.chat() as hers:
            await out(world)
            await cut(page)
            await hers.say(type="send", id="m1", text="/whoami")
            await hers.until("ack")
        assert await eve.who() == ""
        assert (await late.post("/enter", key=link))[0] == 410
        assert (await late.post("/login", name=name, password=PASSWORD))[0] == 401
        # An invitation would lead nowhere, and says so.
        status, said = await owner.post("/logins", name=name)
        assert (status, LINK.search(said)) == (409, None)
        assert "may not talk to the bot now" in said
        await back(world)
        for each in (eve, late):
            assert await each.who() == ""
        assert await fresh.gets_with(cookie) == (303, "/login")
        assert (await late.post("/enter", key=link))[0] == 410
        # They come in as the same person as before, by what lets them in now.
        assert await world.enters(late) == name
        assert await fresh.post("/login", name=name, password=PASSWORD) == (303, "/")
        assert await fresh.who() == name


def asked(sender: str) -> Inbound:
    return Inbound("memory", "work", sender, "direct", sender, "1", "hi", NOON)


async def test_what_a_seat_was_let_in_by_ends_with_a_block_and_with_its_end(each_database):
    """Also what a node stored that had not heard of the block yet."""
    seats = [("memory", who) for who in ("eve", "ev", "eve' OR 1=1 --", 'e"v\\e')]
    seats.append(("other", "eve"))

    def begin(tx: Transaction, seat: Seat) -> None:
        origin = MessageOrigin(seat[0], "work", seat[1], "direct", seat[1])
        page_logins.begin(tx, f"cookie {seat}", "name", NOON, origin=origin)
        made = LoginLink(str(seat), "", origin, "en", NOON, 60_000)
        page_logins.offer(tx, f"link {seat}", made)

    def holds(tx: Transaction, seat: Seat) -> tuple[bool, bool]:
        login = page_logins.login(tx, f"cookie {seat}", NOON)
        return login is not None, page_logins.offered(tx, f"link {seat}", NOON) is not None

    def work(tx: Transaction) -> None:
        for number, seat in enumerate(seats):
            begin(tx, seat)
            asked = Inbound(seat[0], "work", seat[1], "direct", seat[1], "1", "hi", NOON)
            pairing.ask(tx, asked, f"CODE{number:04}", NOON)
        for number, seat in enumerate(seats):
            assert holds(tx, seat) == (True, True)
            assert people.block(tx, seat, NOON) is not None
            assert holds(tx, seat) == (False, False)
            begin(tx, seat)
            assert people.unblock(tx, seat) is not None
            assert holds(tx, seat) == (False, False)
            assert [holds(tx, each) for each in seats[number + 1 :]] == [(True, True)] * (
                len(seats) - number - 1
            )

    await each_database.write(work)


TODAY = "memory/2026-11-21.md"
STRINGS: Mapping[str, Mapping[str, str]] = json.loads(
    resources.files("adapters.web").joinpath("static/strings.json").read_text("utf-8")
)
NOTED = {
    "MEMORY.md": "# Memory\n\n- Ada's sister is called Ines\n",
    "memory/2026-11-19.md": "# 2026-11-19\n\n- 09:10 我对花生过敏 <!-- owner -->\n"
    "- 09:12 buy a car <!-- untrusted -->\n",
}


def says(language: str, key: str, **values: Any) -> str:
    return i18n.text(language, key, **values)


class Chatting:
    """The chat page of the owner's browser, in one language."""

    def __init__(self, page: Page, language: str) -> None:
        self.page, self.language = page, language
        self.ids = map("m{}".format, count())

    async def ask(self, text: str) -> Mapping[str, Any]:
        """Send a text as the page does; what the bot answers, in Markdown."""
        await self.page.say(type="send", id=next(self.ids), text=text, locale=self.language)
        return await self.page.until("message", role="bot")


@asynccontextmanager
async def chatting(folder: Path, language: str) -> AsyncIterator[Chatting]:
    config, plugins = make_config(folder, web_plugin, dashboard={"port": 0})
    memory, clock = InMemoryChannel(), FakeClock()
    parts = Parts(clock=clock, channels={"memory": memory, "web": Web()})
    async with App(config, plugins, parts) as app:
        engine = Engine(app, memory, ScriptedModel(), clock, folder)
        async with browser(engine) as owner, owner.client.ws_connect("/chat/ws") as socket:
            page = Page(socket)
            await page.say(type="hello", version=1, locale=language, format="text")
            await page.until("history")
            yield Chatting(page, language)


def write(folder: Path, notes: Mapping[str, str]) -> None:
    for name, text in notes.items():
        write_file(folder / "workspace" / name, text)


@pytest.mark.parametrize(
    ("language", "tea"), [("en", "I like my tea without sugar"), ("zh", "我喝茶不加糖")]
)
@pytest.mark.parametrize("notes", [{}, NOTED], ids=["fresh", "noted"])
async def test_each_starter_chip_gets_a_sensible_answer_in_its_order(
    tmp_path, language, tea, notes
):
    write(tmp_path, notes)
    chips = [STRINGS[language][f"starter.{number}"] for number in range(1, 5)]
    expected: Sequence[Sequence[str]] = (
        [says(language, f"offline.{key}") for key in ("about", "key")],
        [
            says(language, "offline.stored", text=tea),
            says(language, "memory.stored", places=f"{TODAY}:3"),
        ],
        [
            says(language, "offline.known"),
            says(language, "offline.noted", where=f"{TODAY}:3", text=f"12:00 {tea}"),
            *(
                ["MEMORY.md:3", "called Ines", "memory/2026-11-19.md:3", "我对花生过敏"]
                * bool(notes)
            ),
        ],
        ["/memory", "/new"],
    )
    async with chatting(tmp_path, language) as chat:
        for chip, parts in zip(chips, expected, strict=True):
            answer = (await chat.ask(chip))["text"]
            assert [part for part in parts if part not in answer] == [], answer
            assert "buy a car" not in answer


@pytest.mark.parametrize(
    ("language", "asked"), [("en", "show me my notes"), ("zh", "关于我你知道什么？")]
)
async def test_who_asks_before_anything_is_noted_is_told_how_to_have_it_kept(
    tmp_path, language, asked
):
    async with chatting(tmp_path, language) as chat:
        assert (await chat.ask(asked))["text"] == says(language, "offline.known_nothing")


@pytest.mark.parametrize(
    ("language", "said", "sentence"),
    [
        ("en", "Hello! My sister Ines lives in Bergen.", "My sister Ines lives in Bergen."),
        ("zh", "你好！我女儿叫小雨。", "我女儿叫小雨。"),
    ],
)
async def test_what_has_a_name_is_offered_once_and_kept_by_its_button(
    tmp_path, language, said, sentence
):
    offer = says(language, "offline.offer", text=sentence)
    stored = says(language, "memory.stored", places=f"{TODAY}:3")
    async with chatting(tmp_path, language) as chat:
        answer = await chat.ask(said)
        assert offer in answer["text"]
        (button,) = answer["buttons"]
        assert button["label"] == says(language, "button.remember")
        assert offer not in (await chat.ask(said))["text"]  # it was said before
        pressed = await chat.ask(button["command"])
        assert stored in pressed["text"]
        again = await chat.ask(button["command"])
        assert again["text"] == says(language, "offline.stored_already", path=TODAY, line=3)
        await chat.ask("/new")
        answer = await chat.ask(said)
        assert offer not in answer["text"]
        assert not answer.get("buttons")
    note = (tmp_path / "workspace" / TODAY).read_text("utf-8")
    assert note.count(sentence) == 1
    assert f"{sentence} <!-- owner" in note


@pytest.mark.parametrize(("language", "yes"), [("en", "Remember that"), ("zh", "记住这个")])
async def test_where_no_button_is_the_words_it_names_keep_it(tmp_path, language, yes):
    async with chatting(tmp_path, language) as chat:
        assert yes.lower() in (await chat.ask("My flight is on 3 May."))["text"].lower()
        answer = await chat.ask(yes)
        assert says(language, "memory.stored", places=f"{TODAY}:3") in answer["text"]
        assert says(language, "offline.stored", text="My flight is on 3 May.") in answer["text"]
