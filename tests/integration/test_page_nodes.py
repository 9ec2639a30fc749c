"""The page on two nodes with one database: what ends at one ends at the other."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass

import pytest
import pytest_asyncio

from tests.fakes import postgres
from tests.fakes.page_nodes import PageNodes, Pages, page_nodes
from tests.fakes.page_people import TOKEN, cut, key_in
from tests.support import until

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

CODE = re.compile(r"\*\*([A-Z2-9]{8})\*\*")
LOGIN = re.compile(r'name="login" value="([0-9a-f]{16})"')
PASSWORD = "correct horse battery"


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def nodes(
    postgres_admin_url: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[PageNodes]:
    """One pair for all tests here: nobody in one has the name of somebody in another."""
    with postgres.a_database(postgres_admin_url) as url:
        async with page_nodes(url, tmp_path_factory.mktemp("nodes")) as found:
            yield found


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
                await until(lambda: not nodes.other.app.resolver.now.books.blocked)
            for browser in (eve.here, eve.there):
                assert await browser.gets_with(cookie) == (303, "/login")
            await others.say(type="send", id=f"m-{out}", text="/whoami")
            await others.until("ack")
