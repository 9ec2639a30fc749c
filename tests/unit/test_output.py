"""Tests for what models really write: the reply, thoughts and calls, however a stream is cut."""

from __future__ import annotations

import time
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.agent.models import Reply, Request, ToolSpec, Usage, capabilities
from bot.agent.models.anthropic import Accumulator
from bot.agent.models.capabilities import Capabilities, fitted, is_failure
from bot.agent.models.openai import CompletionReader, body_of, merge
from bot.agent.models.output import OutputFilter
from bot.agent.models.wire import REPAIRABLE, arguments_in
from bot.errors import ModelBadReply
from bot.messages import Message, Opaque, Text, ToolResult, ToolUse

CASES = tomllib.loads(
    (Path(__file__).parents[1] / "data" / "model_replies.toml").read_text("utf-8")
)
SEARCH: dict[str, Any] = {"properties": {"query": {"type": "string"}, "limit": {"type": "integer"}}}
TOOLS = (ToolSpec("memory_search", "", SEARCH), ToolSpec("look", "", {}))
OFFERED = {spec.name: spec.schema for spec in TOOLS}
Reader = CompletionReader | Accumulator
Seen = tuple[str, str, Reply]


def read(reader: Reader, events: Sequence[Any]) -> Seen:
    """What is shown, what was thought, and the reply."""
    shown = thought = ""
    for event in events:
        words = reader.feed(event)
        shown = words if reader.replaced else shown + words
        thought += reader.thought()
    words = reader.end()
    shown = words if reader.replaced else shown + words
    return shown, thought + reader.thought(), reader.reply()


def by_completions(pieces: Sequence[str]) -> Seen:
    events = [{"choices": [{"delta": {"content": piece}}]} for piece in pieces]
    return read(CompletionReader(TOOLS), [*events, {"choices": [{"finish_reason": "stop"}]}])


def by_messages(pieces: Sequence[str]) -> Seen:
    deltas = [
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": piece}}
        for piece in pieces
    ]
    begin = {"type": "content_block_start", "index": 0, "content_block": {"type": "text"}}
    end = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}}
    return read(Accumulator(TOOLS), [begin, *deltas, end])


def expect(seen: Seen, case: dict[str, Any]) -> None:
    shown, thought, reply = seen
    assert shown.strip() == reply.message.text.strip() == case.get("says", "")
    uses = [block for block in reply.message.blocks if isinstance(block, ToolUse)]
    calls = case.get("calls", [])
    assert [(use.name, use.input, use.garbled) for use in uses] == [
        (name, orjson.loads(arguments), "") for name, arguments in calls
    ]
    assert reply.stop == ("tool_use" if calls else "end")
    assert len({use.id for use in uses}) == len(uses)
    assert "thinks" not in case or thought.strip() == case["thinks"]


@pytest.mark.parametrize("by", [by_completions, by_messages])
@pytest.mark.parametrize("case", CASES["text"], ids=lambda case: case["source"])
def test_what_models_write_is_read_wherever_it_is_cut(by, case):
    written = case["written"]
    for pieces in (
        [written],
        list(written),
        *([written[:n], written[n:]] for n in range(len(written))),
    ):
        expect(by(pieces), case)


@pytest.mark.parametrize("case", CASES["completions"], ids=lambda case: case["source"])
def test_chunks_of_completions_are_read_as_their_servers_mean_them(case):
    found = [orjson.loads(chunk) for chunk in case["chunks"]]
    events = [each if "choices" in each else {"choices": [{"delta": each}]} for each in found]
    for finish in ("stop", "tool_calls"):
        end = {"choices": [{"delta": {}, "finish_reason": finish}]}
        expect(read(CompletionReader(TOOLS), [*events, end, end]), case)


@pytest.mark.parametrize("case", CASES["messages"], ids=lambda case: case["source"])
def test_events_of_messages_are_read_as_their_servers_mean_them(case):
    events = [orjson.loads(event) for event in case["events"]]
    stop = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}}
    for end in ([stop], [{"type": "message_stop"}], [stop, stop, {"type": "message_stop"}]):
        expect(
            read(Accumulator(TOOLS), [{"type": "message_start", "message": {}}, *events, *end]),
            case,
        )


PIECES = st.sampled_from(
    [
        *("<think>", "</think>", "<thinking>", "</thinking>", "<tool_call>", "</tool_call>"),
        *("<|channel|>", "analysis", "<|message|>", "<|end|>", "<|start|>assistant", "final"),
        *("[TOOL_CALLS]", "look", '{"name": "look", "arguments": {}}', "<|im_end|>"),
        *("`", "```", " ", "\n", "a", ".", "<", "{", "["),
    ]
)


