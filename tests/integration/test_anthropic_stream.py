"""What goes over the wire to the Messages API, and everything that can come back."""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections.abc import Mapping
from dataclasses import replace
from email.utils import formatdate
from typing import Any

import aiohttp
import anthropic
import pytest
import truststore
from aiohttp import web
from aiohttp.test_utils import TestServer
from pydantic import SecretStr

from bot import errors
from bot.agent.models import Reply, Request, TextDelta, ToolSpec, Usage
from bot.agent.models.anthropic import AnthropicModel
from bot.agent.models.capabilities import ServiceRefused
from bot.agent.models.connection import model_error
from bot.agent.models.openai import OpenAIModel
from bot.config import ServiceConfig
from bot.messages import Message, Opaque, Text, ToolResult, ToolUse
from bot.net import connection
from tests.fakes import messages_api as api
from tests.fakes.text_store import TextStoreInMemory

SECRET = "sk-ant-not-to-be-shown"
WORDS = "my darkest secret"
TOOL = ToolSpec("look", "Look.", {"type": "object", "properties": {}})


@pytest.fixture
async def server():
    async with api.running(api.says("Hi", " there")) as server:
        yield server


def config(server: api.MessagesApi, **options: Any) -> ServiceConfig:
    return ServiceConfig(base_url=server.base_url, api_key=SecretStr(SECRET), **options)


def model_on(server: api.MessagesApi, **options: Any) -> AnthropicModel:
    return AnthropicModel(config(server), window_store=TextStoreInMemory(), **options)


@pytest.fixture
async def model(server):
    model = model_on(server, max_retries=0)
    await model.load_sdk()
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


async def test_the_body_has_breakpoints_on_the_prefix_and_on_the_last_message(server, model):
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


async def test_the_key_and_address_come_from_the_configuration_alone(server, monkeypatch):
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


def test_certificates_are_the_systems_also_where_python_does_not_find_them(monkeypatch):
    assert connection.trusted() is True
    monkeypatch.setattr("sys.platform", "darwin")
    assert isinstance(connection.trusted(), truststore.SSLContext)


async def test_an_endpoint_of_ones_own_needs_no_key(server, closing):
    config = ServiceConfig(base_url=server.base_url)
    model = closing(AnthropicModel(config, window_store=TextStoreInMemory(), max_retries=0))
    words, _ = await run(model)
    assert words == "Hi there"


async def test_without_key_and_endpoint_nothing_is_sent(closing):
    model = closing(AnthropicModel(ServiceConfig(), window_store=TextStoreInMemory()))
    with pytest.raises(errors.ModelAuth):
        await run(model)


async def test_a_reply_is_never_asked_longer_than_the_model_can(server, closing):
    server.models["claude-x"] = api.model_info("claude-x", 100_000, 50)
    store = TextStoreInMemory()
    model = closing(AnthropicModel(config(server), window_store=store, max_retries=0))
    await run(model, asking(max_tokens=99))
    await model.window("claude-x")
    await store.written.wait()
    await run(model, asking(max_tokens=99))
    assert [body["max_tokens"] for body in server.bodies] == [99, 50]


async def test_an_empty_history_is_refused_without_a_call(server, model):
    nothing = Request("claude-x", "Be brief.", (Message("user", (Text(" \n"),)),))
    with pytest.raises(errors.ModelRejected):
        await run(model, nothing)
    assert server.bodies == []


async def test_nothing_of_what_is_said_comes_into_a_log(server, model, caplog):
    with caplog.at_level(logging.DEBUG):
        await model.warm_up()
        await run(model)
    assert WORDS not in caplog.text
    assert SECRET not in caplog.text


# --- what comes back -----------------------------------------------------------------------------


async def test_usage_counts_the_cache(server, model):
    opening = api.start(
        input_tokens=5, cache_read_input_tokens=700, cache_creation_input_tokens=80, output_tokens=1
    )
    server.answers = [api.streams(opening, *api.text(0, "Hi"), *api.end(output_tokens=9))]
    _, reply = await run(model)
    assert reply.usage == Usage(5, 9, 700, 80)
    assert reply.usage.context_tokens == 794


async def test_blocks_of_every_kind_go_back_as_they_came(server, model):
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


async def test_half_a_character_waits_for_its_other_half(server, model):
    server.answers = [api.says("a\ud83c", "\udf89b", "\ud83c")]
    words, reply = await run(model)
    assert words == reply.message.text == "a🎉b"


