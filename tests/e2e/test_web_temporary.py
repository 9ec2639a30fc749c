"""Temporary chats in a real browser, with the whole program."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import BrowserContext, Page, expect

from bot.errors import ModelRejected
from bot.testing import ScriptedModel
from tests.e2e.test_web_access import faults
from tests.fakes.whole_page import whole_page
from tests.proofs.rounds import sample

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.slow]

CANARY = "xylograph"
WIDE = {"viewport": {"width": 1280, "height": 800}, "locale": "en-GB"}
PHONE = {"viewport": {"width": 390, "height": 740}, "locale": "zh-CN", "color_scheme": "dark"}
KEPT = """async () => JSON.stringify([
  { ...localStorage }, { ...sessionStorage }, await indexedDB.databases(), await caches.keys(),
])"""


@pytest.fixture
def model():
    return ScriptedModel()


@pytest_asyncio.fixture(loop_scope="session")
async def program(tmp_path, model):
    async with whole_page(tmp_path, model=model) as page:
        await page.chat("where do herons nest?")
        yield page


class Chat:
    """A page, and what the browser says is wrong with it."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.wrong: list[str] = []
        page.on("pageerror", lambda error: self.wrong.append(str(error)))
        page.on("console", lambda said: self.wrong.extend([said.text] * (said.type == "error")))

    async def says(self, text: str) -> None:
        await self.page.fill("#message", text)
        await self.page.keyboard.press("Enter")

    def lines(self, role: str) -> Any:
        return self.page.locator(f"#log .line.{role} .body")


@pytest_asyncio.fixture(loop_scope="session")
async def chat(context: BrowserContext, program):
    found = Chat(await context.new_page())
    await found.page.goto(program.url)
    await found.page.wait_for_selector("#state[data-state=open]")
    yield found
    assert found.wrong == []


async def opened(chat: Chat) -> None:
    await chat.page.click("#temporary-open")
    await expect(chat.page.locator("#temporary")).to_be_visible()
    await chat.page.wait_for_selector("#state[data-state=open]")


@pytest.mark.parametrize("context_options", [WIDE])
async def test_it_is_opened_beside_new_conversation_and_gone_when_closed(chat, model, tmp_path):
    await chat.page.fill("#message", "a draft of the ordinary chat")
    await opened(chat)
    await expect(chat.page.locator("#temporary")).to_contain_text("saved, remembered")
    assert await chat.page.input_value("#message") == ""
    await expect(chat.page.locator("#talks")).to_be_hidden()
    await expect(chat.page.locator("#log")).not_to_contain_text("herons")
    await chat.says(f"my boat is the {CANARY}")
    await expect(chat.lines("bot")).to_have_text(f"You said: my boat is the {CANARY}")
    await chat.says("and then?")
    await expect(chat.lines("bot").last).to_have_text("You said: and then?")
    said = [each.text for each in model.requests[-1].messages]
    assert said == [f"my boat is the {CANARY}", f"You said: my boat is the {CANARY}", "and then?"]
    await chat.page.fill("#message", f"not sent: {CANARY}")
    assert CANARY not in await chat.page.evaluate(KEPT)
    await chat.page.click("#temporary a")
    await expect(chat.page.locator("#log")).to_contain_text("herons")
    assert await chat.page.input_value("#message") == "a draft of the ordinary chat"
    await expect(chat.page.locator("body")).not_to_contain_text(CANARY)
    await chat.page.go_back()
    await expect(chat.page.locator("#temporary")).to_be_visible()
    await expect(chat.page.locator("body")).not_to_contain_text(CANARY)
    assert await chat.page.input_value("#message") == ""
    kept = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert [path for path in kept if CANARY.encode() in path.read_bytes()] == []


@pytest.mark.parametrize("context_options", [WIDE])
async def test_it_is_gone_after_a_reload_and_not_in_another_tab(chat, context, program, model):
    await opened(chat)
    await chat.says(CANARY)
    await expect(chat.lines("bot")).to_have_text(f"You said: {CANARY}")
    other = Chat(await context.new_page())
    await other.page.goto(f"{program.url}temporary")
    await other.page.wait_for_selector("#state[data-state=open]")
    await other.says("in another tab")
    await expect(other.lines("bot")).to_have_text("You said: in another tab")
    assert [each.text for each in model.requests[-1].messages] == ["in another tab"]
    await chat.page.reload()
    await chat.page.wait_for_selector("#state[data-state=open]")
    await expect(chat.page.locator("body")).not_to_contain_text(CANARY)
    assert other.wrong == []


@pytest.mark.parametrize("context_options", [WIDE])
async def test_it_is_gone_after_a_day_without_a_message(chat):
    await chat.page.clock.install()
    await opened(chat)
    await chat.says(CANARY)
    await expect(chat.lines("bot")).to_have_text(f"You said: {CANARY}")
    await chat.page.clock.fast_forward("23:00:00")
    await expect(chat.lines("bot")).to_have_text(f"You said: {CANARY}")
    await chat.page.clock.fast_forward("02:00:00")
    await expect(chat.page.locator("body")).not_to_contain_text(CANARY)
    await chat.page.wait_for_selector("#state[data-state=open]")


@pytest.mark.parametrize("context_options", [WIDE])
async def test_a_reply_is_stopped_and_what_was_written_of_it_goes_on(chat, model):
    await opened(chat)
    model.gate = asyncio.Event()
    await chat.says("tell me")
    await expect(chat.page.locator("#tail .body")).to_have_text("You")
    await chat.says("and this")
    await expect(chat.page.locator("#queue .note")).to_have_text("Waiting for the current answer")
    await chat.page.click("#stop")
    await expect(chat.lines("bot").first).to_contain_text("You")
    await expect(chat.lines("bot").first).to_contain_text("Stopped.")
    model.gate.set()
    await expect(chat.lines("bot").last).to_have_text("You said: and this")
    assert [each.text for each in model.requests[-1].messages] == ["tell me", "You", "and this"]


@pytest.mark.parametrize("context_options", [WIDE])
async def test_what_failed_is_said_and_can_be_tried_again(chat, model):
    await opened(chat)
    usual = model.script
    model.script = lambda _: ModelRejected("no")
    await chat.says("hello")
    await expect(chat.lines("bot")).to_contain_text("couldn't answer")
    model.script = usual
    await chat.page.click(".choices button")
    await expect(chat.lines("bot").last).to_have_text("You said: hello")
    assert [each.text for each in model.requests[-1].messages] == ["hello"]


@pytest.mark.parametrize("context_options", [WIDE])
async def test_commands_and_files_are_not_for_it(chat, model):
    await opened(chat)
    seen = len(model.requests)
    await chat.says("/memory")
    await expect(chat.page.locator("#log")).to_contain_text("Commands don't work")
    await expect(chat.page.locator("#attach")).to_be_hidden()
    assert len(model.requests) == seen


@pytest.mark.parametrize("context_options", sample([PHONE], [WIDE]))
async def test_everybody_can_use_it(chat, context_options):
    await opened(chat)
    lead = "不会保存" if "zh" in context_options["locale"] else "Nothing said here is saved"
    await expect(chat.page.locator("#temporary")).to_contain_text(lead)
    assert await faults(chat.page) == []
    await chat.says("hello")
    await expect(chat.lines("bot")).to_have_text("You said: hello")
    assert await faults(chat.page) == []
    assert await chat.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
