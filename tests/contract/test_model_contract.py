"""What every model must do, the scripted double and the real ones alike."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from pydantic import SecretStr

from bot.agent.models import Model, Reply, Request, TextDelta, ToolSpec, Window
from bot.agent.models.anthropic import AnthropicModel
from bot.agent.models.openai import OpenAIModel
from bot.agent.models.registry import configured
from bot.agent.offline import OfflineModel
from bot.config import ModelsConfig, ServiceConfig
from bot.messages import Message, Opaque, Text, ToolResult, ToolUse
from bot.testing import ScriptedModel, calls, says
from tests.fakes import written_model
from tests.fakes.text_store import TextStoreInMemory

SEARCH = ToolSpec(
    "transcript_search",
    "Search.",
    {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]},
)
THOUGHT = "First this, then that."
CHINESE = "你好，很高兴见到你！🎉 家人👨‍👩‍👧 和 𠮷野家。"


@dataclass(frozen=True)
class Subject:
    """A model, and what to say to it to get a plain answer, a Chinese one, and a tool call.

    One that calls no tool, or does not think aloud, has nothing to be said for that.
    """

    model: Model
    plain: str
    chinese: str
    tool: str
    thinking: str = ""


def _script(request: Request) -> str | Reply:
    last = request.messages[-1]
    if any(isinstance(block, ToolResult) for block in last.blocks):
        return "The tool answered."
    if last.text == "use the tool":
        return calls("transcript_search", query="花生")
    return says(CHINESE) if last.text == "chinese" else "A plain answer."


@asynccontextmanager
async def _scripted() -> AsyncGenerator[Subject]:
    thinks = ScriptedModel(_script, thinks=THOUGHT)
    yield Subject(thinks, "plain", "chinese", "use the tool", "plain")


@asynccontextmanager
async def _offline() -> AsyncGenerator[Subject]:
    yield Subject(OfflineModel(), "hello", "你好", "What do you know about peanuts?")


@asynccontextmanager
async def _anthropic(url: str) -> AsyncGenerator[Subject]:
    config = ServiceConfig(base_url=url, api_key=SecretStr("test"))
    model = AnthropicModel(config, window_store=TextStoreInMemory(), max_retries=0)
    await model.load_sdk()
    yield Subject(model, "plain", "chinese", "use the tool", "think first")


@asynccontextmanager
async def _openai(url: str) -> AsyncGenerator[Subject]:
    config = ServiceConfig(base_url=url, api_key=SecretStr("test"))
    model = OpenAIModel(config, window_store=TextStoreInMemory(), max_retries=0)
    yield Subject(model, "plain", "chinese", "use the tool", "think first")


@asynccontextmanager
async def _written() -> AsyncGenerator[Subject]:
    """The model of docs/writing-a-model.md, behind the registry as any other."""
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        written_model.install(Path(folder))
        patch.syspath_prepend(folder)
        config = ModelsConfig.model_validate({"echo": {}})
        models = configured(config, TextStoreInMemory())
        yield Subject(models["echo"], "a\nb", "你\n好🎉", "")
        sys.modules.pop("confidant_echo", None)


SERVED = (_anthropic, _openai)
SUBJECTS = (_scripted, _offline, *SERVED, _written)


@pytest.fixture(params=SUBJECTS, ids=[each.__name__.strip("_") for each in SUBJECTS])
async def subject(request):
    served = [request.getfixturevalue("aimock_url")] if request.param in SERVED else []
    opened: AbstractAsyncContextManager[Subject] = request.param(*served)
    async with opened as subject:
        yield subject
        await subject.model.close()


def asking(text: str, *more: Message, language: str = "en") -> Request:
    messages = (Message("user", (Text(text),)), *more)
    return Request("claude-sonnet-5-5", "Be brief.", messages, (SEARCH,), language=language)


async def run(model: Model, request: Request) -> tuple[list[str], Reply]:
    events = [event async for event in model.stream(request)]
    deltas = [event.text for event in events if isinstance(event, TextDelta)]
    replies = [event for event in events if isinstance(event, Reply)]
    assert len(replies) == 1
    assert events[-1] is replies[0]
    return deltas, replies[0]


async def test_words_come_in_pieces_and_then_the_whole_reply_once(subject):
    deltas, reply = await run(subject.model, asking(subject.plain))
    assert len(deltas) > 1
    assert "".join(deltas) == reply.message.text
    assert reply.message.role == "assistant"
    assert reply.stop == "end"


async def test_the_same_request_twice_gets_the_same_words(subject):
    request = asking(subject.plain)
    assert await run(subject.model, request) == await run(subject.model, request)


async def test_chinese_and_emoji_are_whole_however_they_are_cut(subject):
    deltas, reply = await run(subject.model, asking(subject.chinese, language="zh"))
    assert "".join(deltas) == reply.message.text
    for piece in (*deltas, reply.message.text):
        assert piece.encode().decode() == piece
        assert "\ufffd" not in piece
    assert any("\u4e00" <= character <= "\u9fff" for character in reply.message.text)


async def test_a_tool_call_and_its_result_lead_to_an_answer(subject):
    if not subject.tool:
        return  # it calls none
    request = asking(subject.tool)
    deltas, asked = await run(subject.model, request)
    assert asked.stop == "tool_use"
    assert "".join(deltas) == asked.message.text
    (use,) = (block for block in asked.message.blocks if isinstance(block, ToolUse))
    assert use.name == "transcript_search"
    assert use.id
    assert isinstance(use.input["query"], str)

    result = Message("user", (ToolResult(use.id, "No past message matches."),))
    following = replace(request, messages=(*request.messages, asked.message, result))
    _, answer = await run(subject.model, following)
    assert answer.stop == "end"
    assert answer.message.text


async def test_what_is_thought_is_told_as_it_comes_and_is_no_part_of_the_reply(subject):
    if not subject.thinking:
        return  # it does not think aloud
    told: list[str] = []
    request = replace(asking(subject.thinking), on_thought=told.append)
    deltas, reply = await run(subject.model, request)
    assert "".join(told).strip() == THOUGHT
    assert THOUGHT not in "".join(deltas)
    assert THOUGHT not in reply.message.text
    words = [block for block in reply.message.blocks if isinstance(block, (Text, Opaque))]
    assert all(isinstance(block, Text) or block.is_thought for block in words)
    # Whoever does not ask for it has the same reply.
    assert await run(subject.model, asking(subject.thinking)) == (deltas, reply)


async def test_a_failed_tool_is_answered_too(subject):
    if not subject.tool:
        return  # it calls none
    request = asking(subject.tool)
    _, asked = await run(subject.model, request)
    (use,) = (block for block in asked.message.blocks if isinstance(block, ToolUse))
    result = Message("user", (ToolResult(use.id, "Error: no", is_error=True),))
    following = replace(request, messages=(*request.messages, asked.message, result))
    _, answer = await run(subject.model, following)
    assert answer.message.text


async def test_a_reply_nobody_waits_for_any_more_ends_quietly(subject):
    async with aclosing(subject.model.stream(asking(subject.plain))) as events:
        async for _ in events:
            break
    _, reply = await run(subject.model, asking(subject.plain))
    assert reply.stop == "end"


async def test_a_cancelled_reply_ends_at_once_and_the_next_one_works(subject):
    begun = asyncio.Event()

    async def consume() -> None:
        async with aclosing(subject.model.stream(asking(subject.plain))) as events:
            async for _ in events:
                begun.set()
                await asyncio.Event().wait()

    task = asyncio.create_task(consume())
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    _, reply = await run(subject.model, asking(subject.plain))
    assert reply.stop == "end"


async def test_many_replies_at_a_time_do_not_mix(subject):
    texts = [subject.plain, subject.chinese] * 10
    answers = await asyncio.gather(*(run(subject.model, asking(text)) for text in texts))
    assert len({reply.message.text for _, reply in answers}) <= 2
    for deltas, reply in answers:
        assert "".join(deltas) == reply.message.text


async def test_window_and_names_never_raise(subject):
    for name in ("claude-sonnet-5-5", "nothing-by-this-name", ""):
        window = await subject.model.window(name)
        assert isinstance(window, Window)
        assert window.max_output_tokens > 0
        # 0 says that the service does not tell it.
        assert not window.max_input_tokens or window.max_input_tokens > window.max_output_tokens
    assert all(isinstance(name, str) for name in await subject.model.names())


async def test_closing_twice_is_closing_once(subject):
    await run(subject.model, asking(subject.plain))
    await subject.model.close()
    await subject.model.close()


async def test_closing_before_the_first_reply_is_fine(subject):
    await subject.model.close()