async def test_a_character_may_come_in_two_packets(server, model):
    event = 'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,"delta":'
    whole = f'{event}{{"type":"text_delta","text":"你好🎉"}}}}\n\n'.encode()
    pieces = [whole[at : at + 1] for at in range(len(whole))]
    opening, *_, closing = api.text(0)
    server.answers = [api.streams(api.start(), opening, *pieces, closing, *api.end())]
    words, _ = await run(model)
    assert words == "你好🎉"


async def test_a_tool_call_cut_off_by_the_length_is_left_out(server, model):
    use: dict[str, Any] = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}}
    cut = api.block(1, use, {"type": "input_json_delta", "partial_json": '{"where": "h'})
    server.answers = [api.streams(api.start(), *api.text(0, "I"), *cut, *api.end("max_tokens"))]
    _, reply = await run(model)
    assert reply.message.blocks == (Text("I"),)
    assert reply.stop == "max_tokens"


# --- what goes wrong -----------------------------------------------------------------------------


def error_event(kind: str, message: str = "") -> Mapping[str, Any]:
    return {"type": "error", "error": {"type": kind, "message": message}}


USE: dict[str, Any] = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}}
LONG = "prompt is too long: 201000 tokens > 200000 maximum"
POOR = "Your credit balance is too low to access the Anthropic API."


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (api.fails(400, "invalid_request_error", LONG), errors.ModelContextFull),
        (api.fails(400, "invalid_request_error", POOR), errors.ModelBilling),
        (api.fails(400, "invalid_request_error", WORDS), errors.ModelRejected),
        (api.fails(401, "authentication_error"), errors.ModelAuth),
        (api.fails(402, "billing_error"), errors.ModelBilling),
        (api.fails(403, "permission_error"), errors.ModelAuth),
        (api.fails(404, "not_found_error"), errors.ModelNotFound),
        (api.fails(408), errors.ModelTimeout),
        (api.fails(409), errors.ModelOverloaded),
        (api.fails(413, "request_too_large"), errors.ModelTooLarge),
        (api.fails(418), errors.ModelRejected),
        (api.fails(429, "rate_limit_error"), errors.ModelRateLimited),
        (api.fails(500, "api_error"), errors.ModelFailed),
        (api.fails(503), errors.ModelOverloaded),
        (api.fails(504, "timeout_error"), errors.ModelTimeout),
        (api.fails(529, "overloaded_error"), errors.ModelOverloaded),
        (api.drops, errors.ModelUnreachable),
        (api.streams(), errors.ModelBadReply),
        (api.streams(b"<html>a page</html>"), errors.ModelNoApi),
        (api.streams(api.start(), *api.text(0, "Hi")), errors.ModelBadReply),
        (api.streams(api.start(), *api.text(0, "Hi"), then=api.drops), errors.ModelUnreachable),
        (api.streams(api.start(), b"event: message_delta\ndata: {oops\n\n"), errors.ModelBadReply),
        (api.streams(api.start(), b"event: message_delta\ndata: [1]\n\n"), errors.ModelBadReply),
        (api.streams(api.start(), b"event: x\ndata: \xff\xfe\n\n"), errors.ModelBadReply),
        (api.streams(api.start(), {"type": "content_block_delta"}), errors.ModelBadReply),
        (api.streams(api.start(), error_event("overloaded_error")), errors.ModelOverloaded),
        (api.streams(api.start(), error_event("api_error")), errors.ModelFailed),
        (api.streams(api.start(), error_event("rate_limit_error")), errors.ModelRateLimited),
        (api.streams(error_event("invalid_request_error", LONG)), errors.ModelContextFull),
        (api.streams(api.start(), {"type": "error"}), errors.ModelFailed),
    ],
)
async def test_every_failure_is_one_of_ours(server, model, answer, error):
    server.answers = [answer]
    with pytest.raises(error) as caught:
        await run(model)
    assert type(caught.value) is error
    for hidden in (SECRET, WORDS):
        assert hidden not in str(caught.value)
    server.answers = [api.says("Hi")]
    assert (await run(model))[0] == "Hi"


async def test_a_failure_names_what_the_operator_can_look_up(server, model):
    server.answers = [api.fails(400, "invalid_request_error", WORDS, request_id="req_123")]
    with pytest.raises(errors.ModelRejected) as caught:
        await run(model)
    assert str(caught.value) == ("status 400, invalid_request_error, request req_123")
    assert caught.value.__cause__ is not None


async def test_nobody_there_is_unreachable(closing):
    nowhere = ServiceConfig(base_url="http://127.0.0.1:1", api_key=SecretStr(SECRET))
    model = closing(AnthropicModel(nowhere, window_store=TextStoreInMemory(), max_retries=0))
    with pytest.raises(errors.ModelUnreachable):
        await run(model)


