"""A tool's parameters: one model is what a language model is sent, and what its arguments pass."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field

from bot.agent.models import ToolSpec
from bot.agent.tools.artifacts import ArtifactGet
from bot.agent.tools.memory import MemoryGet, MemoryWrite
from bot.agent.tools.parameters import Parameters, Stripped, Words
from bot.agent.tools.schedule_message import ScheduleMessage
from bot.agent.tools.search import MemorySearch, TranscriptSearch
from bot.errors import ToolError

SPECS = [
    tool.spec
    for tool in (
        ArtifactGet,
        MemoryGet,
        MemorySearch,
        MemoryWrite,
        ScheduleMessage,
        TranscriptSearch,
    )
]
# What each tool takes: kind, least, most; "!" marks what cannot be left out.
TAKEN: Mapping[str, Mapping[str, tuple[Any, ...]]] = {
    "artifact_get": {"id!": ("string", None, 100), "from": ("integer", 0, None)},
    "memory_get": {
        "path!": ("string", None, 500),
        "from": ("integer", 1, 10_000_000),
        "lines": ("integer", 1, 120),
    },
    "memory_search": {"query!": ("string", None, 500), "limit": ("integer", 1, 20)},
    "memory_write": {
        "text!": ("string", None, 4_000),
        "path": ("string", None, 500),
        "section": ("string", None, 100),
        "replaces": ("string", None, 4_000),
        "untrusted": ("boolean", None, None),
    },
    "schedule_message": {
        "text!": ("string", None, 1_000),
        "at": ("string", None, 40),
        "in_minutes": ("integer", 1, 2_629_440),
        "rule": ("string", None, 200),
        "task": ("boolean", None, None),
    },
    "transcript_search": {"query!": ("string", None, 500), "limit": ("integer", 1, 20)},
}
# The only words of JSON Schema that are sent: every service with the Messages API knows them.
WORDS = {"type", "properties", "required", "additionalProperties"}
WORDS_OF_ONE = {"type", "description", "minimum", "maximum", "maxLength"}


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
def test_a_schema_says_what_is_taken_and_nothing_else(spec: ToolSpec):
    schema = spec.schema
    assert set(schema) == WORDS
    assert (schema["type"], schema["additionalProperties"]) == ("object", False)
    taken = {
        f"{name}{'!' if name in schema['required'] else ''}": (
            one["type"],
            one.get("minimum"),
            one.get("maximum", one.get("maxLength")),
        )
        for name, one in schema["properties"].items()
    }
    assert taken == TAKEN[spec.name]
    for one in schema["properties"].values():
        assert set(one) <= WORDS_OF_ONE
        assert one["description"].endswith(".")


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
    asked = Example.of({"text": " tea ", "place": " here", "from": 2.0, "sure": True})
    assert (asked.text, asked.place, asked.first, asked.sure) == (" tea ", "here", 2, True)
    asked = Example.of({"text": "tea", "place": None, "from": None})
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
        Example.of(arguments)
    assert str(caught.value).startswith(told)
    assert len(str(caught.value)) < 200


@given(st.dictionaries(st.text(min_size=8), st.just(1), min_size=1, max_size=3))
def test_a_mistake_tells_nothing_that_was_made_up(arguments: dict[str, Any]):
    with pytest.raises(ToolError) as caught:
        Example.of({"text": "a", **arguments})
    assert str(caught.value) == "there is an unknown argument; known: text, place, from, sure"


@pytest.mark.parametrize(
    ("tool", "arguments", "told"),
    [
        (
            MemoryWrite,
            {"text": "a", "section": "b", "replaces": "c"},
            "give 'section' or 'replaces', not both",
        ),
        (ScheduleMessage, {"text": "a"}, "give either 'at' or 'in_minutes'"),
        (
            ScheduleMessage,
            {"text": "a", "at": "2026-12-24", "in_minutes": 1},
            "give either 'at' or 'in_minutes'",
        ),
    ],
)
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
        asked = Example.of(arguments)
    except ToolError:
        return
    assert asked.text.strip()
    assert asked.first is None or 1 <= asked.first <= 9
