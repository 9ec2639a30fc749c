"""Several people on the page: links that let in once, logins that are listed and ended."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from adapters.web.channel import Web
from bot.app import App, Parts
from bot.dashboard.guard import COOKIE
from bot.testing import InMemoryChannel, ScriptedModel
from tests.support import Engine, FakeClock, make_config

TOKEN = "0123456789abcdef0123456789abcdef"
FIREFOX = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"
LINK = re.compile(r"/enter\?key=([A-Za-z0-9_-]{43})")


@asynccontextmanager
async def serving(folder: Path, **dashboard: Any) -> AsyncIterator[Engine]:
    """The whole program with its page, a channel in memory, and a clock that a test moves."""
    token = dashboard.pop("token", TOKEN)
    config, plugins = make_config(folder, dashboard={"port": 0, "token": token, **dashboard})
    memory, model, clock = InMemoryChannel(), ScriptedModel(), FakeClock()
    parts = Parts(clock=clock, remote=model, channels={"memory": memory, "web": Web()})
    async with App(config, plugins, parts) as app:
        yield Engine(app, memory, model, clock, folder)


class Browser:
    """A browser of its own: it keeps cookies, and says where its forms come from."""

    def __init__(self, client: aiohttp.ClientSession) -> None:
        self.client = client

    async def get(self, path: str) -> tuple[int, str]:
        """A page: its status, and where it leads or what it says."""
        async with self.client.get(path, allow_redirects=False) as answer:
            return answer.status, answer.headers.get("Location") or await answer.text()

    async def post(self, path: str, **form: str) -> tuple[int, str]:
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

    async def who(self) -> str:
        """Whose page this browser gets; empty for nobody's."""
        async with self.client.get("/api/ways", headers={"Accept": "*/*"}) as answer:
            return (await answer.json())["visitor"] if answer.status == 200 else ""


def key_in(text: str) -> str:
    found = LINK.search(text)
    assert found is not None, text
    return found[1]


@asynccontextmanager
async def browser(engine: Engine, agent: str = FIREFOX) -> AsyncIterator[Browser]:
    assert engine.app.address is not None
    url = engine.app.address.url
    headers = {"Origin": url.rstrip("/"), "Accept": "text/html", "User-Agent": agent}
    jar = aiohttp.CookieJar(unsafe=True)
    async with aiohttp.ClientSession(url, cookie_jar=jar, headers=headers) as client:
        yield Browser(client)


@asynccontextmanager
async def browsers(engine: Engine, count: int) -> AsyncIterator[list[Browser]]:
    async with browser(engine) as first:
        if count == 1:
            yield [first]
            return
        async with browsers(engine, count - 1) as more:
            yield [first, *more]


# --- links ----------------------------------------------------------------------------------------


async def test_a_link_that_is_looked_at_is_not_used_up_and_lets_in_once(tmp_path: Path):
    async with serving(tmp_path) as engine, browsers(engine, 3) as (owner, ada, eve):
        await owner.log_in()
        key = await owner.link("ada")
        for _ in range(3):  # a chat program's preview, and then the person
            status, text = await ada.get(f"/enter?key={key}")
            assert (status, 'method="post"' in text) == (200, True)
            assert await ada.who() == ""
        assert await ada.post("/enter", key=key) == (303, "/")
        assert (await ada.who(), await owner.who()) == ("ada", "owner")
        for again in (ada, eve):
            status, text = await again.post("/enter", key=key)
            assert (status, "used already" in text) == (410, True)
            assert (await again.get(f"/enter?key={key}"))[0] == 410
        assert await eve.who() == ""


async def test_of_two_browsers_with_one_link_at_once_exactly_one_gets_in(tmp_path: Path):
    async with serving(tmp_path) as engine, browsers(engine, 5) as (owner, *others):
        await owner.log_in()
        for _ in range(5):
            key = await owner.link("ada")
            answers = await asyncio.gather(*(each.post("/enter", key=key) for each in others))
            assert sorted(status for status, _ in answers) == [303, 410, 410, 410]


async def test_an_invitation_is_good_for_a_day(tmp_path: Path):
    async with serving(tmp_path) as engine, browsers(engine, 2) as (owner, ada):
        for hours, status in ((23.9, 303), (24.1, 410), (-24.1, 410)):
            await owner.log_in()
            key = await owner.link("ada")
            engine.clock.advance(hours=hours)
            assert (await ada.post("/enter", key=key))[0] == status


async def test_another_link_for_a_name_ends_the_one_before(tmp_path: Path):
    async with serving(tmp_path) as engine, browsers(engine, 2) as (owner, ada):
        await owner.log_in()
        old, new = await owner.link("ada"), await owner.link("ada")
        assert (await ada.post("/enter", key=old))[0] == 410
        assert (await ada.post("/enter", key=new))[0] == 303


