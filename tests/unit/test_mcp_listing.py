"""What of a server's list a model is told: safe names that differ, real schemas, bounds."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.agent.tools.mcp.listing import (
    MAX_DESCRIPTION,
    MAX_NAME,
    MAX_TOOLS,
    Offer,
    listing_of,
    offers_in,
    schema_of,
)

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


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "properties", "required", "a"]), inner, max_size=4
        )
    ),
    max_leaves=10,
)


def test_a_list_with_rubbish_in_it_gives_the_tools_that_have_a_name():
    raw = [
        {"name": "a", "inputSchema": OBJECT, "annotations": {"readOnlyHint": True}},
        {"name": "b", "description": 5, "annotations": [], "inputSchema": 5},
        {"name": 5},
        "c",
        None,
    ]
    assert offers_in(raw) == [
        Offer("a", "", OBJECT, changes=False),
        Offer("b", "", 5, changes=True),
    ]
    assert offers_in({"a": 1}) == offers_in(None) == []


@given(JSON)
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
    (offer,) = offers_in([{"name": "send_mail", "annotations": annotations}])
    assert offer.changes is changes
