"""A new chat, and what shows between the lines, in a real browser and with the whole program."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import BrowserContext, Page, expect

from bot.agent.models import Request
from bot.testing import ScriptedModel
from tests.e2e.test_first_start import fits
from tests.e2e.test_web_access import faults
from tests.fakes import completions_api
from tests.fakes.started import started
from tests.fakes.whole_page import WholePage, whole_page
from tests.proofs.rounds import long

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.slow]

CSP = {"bypass_csp": True}  # axe is put into the page
WIDE = {**CSP, "viewport": {"width": 1280, "height": 800}, "locale": "en-GB"}
PHONE = {
    **CSP,
    "viewport": {"width": 390, "height": 740},
    "locale": "zh-CN",
    "color_scheme": "dark",
}


def reply(request: Request) -> str:
    return f"You said: {request.messages[-1].text}"


async def open_chat(context: BrowserContext, url: str) -> Page:
    page = await context.new_page()
    await page.goto(url)
    await page.wait_for_selector("#state[data-state=open]")
    return page


async def says(page: Page, text: str) -> None:
    await page.fill("#message", text)
    await page.keyboard.press("Enter")


def lines(page: Page, role: str) -> Any:
    return page.locator(f"#log .line.{role} .body")


@pytest.fixture
def model():
    return ScriptedModel(script=reply)


@pytest_asyncio.fixture(loop_scope="session")
async def program(tmp_path, model):
    async with whole_page(tmp_path, model=model) as page:
        yield page


@pytest.mark.parametrize("context_options", [WIDE])
async def test_a_new_chat_is_empty_in_every_tab_and_after_a_reload(context, program: WholePage):
    page, other = [await open_chat(context, program.url) for _ in range(2)]
    await says(page, "where do herons nest?")
    await expect(lines(other, "bot")).to_have_text(["You said: where do herons nest?"])
    await page.get_by_role("button", name="New conversation").click()
    for tab in (page, other):
        await expect(tab.locator("#empty")).to_be_visible()
        await expect(tab.locator("#log .line")).to_have_count(0)
        await expect(tab.locator("#log .rule.divider")).to_contain_text("New conversation.")
    await page.reload()
    await expect(page.locator("#starters button").first).to_be_visible()
    await expect(page.locator("#log .line")).to_have_count(0)
    herons = page.locator("#talks-list a[data-id]", has_text="herons")
    await expect(herons).to_be_visible()
    assert await faults(page) == []
    await says(page, "/undo")
    await expect(lines(page, "user")).to_have_text(["where do herons nest?"])
    await expect(page.locator("#log .rule.divider")).to_contain_text("Back in the previous")
    await says(page, "/new and which is the largest?")
    await expect(lines(page, "user")).to_have_text(["and which is the largest?"])
    await expect(lines(page, "bot")).to_have_text(["You said: and which is the largest?"])
    await expect(page.locator("#empty")).to_be_hidden()


@pytest.mark.parametrize(
    ("context_options", "words"),
    [
        (WIDE, ("(stopped)", "Continue", "Please go on.")),
        long(PHONE, ("（已停止）", "继续", "请继续。")),
    ],
)
async def test_a_stopped_answer_says_so_quietly_and_goes_on_when_asked(
    context, program: WholePage, model: ScriptedModel, words
):
    stopped, more, request = words
    page = await open_chat(context, program.url)
    model.gate = asyncio.Event()
    await says(page, "tell me a long story")
    await model.started.wait()
    await expect(page.locator("#tail .draft")).to_be_visible()
    await page.click("#stop")
    await expect(page.locator("#log .stopped")).to_contain_text(stopped)
    await expect(page.locator("#log .rule.divider")).to_have_count(0)
    await expect(lines(page, "user")).to_have_text(["tell me a long story"])
    await page.reload()
    await expect(page.locator("#log .stopped")).to_contain_text(stopped)
    await expect(page.locator("#log .rule.divider")).to_have_count(0)
    assert await faults(page) == []
    assert await fits(page)
    model.gate = None
    await page.get_by_role("button", name=more, exact=True).click()
    await expect(lines(page, "bot").last).to_have_text(f"You said: {request}")
    await expect(page.get_by_role("button", name=more, exact=True)).to_have_count(0)


@pytest.mark.parametrize("context_options", [WIDE])
async def test_stopping_when_nothing_runs_is_a_sentence_between_the_lines(context, program):
    page = await open_chat(context, program.url)
    await says(page, "/stop")
    await expect(page.locator("#log .rule.divider")).to_have_text("Nothing is running.")
    await expect(lines(page, "user")).to_have_count(0)
    await expect(page.locator("#empty")).to_be_visible()


@pytest.mark.parametrize(
    ("context_options", "words"),
    [
        long(WIDE, ("Ollama, or another server", "Address", "Find models", "Use this model")),
        (PHONE, ("Ollama", "地址", "查找模型", "使用这个模型")),
    ],
)
async def test_a_model_is_connected_in_the_empty_chat(tmp_path, context, words):
    service, address, find, use = words
    async with (
        completions_api.running(completions_api.says("Hi, I am here.")) as api,
        started(tmp_path) as program,
    ):
        api.pages |= completions_api.ollama(32_768)
        page = await open_chat(context, f"{program.url}/")
        await page.get_by_label(service).check()
        await expect(page.locator("#no-model")).to_be_hidden()
        assert await faults(page) == []
        assert await fits(page)
        await page.get_by_role("button", name=find).click()
        await expect(page.locator("#connect [role=alert]")).to_be_focused()
        await page.get_by_label(service).check()
        await page.get_by_label(address, exact=True).fill(api.root)
        await page.get_by_role("button", name=find).click()
        await page.get_by_role("button", name=use).click()
        await expect(page.locator("#connect")).to_be_hidden()
        await expect(page.locator("#message")).to_be_focused()
        await expect(page.locator("#model-name")).to_have_text("qwen3:latest")
        await page.locator("#starters button").first.click()
        await expect(lines(page, "bot").last).to_have_text("Hi, I am here.")


@pytest.mark.parametrize("context_options", [PHONE])
async def test_the_form_goes_with_the_first_message_and_a_link_stays(tmp_path, context):
    async with started(tmp_path) as program:
        page = await open_chat(context, f"{program.url}/")
        await expect(page.locator("#connect form")).to_be_visible()
        # All of it is seen at once.
        assert await page.locator("#scroll").evaluate("(it) => it.scrollHeight <= it.clientHeight")
        await says(page, "/whoami")
        await expect(lines(page, "bot")).to_have_count(1)
        await expect(page.locator("#connect")).to_be_hidden()
        await expect(page.locator("#no-model a")).to_be_visible()


@pytest.mark.parametrize(
    ("context_options", "words"),
    [
        (WIDE, ("Waiting for the current answer", "Take back")),
        long(PHONE, ("等当前回答结束后处理", "撤回")),
    ],
)
async def test_a_message_waits_below_the_answer_before_it_and_can_be_taken_back(
    context, program: WholePage, model: ScriptedModel, words
):
    note, back = words
    page, other = [await open_chat(context, program.url) for _ in range(2)]
    model.gate = asyncio.Event()
    await says(page, "first")
    await expect(page.locator("#tail .draft")).to_be_visible()
    for text in ("second", "third", "fourth"):
        await says(page, text)
    queue = "#queue .line .body"
    await page.reload()  # and what waits still does, in its order
    await expect(page.locator("#tail .draft")).to_be_visible()
    for tab in (page, other):
        await expect(tab.locator(queue)).to_have_text(["second", "third", "fourth"])
        await expect(tab.locator("#queue .note").first).to_have_text(note)
        await expect(lines(tab, "user")).to_have_text(["first"])
    assert await faults(page) == []
    assert await fits(page)
    await page.locator("#queue .line", has_text="third").get_by_role("button", name=back).click()
    for tab in (page, other):
        await expect(tab.locator(queue)).to_have_text(["second", "fourth"])
    await expect(page.locator("#message")).to_have_value("third")
    await page.locator("#queue .line", has_text="fourth").get_by_role("button", name=back).click()
    await expect(page.locator(queue)).to_have_text(["second"])
    await expect(page.locator("#message")).to_have_value("third")  # no draft is lost
    model.gate.set()
    spoken = page.locator("#log .line .body")
    said = ["first", "You said: first", "second", "You said: second"]
    await expect(spoken).to_have_text(said)
    await expect(page.locator("#queue .line")).to_have_count(0)
    await expect(page.get_by_role("button", name=back)).to_have_count(0)
    await page.reload()
    await expect(spoken).to_have_text(said)


@pytest.mark.parametrize(
    ("context_options", "words"),
    [long(WIDE, ("Edit", "Cancel")), (PHONE, ("修改", "取消"))],
)
async def test_a_message_is_changed_without_losing_the_one_being_written(context, program, words):
    edit, cancel = words
    page = await open_chat(context, program.url)
    await says(page, "where do herons nest?")
    await expect(lines(page, "bot")).to_have_count(1)
    box, button = page.locator("#message"), page.get_by_role("button", name=edit, exact=True)
    await page.fill("#message", "half a thought")
    for way in ("button", "key"):
        await button.click()
        await expect(box).to_be_focused()
        await expect(box).to_have_value("where do herons nest?")
        await page.keyboard.type(" or storks")
        if way == "button":
            assert await faults(page) == []
            assert await fits(page)
            await page.get_by_role("button", name=cancel).click()
        else:
            await page.keyboard.press("Escape")
        await expect(box).to_have_value("half a thought")
        await expect(page.locator("#editing")).to_be_hidden()
    await button.click()
    await page.reload()  # what was changed is as it was, and the draft is there
    await expect(box).to_have_value("half a thought")
    await button.click()
    await page.fill("#message", "and storks?")
    await page.click("#send")
    await expect(lines(page, "bot").last).to_have_text("You said: and storks?")
    await expect(box).to_have_value("half a thought")
    await expect(page.locator("#editing")).to_be_hidden()


@pytest.mark.parametrize("context_options", [WIDE])
async def test_a_late_reply_shows_in_the_conversation_it_belongs_to(context, program, model):
    page = await open_chat(context, program.url)
    model.gate = asyncio.Event()
    await says(page, "where do herons nest?")
    await expect(page.locator("#tail .line.bot")).to_be_visible()
    await page.get_by_role("button", name="New conversation").click()
    await expect(page.locator("#log .rule.divider")).to_contain_text("New conversation.")
    await expect(page.locator("#tail .line.bot")).to_have_count(0)
    model.gate.set()
    model.gate = None
    herons = page.locator("#talks-list a[data-id]", has_text="herons")
    await expect(herons).to_be_visible()
    await expect(page.locator("#banner-text")).to_contain_text("in the conversation you left")
    await expect(page.locator("#tail .line")).to_have_count(0)
    await says(page, "and storks?")
    await expect(lines(page, "bot").last).to_have_text("You said: and storks?")
    await expect(page.locator("#log")).not_to_contain_text("herons")
    await page.reload()
    await expect(lines(page, "bot")).to_have_text(["You said: and storks?"])
    await herons.click()
    await expect(lines(page, "bot")).to_have_text(["You said: where do herons nest?"])