async def test_what_is_no_key_lets_nobody_in_and_what_is_no_name_is_not_invited(tmp_path: Path):
    async with serving(tmp_path) as engine, browsers(engine, 2) as (owner, eve):
        for key in ("", "x", "x" * 43, "x" * 100_000, "' OR 1=1 --", "é" * 43, "\0"):
            status, _ = await eve.post("/enter", key=key)
            assert (key, status) in {(key, 410), ("x" * 100_000, 413)}
            assert await eve.who() == ""
        await owner.log_in()
        for name in ("owner", "Owner", "", " ", "-a", "a b", "a" * 33, "ada<script>", "é", "a/b"):
            status, text = await owner.post("/logins", name=name)
            found = (status, LINK.search(text), "<script>" in text)
            assert (name, found) == (name, (400, None, False))


async def test_without_a_token_nobody_is_invited(tmp_path: Path):
    async with serving(tmp_path, token=None) as engine, browser(engine) as owner:
        status, text = await owner.post("/logins", name="ada")
        assert (status, LINK.search(text)) == (409, None)
        assert (await owner.get("/account"))[0] == 200


# --- logins, listed and ended ---------------------------------------------------------------------


async def test_logins_are_listed_and_each_can_be_ended(tmp_path: Path):
    async with serving(tmp_path) as engine, browsers(engine, 3) as (here, there, third):
        for each in (here, there, third):
            await each.log_in()
            engine.clock.advance(minutes=1)
        _, text = await here.get("/account")
        assert (text.count("Firefox · Linux</strong>"), text.count("this one")) == (3, 1)
        ids = re.findall(r'name="login" value="([0-9a-f]{16})"', text)
        assert len(ids) == 2
        assert await here.post("/account/end", login=ids[0]) == (303, "/account")
        assert (await here.who(), await there.who(), await third.who()) == ("owner", "owner", "")
        assert await here.post("/account/end-others") == (303, "/account")
        assert (await here.who(), await there.who()) == ("owner", "")
        assert await here.post("/account/logout") == (303, "/login")
        assert await here.who() == ""


async def test_nobody_ends_anothers_logins(tmp_path: Path):
    async with serving(tmp_path) as engine, browsers(engine, 3) as (owner, again, ada):
        await owner.log_in()
        await again.log_in()
        await ada.post("/enter", key=await owner.link("ada"))
        _, text = await owner.get("/account")
        (theirs,) = re.findall(r'name="login" value="([0-9a-f]{16})"', text)
        await ada.post("/account/end", login=theirs)
        await ada.post("/account/end-others")
        assert (await owner.who(), await again.who(), await ada.who()) == ("owner", "owner", "ada")
        assert theirs not in (await ada.get("/account"))[1]


async def test_a_login_ends_by_its_age_and_a_cookie_of_one_that_was_ended_is_nobodys(
    tmp_path: Path,
):
    async with serving(tmp_path) as engine, browsers(engine, 2) as (owner, ada):
        await owner.log_in()
        await ada.post("/enter", key=await owner.link("ada"))
        engine.clock.advance(days=29.9)
        assert await ada.who() == "ada"
        engine.clock.advance(days=0.2)
        assert (await ada.who(), await owner.who()) == ("", "")


async def test_a_new_token_ends_the_owners_logins(tmp_path: Path):
    async with serving(tmp_path) as engine, browser(engine) as owner:
        await owner.log_in()
        (cookie,) = owner.client.cookie_jar
        assert cookie.key == COOKIE
    for token, status in ((TOKEN, 200), (TOKEN[::-1], 303)):
        async with serving(tmp_path, token=token) as engine, browser(engine) as owner:
            headers = {"Cookie": f"{COOKIE}={cookie.value}"}
            async with owner.client.get("/usage", headers=headers, allow_redirects=False) as answer:
                assert answer.status == status


async def test_whoever_is_taken_out_is_out_at_once_and_can_be_let_in_again(tmp_path: Path):
    async with serving(tmp_path) as engine, browsers(engine, 2) as (owner, ada):
        await owner.log_in()
        await ada.post("/enter", key=await owner.link("ada"))
        key = await owner.link("ada")
        async with ada.client.ws_connect("/chat/ws") as ws:
            await ws.send_json({"type": "hello", "version": 1})
            assert json.loads(await ws.receive_str())["type"] == "commands"
            assert await owner.post("/logins/out", name="ada") == (303, "/logins")
            while not ws.closed:
                await ws.receive()
        assert await ada.who() == ""
        assert (await ada.post("/enter", key=key))[0] == 410
        await ada.post("/enter", key=await owner.link("ada"))
        assert await ada.who() == "ada"


async def test_a_socket_of_a_login_that_is_ended_closes_and_others_stay(tmp_path: Path):
    async with serving(tmp_path) as engine, browsers(engine, 2) as (here, there):
        await here.log_in()
        await there.log_in()
        async with (
            here.client.ws_connect("/chat/ws") as mine,
            there.client.ws_connect("/chat/ws") as gone,
        ):
            for ws in (mine, gone):
                await ws.send_json({"type": "hello", "version": 1})
                await ws.receive_str()
            await here.post("/account/end-others")
            while not gone.closed:
                await gone.receive()
            await mine.send_json({"type": "send", "id": "m1", "text": "/whoami"})
            while json.loads(await mine.receive_str())["type"] != "ack":
                pass