@pytest.mark.parametrize("base_url", ["not an address", "ftp://127.0.0.1:1", "http://[::1"])
async def test_an_address_that_is_none_is_one_of_our_errors(base_url, closing):
    nowhere = ServiceConfig(base_url=base_url, api_key=SecretStr(SECRET))
    model = closing(AnthropicModel(nowhere, window_store=TextStoreInMemory(), max_retries=0))
    with pytest.raises(errors.ModelError):
        await run(model)


@pytest.mark.parametrize("after", [(), (api.start(),)], ids=["at once", "in the middle"])
async def test_silence_ends_at_the_configured_time(server, after):
    never = asyncio.Event()
    silent = api.waits(never)
    server.answers = [api.streams(*after, then=silent) if after else silent]
    model = AnthropicModel(
        config(server, timeout=0.05), window_store=TextStoreInMemory(), max_retries=0
    )
    with pytest.raises(errors.ModelTimeout):
        await run(model)
    never.set()
    await model.close()


BUSY = api.streams(api.start(), {"type": "error", "error": {"type": "overloaded_error"}})


@pytest.fixture
def _quick(monkeypatch):
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
        api.fails(503, x_should_retry="true"),
        api.fails(529, "overloaded_error", retry_after_ms="1"),
    ],
    ids=["busy within", "ends", "empty", "breaks", "refused", "rate limit", "error", "overloaded"],
)
async def test_what_goes_wrong_before_the_first_word_is_tried_three_times_in_all(server, trouble):
    model = model_on(server)
    server.answers = [trouble, trouble, api.says("Hi")]
    assert (await run(model))[0] == "Hi"
    assert len(server.bodies) == 3
    server.answers = [trouble]
    with pytest.raises(errors.ModelError):
        await run(model)
    assert len(server.bodies) == 6
    await model.close()


@pytest.mark.usefixtures("_quick")
@pytest.mark.parametrize(
    "trouble",
    [
        api.streams(api.start(), *api.text(0, "Half"), then=api.drops),
        api.streams(api.start(), *api.text(0, "Half")),
        api.fails(503, "", x_should_retry="false"),
        api.fails(401, "authentication_error"),
    ],
)
async def test_what_has_begun_or_cannot_change_is_not_tried_again(server, trouble, closing):
    server.answers = [trouble, api.says("Hi")]
    model = closing(model_on(server))
    with pytest.raises(errors.ModelError):
        await run(model)
    assert len(server.bodies) == 1


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry_after": "120"}, 120),
        ({"retry_after_ms": "90000"}, 90),
        ({"retry_after": "a date"}, 600),
    ],
)
async def test_a_long_wait_is_told_and_not_sat_out(server, headers, seconds, closing):
    if headers.get("retry_after") == "a date":
        headers = {"retry_after": formatdate(time.time() + seconds, usegmt=True)}
    server.answers = [api.fails(429, "rate_limit_error", **headers)]
    model = closing(model_on(server))
    with pytest.raises(errors.ModelRateLimited) as caught:
        await run(model)
    assert caught.value.wait == pytest.approx(seconds, abs=60)
    assert len(server.bodies) == 1


async def test_a_rate_limit_never_becomes_a_turn_that_took_too_long(server, closing):
    server.answers = [api.fails(429, "rate_limit_error", retry_after="10")]
    model = closing(model_on(server))
    soon = asyncio.get_running_loop().time() + 5
    with pytest.raises(errors.ModelRateLimited):
        await run(model, replace(asking(), deadline=soon))
    assert len(server.bodies) == 1


async def test_words_alone_are_asked_for_with_the_tools_still_listed(server, model):
    await run(model, replace(asking(), tools=(TOOL,), may_call=False))
    await run(model, replace(asking(), tools=(TOOL,)))
    first, second = server.bodies
    assert first["tool_choice"] == {"type": "none"}
    assert "tool_choice" not in second
    assert first["tools"] == second["tools"]


# --- its life ------------------------------------------------------------------------------------


async def test_everyone_waits_for_the_same_loading(server, closing):
    model = closing(model_on(server, max_retries=0))
    hasty = asyncio.create_task(model.warm_up())
    await asyncio.sleep(0)
    hasty.cancel()
    replies = await asyncio.gather(*(run(model) for _ in range(5)))
    assert {words for words, _ in replies} == {"Hi there"}


async def test_closed_is_closed(server):
    model = model_on(server, max_retries=0)
    await run(model)
    await model.close()
    with pytest.raises(errors.ModelUnreachable):
        await run(model)


