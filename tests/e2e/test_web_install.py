"""The installed page: it opens without the bot, shows an update at once, and keeps no words."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from playwright.async_api import Page, expect

from bot.channel import http
from tests.e2e.test_web_page import lines, say

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.slow,
    pytest.mark.parametrize("context_options", [{"service_workers": "allow"}]),
]

SECRET = "the harbour at five"
KEPT = """async () => {
    const found = {};
    for (const name of await caches.keys()) {
        const cache = await caches.open(name);
        for (const request of await cache.keys()) {
            const path = new URL(request.url).pathname;
            found[`${name} ${path}`] = await (await cache.match(request)).text();
        }
    }
    return found;
}"""


async def installed(page: Page) -> None:
    """Wait until the worker has everything, and what the page asks for goes through it."""
    await page.evaluate("async () => { await navigator.serviceWorker.ready; }")
    async with asyncio.timeout(60):
        while not await page.evaluate("navigator.serviceWorker.controller !== null"):
            await page.evaluate("new Promise(requestAnimationFrame)")


async def test_the_page_opens_without_the_bot_says_so_and_keeps_what_is_typed(page, service):
    await say(page, SECRET)
    await expect(lines(page, "bot")).to_have_count(1)
    await installed(page)
    kept = await page.evaluate(KEPT)
    assert {key.split()[1] for key in kept} >= {"/", "/static/main.js", "/assets/base.css"}
    assert SECRET not in json.dumps(kept)
    await service.stop()
    await page.reload()
    await expect(page.locator("#banner-text")).to_contain_text("Not connected.")
    await expect(page.locator("#message")).to_be_focused()
    await say(page, "kept for later")
    await page.reload()
    await expect(page.locator("#banner-text")).to_contain_text("Not connected.")
    await service.start()
    await expect(page.locator("#state")).to_have_attribute("data-state", "open", timeout=20_000)
    await expect(lines(page, "bot").last).to_have_text("You said: kept for later")


async def test_an_update_shows_at_the_next_load_and_nothing_old_is_left(
    page, context, service, monkeypatch
):
    await installed(page)
    first = await page.evaluate("caches.keys()")
    load = http._load_assets

    def another(package: str) -> dict[str, http.Asset]:
        files = load(package)
        if package == "adapters.web":
            old = files["ways.js"]
            body = old.body + b"\ndocument.documentElement.dataset.version = 'two';\n"
            files["ways.js"] = http.Asset(body, old.content_type, "f" * 32)
        return files

    monkeypatch.setattr(http, "_load_assets", another)
    await service.stop()
    await service.start()
    for _ in range(2):
        await page.reload()
        await expect(page.locator("html")).to_have_attribute("data-version", "two")
    async with asyncio.timeout(60):
        while (names := await page.evaluate("caches.keys()")) == first or len(names) != 1:
            await page.evaluate("new Promise(requestAnimationFrame)")
    kept = await page.evaluate(KEPT)
    (script,) = [text for key, text in kept.items() if key.endswith("/static/ways.js")]
    assert "'two'" in script
    await service.stop()  # and the kept ones are the new ones, too
    await page.reload()
    await expect(page.locator("html")).to_have_attribute("data-version", "two")


async def test_the_browser_finds_it_fit_to_be_installed(page, context, service):
    client = await context.new_cdp_session(page)
    found = await client.send("Page.getAppManifest")
    assert found["errors"] == []
    assert json.loads(found["data"])["name"] == "Confidant"
    refused = await client.send("Page.getInstallabilityErrors")
    # A window that keeps nothing, as tests have it, is never offered to be installed.
    reasons = {each["errorId"] for each in refused["installabilityErrors"]}
    assert reasons <= {"in-incognito"}
    assert Path(found["url"]).name == "manifest.webmanifest"
