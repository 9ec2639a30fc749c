"""Tools: their parameters, how one is run, and what servers list."""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field

from bot.agent import tools
from bot.agent.models import ToolSpec
from bot.agent.tools import Parameters, Stripped, ToolContext, Words
from bot.agent.tools.mcp.servers import (
    MAX_DESCRIPTION,
    MAX_NAME,
    MAX_TOOLS,
    UNUSABLE,
    Offer,
    listing_of,
    reduced,
    schema_of,
)
from bot.agent.tools.memory import MemoryWrite
from bot.agent.tools.schedule_message import ScheduleMessage
from bot.agent.tools.toolbox import Toolbox
from bot.errors import NotVisible, ToolError
from bot.identity.view import MemoryView
from bot.messages import ToolResult, ToolUse
from bot.settings.checks import built_in_tools
from tests import odd


def specs() -> Iterator[ToolSpec]:
    """Those of all tools that come with the program."""
    for module in walk_packages(tools.__path__, "bot.agent.tools."):
        for found in vars(import_module(module.name)).values():
            if isinstance(found, type) and isinstance(spec := vars(found).get("spec"), ToolSpec):
                yield spec


SPECS = {spec.name: spec for spec in specs()}
ROOT = Path(__file__).resolve().parents[2]
# The only words of JSON Schema that are sent: every service with the Messages API knows them.
WORDS = {"type", "properties", "required", "additionalProperties"}
WORDS_OF_ONE = {"type", "description", "minimum", "maximum", "maxLength", "enum"}


def test_every_tool_that_comes_with_the_program_has_words_for_it_so_that_rules_know_it():
    assert built_in_tools() == sorted(SPECS)


@pytest.mark.parametrize("name", SPECS)
def test_every_tool_is_called_in_a_test(name: str):
    files = (path.read_text("utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    assert any(f'"{name}"' in text for text in files)


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_a_schema_has_only_what_every_service_knows(spec: ToolSpec):
    schema = spec.schema
    assert set(schema) | {"required"} == WORDS
    assert (schema["type"], schema["additionalProperties"]) == ("object", False)
    for one in schema["properties"].values():
        assert set(one) <= WORDS_OF_ONE
        assert one["description"].endswith(".")
        assert one["type"] != "string" or {"maxLength", "enum"} & set(one)


class Example(Parameters):
    """An example."""

    text: Words = Field(max_length=5, description="A text.")
    place: Stripped = Field("", max_length=5, description="A place.")
    first: int | None = Field(None, ge=1, le=9, alias="from", description="A number.")
    sure: bool = Field(False, description="A choice.")


def test_the_bytes_are_always_the_same():
    first, again = (orjson.dumps(Example.spec("example", "An example.").schema) for _ in range(2))
    assert first == again
    assert first == (
        b'{"type":"object","properties":{'
        b'"text":{"description":"A text.","maxLength":5,"type":"string"},'
        b'"place":{"description":"A place.","maxLength":5,"type":"string"},'
        b'"from":{"description":"A number.","maximum":9,"minimum":1,"type":"integer"},'
        b'"sure":{"description":"A choice.","type":"boolean"}},'
        b'"required":["text"],"additionalProperties":false}'
    )


def test_the_arguments_are_read():
    asked = Example.from_arguments({"text": " tea ", "place": " here", "from": 2.0, "sure": True})
    assert (asked.text, asked.place, asked.first, asked.sure) == (" tea ", "here", 2, True)
    asked = Example.from_arguments({"text": "tea", "place": None, "from": None})
    assert (asked.place, asked.first, asked.sure) == ("", None, False)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({}, "'text' is missing"),
        ({"text": None}, "'text' is missing"),
        ({"text": " \n"}, "'text' is empty"),
        ({"text": 5}, "'text' must be text"),
        ({"text": "\ud800"}, "'text' must be text"),
        ({"text": "123456"}, "'text' has 6 characters; at most 5 are taken"),
        ({"text": "a", "from": 10}, "'from' must be a whole number from 1 to 9"),
        ({"text": "a", "from": True}, "'from' must be a whole number from 1 to 9"),
        ({"text": "a", "from": "2"}, "'from' must be a whole number from 1 to 9"),
        ({"text": "a", "first": 2}, "there is an unknown argument; known: text, place, from, sure"),
        ({"text": "a", "sure": "yes"}, "'sure' must be true or false"),
        ({"from": 0, "sure": 1}, "'text' is missing; 'from' must be a whole number from 1 to 9; "),
    ],
)
def test_a_mistake_is_told_in_words(arguments: dict[str, Any], told: str):
    with pytest.raises(ToolError) as caught:
        Example.from_arguments(arguments)
    assert str(caught.value).startswith(told)
    assert len(str(caught.value)) < 200


