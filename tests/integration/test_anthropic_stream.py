"""What goes over the wire to the Messages API, and everything that can come back."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from email.utils import formatdate
from typing import Any

import pytest
import truststore
from pydantic import SecretStr

from bot.agent.models import Reply, Request, TextDelta, ToolSpec, Usage, connection
from bot.agent.models.anthropic import AnthropicModel
from bot.config import ServiceConfig
from bot.errors import (
    ModelAuth,
    ModelBadReply,
    ModelBilling,
    ModelContextFull,
    ModelError,
    ModelNotFound,
    ModelOverloaded,
    ModelRateLimited,
    ModelRejected,
    ModelTimeout,
    ModelTooLarge,
    ModelUnreachable,
)
from bot.messages import Message, Opaque, Text, ToolResult, ToolUse
from tests.fakes import messages_api as api
from tests.fakes.text_store import TextStoreInMemory

SECRET = "sk-ant-not-to-be-shown"
WORDS = "my darkest secret"
TOOL = ToolSpec("look", "Look.", {"type": "object", "properties": {}})


@pytest.fixture
async def server() -> AsyncIterator[api.MessagesApi]:
    async with api.running(api.says("Hi", " there")) as server:
        yield server


def config(server: api.MessagesApi, **options: Any) -> ServiceConfig:
    return ServiceConfig(base_url=server.base_url, api_key=SecretStr(SECRET), **options)


def model_on(server: api.MessagesApi, **options: Any) -> AnthropicModel:
    return AnthropicModel(config(server), window_store=TextStoreInMemory(), **options)


@pytest.fixture
async def model(server: api.MessagesApi) -> AsyncIterator[AnthropicModel]:
    model = model_on(server, max_retries=0)
    yield model
    await model.close()


def asking(*messages: Message, **fields: Any) -> Request:
    said = messages or (Message("user", (Text(WORDS),)),)
    return replace(Request("claude-x", "Be brief.", said), **fields)


async def run(model: AnthropicModel, request: Request | None = None) -> tuple[str, Reply]:
    words, replies = "", list[Reply]()
    async for event in model.stream(request or asking()):
        if isinstance(event, TextDelta):
            words += event.text
        else:
            replies.append(event)
    (reply,) = replies
    return words, reply


# --- what is sent --------------------------------------------------------------------------------


async def test_the_body_has_breakpoints_on_the_prefix_and_on_the_last_message(
    server: api.MessagesApi, model: AnthropicModel
):
    messages = (
        Message("user", (Text("one"),)),
        Message("assistant", (Text("two"),)),
        Message("user", (Text("three"), Text(" "))),
    )
    await run(model, asking(*messages, tools=(TOOL,), max_tokens=99))
    mark = {"type": "ephemeral"}
    assert server.bodies == [
        {
            "model": "claude-x",
            "max_tokens": 99,
            "stream": True,
            "system": [{"type": "text", "text": "Be brief.", "cache_control": mark}],
            "tools": [{"name": "look", "description": "Look.", "input_schema": TOOL.schema}],
            "messages": [
                {"role": "user", "content": [{"type": "text", "text": "one"}]},
                {"role": "assistant", "content": [{"type": "text", "text": "two"}]},
                {
                    "role": "user",
                    "content": [{"type": "text", "text": "three", "cache_control": mark}],
                },
            ],
        }
    ]


async def test_the_key_and_address_come_from_the_configuration_alone(
    server: api.MessagesApi, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "from-the-environment")
    monkeypatch.setenv("ANTHROPIC_AUTH_TOKEN", "from-the-environment")
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("ANTHROPIC_CUSTOM_HEADERS", "X-Extra: from-the-environment")
    monkeypatch.setenv("ANTHROPIC_PROFILE", "from-the-environment")
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    model = model_on(server, max_retries=0)
    await run(model)
    await model.close()
    (headers,) = server.headers
    assert "from-the-environment" not in str(headers)
    assert headers["Authorization"] == f"Bearer {SECRET}"
    assert headers["X-Api-Key"] == SECRET


def test_certificates_are_the_systems_also_where_python_does_not_find_them(
    monkeypatch: pytest.MonkeyPatch,
):
    assert connection.trusted() is True
    monkeypatch.setattr("sys.platform", "darwin")
    assert isinstance(connection.trusted(), truststore.SSLContext)


async def test_an_endpoint_of_ones_own_needs_no_key(server: api.MessagesApi):
    config = ServiceConfig(base_url=server.base_url)
    model = AnthropicModel(config, window_store=TextStoreInMemory(), max_retries=0)
    words, _ = await run(model)
    await model.close()
    assert words == "Hi there"


async def test_without_key_and_endpoint_nothing_is_sent():
    model = AnthropicModel(ServiceConfig(), window_store=TextStoreInMemory())
    with pytest.raises(ModelAuth):
        await run(model)
    await model.close()


async def test_a_reply_is_never_asked_longer_than_the_model_can(server: api.MessagesApi):
    server.models["claude-x"] = api.model_info("claude-x", 100_000, 50)
    store = TextStoreInMemory()
    model = AnthropicModel(config(server), window_store=store, max_retries=0)
    await run(model, asking(max_tokens=99))
    await model.window("claude-x")
    await store.written.wait()
    await run(model, asking(max_tokens=99))
    await model.close()
    assert [body["max_tokens"] for body in server.bodies] == [99, 50]


async def test_an_empty_history_is_refused_without_a_call(
    server: api.MessagesApi, model: AnthropicModel
):
    nothing = Request("claude-x", "Be brief.", (Message("user", (Text(" \n"),)),))
    with pytest.raises(ModelRejected):
        await run(model, nothing)
    assert server.bodies == []


async def test_nothing_of_what_is_said_comes_into_a_log(
    server: api.MessagesApi, model: AnthropicModel, caplog: pytest.LogCaptureFixture
):
    with caplog.at_level(logging.DEBUG):
        await model.warm_up()
        await run(model)
    assert WORDS not in caplog.text
    assert SECRET not in caplog.text


# --- what comes back -----------------------------------------------------------------------------


async def test_usage_counts_the_cache(server: api.MessagesApi, model: AnthropicModel):
    opening = api.start(
        input_tokens=5, cache_read_input_tokens=700, cache_creation_input_tokens=80, output_tokens=1
    )
    server.answers = [api.streams(opening, *api.text(0, "Hi"), *api.end(output_tokens=9))]
    _, reply = await run(model)
    assert reply.usage == Usage(5, 9, 700, 80)
    assert reply.usage.context_tokens == 794


async def test_blocks_of_every_kind_go_back_as_they_came(
    server: api.MessagesApi, model: AnthropicModel
):
    search: dict[str, Any] = {
        "type": "server_tool_use",
        "id": "srv_1",
        "name": "web_search",
        "input": {},
    }
    found = {"type": "web_search_tool_result", "tool_use_id": "srv_1", "content": [{"a": 1}]}
    use: dict[str, Any] = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}}
    server.answers = [
        api.streams(
            api.start(),
            *api.block(
                0,
                {"type": "thinking", "thinking": "", "signature": ""},
                {"type": "thinking_delta", "thinking": "Hm"},
                {"type": "thinking_delta", "thinking": "m."},
                {"type": "signature_delta", "signature": "c2ln"},
            ),
            *api.block(1, search, {"type": "input_json_delta", "partial_json": '{"q":1}'}),
            *api.block(2, found),
            {"type": "ping"},
            {"type": "something_new", "index": 7},
            *api.text(3, "Look", "ing."),
            *api.block(
                4,
                use,
                {"type": "input_json_delta", "partial_json": ""},
                {"type": "input_json_delta", "partial_json": '{"where": "h'},
                {"type": "input_json_delta", "partial_json": 'ere"}'},
            ),
            *api.end("tool_use"),
        )
    ]
    words, reply = await run(model)
    assert words == "Looking."
    assert reply.stop == "tool_use"
    assert reply.message.blocks == (
        Opaque({"type": "thinking", "thinking": "Hmm.", "signature": "c2ln"}),
        Opaque({**search, "input": {"q": 1}}),
        Opaque(found),
        Text("Looking."),
        ToolUse("toolu_1", "look", {"where": "here"}),
    )

    said, result = Message("user", (Text("one"),)), Message("user", (ToolResult("toolu_1", "ok"),))
    await run(model, asking(said, reply.message, result))
    sent = server.bodies[-1]["messages"]
    assert sent[1]["content"] == [
        {"type": "thinking", "thinking": "Hmm.", "signature": "c2ln"},
        {**search, "input": {"q": 1}},
        found,
        {"type": "text", "text": "Looking."},
        {**use, "input": {"where": "here"}},
    ]
    assert sent[2]["content"][0]["content"] == "ok"


async def test_half_a_character_waits_for_its_other_half(
    server: api.MessagesApi, model: AnthropicModel
):
    server.answers = [api.says("a\ud83c", "\udf89b", "\ud83c")]
    words, reply = await run(model)
    assert words == reply.message.text == "a🎉b"


async def test_a_character_may_come_in_two_packets(server: api.MessagesApi, model: AnthropicModel):
    event = 'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,"delta":'
    whole = f'{event}{{"type":"text_delta","text":"你好🎉"}}}}\n\n'.encode()
    pieces = [whole[at : at + 1] for at in range(len(whole))]
    opening, *_, closing = api.text(0)
    server.answers = [api.streams(api.start(), opening, *pieces, closing, *api.end())]
    words, _ = await run(model)
    assert words == "你好🎉"


async def test_a_tool_call_cut_off_by_the_length_is_left_out(
    server: api.MessagesApi, model: AnthropicModel
):
    use: dict[str, Any] = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}}
    cut = api.block(1, use, {"type": "input_json_delta", "partial_json": '{"where": "h'})
    server.answers = [api.streams(api.start(), *api.text(0, "I"), *cut, *api.end("max_tokens"))]
    _, reply = await run(model)
    assert reply.message.blocks == (Text("I"),)
    assert reply.stop == "max_tokens"


# --- what goes wrong -----------------------------------------------------------------------------


def event_error(kind: str, message: str = "") -> Mapping[str, Any]:
    return {"type": "error", "error": {"type": kind, "message": message}}


USE: dict[str, Any] = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}}
LONG = "prompt is too long: 201000 tokens > 200000 maximum"
POOR = "Your credit balance is too low to access the Anthropic API."


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (api.fails(400, "invalid_request_error", LONG), ModelContextFull),
        (api.fails(400, "invalid_request_error", POOR), ModelBilling),
        (api.fails(400, "invalid_request_error", WORDS), ModelRejected),
        (api.fails(401, "authentication_error"), ModelAuth),
        (api.fails(402, "billing_error"), ModelBilling),
        (api.fails(403, "permission_error"), ModelAuth),
        (api.fails(404, "not_found_error"), ModelNotFound),
        (api.fails(408), ModelTimeout),
        (api.fails(409), ModelOverloaded),
        (api.fails(413, "request_too_large"), ModelTooLarge),
        (api.fails(418), ModelRejected),
        (api.fails(429, "rate_limit_error"), ModelRateLimited),
        (api.fails(500, "api_error"), ModelOverloaded),
        (api.fails(503), ModelOverloaded),
        (api.fails(504, "timeout_error"), ModelTimeout),
        (api.fails(529, "overloaded_error"), ModelOverloaded),
        (api.drops, ModelUnreachable),
        (api.streams(), ModelBadReply),
        (api.streams(b"<html>a page</html>"), ModelBadReply),
        (api.streams(api.start(), *api.text(0, "Hi")), ModelBadReply),
        (api.streams(api.start(), *api.text(0, "Hi"), *api.end(None)), ModelBadReply),
        (api.streams(api.start(), *api.text(0, "Hi"), then=api.drops), ModelUnreachable),
        (api.streams(api.start(), b"event: message_delta\ndata: {oops\n\n"), ModelBadReply),
        (api.streams(api.start(), b"event: message_delta\ndata: [1]\n\n"), ModelBadReply),
        (api.streams(api.start(), b"event: x\ndata: \xff\xfe\n\n"), ModelBadReply),
        (api.streams(api.start(), {"type": "content_block_delta"}), ModelBadReply),
        (api.streams(api.start(), *api.text(0, "Hi")[1:]), ModelBadReply),
        (api.streams(api.start(), event_error("overloaded_error")), ModelOverloaded),
        (api.streams(api.start(), event_error("api_error")), ModelOverloaded),
        (api.streams(api.start(), event_error("rate_limit_error")), ModelRateLimited),
        (api.streams(event_error("invalid_request_error", LONG)), ModelContextFull),
        (api.streams(api.start(), {"type": "error"}), ModelRejected),
        (
            api.streams(
                api.start(),
                *api.block(0, USE, {"type": "input_json_delta", "partial_json": "{oops"}),
                *api.end("tool_use"),
            ),
            ModelBadReply,
        ),
        (
            api.streams(
                api.start(),
                *api.block(0, USE, {"type": "input_json_delta", "partial_json": "[1]"}),
                *api.end("tool_use"),
            ),
            ModelBadReply,
        ),
    ],
)
async def test_every_failure_is_one_of_ours(
    server: api.MessagesApi, model: AnthropicModel, answer: api.Answer, error: type[ModelError]
):
    server.answers = [answer]
    with pytest.raises(error) as caught:
        await run(model)
    assert type(caught.value) is error
    for hidden in (SECRET, WORDS):
        assert hidden not in str(caught.value)
    server.answers = [api.says("Hi")]
    assert (await run(model))[0] == "Hi"


async def test_a_failure_names_what_the_operator_can_look_up(
    server: api.MessagesApi, model: AnthropicModel
):
    server.answers = [api.fails(400, "invalid_request_error", WORDS, request_id="req_123")]
    with pytest.raises(ModelRejected) as caught:
        await run(model)
    assert str(caught.value) == ("status 400, invalid_request_error, request req_123")
    assert caught.value.__cause__ is not None


async def test_nobody_there_is_unreachable():
    nowhere = ServiceConfig(base_url="http://127.0.0.1:1", api_key=SecretStr(SECRET))
    model = AnthropicModel(nowhere, window_store=TextStoreInMemory(), max_retries=0)
    with pytest.raises(ModelUnreachable):
        await run(model)
    await model.close()


@pytest.mark.parametrize("base_url", ["not an address", "ftp://127.0.0.1:1", "http://[::1"])
async def test_an_address_that_is_none_is_one_of_our_errors(base_url: str):
    nowhere = ServiceConfig(base_url=base_url, api_key=SecretStr(SECRET))
    model = AnthropicModel(nowhere, window_store=TextStoreInMemory(), max_retries=0)
    with pytest.raises(ModelError):
        await run(model)
    await model.close()


@pytest.mark.parametrize("after", [(), (api.start(),)], ids=["at once", "in the middle"])
async def test_silence_ends_at_the_configured_time(
    server: api.MessagesApi, after: tuple[Mapping[str, Any], ...]
):
    never = asyncio.Event()
    silent = api.waits(never)
    server.answers = [api.streams(*after, then=silent) if after else silent]
    model = AnthropicModel(
        config(server, timeout=0.05), window_store=TextStoreInMemory(), max_retries=0
    )
    with pytest.raises(ModelTimeout):
        await run(model)
    never.set()
    await model.close()


async def test_an_overloaded_service_is_tried_again(server: api.MessagesApi):
    busy = api.fails(529, "overloaded_error", retry_after_ms="1")
    server.answers = [busy, busy, api.says("Hi")]
    model = model_on(server)
    words, _ = await run(model)
    await model.close()
    assert words == "Hi"
    assert len(server.bodies) == 3


BUSY = api.streams(api.start(), {"type": "error", "error": {"type": "overloaded_error"}})


@pytest.fixture
def _quick(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("bot.agent.models.service.FIRST_PAUSE", 0.001)


@pytest.mark.usefixtures("_quick")
@pytest.mark.parametrize(
    "trouble",
    [
        BUSY,
        api.streams(api.start()),
        api.streams(),
        api.streams(api.start(), then=api.drops),
        api.drops,
        api.fails(429, "rate_limit_error"),
        api.fails(500, x_should_retry="true"),
    ],
    ids=["overloaded within", "ends", "empty", "breaks", "refused", "rate limit", "error"],
)
async def test_what_goes_wrong_before_the_first_word_is_tried_three_times_in_all(
    server: api.MessagesApi, trouble: api.Answer
):
    model = model_on(server)
    server.answers = [trouble, trouble, api.says("Hi")]
    assert (await run(model))[0] == "Hi"
    assert len(server.bodies) == 3
    server.answers = [trouble]
    with pytest.raises(ModelError):
        await run(model)
    assert len(server.bodies) == 6
    await model.close()


@pytest.mark.usefixtures("_quick")
@pytest.mark.parametrize(
    "trouble",
    [
        api.streams(api.start(), *api.text(0, "Half"), then=api.drops),
        api.streams(api.start(), *api.text(0, "Half")),
        api.fails(400, "invalid_request_error"),
        api.fails(503, "", x_should_retry="false"),
        api.fails(401, "authentication_error"),
    ],
)
async def test_what_has_begun_or_cannot_change_is_not_tried_again(
    server: api.MessagesApi, trouble: api.Answer
):
    server.answers = [trouble, api.says("Hi")]
    model = model_on(server)
    with pytest.raises(ModelError):
        await run(model)
    await model.close()
    assert len(server.bodies) == 1


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry_after": "120"}, 120),
        ({"retry_after_ms": "90000"}, 90),
        ({"retry_after": "a date"}, 600),
    ],
)
async def test_a_long_wait_is_told_and_not_sat_out(
    server: api.MessagesApi, headers: dict[str, str], seconds: float
):
    if headers.get("retry_after") == "a date":
        headers = {"retry_after": formatdate(time.time() + seconds, usegmt=True)}
    server.answers = [api.fails(429, "rate_limit_error", **headers)]
    model = model_on(server)
    with pytest.raises(ModelRateLimited) as caught:
        await run(model)
    await model.close()
    assert caught.value.wait == pytest.approx(seconds, abs=60)
    assert len(server.bodies) == 1


async def test_a_rate_limit_never_becomes_a_turn_that_took_too_long(server: api.MessagesApi):
    server.answers = [api.fails(429, "rate_limit_error", retry_after="10")]
    model = model_on(server)
    soon = asyncio.get_running_loop().time() + 5
    with pytest.raises(ModelRateLimited):
        await run(model, replace(asking(), deadline=soon))
    await model.close()
    assert len(server.bodies) == 1


async def test_words_alone_are_asked_for_with_the_tools_still_listed(
    server: api.MessagesApi, model: AnthropicModel
):
    await run(model, replace(asking(), tools=(TOOL,), may_call=False))
    await run(model, replace(asking(), tools=(TOOL,)))
    first, second = server.bodies
    assert first["tool_choice"] == {"type": "none"}
    assert "tool_choice" not in second
    assert first["tools"] == second["tools"]


# --- its life ------------------------------------------------------------------------------------


async def test_everyone_waits_for_the_same_loading(server: api.MessagesApi):
    model = model_on(server, max_retries=0)
    hasty = asyncio.create_task(model.warm_up())
    await asyncio.sleep(0)
    hasty.cancel()
    replies = await asyncio.gather(*(run(model) for _ in range(5)))
    assert {words for words, _ in replies} == {"Hi there"}
    await model.close()


async def test_closed_is_closed(server: api.MessagesApi):
    model = model_on(server, max_retries=0)
    await run(model)
    await model.close()
    with pytest.raises(ModelUnreachable):
        await run(model)


async def test_closing_while_the_sdk_loads_is_fine(server: api.MessagesApi):
    model = model_on(server, max_retries=0)
    loading = asyncio.create_task(model.warm_up())
    await asyncio.sleep(0)
    await model.close()
    await loading
