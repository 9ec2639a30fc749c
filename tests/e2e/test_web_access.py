"""The page as axe-core sees it: names, roles, contrast, what the keyboard and a reader meet."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Page, expect

from adapters.web.channel import ADDRESS
from bot.channel import Activity, Button, ModelChoice
from tests.fakes.npm import install
from tests.proofs.rounds import sample

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.slow]

HOME = Path(__file__).resolve().parents[1] / "axe"
AXE = HOME / "node_modules" / "axe-core" / "axe.min.js"
# It is put into the page from outside, which the page's own policy forbids.
WAYS = [
    {"bypass_csp": True},
    {
        "bypass_csp": True,
        "color_scheme": "dark",
        "locale": "zh-CN",
        "viewport": {"width": 320, "height": 640},
    },
]
THINKING = Activity("7.thinking", "thinking", "begun", text="First this, then that.\n" * 40)


async def faults(page: Page) -> list[str]:
    """What it finds wrong, and where."""
    await asyncio.to_thread(install, HOME)
    await page.evaluate(await asyncio.to_thread(AXE.read_text, "utf-8"))
    found: dict[str, Any] = await page.evaluate("axe.run({resultTypes: ['violations']})")
    return [
        f"{each['id']}: {node['html']}" for each in found["violations"] for node in each["nodes"]
    ]


@pytest.mark.parametrize("context_options", sample(WAYS[:1], WAYS[1:]))
async def test_an_empty_page_can_be_used_by_everybody(page, service):
    await expect(page.locator("#model")).to_be_visible()
    assert await faults(page) == []


@pytest.mark.parametrize("context_options", sample(WAYS[1:], WAYS[:1]))
async def test_a_conversation_with_all_that_is_beside_it_too(page, service):
    many = tuple(f"router/model-{number}" for number in range(40))
    service.engine.choice = ModelChoice("local/x", offered=many, more=9)
    service.engine.replies["hello"] = (
        "# A title\n\n```python\nif 'a': # b\n  f(A, 1)\n```\n\n"
        "```diff\n-a\n+b\n@@ 1\n```\n\n$x^2$\n\n$$\\frac{a}{b}$$\n\n| a |\n|---|\n| b |"
    )
    await page.fill("#message", "hello")
    await page.keyboard.press("Enter")
    await expect(page.locator("#log .line.bot .body table")).to_be_visible()
    await service.engine.say("Choose.", "m1", buttons=(Button("Yes", "/yes"), Button("No", "/no")))
    step = Activity("7.1", "searching", "done", text="tea", found=2, draft="7")
    await service.engine.web.activity(ADDRESS, step)
    await service.engine.say("Green tea.", "m2", draft="7")
    await page.locator("#log .doing summary").click()
    await service.engine.web.activity(ADDRESS, Activity("a.saving", "saving", "begun"))
    await service.engine.web.activity(ADDRESS, replace(THINKING, text=""))
    await service.engine.web.activity(ADDRESS, THINKING)
    await page.locator("#doing summary").click()
    await expect(page.locator("#thought")).to_be_visible()
    assert await faults(page) == []
    await page.locator("#model").click()
    await expect(page.locator("#models-more")).to_be_visible()
    assert await faults(page) == []
