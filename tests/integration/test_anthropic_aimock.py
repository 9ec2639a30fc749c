"""The Messages API as somebody else wrote it down: `AnthropicModel` against aimock."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from pydantic import SecretStr

from bot.agent.models import Reply, Request, TextDelta, Usage
from bot.agent.models.anthropic import AnthropicModel
from bot.config import ServiceConfig
from bot.errors import (
    ModelAuth,
    ModelBadReply,
    ModelError,
    ModelNotFound,
    ModelOverloaded,
    ModelRateLimited,
    ModelRejected,
    ModelTooLarge,
    ModelUnreachable,
)
from bot.messages import Message, Opaque, Text
from tests.fakes import aimock
from tests.fakes.text_store import TextStoreInMemory

SECRET = "sk-ant-not-to-be-shown"


@pytest.fixture
async def mock() -> AsyncIterator[aimock.AiMock]:
    async with aimock.running() as mock:
        yield mock


@pytest.fixture
async def model(mock: aimock.AiMock) -> AsyncIterator[AnthropicModel]:
    config = ServiceConfig(base_url=mock.base_url, api_key=SecretStr(SECRET))
    model = AnthropicModel(config, window_store=TextStoreInMemory(), max_retries=0)
    yield model
    await model.close()


def asking(text: str) -> Request:
    return Request("claude-sonnet-5-5", "Be brief.", (Message("user", (Text(text),)),))


async def reply_to(model: AnthropicModel, text: str) -> Reply:
    events = [event async for event in model.stream(asking(text))]
    assert isinstance(events[-1], Reply)
    return events[-1]


async def test_usage_is_what_the_service_counted(model: AnthropicModel):
    reply = await reply_to(model, "plain")
    assert reply.usage == Usage(input_tokens=12, output_tokens=11)


async def test_thinking_is_kept_as_it_came(model: AnthropicModel):
    reply = await reply_to(model, "think first")
    redacted, thinking, text = reply.message.blocks
    assert redacted == Opaque({"type": "redacted_thinking", "data": "b3BhcXVl"})
    assert thinking == Opaque(
        {"type": "thinking", "thinking": "First this, then that.", "signature": "c2lnbmF0dXJl"}
    )
    assert text == Text("Thought through.")


@pytest.mark.parametrize(
    ("text", "stop"),
    [
        ("too long", "max_tokens"),
        ("decline", "refusal"),
        ("pause", "paused"),
        ("window full", "context_full"),
        ("new reason", "end"),
    ],
)
async def test_every_stop_reason_has_a_meaning(model: AnthropicModel, text: str, stop: str):
    assert (await reply_to(model, text)).stop == stop


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("error 400", ModelRejected),
        ("error 401", ModelAuth),
        ("error 404", ModelNotFound),
        ("error 413", ModelTooLarge),
        ("error 429", ModelRateLimited),
        ("error 500", ModelOverloaded),
        ("error 529", ModelOverloaded),
        ("drop", ModelUnreachable),
        ("garble", ModelBadReply),
    ],
)
async def test_every_failure_is_one_of_ours(
    model: AnthropicModel, text: str, error: type[ModelError]
):
    with pytest.raises(error) as caught:
        await reply_to(model, text)
    assert type(caught.value) is error
    assert SECRET not in str(caught.value)
    assert text not in str(caught.value)
    assert (await reply_to(model, "plain")).stop == "end"


async def test_what_came_before_a_break_is_shown_and_then_the_error(model: AnthropicModel):
    shown: list[str] = []

    async def show() -> None:
        async for event in model.stream(asking("break off")):
            assert isinstance(event, TextDelta)
            shown.append(event.text)

    with pytest.raises(ModelUnreachable):
        await show()
    assert "".join(shown).startswith("This ")


async def test_the_request_is_one_the_service_understands(
    mock: aimock.AiMock, model: AnthropicModel
):
    await reply_to(model, "plain")
    (entry,) = await mock.journal()
    assert entry["path"] == "/v1/messages"
    assert entry["response"]["status"] == 200
    assert [message["role"] for message in entry["body"]["messages"]] == ["system", "user"]
    assert entry["body"]["stream"] is True
