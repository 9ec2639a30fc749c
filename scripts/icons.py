"""Draws the icons of the installed page from its mark: `python scripts/icons.py`, with Chromium."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from playwright.sync_api import sync_playwright

ROOT = Path(__file__).parents[1]
MARK = ROOT / "adapters/web/static/favicon.svg"
INTO = ROOT / "bot/dashboard/static"
PAPER = "#f7f6f3"  # `--paper` of base.css
# Name, width in pixels, how much of it the mark takes, what is behind it. Of an icon that may be
# cut to any shape only the circle in the middle, four fifths wide, is sure to be seen.
ICONS = (
    ("icon-192.png", 192, 1.0, "transparent"),
    ("icon-512.png", 512, 1.0, "transparent"),
    ("icon-maskable.png", 512, 0.6, PAPER),
)


def main() -> None:
    """Draw each of them."""
    path = os.environ.get("CHROMIUM") or shutil.which("chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        for name, width, share, behind in ICONS:
            page = browser.new_page(viewport={"width": width, "height": width})
            page.set_content(
                f"<style>body{{margin:0;height:100vh;display:grid;place-items:center;"
                f"background:{behind}}}svg{{width:{share:.0%};height:{share:.0%}}}</style>"
                + MARK.read_text("utf-8")
            )
            page.screenshot(path=INTO / name, omit_background=True)
        browser.close()


if __name__ == "__main__":
    main()
