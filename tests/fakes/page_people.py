"""The whole program with its page, and browsers of several people on it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from adapters.web import plugin as web
from adapters.web.channel import Web
from bot.agent.tools import Tool
from bot.app import App, Parts
from bot.dashboard.guard import COOKIE
from bot.testing import InMemoryChannel, ScriptedModel
from tests.fakes.web_pages import Page
from tests.support import PATIENCE, Engine, FakeClock, make_config

TOKEN = "0123456789abcdef0123456789abcdef"
FIREFOX = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"
LINK = re.compile(r"/enter\?key=([0-9a-f]{64})")


@asynccontextmanager
async def serving(
    folder: Path,
    *,
    token: str | None = TOKEN,
    allowed_origins: tuple[str, ...] = (),
    model: ScriptedModel | None = None,
    more_tools: tuple[Tool, ...] = (),
    **sections: Any,
) -> AsyncIterator[Engine]:
    """The program with its page, a channel in memory, and a clock that a test moves."""
    dashboard = {"port": 0, "token": token, "allowed_origins": allowed_origins}
    config, plugins = make_config(folder, web, dashboard=dashboard, **sections)
    memory, scripted, clock = InMemoryChannel(), model or ScriptedModel(), FakeClock()
    channels = {"memory": memory, "web": Web()}
    parts = Parts(clock=clock, remote=scripted, channels=channels, tools=more_tools)
    async with App(config, plugins, parts) as app:
        yield Engine(app, memory, scripted, clock, folder)


class Browser:
    """A browser of its own: it keeps cookies, and says where its forms come from."""

    def __init__(self, client: aiohttp.ClientSession, url: str) -> None:
        self.client = client
        self.url = url

    async def get(self, path: str) -> tuple[int, str]:
        """A page: its status, and where it leads or what it says."""
        async with self.client.get(path, allow_redirects=False) as answer:
            said = answer.headers.get("Location") or await answer.text(errors="replace")
            return answer.status, said

    async def post(self, path: str, /, **form: str) -> tuple[int, str]:
        """Send a form."""
        async with self.client.post(path, data=form, allow_redirects=False) as answer:
            return answer.status, answer.headers.get("Location") or await answer.text()

    async def log_in(self) -> None:
        """As the owner."""
        assert await self.post("/login", token=TOKEN) == (303, "/")

    async def link(self, name: str) -> str:
        """The key of a link that the owner makes here for somebody."""
        status, text = await self.post("/logins", name=name)
        assert status == 200
        return key_in(text)

    @property
    def cookie(self) -> str:
        """What it is known by."""
        (cookie,) = (each for each in self.client.cookie_jar if each.key == COOKIE)
        return cookie.value

    async def gets_with(self, cookie: str, path: str = "/account") -> tuple[int, str]:
        """The same as `get` with this cookie, whatever it has itself."""
        headers = {"Cookie": f"{COOKIE}={cookie}"}
        async with (
            aiohttp.ClientSession(headers=dict(self.client.headers) | headers) as client,
            client.get(f"{self.url}{path}", allow_redirects=False) as answer,
        ):
            return answer.status, answer.headers.get("Location") or await answer.text()

    @asynccontextmanager
    async def chat(self) -> AsyncIterator[Page]:
        """The chat page, open to the end of an `async with`."""
        async with self.client.ws_connect("/chat/ws", max_msg_size=0) as ws:
            page = Page(ws)
            await page.say(type="hello", version=1, locale="en")
            await page.until("history")
            yield page

    async def who(self) -> str:
        """Whose page this browser gets; empty for nobody's."""
        async with self.client.get("/api/ways", headers={"Accept": "*/*"}) as answer:
            return (await answer.json())["visitor"] if answer.status == 200 else ""


async def cut(page: Page) -> None:
    """Return once the connection of a page is ended."""
    async with asyncio.timeout(PATIENCE):
        while not page.ws.closed:
            await page.ws.receive()


def key_in(text: str) -> str:
    found = LINK.search(text)
    assert found is not None, text
    return found[1]


@asynccontextmanager
async def browser(
    engine: Engine, agent: str = FIREFOX, jar: aiohttp.CookieJar | None = None
) -> AsyncIterator[Browser]:
    """A browser at a node; `jar` has its cookies where it is at another node as well."""
    assert engine.app.address is not None
    async with browser_at(engine.app.address.url.rstrip("/"), agent, jar) as found:
        yield found


@asynccontextmanager
async def browser_at(
    url: str, agent: str = FIREFOX, jar: aiohttp.CookieJar | None = None
) -> AsyncIterator[Browser]:
    headers = {"Origin": url, "Accept": "text/html", "User-Agent": agent}
    kept = jar if jar is not None else aiohttp.CookieJar(unsafe=True)
    async with aiohttp.ClientSession(url, cookie_jar=kept, headers=headers) as client:
        yield Browser(client, url)


@asynccontextmanager
async def browsers(engine: Engine, count: int) -> AsyncIterator[list[Browser]]:
    async with browser(engine) as first:
        if count == 1:
            yield [first]
            return
        async with browsers(engine, count - 1) as more:
            yield [first, *more]
