"""The owner's pages of people and channels in a browser: by keyboard, and as axe-core sees them."""

from __future__ import annotations

from typing import Any

import pytest
import pytest_asyncio

from tests.e2e.test_web_access import WAYS, faults
from tests.proofs.rounds import sample
from tests.support import running

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.slow]

CHANNELS: dict[str, Any] = {
    "memory": {
        "dm_policy": "pairing",
        "allow_from": [],
        "group_policy": "open",
        "groups": {"den": {"require_mention": False}},
    }
}


@pytest_asyncio.fixture(loop_scope="session")
async def engine(tmp_path):
    async with running(tmp_path, serves=True, channels=CHANNELS) as found:
        for sender in ("ada", "bob", "eve"):
            await found.ask("let me in", sender=sender, sender_name=sender.title())
        await found.say("hello", chat="den", chat_type="group")
        await found.channel.wait_until(lambda _: bool(found.sent_to("den")))
        yield found


@pytest.mark.parametrize("context_options", sample(WAYS[:1], WAYS[1:]))
async def test_people_and_channels_can_be_used_by_everybody(page, engine):
    assert engine.app.address is not None
    url = engine.app.address.url
    # The icon is the chat's, which this program does not have.
    await page.route("**/static/favicon.svg", lambda route: route.fulfill(body=""))
    await page.goto(f"{url}people")
    cards = page.locator("#asking .card")
    block = cards.nth(0).locator("summary").last
    await block.focus()
    await page.keyboard.press("Enter")  # opens what it means
    await page.keyboard.press("Tab")
    assert await page.evaluate("document.activeElement.className") == "danger"
    assert await faults(page) == []
    await page.keyboard.press("Enter")
    await page.wait_for_selector("#blocked .card")
    assert await cards.count() == 2
    await cards.nth(0).locator("button").first.click()
    await page.wait_for_selector("#admitted .card")
    assert await page.locator("[role=status]").count() == 1
    assert await faults(page) == []
    assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    await page.goto(f"{url}channels")
    await page.locator("#rooms select").select_option("mention")
    await page.locator("#rooms button").click()
    await page.wait_for_selector("[role=status]")
    assert await page.locator("#rooms select").input_value() == "mention"
    assert await faults(page) == []
    assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")


CLOSED: dict[str, Any] = {"memory": {"dm_policy": "pairing", "group_policy": "allowlist"}}


@pytest.mark.parametrize("context_options", WAYS[:1])
async def test_a_declined_room_is_let_in_by_a_click(page, tmp_path):
    async with running(tmp_path, serves=True, channels=CLOSED) as engine:
        await engine.say("hello", chat="den", chat_type="group", mentions_bot=True)
        await engine.channel.wait_until(lambda _: bool(engine.sent_to("den")))
        await page.route("**/static/favicon.svg", lambda route: route.fulfill(body=""))
        await page.goto(f"{engine.app.address.url}people")
        menu = page.locator("#ways")
        if not await menu.is_visible():
            await page.locator("button.opens").click()
        link = menu.get_by_role("link", name="Channels 1 waiting")
        await link.click()
        assert await faults(page) == []
        await page.get_by_role("button", name="Let it answer here").click()
        await page.wait_for_selector("[role=status]")
        assert await faults(page) == []
        assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert await page.locator(".badge").count() == 0
        await engine.say("and now?", chat="den", chat_type="group", mentions_bot=True)
        await engine.channel.wait_until(lambda _: len(engine.sent_to("den")) > 1)
        assert "may not talk" not in engine.sent_to("den")[1]
