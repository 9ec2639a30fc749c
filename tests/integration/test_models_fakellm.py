"""Both APIs as a second author wrote them down: the adapters against fakellm.

It streams its errors as replies, so those are aimock's to give.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import SecretStr

from bot.agent.models import Model, Reply, Request, TextDelta, ToolSpec
from bot.agent.models.anthropic import AnthropicModel
from bot.agent.models.openai import OpenAIModel
from bot.config import ServiceConfig
from bot.messages import Message, Text, ToolResult, ToolUse
from tests.fakes import fakellm
from tests.fakes.text_store import TextStoreInMemory

LOOK = ToolSpec("look", "Look.", {"type": "object", "properties": {"at": {"type": "string"}}})
HEAR = ToolSpec("hear", "Hear.", {"type": "object", "properties": {}})
RULES = [
    {
        "name": "seen",
        "when": {"messages_contain": "use the tools", "tool_result_contains": "seen"},
        "respond": {"content": "The tools answered 花生."},
    },
    {
        "name": "calls",
        "when": {"messages_contain": "use the tools"},
        "respond": {
            "tool_calls": [
                {"name": "look", "arguments": {"at": "peanuts 花生"}},
                {"name": "hear", "arguments": {}},
            ]
        },
    },
    {"name": "plain", "respond": {"content": "A plain answer. 你好 🎉"}},
]
KINDS = {"anthropic": (AnthropicModel, ""), "openai": (OpenAIModel, "/v1")}


@pytest.fixture(params=KINDS)
async def model(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Model]:
    kind, path = KINDS[request.param]
    async with fakellm.running(tmp_path, RULES) as address:
        config = ServiceConfig(base_url=address + path, api_key=SecretStr("k"))
        model = kind(config, window_store=TextStoreInMemory(), max_retries=0)
        yield model
        await model.close()


def asking(text: str) -> Request:
    return Request("m", "Be brief.", (Message("user", (Text(text),)),), (LOOK, HEAR))


async def run(model: Model, request: Request) -> Reply:
    events = [event async for event in model.stream(request)]
    reply = events[-1]
    assert isinstance(reply, Reply)
    deltas = "".join(event.text for event in events if isinstance(event, TextDelta))
    assert deltas == reply.message.text
    return reply


async def test_words_and_tools_side_by_side(model: Model):
    assert (await run(model, asking("hello"))).message.text == "A plain answer. 你好 🎉"

    request = asking("use the tools")
    reply = await run(model, request)
    assert reply.stop == "tool_use"
    uses = [block for block in reply.message.blocks if isinstance(block, ToolUse)]
    assert [(use.name, use.input) for use in uses] == [
        ("look", {"at": "peanuts 花生"}),
        ("hear", {}),
    ]
    results = Message("user", tuple(ToolResult(use.id, "seen") for use in uses))
    following = replace(request, messages=(*request.messages, reply.message, results))
    answer = await run(model, following)
    assert (answer.stop, answer.message.text) == ("end", "The tools answered 花生.")
