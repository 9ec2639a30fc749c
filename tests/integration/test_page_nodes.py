"""The page on two nodes with one database: what ends or changes at one does so at the other."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial

import aiohttp
import pytest
import pytest_asyncio

from adapters.web import nodes as web_nodes
from adapters.web.channel import Web
from bot.clock import system_clock
from bot.dashboard import pages
from bot.dashboard.memory.editing import base_of
from tests.fakes import postgres
from tests.fakes.page_nodes import PageNodes, Pages, page_nodes
from tests.fakes.page_people import TOKEN, Browser, browser_at, cut, key_in
from tests.fakes.page_program import page_program
from tests.fakes.push_service import PushBrowser, PushService
from tests.support import PATIENCE, pause, until

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

CODE = re.compile(r"\*\*([A-Z2-9]{8})\*\*")
CONVERSATION = re.compile(r'href="/conversations/([^"?#]+)')
FULL = re.compile(r"\d+ % full: [^<\"]+")
ROOM = re.compile(r'name="key" value="([^"]+)"')
LOGIN = re.compile(r'name="login" value="([0-9a-f]{16})"')
PASSWORD = "correct horse battery"


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def nodes(postgres_admin_url, tmp_path_factory):
    """One pair for all tests here: nobody in one has the name of somebody in another."""
    folder = tmp_path_factory.mktemp("nodes")
    async with PushService().served() as service:
        with postgres.a_database(postgres_admin_url) as url:
            async with page_nodes(url, folder, service) as found:
                yield found


@pytest.fixture(autouse=True)
def unseen_at_once(monkeypatch):
    """Nobody is told in one test of what was written in another."""
    monkeypatch.setattr(web_nodes, "SEEN_SECONDS", 0.0)


@dataclass
class Case:
    """The owner, somebody let in by an invitation, and another browser of the same person.

    What is done is done at the one node; `theirs` has a chat open at the other.
    """

    nodes: PageNodes
    name: str
    owner: Pages
    theirs: Pages
    again: Pages
    bystander: Pages


async def by_themselves(case: Case) -> None:
    _, text = await case.again.here.get("/account")
    (login,) = LOGIN.findall(text)
    assert await case.again.here.post("/account/end", login=login) == (303, "/account")


async def by_ending_all_others(case: Case) -> None:
    assert await case.again.here.post("/account/end-others") == (303, "/account")


async def by_logging_out(case: Case) -> None:
    assert await case.theirs.here.post("/account/logout") == (303, "/login")


async def by_the_owner(case: Case) -> None:
    assert await case.owner.here.post("/logins/out", name=case.name) == (303, "/logins")


async def by_a_new_password(case: Case) -> None:
    done = await case.again.here.post("/account/password", new=PASSWORD)
    assert done == (303, "/account?done")


async def by_a_new_token(case: Case) -> None:
    """Replaced, and put back for the tests that come after."""
    for token in (TOKEN[::-1], TOKEN):
        fields = {"option": "dashboard.token", "value": token}
        status, _ = await case.again.here.post("/settings/secret", **fields)
        assert status == 303
        assert await case.again.here.post("/login", token=token) == (303, "/")


OF_A_PERSON = (by_themselves, by_ending_all_others, by_logging_out, by_the_owner, by_a_new_password)
OF_THE_OWNER = (by_themselves, by_ending_all_others, by_logging_out, by_a_new_token)


async def browsers(nodes: PageNodes, stack: AsyncExitStack, count: int) -> list[Pages]:
    return [await stack.enter_async_context(nodes.browser()) for _ in range(count)]


async def ends(case: Case, end: Callable[[Case], Awaitable[None]]) -> None:
    """What is open at the other node is cut, and refused; whatever is somebody else's stays."""
    cookie = case.theirs.here.cookie
    async with case.theirs.there.chat() as page, case.bystander.there.chat() as beside:
        assert (await case.theirs.there.gets_with(cookie))[0] == 200
        await end(case)
        await cut(page)
        for browser in (case.theirs.here, case.theirs.there):
            for path in ("/", "/account", "/static/main.js", "/assets/charts.css"):
                assert await browser.gets_with(cookie, path) == (303, "/login")
        await beside.say(type="send", id=f"m-{end.__name__}-{case.name}", text="/whoami")
        await beside.until("ack")


