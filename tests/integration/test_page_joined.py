"""Accounts that were joined with /link: what ends for one of them ends in the page at once."""

from __future__ import annotations

import re
from typing import Any

import pytest

from bot.composition import pages
from tests.fakes.page_people import Browser, browsers, cut, key_in, serving
from tests.fakes.web_pages import Page
from tests.support import Engine

CODE = re.compile(r"/link ([A-Z2-9]{8})")
ASKED = re.compile(r"\*\*([A-Z2-9]{8})\*\*")
CLOSED: dict[str, Any] = {"memory": {"dm_policy": "pairing", "allow_from": []}}
EVE = {"channel": "memory", "sender": "eve"}


@pytest.fixture(autouse=True)
def nobody_looks_meanwhile(monkeypatch):
    """What ends ends because of what was done, and not because somebody looked after a while."""
    monkeypatch.setattr(pages, "LOOK_SECONDS", 3600.0)


async def code_in(page: Page) -> str:
    await page.say(type="send", id="link", text="/link")
    found = CODE.search((await page.until("message"))["text"])
    assert found is not None
    return found[1]


async def let_in(engine: Engine, owner: Browser, sender: str) -> None:
    asked = ASKED.search(await engine.ask("let me in", sender=sender))
    assert asked is not None
    status, _ = await owner.post("/people/approve", channel="memory", code=asked[1])
    assert status == 303
    await engine.channel.wait_until(lambda _: "You're in." in engine.sent_to(sender)[-1])


async def test_who_is_blocked_is_out_of_the_page_however_they_came_in(tmp_path):
    async with (
        serving(tmp_path, channels=CLOSED) as engine,
        browsers(engine, 3) as (owner, ada, bob),
    ):
        await owner.log_in()
        await let_in(engine, owner, "eve")
        await ada.post("/enter", key=await owner.link("ada"))
        await bob.post("/enter", key=await owner.link("bob"))
        async with ada.chat() as page, bob.chat() as his:
            await engine.ask(f"/link {await code_in(page)}", sender="eve")
            assert (await owner.post("/people/block", **EVE))[0] == 303
            await cut(page)
            await his.say(type="send", id="m1", text="hello")
            await his.until("ack")
        assert (await ada.who(), await bob.who(), await owner.who()) == ("", "bob", "owner")
        status, said = await owner.post("/logins", name="ada")
        assert (status, "may not talk to the bot now" in said) == (409, True)
        # What was ended stays ended; they come in anew when they may.
        assert (await owner.post("/people/unblock", **EVE))[0] == 303
        assert await ada.who() == ""
        await ada.post("/enter", key=await owner.link("ada"))
        assert await ada.who() == "ada"


async def test_a_block_of_an_account_of_the_owners_leaves_the_owners_page(tmp_path):
    async with serving(tmp_path, channels=CLOSED) as engine, browsers(engine, 1) as (owner,):
        await owner.log_in()
        await let_in(engine, owner, "eve")
        async with owner.chat() as page:
            await engine.ask(f"/link {await code_in(page)}", sender="eve")
            assert (await owner.post("/people/block", **EVE))[0] == 303
            await page.say(type="send", id="m1", text="hello")
            await page.until("ack")
        assert await owner.who() == "owner"


@pytest.mark.parametrize("says", ["/link {code}", "/unlink"])
async def test_a_page_ends_when_its_person_is_another_one_than_who_asked_for_it(tmp_path, says):
    async with serving(tmp_path) as engine, browsers(engine, 2) as (owner, eve):
        await owner.log_in()
        await eve.post("/enter", key=key_in(await engine.ask("/web", sender="eve")))
        offered = CODE.search(await engine.ask("/link", sender="zoe"))
        assert offered is not None
        async with eve.chat() as page:
            await page.say(type="send", id="m1", text=says.format(code=offered[1]))
            await cut(page)
        assert await eve.who() == ""