async def test_no_request_waits_for_the_sdk(server, monkeypatch, closing):
    gate = asyncio.Event()

    async def load(_model: AnthropicModel) -> None:
        await gate.wait()

    monkeypatch.setattr(AnthropicModel, "_load_sdk", load)
    model = closing(model_on(server, max_retries=0))
    assert (await run(model))[0] == "Hi there"
    assert "x-stainless-lang" not in {name.lower() for name in server.headers[0]}
    gate.set()


async def test_what_is_sent_with_the_sdk_is_what_is_sent_before_it_is_loaded(server, model):
    before = model_on(server, max_retries=0)
    await run(before)
    await run(model)
    await before.close()
    assert server.bodies[0] == server.bodies[1]
    assert "X-Stainless-Lang" in server.headers[1]


async def test_closing_while_the_sdk_loads_is_fine(server):
    model = model_on(server, max_retries=0)
    loading = asyncio.create_task(model.warm_up())
    await asyncio.sleep(0)
    await model.close()
    await loading


ON_THE_WAY = {errors.ModelTimeout, errors.ModelUnreachable, errors.ModelProxy}


def transport_errors() -> list[type[Exception]]:
    """What aiohttp raises; warnings and what servers raise are none of a client's."""
    found = {cls for _, cls in inspect.getmembers(aiohttp, inspect.isclass)}
    return sorted((cls for cls in found if issubclass(cls, aiohttp.ClientError)), key=str)


def test_every_transport_error_is_one_of_ours():
    assert len(transport_errors()) > 20
    for cls in transport_errors():
        error = cls.__new__(cls, SECRET)
        Exception.__init__(error, SECRET)
        mapped = model_error(error)
        assert type(mapped) in ON_THE_WAY, cls
        assert SECRET not in str(mapped)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (aiohttp.SocketTimeoutError(SECRET), errors.ModelTimeout),
        (aiohttp.ConnectionTimeoutError(SECRET), errors.ModelTimeout),
        (TimeoutError(SECRET), errors.ModelTimeout),
        (aiohttp.ClientPayloadError(SECRET), errors.ModelUnreachable),
        (aiohttp.ServerDisconnectedError(SECRET), errors.ModelUnreachable),
        (ConnectionResetError(SECRET), errors.ModelUnreachable),
        (ValueError(SECRET), errors.ModelBadReply),
        (RuntimeError(SECRET), errors.ModelError),
    ],
    ids=lambda value: getattr(value, "__name__", type(value).__name__),
)
def test_the_particular_wins_over_the_general(error, kind):
    mapped = model_error(error)
    assert type(mapped) is kind
    assert SECRET not in str(mapped)


def test_ours_stay_as_they_are():
    error = errors.ModelRejected("there is nothing to answer")
    assert model_error(error) is error


@pytest.mark.parametrize("body", [None, SECRET, [SECRET], {"error": SECRET}, {"error": [SECRET]}])
def test_a_refusal_in_whatever_words_quotes_none_of_them(body):
    refused = ServiceRefused(500, {}, body)
    assert type(model_error(refused)) is errors.ModelFailed
    assert SECRET not in f"{model_error(refused)} {refused} {refused!r}"


@pytest.mark.parametrize(
    ("status", "kind", "code", "expected"),
    [
        (429, "rate_limit_error", None, errors.ModelRateLimited),
        (429, "rate_limit_error", "enforced_spend_limit_reached", errors.ModelBilling),
        (429, "rate_limit_error", "contract_spend_limit_reached", errors.ModelBilling),
        (402, "billing_error", "linked_organization_billing_unavailable", errors.ModelBilling),
        (403, "permission_error", None, errors.ModelAuth),
        (413, None, None, errors.ModelTooLarge),
        (500, None, None, errors.ModelFailed),
        (599, None, None, errors.ModelFailed),
        (422, "invalid_request_error", None, errors.ModelRejected),
        (302, None, None, errors.ModelRejected),
    ],
)
def test_codes_say_more_than_kinds_and_kinds_more_than_statuses(status, kind, code, expected):
    body = {"error": {"type": kind, "message": "", "details": {"error_code": code}}}
    assert type(model_error(ServiceRefused(status, {}, body))) is expected


@pytest.mark.parametrize(
    "event",
    [{}, {"error": None}, {"error": "words"}, {"error": {"type": 5}}, {"error": {"code": [5]}}],
)
def test_an_odd_error_event_is_an_error_still(event):
    assert isinstance(model_error(ServiceRefused(200, {}, event)), errors.ModelError)


