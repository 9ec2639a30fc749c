"""Several people on the page: links that let in once, logins that are listed and ended."""

from __future__ import annotations

import asyncio
import json
import re

import aiohttp
import pytest

from adapters.web.channel import MAX_OF_ONE
from bot.channel import PAGE_OWNER
from bot.dashboard import browsers as browsers_module
from bot.dashboard.browsers import Browsers, browser_of
from bot.dashboard.guard import COOKIE
from bot.dashboard.people import NOBODYS, Passwords
from bot.identity import MessageOrigin
from bot.sessions import page_logins
from bot.sessions.page_logins import Login
from bot.storage import Transaction
from tests.fakes.page_people import FIREFOX, LINK, TOKEN, browser, browsers, key_in, serving
from tests.support import Engine, beside

# --- links ----------------------------------------------------------------------------------------


async def test_a_link_that_is_looked_at_is_not_used_up_and_lets_in_once(tmp_path):
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
            assert (status, "has been used" in text) == (410, True)
            assert (await again.get(f"/enter?key={key}"))[0] == 410
        assert await eve.who() == ""


async def test_of_two_browsers_with_one_link_at_once_exactly_one_gets_in(tmp_path, monkeypatch):
    monkeypatch.setattr("bot.dashboard.guard.LONGEST_DELAY", 0.0)
    async with serving(tmp_path) as engine, browsers(engine, 5) as (owner, *others):
        await owner.log_in()
        for _ in range(5):
            key = await owner.link("ada")
            answers = await asyncio.gather(*(each.post("/enter", key=key) for each in others))
            assert sorted(status for status, _ in answers) == [303, 410, 410, 410]


async def test_an_invitation_is_good_for_a_day(tmp_path):
    async with serving(tmp_path) as engine, browsers(engine, 2) as (owner, ada):
        for hours, status in ((23.9, 303), (24.1, 410), (-24.1, 410)):
            await owner.log_in()
            key = await owner.link("ada")
            engine.clock.advance(hours=hours)
            assert (await ada.post("/enter", key=key))[0] == status


async def test_another_link_for_a_name_ends_the_one_before(tmp_path):
    async with serving(tmp_path) as engine, browsers(engine, 2) as (owner, ada):
        await owner.log_in()
        old, new = await owner.link("ada"), await owner.link("ada")
        assert (await ada.post("/enter", key=old))[0] == 410
        assert (await ada.post("/enter", key=new))[0] == 303


async def test_what_is_no_key_lets_nobody_in_and_what_is_no_name_is_not_invited(tmp_path):
    async with serving(tmp_path) as engine, browsers(engine, 2) as (owner, eve):
        for key in ("", "x", "0" * 64, "x" * 100_000, "' OR 1=1 --", "é" * 64, "\0"):
            status, _ = await eve.post("/enter", key=key)
            assert (key, status) in {(key, 410), ("x" * 100_000, 413)}
            assert await eve.who() == ""
        await owner.log_in()
        for name in ("owner", "Owner", "", " ", "-a", "a b", "a" * 33, "ada<script>", "é", "a/b"):
            status, text = await owner.post("/logins", name=name)
            found = (status, LINK.search(text), "<script>" in text)
            assert (name, found) == (name, (400, None, False))


async def test_without_a_token_nobody_is_invited(tmp_path):
    async with serving(tmp_path, token=None) as engine, browser(engine) as owner:
        status, text = await owner.post("/logins", name="ada")
        assert (status, LINK.search(text)) == (409, None)
        assert (await owner.get("/account"))[0] == 200


# --- logins, listed and ended ---------------------------------------------------------------------


async def test_logins_are_listed_and_each_can_be_ended(tmp_path):
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


async def test_nobody_ends_anothers_logins(tmp_path):
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


async def test_a_login_ends_by_its_age_and_a_cookie_of_one_that_was_ended_is_nobodys(tmp_path):
    async with serving(tmp_path) as engine, browsers(engine, 2) as (owner, ada):
        await owner.log_in()
        await ada.post("/enter", key=await owner.link("ada"))
        engine.clock.advance(days=29.9)
        assert await ada.who() == "ada"
        engine.clock.advance(days=0.2)
        assert (await ada.who(), await owner.who()) == ("", "")


async def test_a_new_token_ends_the_owners_logins(tmp_path):
    async with serving(tmp_path) as engine, browser(engine) as owner:
        await owner.log_in()
        (cookie,) = owner.client.cookie_jar
        assert cookie.key == COOKIE
    for token, status in ((TOKEN, 200), (TOKEN[::-1], 303)):
        async with serving(tmp_path, token=token) as engine, browser(engine) as owner:
            headers = {"Cookie": f"{COOKIE}={cookie.value}"}
            async with owner.client.get("/usage", headers=headers, allow_redirects=False) as answer:
                assert answer.status == status