@given(st.dictionaries(st.text(min_size=8), st.just(1), min_size=1, max_size=3))
def test_a_mistake_tells_nothing_that_was_made_up(arguments: dict[str, Any]):
    with pytest.raises(ToolError) as caught:
        Example.from_arguments({"text": "a", **arguments})
    assert str(caught.value) == "there is an unknown argument; known: text, place, from, sure"


@pytest.mark.parametrize(
    ("tool", "arguments", "told"),
    [
        (MemoryWrite, {"text": "a", "section": "b", "replaces": "c"},
         "give 'section' or 'replaces', not both"),
        (ScheduleMessage, {"text": "a"}, "give either 'at' or 'in_minutes'"),
        (ScheduleMessage, {"text": "a", "at": "2026-12-24", "in_minutes": 1},
         "give either 'at' or 'in_minutes'"),
    ],
)  # fmt: skip
async def test_what_does_not_go_together_is_told(tool: Any, arguments: dict[str, Any], told: str):
    made = tool.__new__(tool)  # its arguments are read before anything else
    with pytest.raises(ToolError) as caught:
        await made.run(arguments, None)
    assert str(caught.value) == told


@given(
    st.dictionaries(
        st.sampled_from(["text", "place", "from", "sure", "x"]),
        st.recursive(
            st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=9),
            lambda inner: st.lists(inner, max_size=2),
        ),
    )
)
def test_whatever_a_model_gives_is_read_or_refused(arguments: dict[str, Any]):
    try:
        asked = Example.from_arguments(arguments)
    except ToolError:
        return
    assert asked.text.strip()
    assert asked.first is None or 1 <= asked.first <= 9


SECRET = "what somebody said"
CONTEXT = ToolContext(MemoryView("", (), private=False), "s1", datetime(2026, 7, 1, tzinfo=UTC))


class Doing:
    """A tool that does what it is given."""

    def __init__(self, name: str, work: Callable[[], Awaitable[str]]) -> None:
        self.spec = ToolSpec(name, "", {"type": "object"}, built_in=True)
        self._work = work
        self.given: list[Mapping[str, Any]] = []

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> str:
        self.given.append(arguments)
        assert context is CONTEXT
        return await self._work()


def asked(name: str, **arguments: Any) -> ToolUse:
    return ToolUse("t", name, arguments)


async def well() -> str:
    return "done"


def raising(error: Exception) -> Callable[[], Awaitable[str]]:
    async def work() -> str:
        raise error

    return work


async def test_a_tools_answer_is_the_answer():
    tool = Doing("look", well)
    assert await Toolbox([tool]).run(asked("look", a=1), CONTEXT) == ToolResult("t", "done")
    assert tool.given == [{"a": 1}]


async def test_arguments_that_were_no_json_are_told_and_nothing_is_done():
    tool = Doing("look", well)
    answer = await Toolbox([tool]).run(ToolUse("t", "look", {}, garbled='{"a": '), CONTEXT)
    assert answer.is_error
    assert "no JSON object; nothing was done" in answer.text
    assert tool.given == []


def test_the_order_is_always_the_same():
    tools = [Doing(name, well) for name in ("b", "c", "a")]
    assert [spec.name for spec in Toolbox(tools).specs] == ["a", "b", "c"]
    assert Toolbox(tools).specs == Toolbox(reversed(tools)).specs


def test_two_tools_of_one_name_are_a_mistake():
    with pytest.raises(ValueError, match="same name"):
        Toolbox([Doing("a", well), Doing("a", well)])


def test_a_name_stays_with_the_tool_that_had_it_first():
    own, first, second = Doing("a", well), Doing("b", well), Doing("b", well)
    more: list[Doing] = [Doing("a", well), first, second, Doing("c", well)]
    toolbox = Toolbox([own], more=lambda: tuple(more))
    assert toolbox.left_out == ("a", "b")
    assert [spec.name for spec in toolbox.specs] == ["a", "b", "c"]
    assert [toolbox._now()[name] for name in ("a", "b")] == [own, first]
    more[:] = [second]
    assert toolbox.left_out == ()
    assert toolbox._now()["b"] is second