@given(st.lists(PIECES, max_size=12).map("".join), st.data())
def test_how_a_reply_is_cut_changes_nothing(written: str, data: st.DataObject):
    cuts = sorted(data.draw(st.lists(st.integers(0, len(written)), max_size=8)))
    pieces = [written[a:b] for a, b in zip([0, *cuts], [*cuts, len(written)], strict=True)]
    seen = [filtered(each) for each in ([written], list(written), pieces)]
    assert seen[0] == seen[1] == seen[2]


def filtered(pieces: Sequence[str], *, waits: bool = False) -> tuple[str, str, list[str]]:
    thoughts: list[str] = []
    output, shown = OutputFilter(OFFERED, thoughts, waits=waits), ""
    for piece in (*pieces, None):
        words = output.end() if piece is None else output.feed(piece)
        shown = words if output.replaced else shown + words
    assert shown == output.text  # what is shown in the end is what is stored, and nothing twice
    return shown, "".join(thoughts), [call.name for call in output.calls]


@given(st.text(st.sampled_from("ab .\n*_#-(1"), max_size=60))
def test_a_reply_without_a_marker_comes_as_it_is(written: str):
    assert filtered(list(written))[0] == written


def test_a_model_that_once_wrote_only_the_end_of_a_thought_is_waited_for():
    output = OutputFilter(OFFERED, [], waits=True)
    assert output.feed("The user says hello.\n") == ""
    assert output.feed("</think>\n\nHel") == "Hel"
    assert filtered(["Hello ", "there!"], waits=True)[0] == "Hello there!"
    assert filtered(['<tool_call>{"name": "look"}'], waits=True)[2] == ["look"]


