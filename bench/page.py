"""How light and how fast the chat page is in a real browser: `python -m bench page`.

Three programs run on this machine, one after another: on an empty folder, on folders with long
conversations, and on one with many. `CHROMIUM` names the browser.

- *Weight* is what the browser receives for the chat page with all it loads, compressed as it is
  sent, in a window that knows nothing of the page.
- *First paint* is the browser's own time of the first paint with content. In turn with it the
  browser opens a line of text of the same program: sooner than that it paints nothing.
- *Answer* is the time from Enter to the whole answer of a model that answers at once, as the page
  shows it; the first one also waits for what the program loads once.
- *Opened* is the time from asking for the page to its newest message, or to the list of
  conversations; *read back* is scrolling up until the first message is there.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from playwright.async_api import Browser, Page, async_playwright

from bench import quiet
from bench.large_store import build
from bot.app import App, Parts
from bot.clock import system_clock
from bot.settings import config_model
from bot.testing import ScriptedModel

LOADS = 20
OPENINGS = 5  # of a page with much in it
MESSAGES = (500, 5_000)
CONVERSATIONS = 5_000
GOAL_MS = 200.0  # of the first paint
GOAL_KB = 150.0  # of the chat page
TIMEOUT = 120_000.0  # ms
PAINTED = """() => new Promise(done => {
  const found = () => performance.getEntriesByName('first-contentful-paint')[0];
  if (found()) return done(found().startTime);
  new PerformanceObserver((_, seen) => found() && (seen.disconnect(), done(found().startTime)))
    .observe({type: 'paint', buffered: true});
})"""
# Presses "Show more", and waits until more are listed; false once all are.
MORE = """() => new Promise(done => {
  const more = document.getElementById('talks-more');
  if (more.hidden) return done(false);
  const list = document.getElementById('talks-list');
  new MutationObserver((_, seen) => (seen.disconnect(), done(true)))
    .observe(list, {childList: true, subtree: true});
  more.click();
})"""
OLDER = "document.getElementById('scroll').scrollTop = 0"


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table."""

    what: str
    found: str
    goal: str = ""
    is_met: bool = True


@asynccontextmanager
async def running(folder: Path) -> AsyncIterator[str]:
    """The program on a folder; the address of its page."""
    from adapters.web import plugin  # noqa: PLC0415 - only here

    plugins = {"web": plugin}
    data = {
        "storage": {"dir": folder, "backup_hours": 0},
        "memory": {"embedder": {"provider": "none"}, "watch": False},
        "dashboard": {"port": 0},
        "context": {"enable_memory_flush": False},
    }
    config = config_model(plugins).model_validate(data)
    async with App(config, plugins, Parts(remote=ScriptedModel())) as app:
        if app.address is None:
            raise RuntimeError("the page is not served")
        yield app.address.url


@asynccontextmanager
async def window(browser: Browser) -> AsyncIterator[Page]:
    """A window that knows nothing of the page, as wide as a laptop's."""
    context = await browser.new_context(
        viewport={"width": 1280, "height": 800}, service_workers="block"
    )
    page = await context.new_page()
    page.set_default_timeout(TIMEOUT)
    yield page
    await context.close()


async def paint(browser: Browser, url: str) -> float:
    """Milliseconds from asking for a page to its first paint."""
    async with window(browser) as page:
        await page.goto(url)
        return float(await page.evaluate(PAINTED))


async def weight(browser: Browser, url: str) -> tuple[int, int]:
    """Bytes over the wire for the chat page with all it loads, and how many answers they are."""
    async with window(browser) as page:
        session: Any = await page.context.new_cdp_session(page)
        sizes: list[float] = []
        await session.send("Network.enable")
        session.on(
            "Network.loadingFinished", lambda event: sizes.append(event["encodedDataLength"])
        )
        await page.goto(url, wait_until="networkidle")
        return int(sum(sizes)), len(sizes)


async def answers(browser: Browser, url: str, count: int) -> list[float]:
    """Milliseconds from Enter to each answer, one after another, the first one of all first."""
    found: list[float] = []
    async with window(browser) as page:
        await page.goto(url)
        await page.wait_for_selector("#state[data-state=open]")
        for number in range(count):
            await page.fill("#message", f"number {number}")
            began = time.perf_counter()
            await page.keyboard.press("Enter")
            answer = page.locator("#log .line.bot").filter(has_text=f"You said: number {number}")
            await answer.last.wait_for()
            found.append((time.perf_counter() - began) * 1000)
    return found


async def opened(browser: Browser, url: str, shows: str) -> float:
    """Milliseconds from asking for the page to what is to be shown there."""
    async with window(browser) as page:
        began = time.perf_counter()
        await page.goto(url, wait_until="commit")
        await page.locator(shows).last.wait_for()
        return (time.perf_counter() - began) * 1000


