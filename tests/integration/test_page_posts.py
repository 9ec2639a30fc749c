"""Every route that changes something, by real logins: who may, may, and nobody else can."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import aiohttp
import pytest

from adapters.web.channel import Web
from bot.dashboard.guard import COOKIE
from bot.dashboard.memory.editing import base_of
from tests.fakes.page_nodes import page_from_files
from tests.fakes.page_people import TOKEN, Browser, browsers
from tests.fakes.push_service import PushBrowser
from tests.integration.test_page_visitors import ROUTES
from tests.support import Engine

pytestmark = pytest.mark.slow

Who = Literal["owner", "person", "ended", "nobody"]
WHO: tuple[Who, ...] = ("owner", "person", "ended", "nobody")
SAFE = {"GET", "HEAD", "OPTIONS", "*"}
MAY = {"owner": {"owner"}, "visitor": {"owner", "person"}, "anyone": set(WHO)}
# Of others' pages, of a page opened from a file, of another program here, and of no page at all.
ELSEWHERE = ("https://evil.example", "null", "http://127.0.0.1:1", None)
CODE = re.compile(r"\*\*([A-Z2-9]{8})\*\*")
TOPIC = "memory/birds.md"
# What a page changes and nothing else does by itself, so that it can be compared.
TABLES = {
    **dict.fromkeys(("page_people", "page_links", "blocks", "links", "titles"), "*"),
    **dict.fromkeys(("push_subscriptions", "note_versions", "forgotten_spaces"), "*"),
    "page_logins": "id, person",
    "api_keys": "id, person, name",
    "hooks": "id, person, name",
    "pairing": "*",
    "rooms": "key, activation",
    "uploads": "ref, part, data",
    "inbox": "message_id",
    "sessions": "id, shelf, deleted_at",
}


@dataclass
class World:
    """A running program, who is known there by which cookie, and what forms can speak of."""

    engine: Engine
    url: str
    cookies: Mapping[Who, str]
    conversations: Mapping[Who, str]
    codes: Mapping[str, str]
    keys: list[str]  # of links that were not used yet
    client: aiohttp.ClientSession
    push: dict[str, PushBrowser] = field(default_factory=dict)

    def posts(self) -> dict[str, str]:
        """Every route that changes something, and who may use it: first those that have a row."""
        server = self.engine.app.server
        assert server is not None
        routes = [*server.routes, *Web().routes()]
        names = {f"{route.method} {route.path}" for route in routes if route.method not in SAFE}
        # No cookie counts there: see test_completions, test_memory_server and test_hooks.
        names -= {"POST /v1/chat/completions", "POST /mcp", "DELETE /mcp", "POST /hooks/{id}"}
        assert set(ROWS) <= names
        return {name: ROUTES.get(name, "owner") for name in (*ROWS, *sorted(names - set(ROWS)))}

    async def state(self) -> object:
        """All that a page could have changed."""
        data = self.engine.folder / "data"
        rows = await self.engine.app.core.database.read(
            lambda tx: {
                table: sorted(map(repr, tx.execute(f"SELECT {columns} FROM {table}")))
                for table, columns in TABLES.items()
            }
        )
        files = {
            path: path.read_bytes()
            for path in [
                *(data / "workspace").rglob("*.md"),
                data / ".env",
                *data.glob("backups/*.backup"),
            ]
            if path.is_file()
        }
        return rows, files

    def subscription(self, who: Who) -> PushBrowser:
        address = f"https://updates.push.services.mozilla.com/wpush/v2/{who}"
        return self.push.setdefault(who, PushBrowser(address))


@dataclass(frozen=True)
class Row:
    """What is sent to a route, and what comes of it for those who may: status, and a change."""

    form: Callable[[World, Who], Mapping[str, Any]] = lambda _world, _who: {}
    status: int = 303
    changes: bool = True
    of: Mapping[Who, int] = field(default_factory=dict)  # another status, and no change

    def of_(self, who: Who) -> tuple[int, bool]:
        return (self.of[who], False) if who in self.of else (self.status, self.changes)


def form(**fields: str) -> Callable[[World, Who], Mapping[str, Any]]:
    return lambda _world, _who: {"data": fields}


def note(text: str, path: str = TOPIC) -> Callable[[World, Who], Mapping[str, Any]]:
    return form(path=path, text=text, base=base_of(""), since="0")


PART = {"params": {"part": "0", "size": "3", "name": "a.txt"}, "data": b"abc"}
ROWS = {
    "POST /login": Row(form(token=TOKEN)),
    "POST /enter": Row(lambda world, _who: {"data": {"key": world.keys[-1]}}),
    "POST /api/push": Row(lambda w, who: {"json": w.subscription(who).subscription()}, 200),
    "DELETE /api/push/{id}": Row(status=204),
    "POST /look": Row(form(theme="dark"), changes=False),
    "POST /conversations/{id}/title": Row(form(title="The boat")),
    "POST /conversations/{id}/shelf": Row(form(shelf="pinned")),
    "POST /conversations/{id}/delete": Row(),
    "POST /conversations/{id}/restore": Row(),
    "POST /chat/files/{id}": Row(lambda _world, _who: PART, 204),
    "DELETE /chat/files/{id}": Row(status=204),
    "POST /api/temporary": Row(lambda _w, _who: {"json": {"lines": ["hi"]}}, 200, changes=False),
    "POST /context": Row(
        lambda _w, who: {"data": {"do": "new", "once": f"{who:0<32}".encode().hex()[:32]}}
    ),
    "POST /memory/edit": Row(note("- the heron is grey\n")),
    "POST /memory/add": Row(form(text="the stork is white", path="")),
    "POST /memory/confirm": Row(form(path="memory/none.md", claim="x"), 404, changes=False),
    "POST /memory/wrong": Row(form(path="memory/none.md", claim="x"), 404, changes=False),
    "POST /memory/back": Row(form(text="999", path=TOPIC), 404, changes=False),
    "POST /memory/night": Row(changes=False),
    "POST /memory/forget": Row(form(words="heron"), 200, changes=False),
    "POST /memory/forgotten": Row(form(words="heron")),
    "POST /logins": Row(form(name="dora"), 200),
    "POST /logins/out": Row(form(name="dora")),
    "POST /account/end": Row(form(login="0" * 16), changes=False),
    "POST /account/end-others": Row(of={"person": 303}),
    "POST /account/logout": Row(),
    "POST /programs/keys": Row(form(name="editor"), 200),
    "POST /programs/keys/revoke": Row(form(key="0" * 8), changes=False),
    "POST /programs/hooks": Row(form(name="alerts"), 200),
    "POST /programs/hooks/delete": Row(form(hook="0" * 16), changes=False),
    "POST /account/password": Row(form(new="correct horse battery"), of={"owner": 400}),
    "POST /channels/check": Row(form(channel="memory"), changes=False),
    "POST /channels/activation": Row(form(key="x", activation="always"), changes=False),
    "POST /channels/admit": Row(form(key="x"), changes=False),
    "POST /channels/dismiss": Row(form(key="x"), changes=False),
    "POST /channels/scope/check": Row(form(effect="allow", chat="den"), 200, changes=False),
    "POST /channels/scope/add": Row(form(effect="allow", chat="den")),
    "POST /channels/scope/remove": Row(form(number="99", rule="x"), changes=False),
    "POST /channels/scope/up": Row(form(number="99", rule="x"), changes=False),
    "POST /people/approve": Row(
        lambda world, _who: {"data": {"channel": "memory", "code": world.codes["bob"]}}
    ),
    "POST /people/block": Row(form(channel="memory", sender="bob")),
    "POST /people/again": Row(form(channel="memory", sender="bob")),
    "POST /people/unblock": Row(form(channel="memory", sender="eve")),
    "POST /people/revoke": Row(form(channel="memory", sender="bob")),
    "POST /people/part": Row(form(channel="memory", sender="bob"), changes=False),
    "POST /backups/make": Row(),
    "POST /backups/download": Row(form(name="confidant.db"), 404, changes=False),
    "POST /settings/change": Row(form(section="general", **{"agent.name": "Heron"})),
    "POST /settings/unset": Row(form(option="agent.name")),
    "POST /settings/secret": Row(form(option="models.anthropic.api_key", value="sk-ant-x")),
    "POST /settings/take-back": Row(form(change="none"), 422, changes=False),
    "POST /settings/start/self": Row(form(name="Stork")),
}
LAST = (
    *("POST /conversations/{id}/delete", "POST /conversations/{id}/restore"),
    "POST /account/logout",
)


@asynccontextmanager
async def made(folder: Path) -> AsyncIterator[World]:
    async with page_from_files(folder) as engine, browsers(engine, 3) as (owner, again, ada):
        await again.log_in()
        await owner.log_in()
        ended = again.cookie
        assert await owner.post("/account/end-others") == (303, "/account")
        await ada.post("/enter", key=await owner.link("ada"))
        said: dict[Who, str] = {"owner": await _talked(owner), "person": await _talked(ada)}
        codes = {who: await _asks(engine, who) for who in ("bob", "eve")}
        await owner.post("/people/block", channel="memory", sender="eve")
        cookies: dict[Who, str] = {
            "owner": owner.cookie,
            "person": ada.cookie,
            "ended": ended,
            "nobody": "",
        }
        keys = [await owner.link(f"guest-{who}") for who in WHO]
        async with aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as client:
            yield World(engine, owner.url, cookies, said, codes, keys, client)


async def _talked(browser: Browser) -> str:
    """Say something in the chat, and find the conversation in the list."""
    async with browser.chat() as page:
        await page.say(type="send", id="m1", text="hello")
        await page.until("message", role="bot")
    _, text = await browser.get("/conversations")
    found = re.search(r'href="/conversations/([^"?#]+)', text)
    assert found is not None
    return found[1]


async def _asks(engine: Engine, who: str) -> str:
    found = CODE.search(await engine.ask("let me in", sender=who))
    assert found is not None
    return found[1]


async def sends(world: World, route: str, who: Who, origin: str | None) -> int:
    """Send what a route takes; its status, or 401 where it leads to the login."""
    method, path = route.split(" ")
    row = ROWS.get(route, Row())
    if "/conversations/" in path:
        id_ = world.conversations.get(who, world.conversations["owner"])
    else:
        id_ = world.subscription(who).id if "push" in path else f"upload00{who}"
    headers = {"Accept": "text/html"} | ({"Origin": origin} if origin is not None else {})
    if world.cookies[who]:
        headers["Cookie"] = f"{COOKIE}={world.cookies[who]}"
    async with world.client.request(
        method,
        world.url + path.replace("{id}", id_),
        headers=headers,
        allow_redirects=False,
        **row.form(world, who),
    ) as answer:
        await answer.read()
        is_out = answer.headers.get("Location") == "/login" and "logout" not in path
        return 401 if is_out else answer.status


async def test_whoever_may_changes_what_whoever_may_not_and_other_pages_cannot(tmp_path):
    async with made(tmp_path / "page") as world:
        before, posts = await world.state(), world.posts()
        for route in posts:
            for who in WHO:
                for origin in ELSEWHERE:
                    found = await sends(world, route, who, origin)
                    assert (route, who, origin, found) == (route, who, origin, 403)
                if who not in MAY[posts[route]]:
                    wanted = 403 if who == "person" else 401
                    found = await sends(world, route, who, world.url)
                    assert (route, who, found) == (route, who, wanted)
            assert (route, await world.state()) == (route, before)
        for route in sorted(posts, key=lambda name: LAST.index(name) if name in LAST else -1):
            for who in (each for each in WHO if each in MAY[posts[route]]):
                before = await world.state()
                found = await sends(world, route, who, world.url)
                if route == "POST /enter":
                    world.keys.pop()
                if route not in ROWS:  # whatever comes of nothing, it was let through
                    assert (route, who, found in {401, 403}) == (route, who, False)
                    continue
                wanted, changes = ROWS[route].of_(who)
                assert (route, who, found) == (route, who, wanted)
                assert (route, who, await world.state() != before) == (route, who, changes)