HOSTILE: dict[str, Callable[[int], str]] = {
    "a thought without end": lambda n: "<think>" + "x" * n,
    "words": lambda n: "x" * n,
    "backticks": lambda n: "`" * n,
    "calls that never end": lambda n: "<tool_call>" * (n // 11),
    "brackets": lambda n: "<" * n,
    "tokens": lambda n: "<|im_end|>" * (n // 10),
    "a call that never ends": lambda n: '{"name": "look", "arguments": {"a": "' + "x" * n,
    "many calls": lambda n: "[TOOL_CALLS]look{}" * (n // 18),
    "many thoughts": lambda n: "<think>a</think>" * (n // 16),
    "ends of thoughts": lambda n: "\n</think>" * (n // 9),
    "headers": lambda n: "<|start|>" * (n // 9),
    "keys": lambda n: "<tool_call>look" + "<arg_key>" * (n // 9) + "</tool_call>",
    "functions": lambda n: (
        "<tool_call>" + "<function=look><parameter=a>" * (n // 28) + "</tool_call>"
    ),
    "blanks": lambda n: " " * n,
}


@pytest.mark.parametrize("made", HOSTILE.values(), ids=HOSTILE)
def test_its_time_is_linear_however_it_is_cut(made):
    def seconds(size: int, *, cut: bool) -> float:
        written = made(size)
        begun = time.thread_time()
        filtered(list(written) if cut else [written])
        return time.thread_time() - begun

    def least(size: int) -> float:  # without what the collection of garbage takes
        return min(seconds(size, cut=True) for _ in range(3))

    assert least(20_000) < 8 * max(least(5_000), 0.005)
    assert seconds(200_000, cut=False) < 4


# --- calls ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "found"),
    [
        ("", {}),
        ('{"a": 1}', {"a": 1}),
        ("{'a': 'x'}", {"a": "x"}),
        ('{"a": "x",}', {"a": "x"}),
        ('{"a": True}', {"a": True}),
        ('"{\\"a\\": 1}"', {"a": 1}),
        ('{"a": 1}<|call|>', {"a": 1}),
        ('{"a": "cut of', None),
        ('{"a": 12', None),
        ("[1]", None),
        ("null", None),
        ("do it", None),
        ("{'a': '" + "x" * REPAIRABLE + "'}", None),
        ("[" * 1_000 + "]", None),
    ],
)
def test_arguments_are_repaired_where_that_is_safe(raw, found):
    assert arguments_in(raw) == found


@pytest.mark.parametrize("by", [by_completions, by_messages])
def test_a_call_whose_arguments_are_beyond_repair_is_the_models_to_try_again(by):
    _, _, reply = by(['<tool_call>{"name": "look", "arguments": {"at": "a very lo</tool_call>'])
    (use,) = reply.message.blocks
    assert isinstance(use, ToolUse)
    assert (use.name, use.input, bool(use.garbled), reply.stop) == ("look", {}, True, "tool_use")


def test_a_call_that_was_cut_off_by_the_length_is_none():
    chunk = {"choices": [{"delta": {"content": 'Hi <tool_call>{"name": "look", "arguments": {"a'}}]}
    end = {"choices": [{"delta": {}, "finish_reason": "length"}]}
    _, _, reply = read(CompletionReader(TOOLS), [chunk, end])
    assert not [block for block in reply.message.blocks if isinstance(block, ToolUse)]
    assert reply.stop == "max_tokens"


# --- failures and figures ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "event",
    [
        {"error": {"message": "no"}},
        {"error": "no"},
        {"object": "error", "message": "no", "code": 400},  # vLLM
        {"code": "1261", "message": "no"},  # GLM
        {"choices": [{"error": {"code": 502, "message": "no"}, "finish_reason": "error"}]},
    ],
)
def test_a_failure_within_a_stream_is_one_however_it_is_told(event):
    assert is_failure(event)
    assert capabilities.read(200, event).sentence == "no"


def test_a_stream_that_ends_without_saying_so_is_no_reply():
    reader = CompletionReader()
    reader.feed({"choices": [{"delta": {"content": "Hi"}}]})
    with pytest.raises(ModelBadReply):
        reader.reply()


@pytest.mark.parametrize(
    ("told", "usage"),
    [
        (None, Usage()),
        ({}, Usage()),
        ({"prompt_tokens": "12", "completion_tokens": 3.0}, Usage(12, 3)),
        ({"prompt_tokens": -5, "completion_tokens": None}, Usage()),
        ({"prompt_tokens": "many", "completion_tokens": [3]}, Usage()),
        ({"prompt_tokens": 9, "prompt_tokens_details": None}, Usage(9)),
        ({"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": 4}}, Usage(5, 0, 4)),
    ],
)
def test_figures_come_as_numbers_or_not_at_all(told, usage):
    for event in ({"choices": [], "usage": told}, {"choices": [{"delta": {}, "usage": told}]}):
        reader = CompletionReader()
        reader.feed(event)
        assert reader.usage == usage


# --- thoughts that go back -----------------------------------------------------------------------


def test_what_openrouter_wants_back_is_put_together_and_goes_back_alone():
    pieces = [
        {"type": "reasoning.text", "text": "a", "index": 0},
        {"type": "reasoning.text", "text": "b", "index": 0, "signature": "c2ln"},
        {"type": "reasoning.encrypted", "data": "eA==", "index": 1},
    ]
    events = [
        {"choices": [{"delta": {"reasoning": "x", "reasoning_details": [p]}}]} for p in pieces
    ]
    call = {"index": 0, "id": "c", "function": {"name": "look", "arguments": "{}"}}
    events += [{"choices": [{"delta": {"tool_calls": [call]}, "finish_reason": "tool_calls"}]}]
    _, thought, reply = read(CompletionReader(TOOLS), events)
    assert thought == "xxx"
    made: list[Any] = [{"role": "user", "content": "Hi"}]
    merge(made, reply.message)
    sent = made[-1]
    assert "reasoning" not in sent
    assert sent["reasoning_details"] == [
        {"type": "reasoning.text", "text": "ab", "index": 0, "signature": "c2ln"}, pieces[2]
    ]  # fmt: skip


THOUGHT = Opaque({"type": "thought", "field": "reasoning_content", "text": "plan"})


def asked(*, thought: bool) -> Message:
    return Message("assistant", ((THOUGHT,) if thought else ()) + (ToolUse("c", "look", {}),))


@pytest.mark.parametrize(
    ("thoughts", "sent"),
    [
        ("never", [None, None, None, None]),
        ("turn", [None, None, None, "plan"]),
        ("kept", ["plan", None, None, "plan"]),
        ("needed", ["plan", None, "plan"]),  # what another model called is told as words
    ],
)
def test_thoughts_go_back_as_the_service_wants_them(thoughts, sent):
    hi, seen = Message("user", (Text("Hi"),)), Message("user", (ToolResult("c", "seen"),))
    done = Message("assistant", (Text("Done."),))
    earlier = (hi, asked(thought=True), seen, done, hi, asked(thought=False), seen)
    now = (hi, asked(thought=True), seen)
    request = Request("m", "", (*earlier, *now), begins=len(earlier))
    able = replace(Capabilities(), reasoning=thoughts)
    body = orjson.loads(body_of(fitted(request, able), 9, able))
    said = [each for each in body["messages"] if each["role"] == "assistant"]
    assert [each.get("reasoning_content") for each in said] == sent
    assert sum("tool_calls" in each for each in said) == (2 if thoughts == "needed" else 3)
    assert str(body["messages"]).count("seen") == 3