async def read_back(browser: Browser, url: str) -> tuple[float, int]:
    """Seconds of scrolling up to the first message, and how many lines are there then."""
    async with window(browser) as page:
        await page.goto(url)
        await page.locator("#log .line").last.wait_for()
        began = time.perf_counter()
        while await page.locator("#older").is_visible():
            await page.evaluate(OLDER)
            await page.evaluate("new Promise(requestAnimationFrame)")
        taken = time.perf_counter() - began
        return taken, await page.locator("#log .line").count()


async def light(browser: Browser, loads: int) -> list[Row]:
    """What the page weighs, and how soon it is there and answers."""
    with tempfile.TemporaryDirectory() as name:
        async with running(Path(name)) as url:
            await paint(browser, url)
            size, parts = await weight(browser, url)
            paints = [
                (await paint(browser, url), await paint(browser, f"{url}healthz"))
                for _ in range(loads)
            ]
            first, *others = await answers(browser, url, 1 + loads)
    pages, lines = [page for page, _ in paints], [line for _, line in paints]
    middle = statistics.median(pages)
    return [
        Row(
            f"over the wire, {parts} answers",
            f"{size / 1000:.1f} kB",
            f"≤ {GOAL_KB:g} kB",
            size <= GOAL_KB * 1000,
        ),
        Row(
            f"first paint, half of {loads} loads within",
            f"{middle:.0f} ms",
            f"≤ {GOAL_MS:g} ms",
            middle <= GOAL_MS,
        ),
        Row("first paint, the slowest", f"{max(pages):.0f} ms"),
        Row("first paint of a line of text, half within", f"{statistics.median(lines):.0f} ms"),
        Row("first answer after a start", f"{first:.0f} ms"),
        Row(f"answer, half of {loads} within", f"{statistics.median(others):.0f} ms"),
    ]


async def long(browser: Browser, messages: int, openings: int) -> list[Row]:
    """What one long conversation costs."""
    with tempfile.TemporaryDirectory() as name:
        await build(Path(name), 1, messages, system_clock(), owners=True)
        async with running(Path(name)) as url:
            found = [await opened(browser, url, "#log .line") for _ in range(openings)]
            seconds, lines = await read_back(browser, url)
            reply = statistics.median((await answers(browser, url, 1 + openings))[1:])
    title = f"{messages:,}".replace(",", "\u202f")
    return [
        Row(f"{title} messages: opened", f"{statistics.median(found):.0f} ms"),
        Row(f"{title} messages: read back, {lines} lines", f"{seconds:.1f} s"),
        Row(f"{title} messages: answer", f"{reply:.0f} ms"),
    ]


async def many(browser: Browser, conversations: int, openings: int) -> list[Row]:
    """What many conversations in the column cost."""
    shown = "#talks-list a[data-id]"
    with tempfile.TemporaryDirectory() as name:
        await build(Path(name), conversations, 4 * conversations, system_clock(), owners=True)
        async with running(Path(name)) as url:
            found = [await opened(browser, url, shown) for _ in range(openings)]
            async with window(browser) as page:
                await page.goto(url)
                await page.locator(shown).last.wait_for()
                began = time.perf_counter()
                while await page.evaluate(MORE):
                    pass
                seconds, listed = time.perf_counter() - began, await page.locator(shown).count()
            size, _ = await weight(browser, url)
    title = f"{conversations:,}".replace(",", "\u202f")
    return [
        Row(f"{title} conversations: column there", f"{statistics.median(found):.0f} ms"),
        Row(f"{title} conversations: over the wire", f"{size / 1000:.1f} kB"),
        Row(f"{title} conversations: all {listed} listed", f"{seconds:.1f} s"),
    ]


async def measure(loads: int) -> list[Row]:
    """Everything; with few loads only a little of it."""
    path = os.environ.get("CHROMIUM") or shutil.which("chromium") or "/usr/bin/chromium"
    is_quick = loads < OPENINGS
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=path, args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        rows = await light(browser, loads)
        for messages in MESSAGES[: 1 if is_quick else None]:
            rows += await long(browser, messages, min(loads, OPENINGS))
        rows += await many(browser, 100 if is_quick else CONVERSATIONS, min(loads, OPENINGS))
        await browser.close()
    return rows


def main(arguments: Sequence[str]) -> int:
    """Measure and print; 1 when a goal was missed."""
    quiet.logs()
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("loads", type=int, nargs="?", default=LOADS)
    rows = asyncio.run(measure(parser.parse_args(arguments).loads))
    print("| the chat page | | goal |")
    print("|---|---|---|")
    for row in rows:
        print(f"| {row.what} | {row.found} | {row.goal} |")
    return 0 if all(row.is_met for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
