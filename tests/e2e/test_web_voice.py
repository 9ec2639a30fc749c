"""Voice in the page, in a real browser: recorded there, and read aloud."""

from __future__ import annotations

from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Page, expect

from bot.testing import ScriptedModel
from tests.e2e.conftest import CHROMIUM, started
from tests.e2e.test_web_access import faults
from tests.fakes.whole_page import whole_page
from tests.speech import listening

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.slow]

FAKE = ("--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream")
PHONE = {"viewport": {"width": 390, "height": 740}, "locale": "en-GB"}
# Two voices: one of this device, and one that would hear the words elsewhere.
VOICES = """
window.said = [];
window.SpeechSynthesisUtterance = class { constructor(text) { this.text = text; } };
Object.defineProperty(window, "speechSynthesis", { value: {
  getVoices: () => [
    { name: "far", lang: "en-US", localService: false, default: true },
    { name: "near", lang: "en-GB", localService: true, default: false },
  ],
  addEventListener: () => {},
  speak: (each) => said.push(`${each.voice.name}: ${each.text}`),
  cancel: () => said.push("cancel"),
} });
"""


@pytest_asyncio.fixture(loop_scope="session")
async def microphone():
    """A browser with a microphone that beeps."""
    async with started(CHROMIUM, *FAKE) as browser:
        yield browser


async def opened(browser: Any, program: Any, script: str = "", **options: Any) -> Page:
    context = await browser.new_context(**{"locale": "en-GB", **options}, service_workers="block")
    page = await context.new_page()
    page.set_default_timeout(30_000)
    if script:
        await page.add_init_script(script)
    await page.goto(program.url)
    await page.wait_for_selector("#state[data-state=open]")
    return page


async def recorded(page: Page) -> None:
    await page.click("#record")
    await expect(page.locator("#recording")).to_be_visible()
    await expect(page.locator("#recording-time")).to_have_text("0:01")


async def test_a_voice_message_is_recorded_sent_and_answered_by_its_words(tmp_path, microphone):
    async with (
        listening(answer={"text": "Bo wants to buy milk."}) as server,
        whole_page(tmp_path, speech={"kind": "openai", "base_url": server.url}) as program,
    ):
        page = await opened(microphone, program, **PHONE)
        await recorded(page)
        assert await faults(page) == []
        assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        await page.click("#record")
        await expect(page.locator("#log .line.bot .body")).to_contain_text("Bo wants to buy milk.")
        await expect(page.locator("#log .line.user .files")).to_contain_text("Voice message.webm")
        await expect(page.locator("#recording")).to_be_hidden()
        (asked,) = server.asked
        assert isinstance(asked["data"], bytes)
        assert asked["data"][:4] == b"\x1a\x45\xdf\xa3"  # Matroska, as WebM is
        # Taken back, nothing is sent, and the microphone is let go.
        await recorded(page)
        await page.keyboard.press("Escape")
        await expect(page.locator("#recording")).to_be_hidden()
        await expect(page.get_by_label("Record a voice message")).to_be_visible()
        assert len(server.asked) == 1


async def test_whoever_asks_aloud_hears_the_answer_where_it_is_spoken(tmp_path, microphone):
    async with (
        listening(answer={"text": "Is there milk?"}) as server,
        whole_page(
            tmp_path, speech={"kind": "openai", "base_url": server.url, "reply": "voice"}
        ) as program,
    ):
        page = await opened(microphone, program)
        await recorded(page)
        await page.click("#record")
        player = page.locator("#log .line.bot audio")
        await expect(player).to_be_visible()
        await expect(page.locator("#log")).not_to_contain_text("Forgotten")


@pytest.mark.parametrize("speech", [{}, {"kind": "openai"}])
async def test_without_a_service_or_a_microphone_there_is_no_button(tmp_path, browser, speech):
    hides = "Object.defineProperty(navigator, 'mediaDevices', { value: undefined });"
    async with whole_page(tmp_path, speech=speech) as program:
        page = await opened(browser, program, hides if speech else "")
        await expect(page.locator("#ways-list a").first).to_be_attached()
        await expect(page.locator("#record")).to_be_hidden()


async def test_a_microphone_that_is_refused_is_said(tmp_path, browser):
    refuses = """navigator.mediaDevices.getUserMedia = async () => {
      throw new DOMException("no", "NotAllowedError");
    };"""
    async with whole_page(tmp_path, speech={"kind": "openai"}) as program:
        page = await opened(browser, program, refuses)
        await page.click("#record")
        await expect(page.locator("#banner-text")).to_contain_text("doesn't let this page use")
        await expect(page.locator("#recording")).to_be_hidden()


async def test_a_reply_is_read_aloud_by_a_voice_of_this_device(tmp_path, browser):
    model = ScriptedModel(script=lambda _: "First.\n\n```python\nprint(1)\n```\n\nLast.")
    async with whole_page(tmp_path, model=model) as program:
        page = await opened(browser, program, VOICES)
        await page.fill("#message", "hello")
        await page.keyboard.press("Enter")
        button = page.locator("#log .line.bot .aloud")
        await button.click()
        await expect(button).to_have_text("Stop reading")
        assert await page.evaluate("said") == ["cancel", "near: First.", "near: Last."]
        await button.click()
        await expect(button).to_have_text("Read aloud")
        assert await faults(page) == []
        plain = await opened(browser, program, VOICES.replace('"en-GB"', '"de-DE"'))
        await expect(plain.locator("#log .line.bot")).to_be_visible()
        await expect(plain.locator("#log .aloud")).to_have_count(0)
