"""The tools of the web in the whole engine: who has them, and what is loaded for whom."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import pytest
from aiohttp import web
from typer.testing import CliRunner

from bot.agent.models import Reply, Request
from bot.agent.tools.web import ddgs, setup
from bot.agent.tools.web.search import SearchFailed
from bot.cli.main import cli
from bot.config import WebConfig
from bot.errors import ConfigError
from bot.files.reading import Document
from bot.messages import Message, ToolResult, ToolUse
from bot.settings import load
from bot.testing import ScriptedModel
from tests.fakes import search_services
from tests.fakes.search_services import KEY, SearchServices, status
from tests.support import running

OWNER = {"owner": ("memory:ada",)}


class Unread:
    """A reader that nobody asks."""

    async def text(self, *_: str | bytes) -> Document:
        raise AssertionError


@pytest.fixture
async def services() -> AsyncIterator[SearchServices]:
    async with search_services.running() as found:
        yield found


def searching() -> ScriptedModel:
    def script(request: Request) -> str | Reply:
        last = request.messages[-1].blocks[-1]
        if isinstance(last, ToolResult):
            return last.text
        use = ToolUse(f"t{len(request.messages)}", "web_search", {"query": "languages"})
        return Reply(Message("assistant", (use,)), "tool_use")

    return ScriptedModel(script)


async def test_the_owner_searches_the_web_and_nobody_else(tmp_path: Path, services: SearchServices):
    model = searching()
    settings = {"search": "tavily", "search_key": KEY, "search_url": f"{services.base_url}/tavily"}
    async with running(tmp_path, model=model, session=OWNER, web=settings) as engine:
        assert "https://rust.example/book" in await engine.ask("which languages are there?")
        assert "may not be used here" in await engine.ask("and which else?", sender="bob")
    offered = [[spec.name for spec in request.tools] for request in model.requests]
    assert ["web_search" in names for names in offered] == [True, True, False, False]
    assert len(services.asked) == 1


async def page(_request: web.Request) -> web.StreamResponse:
    sorts = ("Early", "Smooth", "Portuguese", "Serbian", "Turkish", "Late")
    words = "".join(
        f"<p>{each} quinces keep for months where it is cool and dry.</p>" for each in sorts
    )
    html = f"<html><nav><a href='/'>Menu</a></nav><main><h1>Quinces</h1>{words}</main></html>"
    return web.Response(text=html, content_type="text/html")


async def test_the_owner_has_a_page_read_and_nobody_else(tmp_path: Path):
    site = web.Application()
    site.router.add_get("/quinces", page)
    runner = web.AppRunner(site, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    port = runner.addresses[0][1]
    url = f"http://localhost:{port}/quinces"

    def script(request: Request) -> str | Reply:
        last = request.messages[-1].blocks[-1]
        if isinstance(last, ToolResult):
            return last.text
        use = ToolUse(f"t{len(request.messages)}", "web_fetch", {"url": url})
        return Reply(Message("assistant", (use,)), "tool_use")

    model, settings = (
        ScriptedModel(script),
        {"fetch": True, "internal_hosts": (f"localhost:{port}",)},
    )
    try:
        async with running(tmp_path, model=model, session=OWNER, web=settings) as engine:
            assert "nowhere in this conversation" in await engine.ask("read the page")
            told = await engine.ask(f"read {url}, please")
            assert "> # Quinces" in told
            assert "Menu" not in told
            assert "may not be used here" in await engine.ask(f"read {url}", sender="bob")
    finally:
        await runner.cleanup()


async def test_an_internal_host_that_is_none_stops_the_start(tmp_path: Path):
    with pytest.raises(ConfigError, match=r"internal_hosts: \"a b\" is no host"):
        async with running(tmp_path, web={"fetch": True, "internal_hosts": ("a b",)}):
            pass


async def test_the_configured_service_is_asked(services: SearchServices):
    for name, key in (("searxng", None), ("brave", KEY), ("tavily", KEY)):
        config = WebConfig.model_validate(
            {"search": name, "search_key": key, "search_url": f"{services.base_url}/{name}"}
        )
        service = setup.service_of(config)
        assert service is not None
        services.asked.clear()
        with suppress(SearchFailed):
            await service.search("a", 2)
        assert len(services.asked) == 1
        assert key is None or KEY in str(services.asked)


def test_public_engines_are_asked_where_they_are_configured(monkeypatch: pytest.MonkeyPatch):
    config = WebConfig(search="ddgs")
    assert isinstance(setup.service_of(config), ddgs.Ddgs)
    assert [tool.spec.name for tool in setup.tools_of(config, Unread(), AsyncExitStack())] == [
        "web_search"
    ]
    monkeypatch.setitem(sys.modules, "ddgs", None)
    assert [tool.spec.name for tool in setup.tools_of(config, Unread(), AsyncExitStack())] == [
        "web_search"
    ]


def test_without_it_nothing_of_the_web_is_there():
    stack = AsyncExitStack()
    assert list(setup.tools_of(WebConfig(), Unread(), stack)) == []


def test_a_program_that_searches_loads_no_engine_itself():
    code = "import sys, bot.agent.tools.web.setup; print('ddgs' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


# --- what is checked before -----------------------------------------------------------------------


def told(folder: Path, web: str) -> str:
    """What `confidant doctor` says of `[tools.web]`."""
    path = folder / "confidant.toml"
    path.write_text(f'[storage]\ndir = "{folder / "data"}"\n[tools.web]\n{web}\n')
    done = CliRunner().invoke(cli, ["doctor", "--config", str(path)])
    return f"{done.output}{done.exception}"


@pytest.mark.parametrize(
    ("web", "words"),
    [
        ('search = "searxng"', '"searxng" needs search_url'),
        ('search = "brave"', '"brave" needs a key: set CONFIDANT_TOOLS__WEB__SEARCH_KEY'),
        ('search = "tavily"\nsearch_key = ""', '"tavily" needs a key'),
        ('search = "searxng"\nsearch_url = "search.example"', "is not an address"),
        ('search = "bing"', "searxng"),
    ],
)
@pytest.mark.usefixtures("logs_stay")
def test_what_cannot_work_is_told_at_once(tmp_path: Path, web: str, words: str):
    assert words in told(tmp_path, web)


@pytest.mark.usefixtures("logs_stay")
async def test_doctor_says_whether_the_web_can_be_searched(
    tmp_path: Path, services: SearchServices
):
    def look(search: str, key: str = KEY) -> str:
        url = f"{services.base_url}/{search}"
        return told(
            tmp_path, f'search = "{search}"\nsearch_url = "{url}"\nsearch_key = "{key}"'
        ).partition("web tools\n")[2]

    async def looked(*arguments: str) -> str:
        found = await asyncio.to_thread(look, *arguments)
        assert KEY not in found
        return found

    assert "✓ web_search: Brave Search answers" in await looked("brave")
    wrong = await looked("tavily", "wrong-key-0123")
    assert "✗ web_search: Tavily does not take the key" in wrong
    assert "wrong-key-0123" not in wrong
    services.answer = status(500)
    assert "✗ web_search: SearXNG failed (500)" in await looked("searxng")
    services.answer, services.pages = None, ()
    assert '! web_search: Brave Search finds nothing for "weather"' in await looked("brave")


@pytest.mark.usefixtures("logs_stay")
def test_doctor_says_that_the_package_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("bot.agent.tools.web.ddgs.is_installed", lambda: False)
    assert "pip install 'confidant-bot[search]'" in told(tmp_path, 'search = "ddgs"')


@pytest.mark.usefixtures("logs_stay")
def test_doctor_says_what_is_read(tmp_path: Path):
    assert "✓ web_fetch reads public addresses\n" in told(tmp_path, "fetch = true")
    hosts = 'fetch = true\ninternal_hosts = ["wiki.example", "10.0.0.7:8080"]'
    assert "and of this network 10.0.0.7, wiki.example" in told(tmp_path, hosts)


def test_a_key_is_read_from_the_environment(tmp_path: Path):
    prefix = "CONFIDANT_TOOLS__WEB__SEARCH"
    loaded = load(None, {prefix: "brave", f"{prefix}_KEY": KEY}, tmp_path)
    assert loaded.config.tools.web.search_key is not None
    assert KEY not in repr(loaded.config)
