"""What was forgotten goes from every page that is open, whoever had it forgotten, and however."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bot.cli import memory as cli
from tests.fakes import postgres
from tests.fakes.page_nodes import page_from_files, page_nodes
from tests.fakes.page_people import Browser, browser
from tests.fakes.push_service import PushService
from tests.fakes.web_pages import Page
from tests.support import PATIENCE, Engine

WORDS = "harbour code"


@asynccontextmanager
async def open_page(folder: Path) -> AsyncIterator[tuple[Engine, Browser]]:
    async with page_from_files(folder) as engine, browser(engine) as owner:
        await owner.log_in()
        yield engine, owner


async def say(page: Page, text: str, id_: str) -> dict[str, Any]:
    """Say something, and wait for its answer."""
    await page.say(type="send", id=id_, text=text)
    return await page.until("message")


async def in_the_chat(owner: Browser, folder: Path) -> None:
    async with owner.chat() as page:
        await say(page, f"/memory forget {WORDS}", "f1")
        await say(page, "/memory forget yes", "f2")


async def in_the_page(owner: Browser, folder: Path) -> None:
    status, _ = await owner.post("/memory/forgotten", words=WORDS)
    assert status == 303


async def in_a_terminal(owner: Browser, folder: Path) -> None:
    config = folder / "terminal.toml"  # without the channel of tests
    config.write_text('[memory.embedder]\nprovider = "none"\n')
    await asyncio.to_thread(cli.forget, WORDS.split(" "), config, yes=True)


WAYS = [in_the_chat, in_the_page, in_a_terminal]


@pytest.mark.usefixtures("logs_stay")
@pytest.mark.parametrize("forget", WAYS)
async def test_no_open_page_shows_what_was_forgotten(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    forget: Callable[[Browser, Path], Awaitable[None]],
):
    monkeypatch.setenv("CONFIDANT_STORAGE__DIR", str(tmp_path / "data"))
    async with open_page(tmp_path) as (_, owner), owner.chat() as page:
        await say(page, f"my {WORDS} is 4711", "m1")
        await say(page, "and the cat is grey", "m2")
        async with asyncio.timeout(PATIENCE):
            _, shown = await asyncio.gather(forget(owner, tmp_path), page.until("forgotten"))
        assert WORDS not in str(shown)
        lines = {line["id"]: line["text"] for line in shown["items"]}
        assert (lines["m1"], lines["m2"]) == ("", "and the cat is grey")
        assert any("cat is grey" in text for id_, text in lines.items() if id_ != "m2")


async def test_what_another_person_forgets_moves_no_page(tmp_path: Path):
    async with open_page(tmp_path) as (engine, owner), browser(engine) as ada:
        await ada.post("/enter", key=await owner.link("ada"))
        async with owner.chat() as page, ada.chat() as hers:
            await say(page, f"my {WORDS} is 4711", "m1")
            await say(hers, f"my {WORDS} is 4712", "m1")
            await in_the_page(ada, tmp_path)
            assert WORDS not in str(await hers.until("forgotten"))
            await say(page, "still there?", "m2")
            assert "forgotten" not in {frame["type"] for frame in page.frames}


async def test_a_page_beside_the_chat_is_told_of_that_alone(tmp_path: Path):
    async with (
        open_page(tmp_path) as (_, owner),
        owner.chat() as page,
        owner.client.ws_connect("/chat/ws") as ws,
    ):
        quiet = Page(ws)
        await quiet.say(type="hello", version=1, format="none")
        await quiet.say(type="models")  # whoever asks is answered
        await quiet.until("models")
        await say(page, f"my {WORDS} is 4711", "m1")
        await in_the_page(owner, tmp_path)
        assert await quiet.until("forgotten") == {"type": "forgotten"}
        assert len(quiet.frames) == 2


@pytest.mark.slow
async def test_what_is_forgotten_at_one_node_goes_from_pages_at_the_other(
    postgres_admin_url: str, tmp_path: Path
):
    async with AsyncExitStack() as stack:
        service = await stack.enter_async_context(PushService().served())
        url = stack.enter_context(postgres.a_database(postgres_admin_url))
        nodes = await stack.enter_async_context(page_nodes(url, tmp_path, service))
        owner = await stack.enter_async_context(nodes.browser())
        await owner.here.log_in()
        page = await stack.enter_async_context(owner.there.chat())
        await say(page, f"my {WORDS} is 4711", "m1")
        await in_the_page(owner.here, tmp_path)
        async with asyncio.timeout(PATIENCE):
            shown = await page.until("forgotten")
        assert {line["text"] for line in shown["items"] if line["id"] == "m1"} == {""}
