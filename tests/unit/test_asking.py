"""What a person is shown before a tool is called, and when they are asked at all."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.agent.models import ToolSpec
from bot.agent.tools import ToolContext, asking
from bot.agent.tools.asking import DecidedCall, shown
from bot.agent.tools.toolbox import NOT_GIVEN, Toolbox
from bot.channel import Address, ToolRule
from bot.identity.rights import ToolRights
from bot.identity.view import MemoryView
from bot.messages import ToolUse
from bot.sessions.approvals import Verdict
from bot.sessions.reminders import ReplyTarget
from bot.tool_results import Asked
from bot.tool_results import from_json as value_of
from bot.tool_results import to_json as json_of

OWNER = ToolRights(is_private=True)
CONTEXT = ToolContext(
    MemoryView("", (), private=False),
    "s1",
    datetime(2026, 7, 1, tzinfo=UTC),
    target=ReplyTarget("key", "main", Address("memory", "default", "ada"), "en"),
    rights=(OWNER,),
)
USE = ToolUse("t", "lamp", {"which": "kitchen"})


class Lamp:
    def __init__(self, *, changes: bool = True) -> None:
        self.spec = ToolSpec("lamp", "", {"type": "object"}, changes=changes)
        self.calls: list[Mapping[str, Any]] = []

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> str:
        self.calls.append(arguments)
        return "switched"


def ruled(*, ask: bool | None) -> ToolRights:
    return ToolRights(((1, ToolRule(action="allow", ask=ask)),))


@pytest.mark.parametrize(
    ("rights", "changes", "asks"),
    [
        ((OWNER,), True, True),
        ((OWNER,), False, False),
        ((ruled(ask=True),), False, True),
        ((ruled(ask=None),), True, True),
        ((ruled(ask=None),), False, False),
        ((ruled(ask=False),), True, False),
        ((ruled(ask=False), ruled(ask=True)), False, True),
        ((ruled(ask=True), ruled(ask=False)), False, True),
    ],
)
async def test_the_person_is_asked_by_rule_and_before_what_changes_something(
    rights: tuple[ToolRights, ...], *, changes: bool, asks: bool
):
    lamp = Lamp(changes=changes)
    result = await Toolbox([lamp]).run(USE, replace(CONTEXT, rights=rights))
    assert isinstance(result.value, Asked) is asks
    assert lamp.calls == ([] if asks else [USE.input])


async def test_what_may_not_be_used_is_not_asked_about():
    lamp = Lamp()
    result = await Toolbox([lamp]).run(USE, replace(CONTEXT, rights=(ToolRights(),)))
    assert result.text == f"Error: {NOT_GIVEN}"
    assert lamp.calls == []


async def test_somebody_is_asked_about_one_call_at_a_time():
    lamp = Lamp()
    result = await Toolbox([lamp]).run(USE, CONTEXT, may_ask=False)
    assert (result.text, result.is_error) == (f"Error: {asking.ONE_AT_A_TIME}", True)
    assert lamp.calls == []


async def test_what_runs_by_itself_cannot_ask():
    lamp = Lamp()
    result = await Toolbox([lamp]).run(USE, replace(CONTEXT, target=None))
    assert (result.text, result.is_error) == (f"Error: {asking.NOBODY_THERE}", True)
    assert lamp.calls == []


async def test_what_is_too_long_to_be_read_is_not_asked_about():
    lamp = Lamp()
    long = ToolUse("t", "lamp", {"which": "x" * asking.MAX_SHOWN})
    result = await Toolbox([lamp]).run(long, CONTEXT)
    assert result.text == f"Error: {asking.TOO_LONG}"
    assert lamp.calls == []


async def test_what_was_allowed_is_run_and_nothing_else():
    lamp, toolbox = Lamp(), None
    toolbox = Toolbox([lamp])
    verdicts: list[Verdict] = ["denied", "late", "begun"]
    for verdict in verdicts:
        result = await toolbox.carry_out(DecidedCall(USE, verdict, (OWNER,)), CONTEXT)
        assert (result.text, result.is_error) == (f"Error: {asking.UNDONE[verdict]}", True)
    assert lamp.calls == []
    result = await toolbox.carry_out(DecidedCall(USE, "allowed", (OWNER,)), CONTEXT)
    assert (result.text, result.origin) == ("switched", "tool")
    assert lamp.calls == [USE.input]


async def test_rights_that_are_gone_by_then_count():
    lamp = Lamp()
    result = await Toolbox([lamp]).carry_out(DecidedCall(USE, "allowed", (ToolRights(),)), CONTEXT)
    assert result.text == f"Error: {NOT_GIVEN}"
    assert lamp.calls == []


def test_that_somebody_is_asked_is_kept_with_the_call():
    assert value_of(json_of(Asked("lamp"))) == Asked("lamp")


# --- what is shown --------------------------------------------------------------------------------

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(), JSON, max_size=3))
def test_a_call_is_shown_to_the_last_character(arguments: dict[str, Any]):
    assert json.loads(shown(arguments)) == arguments


@given(st.dictionaries(st.text(), JSON, max_size=3))
def test_nothing_in_a_call_ends_the_frame_around_it(arguments: dict[str, Any]):
    assert not [
        line for line in shown(arguments).split("\n") if line.lstrip()[:3] in {"```", "~~~"}
    ]


@pytest.mark.parametrize("hidden", ["\u202e", "\u200b", "\u2028", "\x07", "\u2066", "\ufeff"])
def test_what_cannot_be_seen_is_written_out(hidden: str):
    text = shown({"path": f"a{hidden}b"})
    assert hidden not in text
    assert f"a\\u{ord(hidden):04x}b" in text


def test_each_value_has_a_line():
    assert shown({"to": ["Zoë"], "sure": True}) == (
        '{\n  "to": [\n    "Zoë"\n  ],\n  "sure": true\n}'
    )


def test_chinese_stays_readable():
    assert "海边" in shown({"where": "海边"})