async def test_whoever_is_taken_out_is_out_at_once_and_can_be_let_in_again(tmp_path):
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


async def test_a_socket_of_a_login_that_is_ended_closes_and_others_stay(tmp_path):
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


# --- from a chat ----------------------------------------------------------------------------------


def at_page(name: str) -> MessageOrigin:
    return MessageOrigin("web", "default", name, "direct", name)


async def ask(engine: Engine, text: str) -> str:
    """A command in a chat of the channel in memory; what is answered there."""
    return await engine.ask(text)


async def test_a_link_from_a_chat_opens_ones_own_space_and_conversations(tmp_path):
    async with serving(tmp_path) as engine, browsers(engine, 2) as (mine, other):
        words = await ask(engine, "/web")
        assert "only on the machine I run on" in words  # no address that others use is configured
        key = key_in(words)
        assert await mine.post("/enter", key=key) == (303, "/")
        assert (await other.post("/enter", key=key))[0] == 410
        name = await mine.who()
        assert name.startswith("memory-")
        resolver = engine.app.core.resolver
        page = resolver.of(at_page(name))
        assert (page.person, page.is_owner) == ("memory:ada", False)
        there = resolver.of(MessageOrigin("memory", "default", "ada", "direct", "ada"))
        assert page.view.space == there.view.space
        assert page.key != there.key  # dm_scope says so
        # The same account again, from wherever they ask: also from the page itself.
        async with mine.client.ws_connect("/chat/ws") as ws:
            await ws.send_json({"type": "hello", "version": 1, "format": "text"})
            await ws.send_json({"type": "send", "id": "m1", "text": "/web"})
            while (frame := json.loads(await ws.receive_str()))["type"] != "message":
                pass
        assert await other.post("/enter", key=key_in(frame["text"])) == (303, "/")
        assert await other.who() == name
        # What is kept of it has no secret in it.
        (cookie,) = mine.client.cookie_jar
        kept = b"".join(
            path.read_bytes()
            for path in tmp_path.rglob("*")
            if path.is_file() and not path.name.startswith("confidant")  # the chat's own words
        )
        assert key.encode() not in kept
        async with beside(tmp_path) as database:
            rows = await database.read(
                lambda tx: [
                    *tx.execute("SELECT * FROM page_links"),
                    *tx.execute("SELECT * FROM page_logins"),
                    *tx.execute("SELECT line FROM entries"),
                ]
            )
        assert rows
        assert not {key, cookie.value} & {str(value) for row in rows for value in row}
        assert key not in str(rows)


async def test_a_link_from_a_chat_is_good_for_ten_minutes(tmp_path):
    async with serving(tmp_path) as engine, browser(engine) as mine:
        for minutes, status in ((9.9, 303), (10.1, 410)):
            key = key_in(await ask(engine, "/web"))
            engine.clock.advance(minutes=minutes)
            assert (await mine.post("/enter", key=key))[0] == status


async def test_a_room_gets_no_link(tmp_path):
    channels = {"memory": {"group_policy": "open"}}
    async with serving(tmp_path, channels=channels) as engine:
        await engine.say("/web", chat="den", chat_type="group")
        await engine.channel.wait_until(lambda _: bool(engine.sent_to("den")))
        (words,) = engine.sent_to("den")
        assert ("direct chat" in words, LINK.search(words)) == (True, None)


async def test_the_owners_chat_gets_a_link_to_the_owners_page(tmp_path):
    session = {"owner": ("memory:ada",)}
    async with serving(tmp_path, session=session) as engine, browser(engine) as mine:
        await mine.post("/enter", key=key_in(await ask(engine, "/web")))
        assert await mine.who() == PAGE_OWNER
        assert (await mine.get("/people"))[0] == 200


async def test_the_address_of_a_link_is_the_one_that_is_configured(tmp_path):
    origins = ("https://bot.example.org", "https://other.example.org")
    async with serving(tmp_path, allowed_origins=origins) as engine:
        words = await ask(engine, "/web")
        assert "https://bot.example.org/enter?key=" in words
        assert "the machine I run on" not in words


async def test_without_a_token_a_chat_is_told_what_to_set_and_gets_no_link(tmp_path):
    for token in (None, ""):
        async with serving(tmp_path, token=token) as engine:
            words = await ask(engine, "/web")
            assert "CONFIDANT_DASHBOARD__TOKEN" in words
            assert LINK.search(words) is None


