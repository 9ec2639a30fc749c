"""Browsers are told of messages that nobody saw: each person's own, sealed, and nobody else's."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from prometheus_client import CollectorRegistry

from adapters.web import nodes
from adapters.web.channel import Web
from bot.app import App, Parts
from bot.channel import Address, Outbound
from bot.channel.http import Visitor
from bot.config import DashboardConfig
from bot.dashboard import DashboardServer
from bot.dashboard.guard import COOKIE
from bot.dashboard.push import PushLogins, PushPages
from bot.dashboard.server import HasRoutes
from bot.push import pusher
from bot.push import pusher as pushing
from bot.push.pusher import Endpoints, Pusher
from bot.sessions.page_logins import Login
from bot.storage.sqlite import SqliteDatabase
from bot.testing import InMemoryChannel, RecordingEngine, ScriptedModel
from tests.fakes.browsers import BrowsersInMemory
from tests.fakes.push_service import PushBrowser, PushService
from tests.fakes.web_pages import Page, ready
from tests.integration.test_page_logins import TOKEN, browsers
from tests.support import NOON, Engine, FakeClock, beside, make_config, post, settings_of, until

SECRET = "the harbour at *five*, and bring the blue folder"
AT = Address("web", "default", "owner")
ADAS = Address("web", "default", "ada")
HERON = settings_of(agent={"name": "Heron"})


class KnownLogins(PushLogins):
    """Logins as the test sets them; everybody has one to begin with."""

    def __init__(self) -> None:
        super().__init__(str, self._none)
        self.held: dict[str, set[str]] = {"owner": {"1"}, "ada": {"1"}}

    async def _none(self, person: str) -> list[Login]:
        return []

    def of(self, visitor: Visitor) -> str:
        return visitor.login

    async def holding(self, person: str) -> Collection[str]:
        return self.held[person]


class Reaching(RecordingEngine):
    pusher: Pusher

    def reach(self, address: Address, words: str) -> None:
        super().reach(address, words)
        self.pusher.reach(address, words)


class Program:
    """The page with what tells browsers, on a database of its own."""

    def __init__(
        self, database: SqliteDatabase, service: PushService, endpoints: Endpoints | None = None
    ) -> None:
        self.database = database
        self.service = service
        self.logins = KnownLogins()
        self.clock = FakeClock()
        self.lookups: list[str] = []
        self.found = ["127.0.0.1"]  # where any name leads
        self.pusher = Pusher(
            database,
            self.clock,
            HERON,
            self.logins.holding,
            endpoints=endpoints or service.endpoints,
            lookup=self._lookup,
        )
        self.web = Web()
        self.pages: list[HasRoutes] = []  # beside these
        self.engine = Reaching()
        self.engine.pusher = self.pusher
        self.url = ""

    async def _lookup(self, host: str) -> list[str]:
        self.lookups.append(host)
        return self.found

    async def _guest(self, cookie: str) -> Visitor | None:
        name, _, login = cookie.partition("-")
        return Visitor(name, login) if login else None

    @asynccontextmanager
    async def served(self) -> AsyncIterator[Program]:
        server = DashboardServer(
            DashboardConfig(port=0),
            readiness=ready,
            registry=CollectorRegistry(),
            channels=[
                PushPages(self.pusher, self.logins, self.database),
                self.web,
                *self.pages,
            ],
            browsers=BrowsersInMemory(self._guest),
            clock=self.clock,
        )
        await self.web.start(self.engine)
        self.url = (await server.start()).url
        try:
            yield self
        finally:
            await self.web.stop()
            await server.stop()
            await self.pusher.stop()

    @asynccontextmanager
    async def client(self, person: str = "owner", login: str = "1") -> AsyncIterator[Any]:
        async with aiohttp.ClientSession(
            self.url,
            cookies={COOKIE: f"{person}-{login}"},
            cookie_jar=aiohttp.CookieJar(unsafe=True),
            headers={"Origin": self.url.rstrip("/")},
        ) as client:
            yield client

    async def subscribe(
        self, name: str, person: str = "owner", login: str = "1", **more: Any
    ) -> PushBrowser:
        browser = self.service.browser(name)
        async with self.client(person, login) as client:
            assert await subscribed(client, browser.subscription(**more)) == 200
        self.clock.advance(seconds=1)
        return browser

    async def known(self, person: str = "owner") -> list[str]:
        found = await self.database.read(lambda tx: pusher.subscriptions_of(tx, person))
        return [each.endpoint.rpartition("/")[2] for each in found]

    async def say(self, text: str, name: str = "o1", at: Address = AT, **more: Any) -> None:
        await post(self.web, Outbound(name, at, text, **more))


async def subscribed(client: aiohttp.ClientSession, body: Mapping[str, Any]) -> int:
    headers = {"Accept-Language": "en"}
    async with client.post("api/push", json=body, headers=headers) as answer:
        return answer.status


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setattr(nodes, "SEEN_SECONDS", 0.0)
    monkeypatch.setattr(pushing, "RETRIES", (0.0, 0.0, 0.0))


@pytest.fixture
async def program(tmp_path):
    async with (
        beside(tmp_path) as database,
        PushService().served() as service,
        Program(database, service).served() as program,
    ):
        yield program


@pytest.mark.parametrize("kind", ["reply", "reminder"])
async def test_what_nobody_saw_is_told_sealed_and_without_its_words(program, kind):
    browser = await program.subscribe("one")
    await program.say(SECRET, kind=kind)
    (pushed,) = await program.service.until(1)
    assert browser.note(pushed) == {"title": "Heron has written to you", "lang": "en"}
    signature = await program.pusher.signature()
    assert pushed.claims(signature.public) == {
        "aud": program.service.url,
        "exp": program.clock() // 1000 + 12 * 3600,
        "sub": "mailto:owner@localhost",
    }
    assert pushed.headers["Content-Encoding"] == "aes128gcm"
    assert int(pushed.headers["TTL"]) > 0
    assert b"harbour" not in pushed.body
    assert "harbour" not in str(pushed.headers)


async def test_the_first_words_come_along_where_somebody_wants_them(program):
    browser = await program.subscribe("one", words=True)
    await program.say(f"# {SECRET}\n\n{'and so on ' * 500}")
    (pushed,) = await program.service.until(1)
    body = browser.note(pushed)["body"]
    assert body.startswith("the harbour at five, and bring the blue folder and so on")
    assert body.endswith("…")
    assert len(body) <= pushing.WORDS + 1
    await program.subscribe("one", words=False)  # the switch turned back
    await program.say(SECRET, "o2")
    assert len(pushed.body) == len((await program.service.until(2))[1].body)
    assert "Topic" not in pushed.headers
    assert program.service.pushed[1].headers["Topic"]


@pytest.mark.parametrize("kind", ["notice", "receipt"])
async def test_what_is_no_reply_and_no_reminder_can_wait(program, kind):
    await program.subscribe("one")
    await program.say("It is full.", "o1", kind=kind)
    await program.say("A reply.", "o2")
    await program.service.until(1)
    assert program.engine.reached == [(AT, "A reply.")]


async def test_two_people_are_told_of_their_own_alone(program):
    owners = await program.subscribe("owners", words=True)
    adas = await program.subscribe("adas", "ada", words=True)
    await program.say("for ada", "o1", ADAS)
    await program.service.until(1)
    await program.say("for the owner", "o2")
    first, second = await program.service.until(2)
    assert (first.path, second.path) == ("/push/adas", "/push/owners")
    assert adas.note(first)["body"] == "for ada"
    assert owners.note(second)["body"] == "for the owner"
    async with program.client("ada") as client:
        async with client.get("api/push") as answer:
            found = await answer.json()
        assert [each["id"] for each in found["devices"]] == [adas.id]
        assert program.service.url not in json.dumps(found)
        async with client.delete(f"api/push/{owners.id}") as answer:
            assert answer.status == 204
    assert await program.known() == ["owners"]  # it was not theirs to end


async def test_a_browser_is_told_of_whoever_asked_last_with_it(program):
    browser = await program.subscribe("shared", words=True)
    async with program.client("ada") as client:
        assert await subscribed(client, browser.subscription(words=True)) == 200
    await program.say("for the owner", "o1")
    await program.say("for ada", "o2", ADAS)
    (pushed,) = await program.service.until(1)
    assert browser.note(pushed)["body"] == "for ada"
    assert (await program.known(), await program.known("ada")) == ([], ["shared"])


async def test_who_was_logged_out_is_told_nothing(program):
    await program.subscribe("old", login="1")
    program.logins.held["owner"] = {"2"}
    newer = await program.subscribe("new", login="2")
    await program.say("hello")
    (pushed,) = await program.service.until(1)
    assert newer.note(pushed)["title"] == "Heron has written to you"
    async with program.client("owner", "1") as client:  # let in by something else meanwhile
        assert await subscribed(client, program.service.browser("x").subscription()) == 403
    async with program.client("owner", "2") as client, client.get("api/push") as answer:
        devices = (await answer.json())["devices"]
    assert [each["is_current"] for each in devices] == [False, True]


@pytest.mark.parametrize("status", [404, 410])
async def test_a_browser_that_is_gone_is_forgotten(program, status):
    await program.subscribe("gone")
    await program.subscribe("there")
    program.service.answers = [(status, {}), (status, {})]
    await program.say("one")
    await program.service.until(2)
    async with asyncio.timeout(60):
        while await program.known():  # noqa: ASYNC110
            await asyncio.sleep(0)


@pytest.mark.parametrize(("status", "headers"), [(500, {}), (503, {}), (429, {"Retry-After": "0"})])
async def test_a_service_in_trouble_is_asked_again_a_few_times(program, status, headers):
    browser = await program.subscribe("one")
    program.service.answers = [(status, headers)] * 2
    await program.say("one")
    assert browser.note((await program.service.until(3))[2])
    tries = len(pushing.RETRIES) + 1
    program.service.pushed.clear()
    program.service.answers = [(status, headers)] * (tries + 5)
    await program.say("two", "o2")
    await program.service.until(tries)
    await until(lambda: not program.pusher._tasks)
    assert len(program.service.pushed) == tries
    assert await program.known() == ["one"]


@pytest.mark.parametrize("status", [400, 401, 403, 413])
async def test_what_a_service_will_never_take_is_sent_once(program, status):
    await program.subscribe("one")
    program.service.answers = [(status, {})]
    await program.say("one")
    await program.service.until(1)
    await until(lambda: not program.pusher._tasks)
    assert len(program.service.pushed) == 1
    assert await program.known() == ["one"]


async def test_a_service_that_is_out_of_reach_holds_nothing_up(tmp_path):
    async with beside(tmp_path) as database:
        async with PushService().served() as service:
            program = Program(database, service)
        async with program.served():  # nobody listens there any more
            await program.subscribe("one")
            for number in range(3):
                await program.say("hello", f"o{number}")
            await until(lambda: len(program.engine.reached) == 3 and not program.pusher._tasks)


async def test_there_are_only_so_many_browsers_of_one_person(program):
    for number in range(pusher.MOST_SUBSCRIPTIONS + 2):
        await program.subscribe(f"b{number}")
    await program.subscribe("adas", "ada")
    known = await program.known()
    assert known == [f"b{number}" for number in range(2, pusher.MOST_SUBSCRIPTIONS + 2)]
    assert await program.known("ada") == ["adas"]


async def test_one_press_more_and_it_is_over(program):
    browser = await program.subscribe("one")
    async with program.client() as client, client.delete(f"api/push/{browser.id}") as answer:
        assert answer.status == 204
    assert await program.known() == []


# --- where it may go ------------------------------------------------------------------------------


REFUSED = [
    "http://push.example/1",
    "https://127.0.0.1/1",
    "https://[::1]/1",
    "https://10.0.0.7/1",
    "https://192.168.1.1:8443/1",
    "https://169.254.169.254/latest/meta-data",
    "https://[fd00:ec2::254]/1",
    "https://2130706433/1",
    "https://name:word@push.example/1",
    "https://push.example:22/1",
    "ftp://push.example/1",
    "file:///etc/passwd",
    "javascript:alert(1)",
    "https://push.example/" + "a" * 3_000,
    "https://push.example/\n1",
    "",
]


async def test_addresses_that_are_not_public_are_refused(tmp_path):
    async with beside(tmp_path) as database:
        program = Program(database, PushService(), pushing.PUBLIC)
        async with program.served(), program.client() as client:
            for endpoint in REFUSED:
                body = PushBrowser(endpoint).subscription()
                assert (endpoint, await subscribed(client, body)) == (endpoint, 400)
            assert await program.known() == []
            body = PushBrowser("https://push.example/1").subscription()
            assert await subscribed(client, body) == 200


@pytest.mark.parametrize("address", ["127.0.0.1", "10.0.0.7", "169.254.169.254", "::1"])
async def test_a_name_that_leads_inside_is_not_connected_to(tmp_path, address):
    async with beside(tmp_path) as database, PushService().served() as service:
        port = service.url.rpartition(":")[2]
        inside = Endpoints(schemes=frozenset({"http"}))  # every public address, and no other
        program = Program(database, service, inside)
        program.found = ["93.184.215.14", address]
        async with program.served(), program.client() as client:
            browser = PushBrowser(f"http://push.example:{port}/1")
            assert await subscribed(client, browser.subscription()) == 200
            await program.say("hello")
            await until(lambda: bool(program.lookups) and not program.pusher._tasks)
        assert program.lookups == ["push.example"]  # and it was not tried again
        assert service.pushed == []


async def test_nobody_is_followed_elsewhere(program):
    await program.subscribe("one")
    program.service.answers = [(307, {"Location": f"{program.service.url}/elsewhere"})]
    await program.say("hello")
    await program.service.until(1)
    await until(lambda: not program.pusher._tasks)
    assert [pushed.path for pushed in program.service.pushed] == ["/push/one"]


async def test_what_no_browser_sends_is_refused(program):
    async with program.client() as client:
        for body in (
            *(b"", b"[]", b"null", b"{}", b"\xff\xfe", b"[" * 10_000),
            b'{"endpoint": 7, "keys": {"p256dh": "", "auth": ""}}',
            b'{"endpoint": "https://push.example/1", "keys": []}',
            b'{"endpoint": "https://push.example/1", "keys": {"p256dh": "AAAA", "auth": "AAAA"}}',
            b'{"endpoint": "https://push.example/1", "keys": {"p256dh": null, "auth": "AAAA"}}',
        ):
            async with client.post("api/push", data=body) as answer:
                assert (body, answer.status) == (body, 400)
    assert await program.known() == []


async def test_what_another_page_sends_is_refused(program):
    body = program.service.browser("one").subscription()
    headers = {"Origin": "https://elsewhere.example"}
    async with program.client() as client:
        async with client.post("api/push", json=body, headers=headers) as answer:
            assert answer.status == 403
        async with client.delete("api/push/x", headers=headers) as answer:
            assert answer.status == 403


# --- whose key, whose login -----------------------------------------------------------------------


async def test_all_nodes_have_one_key_and_a_restart_keeps_it(tmp_path):
    async with beside(tmp_path) as database:
        one, two = (Pusher(database, FakeClock(), HERON, KnownLogins().holding) for _ in range(2))
        first, second = await asyncio.gather(one.signature(), two.signature())
        assert first.public == second.public
    async with beside(tmp_path) as database:
        later = Pusher(database, FakeClock(), HERON, KnownLogins().holding)
        assert (await later.signature()).public == first.public


async def test_another_token_ends_what_was_asked_under_the_last(tmp_path):
    token = ""
    held = [Login("l1", "owner", None, "", NOON, NOON)]

    async def found(person: str) -> list[Login]:
        return [login for login in held if login.person == person]

    logins = PushLogins(lambda: token, found)
    without = logins.of(Visitor())  # whoever sits at this machine
    assert without in await logins.holding("owner")
    token = "0123456789abcdef"
    before = logins.of(Visitor("owner", "l1"))
    assert await logins.holding("owner") == {before}
    assert token not in before
    token = "fedcba9876543210"
    assert before not in await logins.holding("owner")
    held.clear()
    assert await logins.holding("owner") == set()
    token = ""
    assert await logins.holding("ada") == set()


# --- the whole program ----------------------------------------------------------------------------


async def test_each_login_is_told_its_persons_own_and_nothing_once_it_has_ended(tmp_path):
    config, plugins = make_config(
        tmp_path, dashboard={"port": 0, "token": TOKEN}, agent={"name": "Heron"}
    )
    web, memory, model, clock = Web(), InMemoryChannel(), ScriptedModel(), FakeClock(NOON)
    async with PushService().served() as service:
        parts = Parts(
            clock=clock, remote=model, channels={"web": web}, push_endpoints=service.endpoints
        )
        async with (
            App(config, plugins, parts) as app,
            browsers(Engine(app, memory, model, clock, tmp_path), 3) as (owner, ada, eve),
        ):
            await owner.log_in()
            await ada.post("/enter", key=await owner.link("ada"))
            here = {name: service.browser(name) for name in ("owner", "ada", "eve")}
            for name, who in (("owner", owner), ("ada", ada)):
                body = here[name].subscription(words=True)
                assert await subscribed(who.client, body) == 200
            assert await subscribed(eve.client, here["eve"].subscription()) == 401
            bearer = {"Authorization": f"Bearer {TOKEN}"}  # a program has no login that could end
            body = here["eve"].subscription()
            async with eve.client.post("/api/push", json=body, headers=bearer) as answer:
                assert answer.status == 403
            await post(web, Outbound("o1", ADAS, "for ada"))
            (pushed,) = await service.until(1)
            assert here["ada"].note(pushed)["body"] == "for ada"
            assert await ada.post("/account/logout") == (303, "/login")
            await post(web, Outbound("o2", ADAS, "nobody is told of this"))
            await post(web, Outbound("o3", AT, "for the owner"))
            _, pushed = await service.until(2)
            assert here["owner"].note(pushed)["body"] == "for the owner"
        assert len(service.pushed) == 2


async def test_a_reply_that_comes_after_the_page_was_closed_is_told(tmp_path):
    config, plugins = make_config(tmp_path, dashboard={"port": 0}, agent={"name": "Heron"})
    async with PushService().served() as service:
        parts = Parts(
            clock=FakeClock(NOON),
            remote=ScriptedModel(),
            channels={"web": Web()},
            push_endpoints=service.endpoints,
        )
        async with App(config, plugins, parts) as app:
            assert app.address is not None
            headers = {"Origin": app.address.url.rstrip("/")}
            async with aiohttp.ClientSession(app.address.url, headers=headers) as client:
                browser = service.browser("one")
                assert await subscribed(client, browser.subscription()) == 200
                async with client.ws_connect("chat/ws") as ws:
                    page = Page(ws)
                    await page.say(type="hello", version=1)
                    await page.until("history")
                    await page.say(type="send", id="m1", text="hello")
                    await page.until("ack")
                (pushed,) = await service.until(1)
                assert browser.note(pushed)["title"] == "Heron has written to you"
