"""The tools of the web in the whole engine: who has them, and what is loaded for whom."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Mapping
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from prometheus_client import generate_latest
from typer.testing import CliRunner

from bot.agent.models import Reply, Request, ToolSpec
from bot.agent.tools import ToolContext
from bot.agent.tools.web import search
from bot.agent.tools.web.search import SearchFailed
from bot.cli.main import cli
from bot.config import WebConfig
from bot.errors import ConfigError
from bot.files.opener import Document
from bot.messages import Message, ToolResult, ToolUse
from bot.settings import load
from bot.settings.checks import built_in_tools
from bot.testing import ScriptedModel
from tests.fakes import search_services
from tests.fakes.search_services import KEY, status
from tests.support import Engine, running, until

OWNER = {"owner": ("memory:ada",)}


class Unread:
    """A reader that nobody asks."""

    async def text(self, *_: str | bytes) -> Document:
        raise AssertionError


@pytest.fixture
async def services():
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


async def test_the_owner_searches_the_web_and_nobody_else(tmp_path, services):
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


async def test_the_owner_has_a_page_read_and_nobody_else(tmp_path):
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


async def test_an_internal_host_that_is_none_stops_the_start(tmp_path):
    with pytest.raises(ConfigError, match=r"internal_hosts: \"a b\" is no host"):
        async with running(tmp_path, web={"fetch": True, "internal_hosts": ("a b",)}):
            pass


async def test_the_configured_service_is_asked(services):
    for name, key in (("searxng", None), ("brave", KEY), ("tavily", KEY)):
        config = WebConfig.model_validate(
            {"search": name, "search_key": key, "search_url": f"{services.base_url}/{name}"}
        )
        service = search.service_of(config)
        assert service is not None
        services.asked.clear()
        with suppress(SearchFailed):
            await service.search("a", 2)
        assert len(services.asked) == 1
        assert key is None or KEY in str(services.asked)


def test_public_engines_are_asked_where_they_are_configured(monkeypatch):
    config = WebConfig(search="ddgs")
    assert isinstance(search.service_of(config), search.Ddgs)
    assert [tool.spec.name for tool in search.tools_of(config, Unread(), AsyncExitStack())] == [
        "web_search"
    ]
    monkeypatch.setitem(sys.modules, "ddgs", None)
    assert [tool.spec.name for tool in search.tools_of(config, Unread(), AsyncExitStack())] == [
        "web_search"
    ]


def test_without_it_nothing_of_the_web_is_there():
    stack = AsyncExitStack()
    assert list(search.tools_of(WebConfig(), Unread(), stack)) == []


def test_a_program_that_searches_loads_no_engine_itself():
    code = "import sys, bot.agent.tools.web.search; print('ddgs' in sys.modules)"
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
def test_what_cannot_work_is_told_at_once(tmp_path, web, words):
    assert words in told(tmp_path, web)


@pytest.mark.usefixtures("logs_stay")
async def test_doctor_says_whether_the_web_can_be_searched(tmp_path, services):
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
def test_doctor_says_that_the_package_is_missing(tmp_path, monkeypatch):
    monkeypatch.setattr("bot.agent.tools.web.search.ddgs_is_installed", lambda: False)
    assert " -m pip install 'confidant-bot[search]'" in told(tmp_path, 'search = "ddgs"')


@pytest.mark.usefixtures("logs_stay")
def test_doctor_says_what_is_read(tmp_path):
    assert "✓ web_fetch reads public addresses\n" in told(tmp_path, "fetch = true")
    hosts = 'fetch = true\ninternal_hosts = ["wiki.example", "10.0.0.7:8080"]'
    assert "on this network, 10.0.0.7, wiki.example" in told(tmp_path, hosts)


def test_a_key_is_read_from_the_environment(tmp_path):
    prefix = "CONFIDANT_TOOLS__WEB__SEARCH"
    loaded = load(None, {prefix: "brave", f"{prefix}_KEY": KEY}, tmp_path)
    assert loaded.config.tools.web.search_key is not None
    assert KEY not in repr(loaded.config)


DEN: dict[str, Any] = {"chat": "den", "chat_type": "group", "mentions_bot": True}
OPEN = {"memory": {"group_policy": "open"}}
SECRET = "quinces-in-september"
BUILT_IN = [name for name in built_in_tools() if not name.startswith("web_")]
# Rooms have no memory by default.
IN_ROOMS = ["artifact_get", "reminders", "schedule_message", "send_file", "write_elsewhere"]


class Lamp:
    """A tool of somebody's own."""

    def __init__(self) -> None:
        self.calls: list[Mapping[str, Any]] = []

    @property
    def spec(self) -> ToolSpec:
        return ToolSpec("lamp", "Switch a lamp.", {"type": "object"})

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> str:
        self.calls.append(arguments)
        return "switched"


