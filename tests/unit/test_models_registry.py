"""Which service a model's name means, and what a service is shown of the others'."""

from __future__ import annotations

from typing import Any

import pytest

from bot.agent.models import Reply, Request
from bot.agent.models.registry import Models
from bot.config import ModelsConfig
from bot.errors import ModelNotFound
from bot.messages import Message, Opaque, Text
from bot.testing import ScriptedModel, says

LOCAL = {"base_url": "http://127.0.0.1:1"}
OLLAMA = {"ollama": {"kind": "openai", **LOCAL}}


def models(
    configured: str = "claude-x", services: dict[str, Any] | None = None, **sections: Any
) -> Models:
    config = ModelsConfig.model_validate(sections)
    found = {name: ScriptedModel() for name, each in config.services.items() if each.is_set_up}
    return Models(config, found if services is None else services, configured)


@pytest.mark.parametrize(
    ("chosen", "sections", "full"),
    [
        ("claude-y", {}, "anthropic/claude-y"),
        ("anthropic/claude-y", {}, "anthropic/claude-y"),
        ("ollama/qwen3", OLLAMA, "ollama/qwen3"),
        ("ollama/hf.co/Qwen/Qwen3", OLLAMA, "ollama/hf.co/Qwen/Qwen3"),
        ("gone/qwen3", OLLAMA, "gone/qwen3"),
        ("Qwen/Qwen3", {"anthropic": LOCAL}, "anthropic/Qwen/Qwen3"),
        ("offline", {}, "offline"),
        ("", {}, "anthropic/claude-x"),
    ],
)
def test_a_name_means_the_same_as_ever_or_a_service_of_its_own(chosen, sections, full):
    sections = {"anthropic": {"api_key": "k"}, **sections}
    assert models(**sections).full(chosen) == full


def test_without_a_service_the_offline_model_answers():
    assert models().default == "offline"
    assert models().full("claude-y") == "offline"
    assert models("ollama/m", anthropic=LOCAL, ollama={"kind": "openai"}).default == "offline"


async def test_every_service_lists_its_models():
    found = models("ollama/qwen3", anthropic=LOCAL, **OLLAMA)
    assert await found.names() == (
        "ollama/qwen3",
        "anthropic/scripted",
        "anthropic/scripted-two",
        "ollama/scripted",
        "ollama/scripted-two",
        "offline",
    )


async def test_a_model_that_is_configured_without_its_tag_is_listed_once():
    class Ollama(ScriptedModel):
        async def names(self) -> tuple[str, ...]:
            return "qwen3:latest", "gemma4:latest", "qwen3:4b"

    found = models("ollama/qwen3", services={"ollama": Ollama()}, **OLLAMA)
    names = ("ollama/qwen3", "ollama/gemma4:latest", "ollama/qwen3:4b", "offline")
    assert await found.names() == names


async def run(found: Models, request: Request) -> Reply:
    events = [event async for event in found.stream(request)]
    assert isinstance(events[-1], Reply)
    return events[-1]


async def test_a_request_goes_to_the_service_of_its_model():
    one, two = ScriptedModel(lambda _: "one"), ScriptedModel(lambda _: "two")
    found = models(services={"anthropic": one, "ollama": two}, **OLLAMA)
    said = (Message("user", (Text("hello"),)),)
    assert (await run(found, Request("ollama/a/b", "", said))).message.text == "two"
    assert (await run(found, Request("anthropic/claude-x", "", said))).message.text == "one"
    assert [request.model for request in (*one.requests, *two.requests)] == ["claude-x", "a/b"]
    with pytest.raises(ModelNotFound):
        await run(found, Request("gone/m", "", said))
    assert (await found.window("gone/m")).max_output_tokens


async def test_a_service_is_shown_its_own_blocks_only():
    thought = Opaque({"type": "thought", "text": "hm"})
    reply = Reply(Message("assistant", (thought, Text("Hi"))), "end", says("Hi").usage)
    one, two = ScriptedModel(lambda _: reply), ScriptedModel(lambda _: reply)
    found = models(services={"anthropic": one, "ollama": two}, **OLLAMA)
    said: tuple[Message, ...] = (Message("user", (Text("hello"),)),)
    for name in ("ollama/m", "anthropic/claude-x"):
        said = (*said, (await run(found, Request(name, "", said))).message)
    assert [m.blocks[0] for m in said[1:]] == [Opaque(thought.data, "ollama"), thought]
    for name in ("ollama/m", "anthropic/claude-x"):
        await run(found, Request(name, "", said))
    last = [each.requests[-1].messages[1:] for each in (two, one)]
    assert [m.blocks for m in last[0]] == [
        (Opaque(thought.data, "ollama"), Text("Hi")),
        (Text("Hi"),),
    ]
    assert [m.blocks for m in last[1]] == [(Text("Hi"),), (thought, Text("Hi"))]
