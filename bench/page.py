"""How soon the chat page shows something: `python -m bench page`.

The program runs on an empty folder on this machine. A browser opens the page once, which is not
counted, and then again and again, each time in a window that knows nothing of it; what is measured
is the browser's own time of the first paint with content. In turn with it the browser opens a line
of text of the same program: sooner than that it paints nothing. `CHROMIUM` names the browser.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from playwright.async_api import Browser, async_playwright

from bench import quiet
from bot.app import App, Parts
from bot.settings import config_model
from bot.testing import ScriptedModel

LOADS = 20
GOAL_MS = 200.0
PAINTED = """() => new Promise(done => {
  const found = () => performance.getEntriesByName('first-contentful-paint')[0];
  if (found()) return done(found().startTime);
  new PerformanceObserver((_, seen) => found() && (seen.disconnect(), done(found().startTime)))
    .observe({type: 'paint', buffered: true});
})"""


async def paint(browser: Browser, url: str) -> float:
    """Milliseconds from asking for the page to its first paint."""
    context = await browser.new_context()
    page = await context.new_page()
    await page.goto(url)
    found: float = await page.evaluate(PAINTED)
    await context.close()
    return found


async def measure(loads: int) -> tuple[list[float], list[float]]:
    """The first paint of each load in milliseconds, and those of a line of text."""
    from adapters.web import plugin  # noqa: PLC0415 - only here

    plugins = {"web": plugin}
    path = os.environ.get("CHROMIUM") or shutil.which("chromium") or "/usr/bin/chromium"
    with tempfile.TemporaryDirectory() as name:
        data = {
            "storage": {"dir": Path(name), "backup_hours": 0},
            "memory": {"embedder": {"provider": "none"}, "watch": False},
            "dashboard": {"port": 0},
        }
        config = config_model(plugins).model_validate(data)
        async with App(config, plugins, Parts(remote=ScriptedModel())) as app:
            if app.address is None:
                raise RuntimeError("the page is not served")
            async with async_playwright() as playwright:
                browser = await playwright.chromium.launch(
                    executable_path=path, args=["--no-sandbox", "--disable-dev-shm-usage"]
                )
                url = app.address.url
                await paint(browser, url)
                found = [
                    (await paint(browser, url), await paint(browser, f"{url}healthz"))
                    for _ in range(loads)
                ]
                await browser.close()
    return [page for page, _ in found], [line for _, line in found]


def main(arguments: Sequence[str]) -> int:
    """Measure and print; 1 when the goal was missed."""
    quiet.logs()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("loads", type=int, nargs="?", default=LOADS)
    found, least = asyncio.run(measure(parser.parse_args(arguments).loads))
    middle = statistics.median(found)
    print(f"| first paint of the chat page, {len(found)} loads | | goal |")
    print("|---|---|---|")
    print(f"| half of them within | {middle:.0f} ms | ≤ {GOAL_MS:g} ms |")
    print(f"| the slowest | {max(found):.0f} ms | |")
    print(f"| half of the loads of a line of text | {statistics.median(least):.0f} ms | |")
    return 0 if middle <= GOAL_MS else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
