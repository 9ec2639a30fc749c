"""From a fresh folder to a paired Telegram, rooms and old conversations, by the page alone."""

from __future__ import annotations

import time

import pytest
from playwright.async_api import Page, expect

from tests.e2e.test_web_access import faults
from tests.fakes import completions_api
from tests.fakes.started import started
from tests.fakes.telegram import TOKEN, FakeTelegram

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.slow]

MOST_SECONDS = 180.0
ADA = 7
ROOM = -100_7


async def fits(page: Page) -> bool:
    return await page.evaluate(
        "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
    )


async def test_a_fresh_folder_to_rooms_and_old_conversations_by_the_page_alone(tmp_path, browser):
    begun = time.monotonic()
    async with completions_api.running(completions_api.says("Hi, I am here.")) as api:
        api.pages |= completions_api.ollama(32_768)
        async with (
            FakeTelegram() as telegram,
            started(tmp_path, CONFIDANT_CHANNELS__TELEGRAM__API_ROOT=telegram.url) as program,
        ):
            context = await browser.new_context(locale="en-GB", bypass_csp=True)
            page = await context.new_page()
            await page.goto(f"{program.url}/settings")
            await page.get_by_role("link", name="No model connected. Connect one").click()
            await page.get_by_label("Ollama, or another server").check()
            await page.get_by_label("Address", exact=True).fill(api.root)
            await page.get_by_role("button", name="Find models").click()
            await page.get_by_role("button", name="Use this model").click()
            await expect(page.get_by_text("qwen3:latest is connected.")).to_be_visible()
            await page.get_by_label("Token").fill(TOKEN)
            await page.get_by_role("button", name="Connect").click()
            await expect(page.get_by_text("@confidant_bot is connected.")).to_be_visible()
            assert await faults(page) == []
            telegram.push_text(ADA, "hello")
            await telegram.wait_sent(1, within=30)
            await (
                page.get_by_role("region", name="Telegram")
                .get_by_role("link", name="Chat users")
                .click()
            )
            await page.get_by_text("This is me").first.click()
            await page.locator("#asking details[open] button").click()
            telegram.push_text(ADA, "and now?")
            await telegram.wait_for(
                lambda: any("Hi, I am here." in text for text in telegram.texts(ADA)), 30
            )
            telegram.room(ROOM)
            telegram.say(ROOM, ADA, "@confidant_bot may you talk here?")
            await telegram.wait_for(
                lambda: any("not allowed" in text for text in telegram.texts(ROOM)), 30
            )
            await page.goto(f"{program.url}/channels")
            await page.get_by_role("button", name="Let it answer here").click()
            telegram.say(ROOM, ADA, "@confidant_bot and now?")
            await telegram.wait_for(
                lambda: any("Hi, I am here." in text for text in telegram.texts(ROOM)), 30
            )
            await page.goto(f"{program.url}/settings/start")
            await page.get_by_label("Your name").fill("Ada")
            await page.get_by_role("button", name="Save").click()
            await page.goto(f"{program.url}/")
            await page.wait_for_selector("#state[data-state=open]")
            await expect(page.get_by_role("heading", name="Hello, Ada.")).to_be_visible()
            await page.fill("#message", "hello")
            await page.keyboard.press("Enter")
            await expect(page.locator("#log .line.bot .body").last).to_have_text("Hi, I am here.")
            await page.get_by_role("button", name="New conversation").click()
            await expect(page.locator("#log .line.user")).to_have_count(0)
            await page.locator("#talks-list a[data-id]", has_text="hello").last.click()
            await expect(page.locator("#log .line.user")).to_have_count(1)
            await page.fill("#message", "and once more")
            await page.keyboard.press("Enter")
            await expect(page.locator("#log .line.user")).to_have_count(2)
            await expect(page.locator("#log .line.bot .body")).to_have_count(2)
            assert time.monotonic() - begun < MOST_SECONDS
            await context.close()


@pytest.mark.proof
async def test_settings_work_by_the_keyboard_on_a_small_dark_page_in_chinese(tmp_path, browser):
    async with started(tmp_path) as program:
        context = await browser.new_context(
            locale="zh-CN",
            color_scheme="dark",
            viewport={"width": 360, "height": 640},
            bypass_csp=True,
        )
        page = await context.new_page()
        await page.goto(f"{program.url}/settings/start")
        assert await faults(page) == []
        assert await fits(page)
        await page.goto(f"{program.url}/settings")
        await page.locator("#agent-name").focus()
        await page.keyboard.press("ControlOrMeta+a")
        await page.keyboard.type("苍鹭")
        await page.keyboard.press("Enter")
        await expect(page.locator(".section > [role=status]")).to_contain_text("已保存")
        await expect(page.locator("#agent-name")).to_have_value("苍鹭")
        await page.evaluate(
            "document.querySelectorAll('details').forEach((each) => { each.open = true; })"
        )
        assert await faults(page) == []
        assert await fits(page)
        await page.goto(f"{program.url}/settings?section=advanced")
        await page.locator("#changes button").press("Enter")
        await page.goto(f"{program.url}/settings")
        await expect(page.locator("#agent-name")).to_have_value("Confidant")
        await context.close()
