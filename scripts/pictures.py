"""Take the pictures of the docs from the running program: `make pictures`.

The program runs on a free port over a small set of data that is always the same, with a model that
says what stands here; Chromium opens its pages, and PNGs go into docs/images/.
"""

from __future__ import annotations

import asyncio
import io
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Final

from PIL import Image
from playwright.async_api import Page, async_playwright

from adapters.web import plugin
from bot import money
from bot.agent.models import Usage
from bot.app import App, Parts
from bot.clock import DAY_MS, system_clock
from bot.money import Spent
from bot.settings import config_model
from bot.storage import Transaction
from bot.storage.sqlite import SqliteDatabase
from bot.testing import ScriptedModel

IMAGES: Final = Path(__file__).resolve().parents[1] / "docs" / "images"
MOST_BYTES: Final = 150_000  # of a picture
DAYS: Final = 30
MODELS: Final = ("anthropic/claude-sonnet-5-5", "anthropic/claude-haiku-5-5")
PEOPLE: Final = ("ada", "telegram:grace", "discord:edsger")
REPLY: Final = (
    "Your daughter is **allergic to peanuts**: you told me in spring, and I keep it in mind when "
    "we plan meals.\n\nFor Saturday I would suggest:\n\n1. tomato soup with bread\n"
    "2. pasta with lemon and peas\n3. strawberries"
)
NOTES: Final = {
    "MEMORY.md": "# What lasts\n\n- My daughter is allergic to peanuts.\n- We live by the sea.\n",
    "memory/2026-11-20.md": "- Dinner with the neighbours on Saturday.\n- Grace likes lemon.\n",
}


async def main() -> None:
    """Fill a folder, start the program there, and take the pictures."""
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        await _fill(folder)
        plugins = {"web": plugin}
        data = {
            "agent": {"model": "claude-sonnet-5-5"},
            "storage": {"dir": folder, "backup_hours": 0},
            "memory": {"embedder": {"provider": "none"}, "watch": False},
            "limits": {"in_all": {"day_usd": 1, "month_usd": 20}},
            "dashboard": {"port": 0},
        }
        config = config_model(plugins).model_validate(data)
        model = ScriptedModel(
            script=lambda asked: REPLY if asked.purpose == "chat" else "NO_REPLY",
        )
        async with App(config, plugins, Parts(remote=model)) as app:
            if app.address is None:
                raise RuntimeError("the page is not served")
            await _take(app.address.url)


async def _take(url: str) -> None:
    path = os.environ.get("CHROMIUM") or shutil.which("chromium") or "/usr/bin/chromium"
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        page = await browser.new_page(
            viewport={"width": 1120, "height": 760}, locale="en-GB", color_scheme="light"
        )
        await page.goto(url)
        await page.wait_for_selector("#state[data-state=open]")
        for asked in ("Plan the trip to Lisbon", "Which boat is faster?", "Where do herons nest?"):
            await _say(page, asked)
            await page.click("#fresh")
            await page.locator("#log .line.user").wait_for(state="detached")
        await page.reload()
        await page.wait_for_selector("#state[data-state=open]")
        await page.fill("#message", "What should I cook on Saturday?")
        await page.press("#message", "Enter")
        await page.wait_for_selector("#talks-list a[aria-current] >> text=What should I cook")
        await _keep(page, "chat")
        for name in ("memory", "usage", "overview"):
            await page.goto(f"{url}{name}")
            await _keep(page, name)
        await browser.close()


async def _say(page: Page, words: str) -> None:
    """Say something in the chat, and wait for the answer."""
    replies = page.locator("#log .line.bot:not(.draft)")
    count = await replies.count()
    await page.fill("#message", words)
    await page.press("#message", "Enter")
    await replies.nth(count).wait_for()


async def _keep(page: Page, name: str) -> None:
    """Write a picture, in few colours: that is enough for pages, and small."""
    drawn = Image.open(io.BytesIO(await page.screenshot())).convert("RGB")
    file = io.BytesIO()
    drawn.quantize(128).save(file, "PNG", optimize=True)
    if len(file.getvalue()) > MOST_BYTES:
        sys.exit(f"The picture {name} has {len(file.getvalue())} bytes, more than {MOST_BYTES}.")
    await asyncio.to_thread((IMAGES / f"{name}.png").write_bytes, file.getvalue())


async def _fill(folder: Path) -> None:
    """Notes, and a month of numbers."""
    for name, words in NOTES.items():
        file = folder / "workspace" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(words, "utf-8")
    database = await SqliteDatabase.open(folder / "confidant.db")
    now = system_clock()

    def write(tx: Transaction) -> None:
        for day in range(DAYS):
            at = now - day * DAY_MS - 60_000
            for number, person in enumerate(PEOPLE):
                much = (day * 7 + number * 5) % 11 + 2
                for place, model in enumerate(MODELS):
                    usage = Usage(900 * much, 60 * much, 4_000 * much * (2 - place), 200)
                    money.add(tx, Spent(person, "", model, "chat", usage), at)
                for each in range(much):
                    took = 900 + each * 350 + (day * 113) % 700
                    tx.execute(
                        "INSERT INTO inbox(channel, account, chat, thread, message_id, state, key, "
                        "body, received_at, done_at) "
                        "VALUES (?, 'default', ?, '', ?, 'done', '', '', ?, ?)",
                        (
                            ("web", "telegram", "discord")[number],
                            person,
                            f"{day}-{each}",
                            at - took,
                            at,
                        ),
                    )

    await database.write(write)
    await database.close()


if __name__ == "__main__":
    asyncio.run(main())
