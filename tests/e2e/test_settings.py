"""Settings in a browser: a section at a time, found by words, and never seeming saved when not."""

from __future__ import annotations

import pytest
from playwright.async_api import expect

from bot.dashboard.settings.pages import SECTIONS
from tests.e2e.test_first_start import fits
from tests.e2e.test_web_access import faults
from tests.fakes.started import started
from tests.proofs.rounds import sample

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.slow]

MOST_PX = 3_000  # of a section, on the smallest screen
LOOKS = [
    {"locale": "en-GB", "viewport": {"width": 1280, "height": 800}, "color_scheme": "light"},
    {"locale": "zh-CN", "viewport": {"width": 390, "height": 800}, "color_scheme": "dark"},
    {"locale": "en-GB", "viewport": {"width": 390, "height": 800}, "color_scheme": "light"},
    {"locale": "zh-CN", "viewport": {"width": 1280, "height": 800}, "color_scheme": "dark"},
]


@pytest.mark.parametrize("look", sample(LOOKS[:2], LOOKS[2:]))
async def test_every_section_is_short_and_can_be_used_by_everybody(tmp_path, browser, look):
    async with started(tmp_path) as program:
        context = await browser.new_context(bypass_csp=True, **look)
        page = await context.new_page()
        for path in (*(f"?section={each}" for each in SECTIONS), "?q=token"):
            await page.goto(f"{program.url}/settings{path}")
            assert await page.evaluate("document.documentElement.scrollHeight") < MOST_PX, path
            assert await fits(page), path
            assert await faults(page) == [], path
        await context.close()


async def test_what_is_not_saved_is_seen_and_a_wrong_value_has_the_focus(tmp_path, browser):
    async with started(tmp_path) as program:
        context = await browser.new_context(locale="en-GB", bypass_csp=True)
        page = await context.new_page()
        await page.set_viewport_size({"width": 390, "height": 600})
        await page.goto(f"{program.url}/settings")
        unsaved, save = page.locator(".unsaved"), page.get_by_role("button", name="Save")
        await expect(unsaved).to_be_empty()
        await page.get_by_label("Bot's name").fill("Heron")
        await expect(unsaved).to_have_text("Unsaved changes")
        await expect(save).to_be_in_viewport()
        await page.get_by_role("button", name="Discard changes").click()
        await expect(page.get_by_label("Bot's name")).to_have_value("Confidant")
        await expect(unsaved).to_be_empty()
        await page.get_by_label("Hour of day").fill("25")
        await page.get_by_label("Start a new conversation").select_option("After a silence")
        await save.click()
        hour = page.get_by_label("Hour of day")
        await expect(hour).to_be_focused()
        await expect(hour).to_be_in_viewport()
        await expect(hour).to_have_value("25")
        await expect(hour).to_have_accessible_description(
            "When a new day begins, from 0 to 23, if a new conversation starts every day. "
            "Enter a whole number from 0 to 23."
        )
        await expect(unsaved).to_have_text("Unsaved changes")
        assert await faults(page) == []
        await hour.fill("5")
        await page.get_by_label("Minutes of silence").fill("60")
        await save.click()
        await expect(page.get_by_text("Saved. In effect now.")).to_be_visible()
        await expect(page.get_by_label("Start a new conversation")).to_have_value("idle")
        await expect(unsaved).to_be_empty()
        asked: list[str] = []

        async def stay(dialog):
            asked.append(dialog.type)
            await dialog.dismiss()

        page.on("dialog", stay)
        await page.get_by_label("Bot's name").fill("Heron")
        await expect(page.get_by_text("Saved. In effect now.")).to_have_count(0)
        await page.get_by_role("link", name="Limits", exact=True).click()
        await expect(page.get_by_label("Bot's name")).to_have_value("Heron")
        assert asked == ["beforeunload"]
        await context.close()


