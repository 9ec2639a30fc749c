"""Memory in the page, through the whole engine: each visitor reads and changes what is theirs."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from bot.dashboard import DashboardServer
from bot.dashboard.guard import COOKIE
from bot.identity.view import folder_name
from tests.fakes.web_pages import Chat
from tests.support import Engine, running

ADA = f"people/{folder_name('web:ada')}"
HOSTILE = "<script>alert(1)</script>"


@dataclass
class Browser:
    """Somebody's browser."""

    client: aiohttp.ClientSession
    url: str

    async def get(self, where: str, /, **query: str) -> tuple[int, str]:
        """A page: its status and text."""
        async with self.client.get(f"{self.url}{where}", params=query) as answer:
            return answer.status, await answer.text()

    async def seen(self, where: str, /, **query: str) -> str:
        """A page that is there."""
        status, text = await self.get(where, **query)
        assert status == 200, text
        return text


@dataclass
class House:
    """A running engine with pages, and browsers for it."""

    engine: Engine
    workspace: Path

    def write(self, path: str, text: str) -> None:
        file = self.workspace / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, "utf-8", newline="")

    @asynccontextmanager
    async def browser(self, name: str = "", language: str = "en") -> AsyncGenerator[Browser]:
        """The owner's, or that of somebody who was let in by this name."""
        assert self.engine.app.address is not None
        url = self.engine.app.address.url
        cookies = {COOKIE: f"let-in-as-{name}"} if name else {}
        headers = {"Accept-Language": language, "Accept": "text/html", "Origin": url.rstrip("/")}
        jar = aiohttp.CookieJar(unsafe=True)
        async with aiohttp.ClientSession(
            cookies=cookies, cookie_jar=jar, headers=headers
        ) as client:
            yield Browser(client, url)


@asynccontextmanager
async def house(
    folder: Path, monkeypatch: pytest.MonkeyPatch, **sections: Any
) -> AsyncGenerator[House]:
    serving = partial(DashboardServer, guest=Chat().guest)
    monkeypatch.setattr("bot.app.DashboardServer", serving)
    async with running(folder, serves=True, **sections) as engine:
        yield House(engine, folder / "workspace")


NOTE = """# Trip

Some words before.

- 14:03 Peanuts are off <!-- owner -->
- Prefers trains <!-- agent 2026-07-01 -->
  and night trains
- The code is 4711 <!-- untrusted -->
- by hand
- 15:00 ~~Likes planes~~ <!-- agent 2026-05-01, in MEMORY.md until 2026-07-01 -->
"""


async def test_a_visitor_sees_their_own_files_and_what_is_shared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async with house(tmp_path, monkeypatch) as it:
        it.write("memory/owners.md", "- mine\n")
        it.write(f"{ADA}/memory/adas.md", "- hers\n")
        it.write("people/bob/memory/bobs.md", "- his\n")
        it.write("shared/how-to.md", "- for all\n")
        async with it.browser() as owner, it.browser("ada") as ada:
            shown = await owner.seen("memory")
            hers = await ada.seen("memory")
            assert "owners.md" in shown
            assert "shared/how-to.md" in shown
            assert "adas.md" not in shown
            assert "bobs.md" not in shown
            assert "adas.md" in hers
            assert "owners.md" not in hers
            assert "shared/how-to.md" in hers
            for path in (
                "people/bob/memory/bobs.md",
                f"{ADA}/memory/adas.md",
                "../confidant.db",
                "/etc/passwd",
                "memory/../MEMORY.md",
                "AGENTS.md",
                "shared",
                "",
                "memory/none.md",
                "memory/a\0b.md",
                "memory/" + "x" * 5_000 + ".md",
            ):
                assert (await owner.get("memory/file", path=path))[0] == 404
                assert (await ada.get("memory/file", path=path))[0] == 404
            assert (await ada.get("memory/file", path="memory/owners.md"))[0] == 404


async def test_a_note_has_an_anchor_a_line_and_says_whose_words_it_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async with house(tmp_path, monkeypatch) as it:
        it.write("memory/2026-07-02.md", NOTE)
        async with it.browser() as owner:
            page = await owner.seen("memory/file", path="memory/2026-07-02.md")
    assert all(f'id="L{number}"' in page for number in (1, 3, 5, 6, 7, 8, 9, 10))
    assert "<h2>Trip</h2>" in page
    for words in ("said by you", "concluded", "from elsewhere", "written by hand"):
        assert words in page
    assert "no longer true since 2026-07-01" in page
    assert 'href="/memory/file?path=MEMORY.md"' in page
    assert "&lt;!--" not in page


async def test_hostile_names_and_words_are_only_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async with house(tmp_path, monkeypatch) as it:
        name = 'memory/"><img src=x onerror=alert(1)>.md'
        it.write(
            name, f"# {HOSTILE}\n\n- {HOSTILE} [x](javascript:alert(1)) ![y](http://e/x.png)\n"
        )
        it.write("memory/odd.md", "<!-- " * 50_000 + "- a\n" + "```\n# no heading\n")
        async with it.browser() as owner:
            listed = await owner.seen("memory")
            page = await owner.seen("memory/file", path=name)
            await owner.seen("memory/file", path="memory/odd.md")
    for text in (listed, page):
        assert "<script>alert" not in text
        assert "<img" not in text
        assert 'href="javascript:' not in text
        assert "style=" not in text


async def test_a_long_note_is_shown_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    async with house(tmp_path, monkeypatch) as it:
        it.write("memory/long.md", "".join(f"- entry {n}\n" for n in range(1, 2_501)))
        async with it.browser() as owner:
            first = await owner.seen("memory/file", path="memory/long.md")
            other = await owner.seen("memory/file", path="memory/long.md", line="1700")
            odd = await owner.seen("memory/file", path="memory/long.md", line="99999999999")
    assert 'id="L1000"' in first
    assert 'id="L1001"' not in first
    assert 'line=1001#L1001"' in first
    assert 'id="L1700"' in other
    assert 'id="L1000"' not in other
    assert 'id="L1"' in odd


async def test_what_was_saved_this_week_is_listed_by_day(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async with house(tmp_path, monkeypatch) as it:
        it.write("memory/2026-11-20.md", "- 10:00 Buys <b>boats</b> <!-- owner -->\n- by hand\n")
        it.write("MEMORY.md", "- Old <!-- agent 2026-01-01 -->\n- New <!-- agent 2026-11-21 -->\n")
        async with it.browser() as owner, it.browser(language="zh") as chinese:
            page = await owner.seen("memory")
            translated = await chinese.seen("memory")
    assert "Buys &lt;b&gt;boats" in page
    assert page.index("Saturday 2026-11-21") < page.index("Friday 2026-11-20")
    assert ">New</a>" in page.replace("\n", "")
    assert ">Old</a>" not in page
    assert "by hand</a>" not in page
    assert "星期六 2026-11-21" in translated