@pytest.mark.parametrize("end", OF_A_PERSON, ids=lambda end: end.__name__)
async def test_an_ended_login_of_a_person_is_cut_at_the_other_node(nodes, end):
    async with AsyncExitStack() as stack:
        owner, theirs, again, bystander = await browsers(nodes, stack, 4)
        await owner.here.log_in()
        name = end.__name__.replace("_", "-")
        for browser in (theirs.there, again.here):
            assert await browser.post("/enter", key=await owner.here.link(name)) == (303, "/")
        await bystander.here.post("/enter", key=await owner.here.link("beside"))
        await ends(Case(nodes, name, owner, theirs, again, bystander), end)


@pytest.mark.parametrize("end", OF_THE_OWNER, ids=lambda end: end.__name__)
async def test_an_ended_login_of_the_owner_is_cut_at_the_other_node(nodes, end):
    async with AsyncExitStack() as stack:
        owner, theirs, again, bystander = await browsers(nodes, stack, 4)
        await owner.here.log_in()
        assert await owner.here.post("/account/end-others") == (303, "/account")
        await bystander.there.post("/enter", key=await owner.here.link("beside"))
        await owner.here.post("/account/logout")
        for browser in (theirs.there, again.here):
            await browser.log_in()
        await ends(Case(nodes, "owner", owner, theirs, again, bystander), end)


@pytest.mark.parametrize(("out", "back"), [("block", "again"), ("revoke", "")])
async def test_who_may_not_talk_any_more_is_cut_at_the_other_node(nodes, out, back):
    who = {"channel": "memory", "sender": f"eve-{out}"}
    async with AsyncExitStack() as stack:
        owner, eve, beside = await browsers(nodes, stack, 3)
        await owner.here.log_in()
        await beside.here.post("/enter", key=await owner.here.link("beside"))
        code = CODE.search(await nodes.ask("let me in", who["sender"]))
        assert code is not None
        await owner.here.post("/people/approve", channel="memory", code=code[1])
        await nodes.told(who["sender"], 1)
        link = key_in(await nodes.ask("/web", who["sender"]))
        assert await eve.there.post("/enter", key=link) == (303, "/")
        cookie = eve.there.cookie
        async with eve.there.chat() as page, beside.there.chat() as others:
            assert await owner.here.post(f"/people/{out}", **who)
            await cut(page)
            assert await eve.there.gets_with(cookie) == (303, "/login")
            if back:
                await owner.here.post(f"/people/{back}", **who)
                await until(lambda: not nodes.other.app.core.resolver.now.books.blocked)
            for browser in (eve.here, eve.there):
                assert await browser.gets_with(cookie) == (303, "/login")
            await others.say(type="send", id=f"m-{out}", text="/whoami")
            await others.until("ack")


# --- what is changed at one node is so at the other -----------------------------------------------


@dataclass
class Looking:
    """The owner at both nodes; `number` is another one in each test."""

    nodes: PageNodes
    owner: Pages
    number: str

    async def does(self, path: str, /, **form: str) -> None:
        """At the one node …"""
        status, where = await self.owner.here.post(path, **form)
        assert status == 303, where

    async def shows(self, path: str, words: str, *, is_there: bool = True) -> str:
        """… and a page at the other one shows it, as soon as it has heard."""
        async with asyncio.timeout(PATIENCE):
            while True:
                status, text = await self.owner.there.get(path)
                assert status == 200
                if (words in text) is is_there:
                    return text
                await pause(0.02)

    async def says(self, text: str = "hello") -> str:
        """Write in the chat at the one node, and be answered; the conversation's id."""
        async with self.owner.here.chat() as page:
            await page.say(type="send", id=f"m-{self.number}", text=text)
            await page.until("message", role="bot")
        _, listed = await self.owner.here.get("/conversations")
        found = CONVERSATION.search(listed)
        assert found is not None
        return found[1]


async def a_name_of_a_conversation(look: Looking) -> None:
    conversation = await look.says()
    await look.does(f"/conversations/{conversation}/title", title="The red boat")
    await look.shows("/conversations", "The red boat")
    await look.shows(f"/conversations/{conversation}", "The red boat")


async def what_was_said(look: Looking) -> None:
    conversation = await look.says("the ferry leaves at nine")
    await look.shows(f"/conversations/{conversation}", "You said: the ferry leaves at nine")
    await look.shows("/conversations?q=ferry", f"/conversations/{conversation}")