async def test_an_option_is_found_and_the_page_made_private_by_clicks(tmp_path, browser):
    async with started(tmp_path) as program:
        context = await browser.new_context(locale="en-GB", bypass_csp=True)
        await context.grant_permissions(["clipboard-read", "clipboard-write"])
        page = await context.new_page()
        await page.goto(f"{program.url}/settings")
        await page.get_by_role("searchbox").fill("dollars month")
        await page.keyboard.press("Enter")
        await page.get_by_role("link", name="US dollars per month, each").click()
        field = page.get_by_label("US dollars per month, each", exact=True)
        await expect(field).to_be_in_viewport()
        await expect(field).to_have_attribute("placeholder", "No limit")
        await page.get_by_role("link", name="People", exact=True).click()
        await page.locator("#private summary").click()
        await page.get_by_role("button", name="Copy").click()
        await expect(page.get_by_role("button", name="Copied")).to_be_visible()
        token = await page.evaluate("navigator.clipboard.readText()")
        assert len(token) >= 32
        await page.get_by_role("button", name="Make this page private").click()
        await page.locator("#token").fill(token)
        await page.keyboard.press("Enter")
        await page.wait_for_selector("#state[data-state=open]")
        await context.close()


async def test_without_scripts_sections_search_and_saving_work(tmp_path, browser):
    async with started(tmp_path) as program:
        context = await browser.new_context(locale="en-GB", java_script_enabled=False)
        page = await context.new_page()
        await page.goto(f"{program.url}/settings")
        await page.get_by_role("link", name="Limits").click()
        await page.locator("#limits-each-day_usd").fill("2.5")
        await page.get_by_role("button", name="Save").click()
        await expect(page.get_by_text("Saved. In effect now.")).to_be_visible()
        assert await page.locator("#limits-each-day_usd").input_value() == "2.5"
        assert not await page.get_by_role("button", name="Discard changes").is_visible()
        await context.close()


async def test_a_backup_is_made_downloaded_and_its_command_copied(tmp_path, browser):
    async with started(tmp_path) as program:
        context = await browser.new_context(
            locale="en-GB", viewport={"width": 390, "height": 800}, bypass_csp=True
        )
        await context.grant_permissions(["clipboard-read", "clipboard-write"])
        page = await context.new_page()
        await page.goto(f"{program.url}/settings")
        await page.locator(".sections").get_by_role("link", name="Backups").click()
        await page.get_by_role("button", name="Back up now").click()
        await expect(page.get_by_text("Backup made.")).to_be_visible()
        async with page.expect_download() as found:
            await page.get_by_role("button", name="Download").click()
        download = await found.value
        assert download.suggested_filename.endswith(".backup")
        kept = program.folder / "backups" / download.suggested_filename
        assert (await download.path()).read_bytes() == kept.read_bytes()
        await page.locator("main details summary").click()
        await page.get_by_role("button", name="Copy").click()
        await expect(page.get_by_role("button", name="Copied")).to_be_visible()
        assert str(kept) in await page.evaluate("navigator.clipboard.readText()")
        assert await faults(page) == []
        assert await fits(page)
        await context.close()


@pytest.mark.parametrize("look", sample(LOOKS[:1], LOOKS[1:]))
async def test_where_memory_is_used_is_checked_while_it_is_typed(tmp_path, browser, look):
    async with started(tmp_path) as program:
        context = await browser.new_context(bypass_csp=True, **{**look, "locale": "en-GB"})
        page = await context.new_page()
        await page.goto(f"{program.url}/channels/scope")
        said = page.locator("#scope-said")
        await expect(said).to_have_text("In every chat: memory is used.")
        await page.get_by_label("Chat's id").fill("telegram:42")
        await expect(said).to_have_text(
            "Enter only the id, on one line, without the channel's name before it."
        )
        assert await faults(page) == []
        await page.get_by_label("Chat's id").fill("-42")
        await page.get_by_label("Where").select_option("Groups")
        await expect(said).to_contain_text("In the chat -42: the room's notes and the shared ones")
        await page.get_by_role("button", name="Add as the first rule").click()
        await expect(page.locator(".rule").first).to_contain_text("In the chat -42")
        await page.get_by_role("button", name="Remove").first.click()
        await expect(page.locator(".rule")).to_have_count(1)
        assert await faults(page) == []
        assert await fits(page)
        await context.close()