def calling(name: str = "lamp") -> ScriptedModel:
    """A model that calls a tool whenever it is asked to, and says what came of it."""

    def script(request: Request) -> str | Reply:
        last = request.messages[-1].blocks[-1]
        if isinstance(last, ToolResult):
            return last.text
        if "please" not in request.messages[-1].text:
            return "Hello."
        use = ToolUse(f"t{len(request.messages)}", name, {"which": SECRET})
        return Reply(Message("assistant", (use,)), "tool_use")

    return ScriptedModel(script)


def names(request: Request) -> list[str]:
    return [spec.name for spec in request.tools]


def refused(answer: str) -> bool:
    return answer.startswith("Error: this tool may not be used here")


async def ask_in_den(engine: Engine, text: str, sender: str) -> str:
    before = len(engine.sent_to("den"))
    await engine.say(text, sender=sender, **DEN)
    await engine.channel.wait_until(lambda _: len(engine.sent_to("den")) > before)
    return engine.sent_to("den")[before]


async def test_without_a_rule_it_is_the_owners_in_direct_chats_and_nobody_elses(tmp_path):
    lamp, model = Lamp(), calling()
    async with running(
        tmp_path, model=model, tools=(lamp,), session=OWNER, channels=OPEN
    ) as engine:
        assert await engine.ask("the lamp, please") == "switched"
        assert names(model.requests[-1]) == sorted([*BUILT_IN, "lamp"])
        assert refused(await engine.ask("the lamp, please", sender="bob"))
        assert names(model.requests[-1]) == BUILT_IN
        for sender in ("ada", "bob"):
            assert refused(await ask_in_den(engine, "the lamp, please", sender))
            assert names(model.requests[-1]) == IN_ROOMS
    assert lamp.calls == [{"which": SECRET}]


async def test_a_rule_gives_it_to_a_person_in_a_room_and_to_nobody_else_there(tmp_path):
    lamp, model = Lamp(), calling()
    rule = {"action": "allow", "tools": ("lamp",), "person": "memory:bob", "chat": "den"}
    async with running(
        tmp_path, model=model, tools=(lamp,), session=OWNER, channels=OPEN, tool_rules=[rule]
    ) as engine:
        assert await ask_in_den(engine, "the lamp, please", "bob") == "switched"
        assert refused(await ask_in_den(engine, "the lamp, please", "eve"))
        assert refused(await engine.ask("the lamp, please", sender="bob"))
    assert len(lamp.calls) == 1


async def test_who_is_answered_together_with_others_gets_nothing_that_they_may_not_use(tmp_path):
    lamp, model = Lamp(), calling()
    model.gate = asyncio.Event()
    rule = {"action": "allow", "tools": ("lamp",), "person": "memory:bob"}
    queue = {"mode": "collect", "debounce": 0}
    async with running(
        tmp_path,
        model=model,
        tools=(lamp,),
        session={**OWNER, "queue": queue},
        channels=OPEN,
        tool_rules=[rule],
    ) as engine:
        await engine.say("hello", sender="bob", **DEN)
        await model.started.wait()
        await engine.say("switch it off", sender="eve", **DEN)
        await engine.say("yes, please", sender="bob", **DEN)
        model.gate.set()
        await engine.channel.wait_until(lambda _: len(engine.sent_to("den")) == 2)
        assert refused(engine.sent_to("den")[1])
        assert "lamp" in names(model.requests[0])
        assert names(model.requests[1]) == IN_ROOMS
    assert lamp.calls == []


async def test_rules_know_the_name_of_every_built_in_tool(tmp_path):
    web = {"fetch": True, "search": "searxng", "search_url": "http://127.0.0.1:9"}
    owner = {"owner": ["memory:ada"]}
    async with running(tmp_path, web=web, session=owner) as engine:
        await engine.ask("hello")
        offered = sorted(tool.name for tool in engine.model.requests[-1].tools)
        assert offered == built_in_tools()


async def test_a_rule_can_take_a_built_in_tool_away(tmp_path):
    model = calling("memory_write")
    rule = {"action": "deny", "tools": ("memory_*",), "sender": "bob"}
    async with running(tmp_path, model=model, session=OWNER, tool_rules=[rule]) as engine:
        assert refused(await engine.ask("keep it, please", sender="bob"))
        kept = [name for name in BUILT_IN if not name.startswith("memory_")]
        assert names(model.requests[-1]) == kept
        assert not refused(await engine.ask("keep it, please"))


async def test_the_list_keeps_its_bytes_and_new_rules_count_in_a_conversation_that_goes_on(
    tmp_path,
):
    lamp, model = Lamp(), calling()
    sections: dict[str, Any] = {"session": OWNER, "channels": OPEN}
    deny = {"action": "deny", "tools": ("lamp",)}
    async with running(tmp_path, model=model, tools=(lamp,), **sections) as engine:
        await engine.ask_each("hello", "hello again")
    async with running(
        tmp_path, model=model, tools=(lamp,), clock=engine.clock, **sections
    ) as engine:
        await engine.ask("and again")
        first, *others = model.requests
        assert "lamp" in names(first)
        assert [(each.system, each.tools) for each in others] == [(first.system, first.tools)] * 2
    async with running(
        tmp_path, model=model, tools=(lamp,), clock=engine.clock, tool_rules=[deny], **sections
    ) as engine:
        assert refused(await engine.ask("the lamp, please"))
        assert names(model.requests[-1]) == BUILT_IN
        assert len(model.requests[-1].messages) > 4  # the conversation goes on
    async with running(
        tmp_path, model=model, tools=(lamp,), clock=engine.clock, **sections
    ) as engine:
        assert await engine.ask("the lamp, please") == "switched"
        again = model.requests[-1]
        assert (again.system, again.tools) == (first.system, first.tools)
    assert len(lamp.calls) == 1