async def how_full_it_is(look: Looking) -> None:
    await look.says("word " * 2_000)
    _, here = await look.owner.here.get("/context")
    full = FULL.search(here)
    assert full is not None
    await look.shows("/context", full[0])


async def what_was_used(look: Looking) -> None:
    await look.says()
    _, here = await look.owner.here.get("/api/usage")
    assert json.loads(here)["by_person"][0]["runs"]
    async with asyncio.timeout(PATIENCE):
        while (await look.owner.there.get("/api/usage"))[1] != here:
            await pause(0.02)
            _, here = await look.owner.here.get("/api/usage")
    await look.shows("/overview", "web")


async def a_note(look: Looking) -> None:
    path = "memory/birds.md"
    new = {"path": path, "base": base_of(""), "since": "0"}
    await look.does("/memory/edit", text="- the heron is grey\n", **new)
    await look.shows(f"/memory/file?path={path}", "the heron is grey")
    await look.shows("/memory", "the heron is grey")
    await look.shows("/memory/advanced", path)
    await look.shows("/memory/search?q=heron", "the heron is grey")
    await look.does("/memory/add", text="the stork is white", path=path)
    await look.shows(f"/memory/history?path={path}", "version=")
    # Made of what stands there no longer.
    status, text = await look.owner.there.post("/memory/edit", text="- nothing\n", **new)
    assert (status, "the stork is white" in text) == (409, True)
    await look.does("/memory/forgotten", words="heron")
    await look.shows(f"/memory/file?path={path}", "heron", is_there=False)
    await look.shows("/memory/search?q=heron", "the heron is grey", is_there=False)
    await look.shows("/memory", "heron", is_there=False)


async def a_note_for_everyone(look: Looking) -> None:
    path = "shared/opening-hours.md"
    new = {"path": path, "base": base_of(""), "since": "0"}
    await look.does("/memory/shared/edit", text="- open at nine\n", **new)
    await look.shows(f"/memory/file?path={path}", "open at nine")
    async with look.nodes.browser() as ada:
        await ada.there.post("/enter", key=await look.owner.here.link("reader"))
        assert "open at nine" in (await ada.there.get(f"/memory/file?path={path}"))[1]


async def who_asks_and_is_let_in(look: Looking) -> None:
    who = f"ivy-{look.number}"
    code = CODE.search(await look.nodes.ask("let me in", who))
    assert code is not None
    await look.shows("/people", code[1])
    await look.does("/people/approve", channel="memory", code=code[1])
    await look.shows("/people", code[1], is_there=False)
    await look.nodes.told(who, 1)
    before = len(look.nodes.sent_to(who))
    await look.nodes.other.say("hello", sender=who)
    assert await look.nodes.told(who, before) == "You said: hello"
    await look.does("/people/block", channel="memory", sender=who)
    assert "/people/again" in await look.shows("/people", who)


async def who_may_open_the_page(look: Looking) -> None:
    name = f"guest-{look.number}"
    key = await look.owner.here.link(name)
    await look.shows("/logins", name)
    async with look.nodes.browser() as guest:
        assert await guest.there.post("/enter", key=key) == (303, "/")
        assert await guest.here.who() == name
        assert "Firefox" in (await guest.here.get("/account"))[1]
        done = await guest.here.post("/account/password", new=PASSWORD)
        assert done == (303, "/account?done")
    async with look.nodes.browser() as again:
        found = await again.there.post("/login", name=name, password=PASSWORD)
        assert found == (303, "/")
    await look.does("/logins/out", name=name)
    await look.shows("/logins", "removed")


async def when_it_answers_in_a_room(look: Looking) -> None:
    room = f"den-{look.number}"
    said = {"chat": room, "chat_type": "group", "mentions_bot": True}
    await look.nodes.one.say("hello", sender="zoe", **said)
    await until(lambda: bool(look.nodes.sent_to(room)))
    _, listed = await look.owner.here.get("/channels")
    key = next(each for each in ROOM.findall(listed) if room in each)
    await look.does("/channels/activation", key=key, activation="always")
    await until(lambda: look.nodes.other.app.core.resolver.now.books.chosen.get(key) == "always")
    assert "selected" in await look.shows("/channels", key)