@pytest.mark.parametrize(
    ("error", "answer"),
    [
        (ToolError("'text' is empty"), "Error: 'text' is empty"),
        (NotVisible(), "Error: Nothing by that name can be read here."),
        (RuntimeError(SECRET), "Error: the tool failed."),
        (KeyError(SECRET), "Error: the tool failed."),
    ],
)
async def test_an_error_is_an_answer(error: Exception, answer: str, logs):
    toolbox = Toolbox([Doing("look", raising(error))])
    result = await toolbox.run(asked("look", text=SECRET), CONTEXT)
    assert (result.text, result.is_error) == (answer, True)
    assert len(logs) == 1
    assert SECRET not in str(logs)


@pytest.mark.parametrize("name", ["", "rm -rf", SECRET])
async def test_an_unknown_tool_is_an_answer(name: str):
    result = await Toolbox([Doing("look", well)]).run(asked(name), CONTEXT)
    assert result.is_error
    assert "look" in result.text


async def test_a_tool_that_hangs_is_given_up():
    never = asyncio.Event()
    cancelled: list[bool] = []

    async def hang() -> str:
        try:
            await never.wait()
        except asyncio.CancelledError:
            cancelled.append(True)
            raise
        return ""

    toolbox = Toolbox([Doing("look", hang)], timeout=0.01)
    result = await toolbox.run(asked("look"), CONTEXT)
    assert result.is_error
    assert "in time" in result.text
    assert cancelled == [True]


async def test_a_stopped_turn_stops_its_tool():
    started = asyncio.Event()

    async def hang() -> str:
        started.set()
        await asyncio.Event().wait()
        return ""

    task = asyncio.create_task(Toolbox([Doing("look", hang)]).run(asked("look"), CONTEXT))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


OBJECT: dict[str, Any] = {"type": "object", "properties": {}}
NAMES = st.text(max_size=80) | st.sampled_from(["a b", "a_b", "a/b", "a.b", "海", "x" * 90])
ALL = ("*",)


def offers(*names: str) -> list[Offer]:
    return [Offer(name, "", OBJECT, changes=False) for name in names]


@given(st.lists(NAMES, max_size=12), st.randoms())
def test_names_are_safe_different_and_the_same_in_whatever_order(names: list[str], chance: Any):
    there = listing_of("kitchen", ALL, offers(*names))
    called = [spec.name for _, spec in there.tools]
    assert len(set(called)) == len(called) == len(set(names))
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name) for name in called)
    assert all(name.startswith("kitchen_") for name in called)
    chance.shuffle(names)
    assert listing_of("kitchen", ALL, offers(*names)) == there


def test_a_name_that_is_safe_stays_as_it_is_and_others_get_a_digest():
    tools = dict(listing_of("kitchen", ALL, offers("read_file", "read file", "x" * 90)).tools)
    assert tools["read_file"].name == "kitchen_read_file"
    assert re.fullmatch("kitchen_read_file_[0-9a-f]{6}", tools["read file"].name)
    assert len(tools["x" * 90].name) == MAX_NAME


def test_only_the_tools_that_are_wanted_are_there():
    found = listing_of("kitchen", ("read_*", "add"), offers("read_a", "read_b", "write", "add"))
    assert [there for there, _ in found.tools] == ["add", "read_a", "read_b"]


def test_of_ten_thousand_tools_the_first_hundred_are_there():
    found = listing_of("kitchen", ALL, offers(*(f"t{number:05}" for number in range(10_000))))
    assert (len(found.tools), found.left) == (MAX_TOOLS, 10_000 - MAX_TOOLS)
    assert found.tools[-1][0] == "t00099"


def test_a_description_is_bounded_and_says_where_it_is_from():
    offer = Offer("add", "\u202eAdd\x00two.\n" + "x" * 10_000, OBJECT, changes=False)
    ((_, spec),) = listing_of("kitchen", ALL, [offer]).tools
    assert spec.description.startswith("(from the tool server kitchen) Add two.\nx")
    assert len(spec.description) < MAX_DESCRIPTION + 50


@pytest.mark.parametrize(
    ("schema", "is_one"),
    [
        (OBJECT, True),
        ({}, True),
        ({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}, True),
        ({"type": "object", "properties": {"a": True}}, True),
        (None, False),
        ([], False),
        ("object", False),
        ({"type": "string"}, False),
        ({"type": ["object", "null"]}, False),
        ({"type": "object", "properties": []}, False),
        ({"type": "object", "properties": {"a": 5}}, False),
        ({"type": "object", "required": "a"}, False),
        ({"type": "object", "required": [5]}, False),
        ({"type": "object", "description": "x" * 20_000}, False),
        ({"type": "object", "description": "\ud800"}, False),
    ],
)
def test_a_schema_that_is_none_leaves_its_tool_out(schema: object, *, is_one: bool):
    found = listing_of("kitchen", ALL, [Offer("a", "", schema, changes=False), *offers("b")])
    assert [there for there, _ in found.tools] == (["a", "b"] if is_one else ["b"])
    assert found.unusable == (() if is_one else ("a",))