async def test_people_who_take_turns_in_a_room_each_have_a_prefix_that_stays(tmp_path):
    model = calling()
    rule = {"action": "allow", "tools": ("lamp",), "person": "memory:bob"}
    async with running(
        tmp_path, model=model, tools=(Lamp(),), channels=OPEN, tool_rules=[rule]
    ) as engine:
        for sender in ("bob", "eve", "bob", "eve"):
            await ask_in_den(engine, "hello", sender)
        begins = [(each.system, each.tools) for each in model.requests]
        assert begins[:2] == begins[2:]
        assert begins[0] != begins[1]


async def test_a_call_leaves_a_line_in_the_transcript_and_a_number_without_its_arguments(tmp_path):
    async with running(tmp_path, model=calling(), tools=(Lamp(),), session=OWNER) as engine:
        await engine.ask("the lamp, please")
        await engine.ask("the lamp, please", sender="bob")
        numbers = generate_latest(engine.app.core.metrics.registry).decode()
        transcripts = tmp_path / "sessions"
        await until(
            lambda: any("tool_result" in f.read_text() for f in transcripts.rglob("*.jsonl"))
        )
    said = "".join(file.read_text() for file in transcripts.rglob("*.jsonl"))
    assert said.count('"name":"lamp"') == 2
    assert SECRET in said
    assert 'confidant_tool_calls_total{result="done",tool="lamp"} 1.0' in numbers
    assert 'confidant_tool_calls_total{result="not_given",tool="lamp"} 1.0' in numbers
    assert SECRET not in numbers


async def test_a_name_that_a_model_makes_up_is_no_label(tmp_path):
    async with running(tmp_path, model=calling(SECRET), session=OWNER) as engine:
        assert "there is no tool by that name" in await engine.ask("please")
        numbers = generate_latest(engine.app.core.metrics.registry).decode()
    assert 'confidant_tool_calls_total{result="unknown",tool="unknown"} 1.0' in numbers
    assert SECRET not in numbers


# --- /tools ---------------------------------------------------------------------------------------


async def test_tools_shows_what_is_there(tmp_path):
    async with running(tmp_path, tools=(Lamp(),), session=OWNER, channels=OPEN) as engine:
        owner, bob = await engine.ask("/tools"), await engine.ask("/tools", sender="bob")
        assert "- `lamp`: Switch a lamp." in owner
        assert "- `memory_write`: saving to memory" in owner
        assert "lamp" not in bob
        assert "- `memory_write`" in bob
        chinese = await engine.ask("/工具", sender="li", locale="zh")
        assert "- `memory_write`: 写入记忆" in chinese


async def test_the_owner_is_told_which_rule_takes_a_tool_away(tmp_path):
    rules = [{"action": "allow", "tools": ("x",)}, {"action": "deny", "tools": ("lamp",)}]
    async with running(tmp_path, tools=(Lamp(),), session=OWNER, tool_rules=rules) as engine:
        assert "- `lamp`: not here, because of rule 2 in `[[tools.rules]]`" in await engine.ask(
            "/tools"
        )
        assert "lamp" not in await engine.ask("/tools", sender="bob")


async def test_in_a_room_others_are_told_to_the_owner_by_their_number(tmp_path):
    async with running(tmp_path, tools=(Lamp(),), session=OWNER, channels=OPEN) as engine:
        owner = await ask_in_den(engine, "/tools", "ada")
        assert "1 more can't be used in this room." in owner
        assert "lamp" not in owner
        assert "can't be used in this room" not in await ask_in_den(engine, "/tools", "bob")


async def test_many_tools_are_named_in_part_and_none_at_all_is_said(tmp_path):
    class Numbered(Lamp):
        def __init__(self, number: int) -> None:
            super().__init__()
            self._number = number

        @property
        def spec(self) -> ToolSpec:
            words = "" if self._number else "x" * 1_000
            return ToolSpec(f"a{self._number:03}", words, {"type": "object"})

    many = tuple(Numbered(number) for number in range(100))
    rules = [{"action": "deny", "sender": "bob"}]
    async with running(tmp_path, tools=many, session=OWNER, tool_rules=rules) as engine:
        shown = await engine.ask("/tools")
        assert shown.count("- `a") == 60
        assert f"- … and {100 + len(BUILT_IN) - 60} more" in shown
        assert f"- `a000`: {'x' * 99}…\n- `a001`\n" in shown
        assert await engine.ask("/tools", sender="bob") == "I can't use any tools here."
