"""The adapter to the Messages API beside its makers' SDK: they ask and understand the same."""

from __future__ import annotations

import anthropic
import pytest
from pydantic import SecretStr

from bot.agent.models import Reply, Request, ToolSpec
from bot.agent.models.anthropic import AnthropicModel
from bot.config import ServiceConfig
from bot.messages import Message, Text, ToolResult, ToolUse
from tests.fakes import messages_api as api
from tests.fakes.text_store import TextStoreInMemory

KEY = "sk-ant-1"
TOOL = ToolSpec("look", "Look.", {"type": "object", "properties": {"for": {"type": "string"}}})
SAID = (
    Message("user", (Text("Where is the key? 钥匙在哪里？"),)),
    Message("assistant", (Text("I look."), ToolUse("toolu_1", "look", {"for": "key"}))),
    Message("user", (ToolResult("toolu_1", "under the mat"),)),
)
CALL = {"type": "tool_use", "id": "toolu_2", "name": "look", "input": {}}
PIECES = [{"type": "input_json_delta", "partial_json": piece} for piece in ('{"for": "m', 'at"}')]
# What is about a program and its connection, not about what is asked.
OWN = {"host", "user-agent", "content-length", "connection", "accept", "accept-encoding"}


@pytest.mark.parametrize(
    "events",
    [
        (
            api.start(input_tokens=7),
            *api.text(0, "Under ", "the 🎉 mat."),
            *api.end(output_tokens=3),
        ),
        (
            api.start(input_tokens=7, cache_read_input_tokens=5),
            *api.text(0, "Once more."),
            *api.block(1, CALL, *PIECES),
            *api.end("tool_use", output_tokens=9),
        ),
    ],
    ids=["words", "a tool"],
)
async def test_it_asks_and_understands_what_the_sdk_does(events):
    async with api.running(api.streams(*events)) as server:
        config = ServiceConfig(base_url=server.base_url, api_key=SecretStr(KEY))
        ours = AnthropicModel(config, window_store=TextStoreInMemory(), max_retries=0)
        request = Request("claude-x", "Be brief.", SAID, (TOOL,), max_tokens=99)
        reply = [each async for each in ours.stream(request)][-1]
        await ours.close()

        asked = {**server.bodies[0]}
        assert asked.pop("stream") is True
        theirs = anthropic.AsyncAnthropic(api_key=KEY, base_url=server.base_url, max_retries=0)
        async with theirs, theirs.messages.stream(**asked) as stream:
            message = await stream.get_final_message()

    assert server.bodies[0] == server.bodies[1]
    ours_said, theirs_said = (
        {name.lower(): value for name, value in each.items() if name.lower() not in OWN}
        for each in server.headers
    )
    assert ours_said.pop("x-api-key") == KEY  # where other servers than the makers' look for it
    assert ours_said.items() <= theirs_said.items()
    assert {name for name in theirs_said.keys() - ours_said if "stainless" not in name} == set()
    assert isinstance(reply, Reply)
    assert reply.message.text == "".join(b.text for b in message.content if b.type == "text")
    calls = [block for block in reply.message.blocks if isinstance(block, ToolUse)]
    theirs_calls = [block for block in message.content if block.type == "tool_use"]
    assert [(c.id, c.name, c.input) for c in calls] == [
        (c.id, c.name, c.input) for c in theirs_calls
    ]
    assert (reply.stop == "tool_use") == (message.stop_reason == "tool_use") == bool(calls)
    assert reply.usage.output_tokens == message.usage.output_tokens
