"""Conversion between our messages and the Messages API's JSON, for any conversation."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.agent.models import Request, ToolSpec
from bot.agent.models.anthropic_wire import (
    CACHEABLE,
    Accumulator,
    body_of,
    messages_of,
)
from bot.agent.models.wire import NO_OUTPUT, OPENING, load
from bot.context.folding import Folding
from bot.errors import ModelBadReply, ModelRejected
from bot.messages import Message, Opaque, Picture, Text, ToolResult, ToolUse
from bot.unicode import well_formed

texts = st.text(max_size=20)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=5,
)
arguments = st.dictionaries(texts, json_values, max_size=3)
opaque = texts.map(lambda data: Opaque({"type": "thinking", "thinking": data, "signature": "c2ln"}))
blocks = st.one_of(
    st.builds(Text, texts, st.booleans()),
    st.builds(ToolUse, texts, texts, arguments),
    st.builds(ToolResult, texts, texts, st.booleans()),
    opaque,
)
messages = st.builds(
    Message,
    st.sampled_from(["user", "assistant"]),
    st.lists(blocks, max_size=4).map(tuple),
)
histories = st.lists(messages, max_size=8).map(tuple)
ANY_STRING = st.text(st.characters(exclude_categories=()), max_size=20)  # surrogates too


def body(*said: Message, **fields: Any) -> dict[str, Any]:
    request = replace(Request("m", "s", said), **fields)
    return orjson.loads(body_of(request, request.max_tokens))


@given(histories)
def test_any_history_becomes_what_the_api_takes(history: tuple[Message, ...]):
    sent = messages_of(history)
    if sent:
        assert sent[0]["role"] == "user"
    for one, other in pairwise(sent):
        assert one["role"] != other["role"]
    for message in sent:
        assert message["content"]
        kinds = [block["type"] for block in message["content"]]
        if message["role"] == "user":
            assert kinds == sorted(kinds, key=lambda kind: kind != "tool_result")
        for block in message["content"]:
            if block["type"] == "text":
                assert block["text"].strip()
            if block["type"] == "tool_result":
                assert block["content"].strip()


@given(histories)
def test_no_word_and_no_block_is_lost_on_the_way(history: tuple[Message, ...]):
    sent = [block for message in messages_of(history) for block in message["content"]]
    for kind, cls in (("tool_use", ToolUse), ("thinking", Opaque), ("tool_result", ToolResult)):
        had = [block for message in history for block in message.blocks if isinstance(block, cls)]
        assert len([block for block in sent if block["type"] == kind]) == len(had)
    said = [
        block.text
        for message in history
        for block in message.blocks
        if isinstance(block, Text) and block.text.strip()
    ]
    kept = [block["text"] for block in sent if block["type"] == "text"]
    assert sorted(kept) == sorted([*said, *([OPENING] if OPENING in kept else [])])


@given(histories, texts, st.sampled_from([(), (ToolSpec("a", "b", {"type": "object"}),)]))
def test_there_are_never_more_breakpoints_than_allowed(
    history: tuple[Message, ...], system: str, tools: tuple[ToolSpec, ...]
):
    if not messages_of(history):
        with pytest.raises(ModelRejected):
            body(*history, system=system, tools=tools)
        return
    sent = body(*history, system=system, tools=tools)
    content = [block for message in sent["messages"] for block in message["content"]]
    marked = [block for block in content if "cache_control" in block]
    assert len(marked) <= 1
    assert all(
        block["type"] in CACHEABLE and block in sent["messages"][-1]["content"] for block in marked
    )
    prefix = [*sent.get("tools", []), *sent.get("system", [])]
    assert sum("cache_control" in part for part in prefix) == bool(prefix)
    if prefix:
        assert "cache_control" in prefix[-1]


@given(histories)
def test_the_same_history_makes_the_same_bytes_and_stays_untouched(history: tuple[Message, ...]):
    if messages_of(history):
        request = Request("m", "s", history)
        assert body_of(request, 9) == body_of(request, 9)


@given(histories, st.lists(st.integers(0, 8), max_size=4))
def test_a_conversation_that_goes_on_makes_the_bytes_it_would_make_alone(
    history: tuple[Message, ...], turns: list[int]
):
    folding = Folding()
    for begins in sorted(turns):  # those before it are folded, what is left is of the turn
        request = Request("m", "s", history, begins=begins, folding=folding)
        if messages_of(history):
            assert body_of(request, 9) == body_of(Request("m", "s", history), 9)
            assert orjson.loads(body_of(request, 9)) == body(*history, max_tokens=9)


@given(st.lists(ANY_STRING, max_size=5))
def test_text_always_arrives_whole_however_it_was_cut(pieces: list[str]):
    reply = Accumulator()
    reply.feed({"type": "content_block_start", "index": 0, "content_block": {"type": "text"}})
    words = ""
    for piece in pieces:
        words += reply.feed(
            {
                "type": "content_block_delta",
                "index": 0,
                "delta": {"type": "text_delta", "text": piece},
            }
        )
    reply.feed({"type": "message_delta", "delta": {"stop_reason": "end_turn"}})
    assert reply.reply().message.text == words
    assert words.encode().decode() == words
    assert well_formed("".join(pieces)).startswith(words)


@given(arguments, st.integers(1, 5))
def test_tool_arguments_survive_being_cut_into_pieces(given_: dict[str, Any], size: int):
    text = orjson.dumps(given_).decode()
    reply = Accumulator()
    use: dict[str, Any] = {"type": "tool_use", "id": "1", "name": "look", "input": {}}
    reply.feed({"type": "content_block_start", "index": 0, "content_block": use})
    for at in range(0, len(text), size):
        delta = {"type": "input_json_delta", "partial_json": text[at : at + size]}
        reply.feed({"type": "content_block_delta", "index": 0, "delta": delta})
    reply.feed({"type": "message_delta", "delta": {"stop_reason": "tool_use"}})
    assert reply.reply().message.blocks == (ToolUse("1", "look", given_),)


@given(json_values)
def test_an_event_that_is_none_is_a_bad_reply_or_ignored(value: object):
    event = {"type": "content_block_delta", "index": 0, "delta": value}
    with pytest.raises(ModelBadReply):
        Accumulator().feed(event)


def test_neighbours_of_one_side_are_one_message_with_results_in_front():
    sent = messages_of(
        (
            Message("assistant", (Text("Welcome"),)),
            Message("user", (Text("a"),)),
            Message("user", (Text("b"),)),
            Message("assistant", (ToolUse("1", "look", {}),)),
            Message("user", (Text("wait"),)),
            Message("user", (ToolResult("1", " ", is_error=True),)),
        )
    )
    assert sent == [
        {"role": "user", "content": [{"type": "text", "text": OPENING}]},
        {"role": "assistant", "content": [{"type": "text", "text": "Welcome"}]},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "1", "name": "look", "input": {}}],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "1",
                    "content": NO_OUTPUT,
                    "is_error": True,
                },
                {"type": "text", "text": "wait"},
            ],
        },
    ]


def test_half_a_character_in_the_history_does_not_stop_the_conversation():
    sent = body(
        Message("user", (Text("a\ud83c"),)),
        Message("assistant", (ToolUse("1", "look", {"\ud83c": ["b\udf89"]}),)),
    )
    assert sent["messages"][0]["content"][0]["text"] == "a\ufffd"
    assert sent["messages"][1]["content"][0]["input"] == {"\ufffd": ["b\ufffd"]}


def test_without_a_system_prompt_the_tools_carry_the_breakpoint():
    sent = body(
        Message("user", (Text("a"),)), system="", tools=(ToolSpec("a", "b", {"type": "object"}),)
    )
    assert "system" not in sent
    assert sent["tools"][-1]["cache_control"] == {"type": "ephemeral"}


def test_json_with_half_a_character_is_read_all_the_same():
    assert load('{"a":"\\ud83c"}') == {"a": "\ud83c"}
    with pytest.raises(ValueError, match="line 1"):
        load("{oops")


def test_a_picture_travels_as_the_service_wants_it_and_is_named_when_it_is_gone():
    shown = Message("user", (Picture("image/jpeg", "a-1", "QUJD"), Text("look")))
    gone = Message("user", (Picture("image/jpeg", "a-1"),))
    assert messages_of([shown])[0]["content"][0] == {
        "type": "image",
        "source": {"type": "base64", "media_type": "image/jpeg", "data": "QUJD"},
    }
    assert messages_of([gone])[0]["content"][0]["type"] == "text"
