"""Tools through the whole engine: who is offered what, who may call it, and what is told of it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from prometheus_client import generate_latest

from bot.agent.models import Reply, Request, ToolSpec
from bot.agent.tools import ToolContext
from bot.messages import Message, ToolResult, ToolUse
from bot.settings.checks import BUILT_IN_TOOLS
from bot.testing import ScriptedModel
from tests.support import Engine, running, until

OWNER = {"owner": ("memory:ada",)}
DEN: dict[str, Any] = {"chat": "den", "chat_type": "group", "mentions_bot": True}
OPEN = {"memory": {"group_policy": "open"}}
SECRET = "quinces-in-september"
BUILT_IN = [
    "artifact_get",
    "memory_get",
    "memory_search",
    "memory_write",
    "schedule_message",
    "transcript_search",
]


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


async def test_without_a_rule_it_is_the_owners_in_direct_chats_and_nobody_elses(tmp_path: Path):
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
            assert names(model.requests[-1]) == BUILT_IN
    assert lamp.calls == [{"which": SECRET}]


async def test_a_rule_gives_it_to_a_person_in_a_room_and_to_nobody_else_there(tmp_path: Path):
    lamp, model = Lamp(), calling()
    rule = {"action": "allow", "tools": ("lamp",), "person": "memory:bob", "chat": "den"}
    async with running(
        tmp_path,
        model=model,
        tools=(lamp,),
        session=OWNER,
        channels=OPEN,
        tool_rules=[rule],
    ) as engine:
        assert await ask_in_den(engine, "the lamp, please", "bob") == "switched"
        assert refused(await ask_in_den(engine, "the lamp, please", "eve"))
        assert refused(await engine.ask("the lamp, please", sender="bob"))
    assert len(lamp.calls) == 1


async def test_who_is_answered_together_with_others_gets_nothing_that_they_may_not_use(
    tmp_path: Path,
):
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
        assert names(model.requests[1]) == BUILT_IN
    assert lamp.calls == []


async def test_rules_know_the_name_of_every_built_in_tool(tmp_path: Path):
    web = {"fetch": True, "search": "searxng", "search_url": "http://127.0.0.1:9"}
    owner = {"owner": ["memory:ada"]}
    async with running(tmp_path, web=web, session=owner) as engine:
        await engine.ask("hello")
        offered = sorted(tool.name for tool in engine.model.requests[-1].tools)
        assert offered == list(BUILT_IN_TOOLS)


async def test_a_rule_can_take_a_built_in_tool_away(tmp_path: Path):
    model = calling("memory_write")
    rule = {"action": "deny", "tools": ("memory_*",), "sender": "bob"}
    async with running(tmp_path, model=model, session=OWNER, tool_rules=[rule]) as engine:
        assert refused(await engine.ask("keep it, please", sender="bob"))
        assert names(model.requests[-1]) == [
            "artifact_get",
            "schedule_message",
            "transcript_search",
        ]
        assert not refused(await engine.ask("keep it, please"))


async def test_the_list_keeps_its_bytes_and_new_rules_count_in_a_conversation_that_goes_on(
    tmp_path: Path,
):
    lamp, model = Lamp(), calling()
    sections: dict[str, Any] = {"session": OWNER, "channels": OPEN}
    deny = {"action": "deny", "tools": ("lamp",)}
    async with running(tmp_path, model=model, tools=(lamp,), **sections) as engine:
        await engine.ask("hello")
        await engine.ask("hello again")
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


async def test_people_who_take_turns_in_a_room_each_have_a_prefix_that_stays(tmp_path: Path):
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


async def test_a_call_leaves_a_line_in_the_transcript_and_a_number_without_its_arguments(
    tmp_path: Path,
):
    async with running(tmp_path, model=calling(), tools=(Lamp(),), session=OWNER) as engine:
        await engine.ask("the lamp, please")
        await engine.ask("the lamp, please", sender="bob")
        numbers = generate_latest(engine.app.metrics.registry).decode()
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


async def test_a_name_that_a_model_makes_up_is_no_label(tmp_path: Path):
    async with running(tmp_path, model=calling(SECRET), session=OWNER) as engine:
        assert "there is no tool by that name" in await engine.ask("please")
        numbers = generate_latest(engine.app.metrics.registry).decode()
    assert 'confidant_tool_calls_total{result="unknown",tool="unknown"} 1.0' in numbers
    assert SECRET not in numbers


# --- /tools ---------------------------------------------------------------------------------------


async def test_tools_shows_what_is_there(tmp_path: Path):
    async with running(tmp_path, tools=(Lamp(),), session=OWNER, channels=OPEN) as engine:
        owner, bob = await engine.ask("/tools"), await engine.ask("/tools", sender="bob")
        assert "- `lamp`: Switch a lamp." in owner
        assert "- `memory_write`: keeping something in the memory" in owner
        assert "lamp" not in bob
        assert "- `memory_write`" in bob
        chinese = await engine.ask("/工具", sender="li", locale="zh")
        assert "- `memory_write`: 把事情记下来" in chinese


async def test_the_owner_is_told_which_rule_takes_a_tool_away(tmp_path: Path):
    rules = [{"action": "allow", "tools": ("x",)}, {"action": "deny", "tools": ("lamp",)}]
    async with running(tmp_path, tools=(Lamp(),), session=OWNER, tool_rules=rules) as engine:
        assert "- `lamp`: not here, rule 2 of `[[tools.rules]]` says so" in await engine.ask(
            "/tools"
        )
        assert "lamp" not in await engine.ask("/tools", sender="bob")


async def test_in_a_room_others_are_told_to_the_owner_by_their_number(tmp_path: Path):
    async with running(tmp_path, tools=(Lamp(),), session=OWNER, channels=OPEN) as engine:
        owner = await ask_in_den(engine, "/tools", "ada")
        assert "Others are not for this room: 1." in owner
        assert "lamp" not in owner
        assert "not for this room" not in await ask_in_den(engine, "/tools", "bob")


async def test_many_tools_are_named_in_part_and_none_at_all_is_said(tmp_path: Path):
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
        assert await engine.ask("/tools", sender="bob") == "I can use no tools here."
