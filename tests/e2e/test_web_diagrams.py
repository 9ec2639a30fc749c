"""Mermaid diagrams in a real browser: drawn in a frame without rights, shown as pictures."""

from __future__ import annotations

import pytest
import pytest_asyncio
from playwright.async_api import expect

from bot.testing import ScriptedModel
from tests.e2e.test_web_access import faults
from tests.fakes.whole_page import whole_page
from tests.proofs.rounds import sample

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.slow]

GOOD = "graph LR\n  Tea[Tea <b>now</b>] --> Cake\n  click Tea call alert('no')"
BAD = "graph LR\n  Tea --> --> ["
HUGE = "graph LR\n" + "\n".join(f"  a{n} --> b{n}" for n in range(2_000))
LOOKS = [
    {"viewport": {"width": 1280, "height": 800}, "locale": "en-GB"},
    {"viewport": {"width": 390, "height": 740}, "locale": "zh-CN", "color_scheme": "dark"},
]


@pytest_asyncio.fixture(loop_scope="session")
async def program(tmp_path):
    words = "\n\n".join(f"```mermaid\n{text}\n```" for text in (GOOD, BAD, HUGE))
    async with whole_page(tmp_path, model=ScriptedModel(script=lambda _asked: words)) as page:
        yield page


@pytest.mark.parametrize("look", sample(LOOKS[:1], LOOKS[1:]))
async def test_diagrams_are_pictures_and_what_is_none_stays_text(program, browser, look):
    context = await browser.new_context(bypass_csp=False, **look)
    page = await context.new_page()
    wrong = list[str]()
    page.on("console", lambda said: wrong.append(said.text) if said.type == "error" else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    await page.goto(program.url)
    await page.wait_for_selector("#state[data-state=open]")
    await page.fill("#message", "draw it")
    await page.keyboard.press("Enter")
    picture = page.locator("img.diagram")
    await expect(picture).to_have_count(1)
    width, height = await picture.evaluate("each => [each.naturalWidth, each.naturalHeight]")
    assert width > 50
    assert height > 20
    svg = await picture.get_attribute("src") or ""
    assert "Cake" in svg
    assert "%3Cscript" not in svg
    assert "alert" not in svg
    await expect(page.locator(".code pre:visible")).to_have_count(2)
    assert await page.evaluate(
        "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
    )
    await page.locator(".code").first.get_by_role("button").first.click()
    await expect(picture).to_be_hidden()
    await expect(page.locator(".code pre:visible")).to_have_count(3)
    assert wrong == []
    await context.close()
    context = await browser.new_context(bypass_csp=True, **look)  # which axe needs
    page = await context.new_page()
    await page.goto(program.url)
    await expect(page.locator("img.diagram")).to_have_count(1)
    assert await faults(page) == []
    await context.close()


async def test_the_frame_has_no_rights_and_the_library_waits_for_a_diagram(program, browser):
    context = await browser.new_context()
    page = await context.new_page()
    asked = list[str]()
    page.on("request", lambda request: asked.append(request.url))
    await page.goto(program.url)
    await page.wait_for_selector("#state[data-state=open]")
    assert not any("/drawing/" in url for url in asked)
    drawing = f"{program.url.rstrip('/')}/drawing"
    answer = await context.request.get(f"{drawing}/frame.html")
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("sandbox allow-scripts; default-src 'none'")
    assert "frame-ancestors 'self'" in policy
    assert (
        await context.request.get(f"{program.url.rstrip('/')}/drawing/../channel.py")
    ).status == 404
    await context.close()