def test_of_a_list_with_rubbish_in_it_the_tools_that_have_a_name_are_handed_on():
    tools = [
        {"name": "a", "inputSchema": OBJECT, "annotations": {"readOnlyHint": True}, "icons": [5]},
        {"name": "b", "description": 5, "annotations": [], "inputSchema": 5, "outputSchema": {}},
        {"name": "c", "description": "x" * 100_000},
        {"name": "n" * 1_000},
        {"name": 5},
        "c",
        None,
    ]
    found = reduced("tools/list", {"tools": tools, "nextCursor": "2", "_meta": {"a": 1}})
    assert found["nextCursor"] == "2"
    assert "_meta" not in found
    assert [each["name"] for each in found["tools"]] == ["a", "b", "c"]
    a, b, c = found["tools"]
    assert a == {
        "name": "a",
        "description": "",
        "inputSchema": {**OBJECT, "properties": {}},
        "annotations": {"readOnlyHint": True},
    }
    assert b == {**a, "name": "b", "inputSchema": UNUSABLE, "annotations": {"readOnlyHint": False}}
    assert len(c["description"]) <= 2 * MAX_DESCRIPTION
    for other in ({"tools": {"a": 1}}, {"tools": None}, {}):
        assert reduced("tools/list", other) == {"tools": []}


@pytest.mark.parametrize(
    ("result", "words"),
    [
        ({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}, "a\nb"),
        ({"content": [{"type": "image", "mimeType": "image/png", "data": "AA"}]}, "image/png"),
        ({"content": [{"type": "audio", "mimeType": "audio/wav", "data": "AA"}]}, "audio/wav"),
        ({"content": [{"type": "resource_link", "name": "n", "uri": "u:v"}]}, "[n: u:v]"),
        ({"content": [{"type": "resource", "resource": {"text": "t"}}]}, "t"),
        ({"content": [{"type": "resource", "resource": {"blob": "AA"}}]}, "[a file: not shown]"),
        ({"content": [5, None, {"type": "text", "text": 5}]}, "not shown"),
        ({"content": "a", "structuredContent": {"a": [1]}}, '{"a":[1]}'),
        ({"content": [], "structuredContent": {"a": "\ud800"}}, "[a value: not shown]"),
        ({}, ""),
    ],
)
def test_of_a_result_its_words_are_handed_on(result: dict, words: str):
    found = reduced("tools/call", {**result, "isError": True, "_meta": {"a": 1}})
    assert found.keys() == {"content", "isError"}
    (block,) = found["content"]
    assert words in block["text"]
    assert words or block["text"] == ""


SCHEMAS = odd.json_of(
    st.integers() | odd.WORDS, st.sampled_from(["type", "properties", "required", "a"]), leaves=10
)


@given(SCHEMAS)
def test_whatever_a_result_is_it_ends_as_words(value: object):
    (block,) = reduced("tools/call", {"content": value, "structuredContent": value})["content"]
    assert isinstance(block["text"], str)


@given(SCHEMAS)
def test_whatever_a_schema_is_it_ends_as_one_of_an_object_or_as_none(schema: object):
    found = schema_of(schema)
    if found is not None:
        assert found["type"] == "object"
        assert isinstance(found["properties"], dict)
        json.dumps(found)


@pytest.mark.parametrize(
    ("annotations", "changes"),
    [
        (None, True),
        ({}, True),
        ({"readOnlyHint": True}, False),
        ({"readOnlyHint": True, "destructiveHint": True}, False),
        ({"readOnlyHint": False, "destructiveHint": False}, True),
        ({"destructiveHint": False}, True),
        ({"readOnlyHint": "true"}, True),
        ([], True),
    ],
)
def test_only_a_tool_that_says_it_only_reads_changes_nothing(*, annotations: object, changes: bool):
    tool = {"name": "send_mail", "annotations": annotations}
    (found,) = reduced("tools/list", {"tools": [tool]})["tools"]
    assert found.get("annotations", {}).get("readOnlyHint", False) is not changes