@pytest.mark.parametrize("kind", [AnthropicModel, OpenAIModel])
async def test_no_answer_leads_what_is_asked_anywhere_else(kind):
    asked: list[str] = []

    async def elsewhere(request: web.Request) -> web.Response:
        asked.append(request.path)
        return web.json_response({})

    there = web.Application()
    there.router.add_route("*", "/{path:.*}", elsewhere)
    async with TestServer(there) as other:

        async def moved(request: web.Request) -> web.Response:
            raise web.HTTPTemporaryRedirect(other.make_url(request.path))

        here = web.Application()
        here.router.add_route("*", "/{path:.*}", moved)
        async with TestServer(here) as server:
            config = ServiceConfig(base_url=str(server.make_url("/")), api_key=SecretStr(SECRET))
            model = kind(config, window_store=TextStoreInMemory())
            said = Request("m", "", (Message("user", (Text("hello"),)),))
            with pytest.raises(errors.ModelRejected, match="status 307"):
                await anext(aiter(model.stream(said)))
            with pytest.raises(errors.ModelRejected, match="status 307"):
                await model.fetch_names()
            await model.close()
    assert asked == []


KEY = "sk-ant-1"
LOOKING = ToolSpec("look", "Look.", {"type": "object", "properties": {"for": {"type": "string"}}})
SAID = (
    Message("user", (Text("Where is the key? 钥匙在哪里？"),)),
    Message("assistant", (Text("I look."), ToolUse("toolu_1", "look", {"for": "key"}))),
    Message("user", (ToolResult("toolu_1", "under the mat"),)),
)
CALL = {"type": "tool_use", "id": "toolu_2", "name": "look", "input": {}}
PIECES = [{"type": "input_json_delta", "partial_json": piece} for piece in ('{"for": "m', 'at"}')]
# What is about a program and its connection, not about what is asked.
OWN = {
    *("host", "user-agent", "content-length", "connection", "accept", "accept-encoding"),
    "x-stainless-raw-response",
}


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
        request = Request("claude-x", "Be brief.", SAID, (LOOKING,), max_tokens=99)
        await ours.load_sdk()
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


@pytest.fixture
async def mocked(aimock_url):
    config = ServiceConfig(base_url=aimock_url, api_key=SecretStr(SECRET))
    mocked = AnthropicModel(config, window_store=TextStoreInMemory(), max_retries=0)
    await mocked.load_sdk()
    yield mocked
    await mocked.close()


def question(text: str) -> Request:
    return Request("claude-sonnet-5-5", "Be brief.", (Message("user", (Text(text),)),))


async def reply_to(mocked: AnthropicModel, text: str) -> Reply:
    events = [event async for event in mocked.stream(question(text))]
    assert isinstance(events[-1], Reply)
    return events[-1]


async def test_usage_is_what_the_service_counted(mocked):
    reply = await reply_to(mocked, "plain")
    assert reply.usage == Usage(input_tokens=12, output_tokens=11)


async def test_thinking_is_kept_as_it_came(mocked):
    reply = await reply_to(mocked, "think first")
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
async def test_every_stop_reason_has_a_meaning(mocked, text, stop):
    assert (await reply_to(mocked, text)).stop == stop


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("error 400", errors.ModelRejected),
        ("error 401", errors.ModelAuth),
        ("error 404", errors.ModelNotFound),
        ("error 413", errors.ModelTooLarge),
        ("error 429", errors.ModelRateLimited),
        ("error 500", errors.ModelFailed),
        ("error 529", errors.ModelOverloaded),
        ("drop", errors.ModelUnreachable),
        ("garble", errors.ModelBadReply),
    ],
)
async def test_every_failure_of_the_mock_is_one_of_ours(mocked, text, error):
    with pytest.raises(error) as caught:
        await reply_to(mocked, text)
    assert type(caught.value) is error
    assert SECRET not in str(caught.value)
    assert text not in str(caught.value)
    assert (await reply_to(mocked, "plain")).stop == "end"


async def test_what_came_before_a_break_is_shown_and_then_the_error(mocked):
    shown: list[str] = []

    async def show() -> None:
        async for event in mocked.stream(question("break off")):
            assert isinstance(event, TextDelta)
            shown.append(event.text)

    with pytest.raises(errors.ModelUnreachable):
        await show()
    assert "".join(shown).startswith("This ")


async def test_the_request_is_one_the_service_understands(aimock_url, mocked):
    await reply_to(mocked, "plain")
    async with aiohttp.request("GET", f"{aimock_url}/__aimock/journal") as response:
        *_, entry = await response.json()
    assert entry["path"] == "/v1/messages"
    assert entry["response"]["status"] == 200
    assert [message["role"] for message in entry["body"]["messages"]] == ["system", "user"]
    assert entry["body"]["stream"] is True
