"""`web_search` without a key: the real package, in its process, and engines of this machine."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bot.agent.tools.web.ddgs import Ddgs
from bot.agent.tools.web.search import Hit, SearchFailed
from tests.fakes import search_engines
from tests.fakes.search_engines import AUTHORITY, SearchEngines


@pytest.fixture
async def engines(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[SearchEngines]:
    async with search_engines.running() as found:
        monkeypatch.setenv("DDGS_PROXY", found.url)
        monkeypatch.setenv("SSL_CERT_FILE", str(AUTHORITY))
        yield found


async def test_what_the_engines_find_is_found(engines: SearchEngines):
    assert set(await Ddgs().search("größe & sinn", 5)) == {
        Hit("Rust", "https://rust.example/book", "A language for systems."),
        Hit("Rust: questions", "https://rust.example/faq", "Answers."),
    }
    assert ("html.duckduckgo.com", "größe & sinn") in engines.asked


@pytest.mark.parametrize("status", [200, 202, 403, 429, 500])
async def test_engines_that_answer_nothing_are_told(status: int, engines: SearchEngines):
    engines.pages, engines.status = {}, status
    with pytest.raises(SearchFailed, match="found nothing, or refuse"):
        await Ddgs().search("a", 5)


async def test_no_way_to_the_engines_is_told(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DDGS_PROXY", "http://127.0.0.1:1")
    with pytest.raises(SearchFailed, match="none of the search engines answers"):
        await Ddgs().search("a", 5)


async def test_a_package_that_is_not_there_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    shadow = tmp_path / "ddgs.py"
    shadow.write_text("raise ImportError")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(SearchFailed, match=r"install confidant-bot\[search\]"):
        await Ddgs().search("a", 5)
