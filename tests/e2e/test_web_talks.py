"""The conversations beside the chat, in a real browser and with the whole program."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import BrowserContext, Page, Route, expect

from bot.testing import ScriptedModel
from tests.fakes.whole_page import WholePage, whole_page
from tests.support import NOON, FakeClock

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.slow]

DAY = 24 * 3600 * 1000  # ms
WIDE = {"viewport": {"width": 1280, "height": 800}, "locale": "en-GB"}
PHONE = {"viewport": {"width": 390, "height": 740}, "locale": "zh-CN", "color_scheme": "dark"}
SESSION = {"owner": ["memory:ada"], "reset": {"mode": "none"}}


@pytest.fixture
def model():
    return ScriptedModel()


@pytest_asyncio.fixture(loop_scope="session")
async def program(tmp_path, model):
    """A talk of yesterday, one of today, and one of another channel."""
    clock = FakeClock()
    async with whole_page(tmp_path, model=model, clock=clock, session=SESSION) as page:
        await page.chat("where do herons nest?")
        await page.chat("/new")
        await page.write("how do I bake bread?", sender="ada")
        clock.advance(days=1)
        await page.chat("which boat is faster?")
        yield page


class Chat:
    """The chat page, and what the browser says is wrong."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.wrong: list[str] = []
        page.on("pageerror", lambda error: self.wrong.append(str(error)))
        page.on("console", lambda said: self.wrong.extend([said.text] * (said.type == "error")))

    async def open(self, program: WholePage) -> None:
        await self.page.goto(program.url)
        await self.page.wait_for_selector("#state[data-state=open]")

    def talk(self, words: str) -> Any:
        return self.page.locator("#talks-list a[data-id]", has_text=words)

    def lines(self, role: str) -> Any:
        return self.page.locator(f"#log .line.{role} .body")

    async def says(self, text: str) -> None:
        await self.page.fill("#message", text)
        await self.page.keyboard.press("Enter")


@pytest_asyncio.fixture(loop_scope="session")
async def chat(context: BrowserContext, program: WholePage):
    found = Chat(await context.new_page())
    await found.page.clock.set_fixed_time(datetime.fromtimestamp((NOON + DAY) / 1000, UTC))
    await found.open(program)
    yield found
    assert found.wrong == []


@pytest.mark.parametrize("context_options", [WIDE])
async def test_an_old_conversation_opens_in_the_chat_and_typing_continues_it(chat, model):
    await expect(chat.page.locator("#talks-list a[data-id]")).to_have_count(3)
    await expect(chat.talk("which boat")).to_have_attribute("aria-current", "true")
    await chat.talk("herons").click()
    await expect(chat.talk("herons")).to_have_attribute("aria-current", "true")
    await expect(chat.page.locator("#reading-text")).to_contain_text("Your next message continues")
    await expect(chat.lines("user").first).to_have_text("where do herons nest?")
    await expect(chat.page.locator("#log")).not_to_contain_text("which boat")
    await chat.says("and in winter?")
    await expect(chat.lines("bot").last).to_have_text("You said: and in winter?")
    await expect(chat.page.locator("#log")).to_contain_text("Continuing “where do herons nest?”")
    await expect(chat.page.locator("#reading")).to_be_hidden()
    said = [each.text for each in model.requests[-1].messages]
    assert said == ["where do herons nest?", "You said: where do herons nest?", "and in winter?"]


@pytest.mark.parametrize("context_options", [WIDE])
async def test_a_conversation_of_another_channel_is_read_and_not_continued(chat, program):
    await chat.talk("bake bread").click()
    await expect(chat.page.locator("#reading-text")).to_contain_text("You can read it here")
    await expect(chat.lines("user")).to_have_text(["how do I bake bread?"])
    await chat.says("and the fastest?")
    await expect(chat.lines("bot").last).to_have_text("You said: and the fastest?")
    await expect(chat.page.locator("#log")).to_contain_text("which boat is faster?")
    await expect(chat.page.locator("#log")).not_to_contain_text("bake bread")


@pytest.mark.parametrize("context_options", [WIDE])
async def test_what_comes_meanwhile_does_not_mix_with_what_is_read(chat, program):
    await chat.talk("herons").click()
    await expect(chat.page.locator("#reading")).to_be_visible()
    await program.chat("a second window asks")
    await expect(chat.talk("which boat")).to_be_visible()
    await expect(chat.page.locator("#log")).not_to_contain_text("a second window asks")
    await chat.page.click("#reading-end")
    await expect(chat.page.locator("#log")).to_contain_text("You said: a second window asks")


@pytest.mark.parametrize("context_options", [WIDE])
async def test_a_search_finds_conversations_by_what_was_said(chat):
    await expect(chat.page.locator("#talks-list a[data-id]")).to_have_count(3)
    await chat.page.keyboard.press("Control+k")
    await chat.page.keyboard.type("herons")
    await expect(chat.page.locator("#talks-list a[data-id]")).to_have_count(1)
    await chat.page.keyboard.press("Control+a")
    await chat.page.keyboard.type("<b>nothing</b> like it")
    await expect(chat.page.locator("#talks-state")).to_have_text("Nothing matches these words.")


@pytest.mark.parametrize("context_options", [WIDE])
async def test_a_conversation_that_cannot_be_read_now_leaves_the_chat_as_it_is(chat):
    async def refuse(route: Route) -> None:
        await route.fulfill(status=503, body="")

    await chat.page.route("**/api/conversations/*", refuse)
    await chat.talk("herons").click()
    await expect(chat.page.locator("#talks-state")).to_contain_text("can't be read just now")
    await expect(chat.page.locator("#log")).to_contain_text("which boat is faster?")
    chat.wrong.clear()  # the browser notes the refusal


@pytest.mark.parametrize("context_options", [PHONE])
async def test_on_a_phone_the_list_is_in_the_drawer_which_closes_behind_a_choice(chat):
    await expect(chat.page.locator("#talks-list")).to_be_hidden()
    await chat.page.click(".opens")
    await expect(chat.page.locator("#talks-list p")).to_have_text(["今天", "昨天"])
    await chat.talk("herons").click()
    await expect(chat.page.locator("#ways")).to_be_hidden()
    await expect(chat.page.locator("#reading-text")).to_contain_text("发送下一条消息就会继续它")
    wide = "document.documentElement.scrollWidth > document.documentElement.clientWidth"
    assert not await chat.page.evaluate(wide)


@pytest.mark.parametrize("context_options", [WIDE])
async def test_a_reload_shows_the_conversation_that_goes_on(chat, program):
    await chat.talk("herons").click()
    await expect(chat.page.locator("#reading")).to_be_visible()
    await chat.open(program)
    await expect(chat.lines("bot").last).to_have_text("You said: which boat is faster?")