async def test_a_login_from_a_chat_ends_with_the_right_to_talk_there(tmp_path):
    async with serving(tmp_path) as engine, browsers(engine, 2) as (owner, mine):
        await owner.log_in()
        for command in ("/unlink", ""):
            await mine.post("/enter", key=key_in(await ask(engine, "/web")))
            name = await mine.who()
            assert name
            if command:
                await ask(engine, command)
            else:
                await owner.post("/logins/out", name=name)
            assert await mine.who() == ""
        assert "closed the page" in await ask(engine, "/web")


# --- passwords ------------------------------------------------------------------------------------

PASSWORD = "correct horse battery"


async def test_a_password_logs_in_and_a_new_one_ends_the_other_logins(tmp_path):
    async with serving(tmp_path) as engine, browsers(engine, 3) as (owner, ada, there):
        await owner.log_in()
        await ada.post("/enter", key=await owner.link("ada"))
        assert (await ada.post("/account/password", new="short"))[0] == 400
        assert await ada.post("/account/password", new=PASSWORD) == (303, "/account?done")
        for wrong in ("", PASSWORD[:-1], PASSWORD + " ", "x" * 10_000):
            assert (await there.post("/login", name="ada", password=wrong))[0] == 401
        assert await there.post("/login", name=" Ada ", password=PASSWORD) == (303, "/")
        assert await there.who() == "ada"
        assert (await ada.post("/account/password", old="wrong", new=PASSWORD[::-1]))[0] == 400
        assert await there.who() == "ada"
        await ada.post("/account/password", old=PASSWORD, new=PASSWORD[::-1])
        assert (await ada.who(), await there.who()) == ("ada", "")
        assert (await there.post("/login", name="ada", password=PASSWORD))[0] == 401
        # The owner has the token, and no password.
        assert (await owner.post("/account/password", new=PASSWORD))[0] == 400
        assert (await there.post("/login", name="owner", password=TOKEN))[0] == 401


async def test_what_is_answered_does_not_tell_which_names_there_are(tmp_path):
    async with serving(tmp_path) as engine, browsers(engine, 3) as (owner, ada, eve):
        await owner.log_in()
        await ada.post("/enter", key=await owner.link("ada"))
        await owner.link("bob")
        await ada.post("/account/password", new=PASSWORD)
        said = {
            name: await eve.post("/login", name=name, password="x" * 20)
            for name in ("ada", "bob", "nobody", "owner", "<script>")
        }
        assert len(set(said.values())) == 1
        assert next(iter(said.values()))[0] == 401


async def test_a_name_that_has_no_password_takes_as_long_as_one_that_has(monkeypatch):
    verified: list[str] = []
    matches = "bot.dashboard.people._matches"
    monkeypatch.setattr(matches, lambda hashed, _typed: verified.append(hashed) or True)
    passwords = Passwords()
    assert not await passwords.matches("ada", "", "typed")
    assert await passwords.matches("ada", "$hash", "typed")
    assert verified == [NOBODYS, "$hash"]


async def test_only_so_many_passwords_are_hashed_at_a_time(monkeypatch):
    running, most = 0, 0

    async def beside(*_args: object) -> bool:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        return True

    monkeypatch.setattr(asyncio, "to_thread", beside)
    passwords = Passwords()
    await asyncio.gather(*(passwords.matches("eve", "$hash", "typed") for _ in range(20)))
    assert most == 1
    people = (f"p{number}" for number in range(20))
    await asyncio.gather(*(passwords.matches(each, "$hash", "typed") for each in people))
    assert most == 2


async def test_guessing_a_password_slows_that_name_down_and_refuses_nobody(tmp_path, monkeypatch):
    waits: list[float] = []

    async def noted(seconds: float) -> None:
        waits.append(seconds)

    async with serving(tmp_path) as engine, browsers(engine, 3) as (owner, ada, eve):
        await owner.log_in()
        await ada.post("/enter", key=await owner.link("ada"))
        await ada.post("/account/password", new=PASSWORD)
        monkeypatch.setattr("bot.dashboard.guard.sleep", noted)
        for _ in range(12):
            assert (await eve.post("/login", name="ada", password="guessed"))[0] == 401
        assert waits[0] == 0.0
        assert waits[-1] > 0.0
        assert await eve.post("/login", name="ada", password=PASSWORD) == (303, "/")