async def a_browser_that_is_told(look: Looking) -> None:
    told = look.nodes.service.browser(look.number)
    async with look.owner.here.client.post("/api/push", json=told.subscription()) as answer:
        assert answer.status == 200
    _, here = await look.owner.here.get("/api/push")
    there = await look.shows("/api/push", told.id)
    assert json.loads(here) == json.loads(there)  # the bot's own key is one
    assert json.loads(there)["devices"][0]["is_current"]
    async with look.owner.there.client.delete(f"/api/push/{told.id}") as answer:
        assert answer.status == 204
    assert told.id not in (await look.owner.here.get("/api/push"))[1]


async def a_file_that_is_sent_at_the_other(look: Looking) -> None:
    part = {"part": "0", "size": "5", "name": "boat.txt"}
    at = "/chat/files/boatfile01"
    kind = {"Content-Type": "text/plain"}
    sent = look.owner.here.client.post(at, params=part, data=b"a red", headers=kind)
    async with sent as answer:
        assert answer.status == 204
    async with look.owner.there.client.get(at) as answer:
        assert await answer.read() == b"a red"
    async with look.owner.here.chat() as beside, look.owner.there.chat() as page:
        name = f"m-{look.number}"
        await page.say(type="send", id=name, text="what is it?", files=["boatfile01"])
        await page.until("ack", id=name)
        said = await beside.until("message", id=name)
        assert [each["name"] for each in said["files"]] == ["boat.txt"]
        for each in (page, beside):
            await each.until("message", role="bot")
    asked = look.nodes.model.requests[-1].messages[-1]
    assert "a red" in str(asked)


async def a_reply_that_is_written(look: Looking) -> None:
    model = look.nodes.model
    model.gate, model.started = asyncio.Event(), asyncio.Event()
    try:
        async with look.owner.here.chat() as here, look.owner.there.chat() as there:
            await here.say(type="send", id=f"m-{look.number}", text="tell me of the boat")
            for page in (here, there):
                await page.until("draft")
            model.gate.set()
            shown = [await page.until("message", role="bot") for page in (here, there)]
            assert shown[0] == shown[1]
    finally:
        model.gate.set()
        model.gate = None


async def a_setting(look: Looking) -> None:
    await look.does("/settings/change", section="general", **{"agent.name": "Heron"})
    try:
        await look.shows("/settings", 'value="Heron"')
    finally:
        await look.does("/settings/unset", option="agent.name")
    await look.shows("/settings", 'value="Heron"', is_there=False)


EVERYWHERE = (
    a_name_of_a_conversation,
    what_was_said,
    how_full_it_is,
    what_was_used,
    a_note,
    a_note_for_everyone,
    who_asks_and_is_let_in,
    who_may_open_the_page,
    when_it_answers_in_a_room,
    a_browser_that_is_told,
    a_file_that_is_sent_at_the_other,
    a_reply_that_is_written,
    a_setting,
)


@pytest.mark.parametrize("what", EVERYWHERE, ids=lambda what: what.__name__)
async def test_what_is_done_at_one_node_is_so_at_the_other(nodes, what):
    async with nodes.browser() as owner:
        await owner.here.log_in()
        await what(Looking(nodes, owner, what.__name__.replace("_", "-")))


@pytest.mark.parametrize("way", pages.menu(), ids=lambda way: way.key)
async def test_every_page_opens_at_both_nodes_by_a_login_at_one(nodes, way):
    async with nodes.browser() as owner:
        await owner.there.log_in()
        for browser in (owner.here, owner.there):
            status, text = await browser.get(way.path)
            assert (status, "</html>" in text) == (200, True)


# --- told while no page is open -------------------------------------------------------------------


@dataclass
class Told:
    """A browser that is told of what the owner was written while no page was open."""

    service: PushService
    browser: PushBrowser

    @property
    def notes(self) -> list[str]:
        path = self.browser.endpoint.removeprefix(self.service.url)
        return [
            self.browser.note(each)["body"] for each in self.service.pushed if each.path == path
        ]

    async def of(self, words: str) -> None:
        """Return once it was told so."""
        await until(lambda: any(words in each for each in self.notes))


async def subscribed(page: Browser, service: PushService, name: str) -> Told:
    told = Told(service, service.browser(name))
    body = told.browser.subscription(words=True)
    async with page.client.post("/api/push", json=body) as answer:
        assert answer.status == 200
    return told


async def leaves_after(page: Browser, text: str) -> None:
    """Write in the chat and close the page."""
    async with page.chat() as chat:
        name = text.replace(" ", "-")
        await chat.say(type="send", id=name, text=text)
        await chat.until("ack", id=name)


