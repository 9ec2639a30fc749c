"""Editing and trying again in the chat, in a real browser and with the whole program."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import BrowserContext, Locator, Page, expect

from bot.testing import ScriptedModel
from tests.e2e.test_web_access import faults
from tests.e2e.test_web_page import no_sideways_scroll, say, until
from tests.fakes.whole_page import WholePage, whole_page
from tests.proofs.rounds import sample

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.slow]

WIDE = {"viewport": {"width": 1280, "height": 800}, "locale": "en-GB"}
PHONE = {"viewport": {"width": 390, "height": 740}, "locale": "zh-CN", "color_scheme": "dark"}
SESSION = {"owner": ["memory:ada"], "reset": {"mode": "none"}}
WORDS = {
    "en-GB": ("Edit", "Try again", "Previous version", "Next version", "Version {} of {}"),
    "zh-CN": ("修改", "重试", "上一个版本", "下一个版本", "第 {} 个版本，共 {} 个"),
}


@pytest.fixture
def model():
    """Each of its answers is another one."""
    count = itertools.count(1)
    return ScriptedModel(script=lambda asked: f"no {next(count)} to {asked.messages[-1].text}")


@pytest_asyncio.fixture(loop_scope="session")
async def program(tmp_path, model):
    async with whole_page(tmp_path, model=model, session=SESSION) as page:
        yield page


class Chat:
    """The chat page in some language, and what the browser says is wrong."""

    def __init__(self, page: Page, locale: str) -> None:
        self.page = page
        self.edit, self.again, self.before, self.after, self.at = WORDS[locale]
        self.wrong: list[str] = []
        page.on("pageerror", lambda error: self.wrong.append(str(error)))
        page.on("console", lambda said: self.wrong.extend([said.text] * (said.type == "error")))

    async def open(self, program: WholePage) -> None:
        await self.page.goto(program.url)
        await self.page.wait_for_selector("#state[data-state=open]")

    def line(self, words: str) -> Locator:
        return self.page.locator("#log .line", has_text=words)

    async def press(self, words: str, name: str) -> None:
        await self.line(words).get_by_role("button", name=name).click()

    async def says(self, text: str, answer: str = "") -> None:
        await self.page.fill("#message", text)
        await self.page.click("#send")
        if answer:
            await self.shows(text, answer)

    async def shows(self, *ends: str) -> None:
        """These are its last lines."""
        bodies = self.page.locator("#log .line .body")
        for number, words in enumerate(reversed(ends)):
            await expect(bodies.nth(-1 - number)).to_have_text(words)


@pytest.fixture
def locale(context_options: dict[str, Any]) -> str:
    return context_options["locale"]


@pytest_asyncio.fixture(loop_scope="session")
async def chat(context: BrowserContext, program: WholePage, locale: str):
    found = Chat(await context.new_page(), locale)
    await found.open(program)
    yield found
    assert found.wrong == []


@pytest.mark.parametrize("context_options", sample([PHONE], [WIDE]))
async def test_an_edited_message_is_a_version_of_its_turn_and_arrows_lead_between_them(
    chat, context, program, model, locale
):
    twin = Chat(await context.new_page(), locale)
    await twin.open(program)
    await chat.says("my dog is Rex", "no 1 to my dog is Rex")
    await chat.says("what does he eat?", "no 2 to what does he eat?")
    await expect(chat.page.locator("#log .versions")).to_have_count(0)
    await chat.page.fill("#message", "a draft")
    await chat.line("my dog is Rex").first.get_by_role("button", name=chat.edit).click()
    await expect(chat.page.locator("#message")).to_have_value("my dog is Rex")
    await chat.page.fill("#message", "my cat is Tom")
    await chat.page.click("#send")
    for each in (chat, twin):
        await each.shows("my cat is Tom", "no 3 to my cat is Tom")
        await expect(each.page.locator("#log .line")).to_have_count(2)
        await expect(each.page.locator("#log .versions")).to_contain_text("2/2")
    await expect(chat.page.locator("#message")).to_have_value("a draft")
    assert [each.text for each in model.requests[-1].messages] == ["my cat is Tom"]
    group = chat.page.get_by_role("group", name=chat.at.format(2, 2))
    await expect(group.get_by_role("button", name=chat.after)).to_be_disabled()
    assert await no_sideways_scroll(chat.page)
    assert await faults(chat.page) == []
    await group.get_by_role("button", name=chat.before).focus()
    await chat.page.keyboard.press("Enter")
    for each in (chat, twin):
        await each.shows("what does he eat?", "no 2 to what does he eat?")
        await expect(each.page.locator("#log .line")).to_have_count(4)
        await expect(each.page.locator("#log .versions")).to_contain_text("1/2")
    await expect(chat.page.get_by_role("button", name=chat.after)).to_be_focused()
    await chat.page.reload()
    await chat.shows("what does he eat?", "no 2 to what does he eat?")
    await chat.page.get_by_role("button", name=chat.after).click()
    await chat.shows("my cat is Tom", "no 3 to my cat is Tom")
    await twin.shows("my cat is Tom", "no 3 to my cat is Tom")
    assert twin.wrong == []


@pytest.mark.parametrize("context_options", sample([WIDE], [PHONE]))
async def test_any_answer_is_tried_again_and_pressed_twice_it_is_once(chat, model):
    for number in (1, 2):
        await chat.says(f"question {number}", f"no {number} to question {number}")
    again = chat.line("no 1 to question 1").get_by_role("button", name=chat.again)
    await again.evaluate("(button) => { button.click(); button.click(); }")
    await chat.shows("question 1", "no 3 to question 1")
    await expect(chat.page.locator("#log .line")).to_have_count(2)
    await expect(chat.page.locator("#log .versions")).to_contain_text("2/2")
    await chat.press("no 3 to question 1", chat.again)
    await chat.shows("question 1", "no 4 to question 1")
    await expect(chat.page.locator("#log .versions")).to_contain_text("3/3")
    assert [each.text for each in model.requests[-1].messages] == ["question 1"]
    assert len(model.requests) == 4
    await chat.page.get_by_role("button", name=chat.before).click()
    await chat.shows("question 1", "no 3 to question 1")
    await chat.page.get_by_role("button", name=chat.before).click()
    await chat.shows("question 2", "no 2 to question 2")


@pytest.mark.parametrize("context_options", [WIDE])
async def test_a_turn_that_runs_is_ended_by_an_edit_and_nobody_leaves_it_by_arrows(chat, model):
    await chat.says("one", "no 1 to one")
    await chat.press("no 1 to one", chat.again)
    await chat.shows("one", "no 2 to one")
    model.gate = asyncio.Event()
    await chat.says("two")
    await expect(chat.page.locator("#stop")).to_be_visible()
    await chat.page.get_by_role("button", name=chat.before).click()
    await expect(chat.page.locator("#banner-text")).to_contain_text("still being written")
    await chat.press("two", chat.edit)
    await chat.page.fill("#message", "better")
    await chat.page.click("#send")
    await until(chat.page, "document.querySelectorAll('#log .line').length === 3")
    model.gate.set()
    await chat.shows("one", "no 2 to one", "better", "no 4 to better")
    for part in ("#log", "#tail"):
        await expect(chat.page.locator(part)).not_to_contain_text("no 3 to two")


async def test_what_was_deleted_elsewhere_is_not_edited_and_no_word_is_lost(page, service):
    await say(page, "one")
    await expect(page.locator("#log .line.bot")).to_have_count(1)
    for name, back in (("Edit", "better"), ("Try again", "")):
        service.engine.lines, before = [], service.engine.lines  # and nobody told this page
        if name == "Edit":
            await page.get_by_role("button", name=name).click()
            await page.keyboard.press("Control+A")
            await page.keyboard.type("better")
            await page.keyboard.press("Enter")
        else:
            await page.get_by_role("button", name=name).click()
        told = page.locator("#log .line.user .note").last
        await expect(told).to_have_text("That message is no longer part of this conversation.")
        await expect(page.locator("#log .line")).to_have_count(1)
        await expect(page.locator("#message")).to_have_value(back)
        await page.fill("#message", "")
        service.engine.lines = before
        await page.reload()
        await expect(page.locator("#log .line")).to_have_count(2)
    assert len(service.engine.inbounds) == 1


async def test_while_the_server_is_away_an_edit_waits_and_then_takes_its_place(page, service):
    await say(page, "one")
    await expect(page.locator("#log .line.bot")).to_have_count(1)
    await service.stop()
    await expect(page.locator("#state")).to_have_attribute("data-state", "closed")
    await page.get_by_role("button", name="Edit").click()
    await page.keyboard.type(" and more")
    await page.keyboard.press("Enter")
    await expect(page.locator("#log .line.user .note").last).to_have_text("Waiting to be sent")
    await service.start()
    await page.reload()
    await expect(page.locator("#log .line.bot .body")).to_have_text(["You said: one and more"])
    one, two = service.engine.inbounds
    assert two.replaces == one.message_id