# --- forms that come from elsewhere ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("agent", "name"),
    [
        (FIREFOX, "Firefox · Linux"),
        ("Mozilla/5.0 (Linux; Android 15) Chrome/140.0 Mobile Safari/537.36", "Chrome · Android"),
        ("Mozilla/5.0 (iPhone; like Mac OS X) Version/18.0 Safari/604.1", "Safari · iPhone"),
        ("Mozilla/5.0 (Windows NT 10.0) Chrome/140.0 Safari/537.36 Edg/140.0", "Edge · Windows"),
        ("curl/8", ""),
        ("<script>alert(1)</script>", ""),
        ("", ""),
    ],
)
def test_a_browser_is_named_in_words_of_our_own(agent, name):
    assert browser_of(agent) == name


# --- connections ----------------------------------------------------------------------------------


async def test_a_guest_with_many_pages_keeps_neither_the_owner_nor_another_out(tmp_path):
    async with serving(tmp_path) as engine, browsers(engine, 3) as (owner, ada, bob):
        await owner.log_in()
        await ada.post("/enter", key=await owner.link("ada"))
        await bob.post("/enter", key=await owner.link("bob"))
        open_ones = [await ada.client.ws_connect("/chat/ws") for _ in range(MAX_OF_ONE)]
        with pytest.raises(aiohttp.WSServerHandshakeError, match="503"):
            await ada.client.ws_connect("/chat/ws")
        for each in (owner, bob):
            async with each.client.ws_connect("/chat/ws") as ws:
                await ws.send_json({"type": "hello", "version": 1})
                assert json.loads(await ws.receive_str())["type"] == "commands"
        await asyncio.gather(*(each.close() for each in open_ones))


# --- looking up whose a cookie is -----------------------------------------------------------------


@pytest.fixture
def lookups(monkeypatch):
    """Every cookie that was looked for in the database."""
    found: list[str] = []
    look = page_logins.login

    def noted(tx: Transaction, cookie: str, now: int) -> Login | None:
        found.append(cookie)
        return look(tx, cookie, now)

    monkeypatch.setattr(page_logins, "login", noted)
    return found


def files_of(engine: Engine) -> list[str]:
    server = engine.app.server
    assert server is not None
    return [path for each in server.routes if (path := each.path).startswith(("/static", "/asset"))]


async def test_the_files_of_a_page_take_one_look_whose_it_is(tmp_path, lookups):
    async with serving(tmp_path) as engine, browsers(engine, 2) as (owner, eve):
        await owner.log_in()
        files = files_of(engine)
        assert len(files) > 20
        lookups.clear()
        for path in ("/", *files):
            assert (await owner.get(path))[0] == 200
        assert len(lookups) == 1
        for path in ("/account", "/api/ways", "/usage", "/", "/sw.js", "/manifest.webmanifest"):
            lookups.clear()
            assert (await owner.get(path))[0] == 200
            assert (path, len(lookups)) == (path, 1)  # what is somebody's is looked up each time
        shown = [path for path in files if (await eve.get(path))[0] == 200]
        assert {path.rpartition(".")[2] for path in shown} == {"css", "png", "svg"}
        for cookie in ("x", "0" * 64, owner.cookie[:-1], owner.cookie + "0"):
            assert await eve.gets_with(cookie, "/static/main.js") == (303, "/login")


async def test_a_look_is_good_for_seconds_and_until_something_is_ended(
    tmp_path, lookups, monkeypatch
):
    async with serving(tmp_path) as engine, browsers(engine, 2) as (here, there):
        await here.log_in()
        await there.log_in()
        cookie = here.cookie
        for path in ("/", "/static/main.js"):
            assert (await here.get(path))[0] == 200
        await there.post("/account/end-others")
        assert await here.gets_with(cookie, "/static/main.js") == (303, "/login")
        assert (await there.get("/static/main.js"))[0] == 200
    monkeypatch.setattr(browsers_module, "LATELY_SECONDS", 0.0)
    async with serving(tmp_path) as engine, browser(engine) as here:
        await here.log_in()
        lookups.clear()
        for _ in range(3):
            await here.get("/static/main.js")
        assert len(lookups) == 3


async def test_a_login_that_ends_while_it_is_looked_up_is_not_taken_for_good(tmp_path):
    async with serving(tmp_path) as engine, browser(engine) as owner:
        await owner.log_in()
        async with beside(tmp_path) as database:
            found = Browsers(database, engine.app.core.resolver, engine.clock)
            await asyncio.gather(found.find(owner.cookie), found.look())
            assert found.found_lately(owner.cookie) is None
            assert await found.find(owner.cookie) == await found.find(owner.cookie) is not None
            assert found.found_lately(owner.cookie) is not None