def waiting(nodes: PageNodes) -> int:
    """How many messages may still be told of."""
    found = [node.app.core.channels["web"] for node in (nodes.one, nodes.other)]
    return sum(
        len(pages._away._waiting)
        for web in found
        if isinstance(web, Web)
        for pages in web._people.values()
    )


@pytest.mark.parametrize("asked_at", ["here", "there"])
async def test_a_reply_is_told_once_wherever_it_was_asked_for(nodes, asked_at):
    async with nodes.browser() as owner:
        await owner.here.log_in()
        told = await subscribed(owner.here, nodes.service, f"reply-{asked_at}")
        for words in ("first", "second"):
            await leaves_after(getattr(owner, asked_at), f"{words} {asked_at}")
            await told.of(f"{words} {asked_at}")
        assert told.notes == [f"You said: {words} {asked_at}" for words in ("first", "second")]
        await owner.here.post("/account/logout")
        async with nodes.browser() as again:
            await again.there.log_in()
            other = await subscribed(again.there, nodes.service, f"later-{asked_at}")
            await leaves_after(again.here, f"third {asked_at}")
            await other.of(f"third {asked_at}")
            await again.here.post("/account/logout")
        assert len(told.notes) == 2  # its login had ended


async def test_what_a_page_at_the_other_node_has_shown_is_told_nobody(nodes, monkeypatch):
    async with nodes.browser() as owner:
        await owner.here.log_in()
        for page in (owner.here, owner.there):
            monkeypatch.setattr(web_nodes, "SEEN_SECONDS", PATIENCE)
            told = await subscribed(page, nodes.service, f"seen-{page.url[-5:]}")
            async with owner.there.chat() as chat:
                await leaves_after(page, f"seen at {page.url[-5:]}")
                shown = await chat.until("message", text=f"You said: seen at {page.url[-5:]}")
                await chat.say(type="seen", id=shown["id"])
                await until(lambda: not waiting(nodes))
            monkeypatch.setattr(web_nodes, "SEEN_SECONDS", 0.0)
            await leaves_after(page, f"unseen at {page.url[-5:]}")
            await told.of("unseen")
            theirs = [each for each in told.notes if page.url[-5:] in each]
            assert theirs == [f"You said: unseen at {page.url[-5:]}"]
        await owner.here.post("/account/logout")


async def test_a_reminder_that_both_nodes_find_due_is_told_once(nodes, monkeypatch):
    async with nodes.browser() as owner:
        await owner.here.log_in()
        monkeypatch.setattr(web_nodes, "SEEN_SECONDS", PATIENCE)
        async with owner.here.chat() as chat:
            await chat.say(type="send", id="remind", text="/remind in 2 hours call Bob")
            shown = await chat.until("message", role="bot")
            await chat.say(type="seen", id=shown["id"])
            await until(lambda: not waiting(nodes))
        monkeypatch.setattr(web_nodes, "SEEN_SECONDS", 0.0)
        told = await subscribed(owner.there, nodes.service, "reminder")
        later = system_clock() + 3 * 3_600_000
        both = (node.app.engine.reminders.fire(later) for node in (nodes.one, nodes.other))
        assert sorted(await asyncio.gather(*both)) == [0, 1]
        await told.of("call Bob")
        await leaves_after(owner.there, "after the reminder")
        await told.of("after the reminder")
        assert sum("call Bob" in each for each in told.notes) == 1
        assert sum("after the reminder" in each for each in told.notes) == 1
        await owner.here.post("/account/logout")


@pytest.mark.proof
async def test_what_a_killed_node_was_asked_is_told_once_by_the_other(postgres_url, tmp_path):
    """Also to a browser that had asked the killed one for it."""
    async with PushService().served() as service:
        start = partial(page_program, url=postgres_url, service=service.url)
        jar = aiohttp.CookieJar(unsafe=True)
        async with start(tmp_path / "one", mode="holds") as (first, at_first):
            async with browser_at(at_first, jar=jar) as owner:
                await owner.log_in()
                told = await subscribed(owner, service, "killed")
                await leaves_after(owner, "before")
            async with start(tmp_path / "other") as (_, at_other):
                first.kill()
                await told.of("before")
                async with browser_at(at_other, jar=jar) as owner:
                    await leaves_after(owner, "after")
                    await told.of("after")
                assert told.notes == ["You said: before", "You said: after"]
