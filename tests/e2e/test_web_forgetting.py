"""Pages that are open when something is forgotten, in a real browser."""

from __future__ import annotations

import re

import pytest
import pytest_asyncio
from playwright.async_api import BrowserContext, Page, expect

from tests.e2e.test_web_page import lines, say
from tests.fakes.whole_page import WholePage, whole_page

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.slow]


@pytest_asyncio.fixture(loop_scope="session")
async def program(tmp_path):
    (tmp_path / "workspace" / "memory").mkdir(parents=True)
    note = tmp_path / "workspace" / "memory" / "boat.md"
    note.write_text("- the harbour code is 4711\n- the boat is blue\n", "utf-8")
    async with whole_page(tmp_path) as found:
        yield found


async def chat(context: BrowserContext, program: WholePage) -> Page:
    page = await context.new_page()
    await page.goto(program.url)
    await page.wait_for_selector("#state[data-state=open]")
    return page


async def test_words_that_are_forgotten_go_from_every_open_page(context, program):
    first, second = await chat(context, program), await chat(context, program)
    await say(first, "the harbour code is 4711")
    await expect(lines(first, "bot")).to_have_count(1)
    await say(first, "and the boat is blue")
    await expect(lines(second, "bot")).to_have_count(2)
    talk, note, typing = [await context.new_page() for _ in range(3)]
    await talk.goto(f"{program.url}conversations")
    await talk.locator("main li a").first.click()
    await expect(talk.locator("main")).to_contain_text("harbour code")
    await note.goto(f"{program.url}memory/file?path=memory/boat.md")
    await expect(note.locator("main")).to_contain_text("harbour code")
    await typing.goto(f"{program.url}memory")
    await typing.fill("#entry", "the sail is red")
    await say(first, "/memory forget harbour code")
    await first.get_by_role("button", name="Forget").focus()
    await first.keyboard.press("Enter")
    await expect(lines(first, "bot").last).to_contain_text("Forgotten:")
    for page in (first, second):
        await expect(page.locator("#log")).not_to_contain_text("harbour code")
        await expect(lines(page, "user").first).to_have_text("Forgotten, as you asked.")
        await expect(lines(page, "user").nth(1)).to_have_text("and the boat is blue")
        await expect(page.locator("#log .chosen")).to_have_count(1)
    # The keyboard stays where it was.
    assert await first.evaluate("document.activeElement.closest('.choices') !== null")
    for page in (talk, note):
        await expect(page.locator("main")).not_to_contain_text("harbour code")
        await expect(page.locator("main")).to_contain_text("boat is blue")
    await expect(typing.locator("#entry")).to_have_value("the sail is red")


async def test_whoever_forgets_in_a_page_is_told_what_went(context, program):
    open_chat = await chat(context, program)
    await say(open_chat, "the harbour code is 4711")
    await expect(lines(open_chat, "bot")).to_have_count(1)
    page = await context.new_page()
    await page.goto(f"{program.url}memory/forget")
    await page.fill("input[name=words]", "harbour code")
    await page.keyboard.press("Enter")
    await page.locator("form[action='/memory/forgotten'] button").click()
    await page.wait_for_url("**/memory/forgotten?*")
    await expect(open_chat.locator("#log")).not_to_contain_text("harbour code")


async def test_a_reply_opens_what_it_was_given_until_that_is_forgotten(context, program):
    page = await chat(context, program)
    await say(page, "which colour is the boat?")
    await expect(lines(page, "bot")).to_have_count(1)
    for _ in range(2):
        opened = page.locator("#log .line.bot .sources")
        await expect(opened.locator("summary")).to_have_text(re.compile(r"^Sources \(\d\)$"))
        await opened.locator("summary").press("Enter")
        await expect(opened.locator("li", has_text="the boat is blue")).to_have_count(1)
        await page.reload()  # it is there again
    await opened.locator("summary").press("Enter")
    await opened.locator("a", has_text="memory/boat.md").click()
    await page.wait_for_url("**/memory/file?*")
    await expect(page.locator("main")).to_contain_text("the boat is blue")
    first = await chat(context, program)
    before = await first.locator("#log .sources").count()
    await say(first, "/memory forget boat is blue")
    await first.get_by_role("button", name="Forget").press("Enter")
    await expect(lines(first, "bot").last).to_contain_text("Forgotten:")
    assert before == 1
    await expect(first.locator("#log")).not_to_contain_text("boat is blue")
