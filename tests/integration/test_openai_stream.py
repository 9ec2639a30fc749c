"""What goes over the wire to servers of chat completions, and everything that can come back."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from pydantic import SecretStr

from bot import errors
from bot.agent.models import Model, Reply, Request, TextDelta, ToolSpec, Usage
from bot.agent.models.anthropic import AnthropicModel
from bot.agent.models.openai import OpenAIModel
from bot.config import ServiceConfig
from bot.messages import Message, Opaque, Picture, Text, ToolResult, ToolUse
from tests.fakes import completions_api as api
from tests.fakes import fakellm
from tests.fakes.text_store import TextStoreInMemory

SECRET = "sk-not-to-be-shown"
WORDS = "my darkest secret"
TOOL = ToolSpec("look", "Look.", {"type": "object", "properties": {}})


@pytest.fixture
async def server():
    async with api.running(api.says("Hi", " there")) as server:
        yield server


def model_on(server: api.CompletionsApi, **options: Any) -> OpenAIModel:
    config = ServiceConfig(base_url=server.base_url, api_key=SecretStr(SECRET))
    return OpenAIModel(config, window_store=TextStoreInMemory(), **options)


@pytest.fixture
async def model(server):
    model = model_on(server, max_retries=0)
    yield model
    await model.close()


def asking(*messages: Message, **fields: Any) -> Request:
    said = messages or (Message("user", (Text(WORDS),)),)
    return replace(Request("m", "Be brief.", said), **fields)


async def run(model: OpenAIModel, request: Request | None = None) -> tuple[str, Reply]:
    words, replies = "", list[Reply]()
    async for event in model.stream(request or asking()):
        if isinstance(event, TextDelta):
            words += event.text
        else:
            replies.append(event)
    (reply,) = replies
    assert reply.message.text == words
    return words, reply


# --- what is sent --------------------------------------------------------------------------------


async def test_the_body_is_one_every_server_knows(server, model):
    used = ToolUse("call_1", "look", {"at": "花"})
    messages = (
        Message("user", (Text("one"), Text(" "), Text("two"))),
        Message("assistant", (Text("Let me look."), used)),
        Message("user", (Text("and?"), ToolResult("call_1", " "))),
        Message("assistant", (Text("Seen."),)),
        Message("user", (Picture("image/png", "r", "QUJD"), Picture("image/png", "gone"))),
    )
    words, _ = await run(model, asking(*messages, tools=(TOOL,), max_tokens=99))
    assert words == "Hi there"
    function = {"name": "look", "description": "Look.", "parameters": TOOL.schema}
    called = {"name": "look", "arguments": '{"at":"花"}'}
    assert server.bodies == [
        {
            "model": "m",
            "max_tokens": 99,
            "stream": True,
            "stream_options": {"include_usage": True},
            "tools": [{"type": "function", "function": function}],
            "messages": [
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": "one\n\ntwo"},
                {
                    "role": "assistant",
                    "content": "Let me look.",
                    "tool_calls": [{"id": "call_1", "type": "function", "function": called}],
                },
                {"role": "tool", "tool_call_id": "call_1", "content": "(no output)"},
                {"role": "user", "content": "and?"},
                {"role": "assistant", "content": "Seen."},
                {
                    "role": "user",
                    "content": [
                        {"type": "image_url", "image_url": {"url": "data:image/png;base64,QUJD"}},
                        {"type": "text", "text": "(a picture that is no longer kept)"},
                    ],
                },
            ],
        }
    ]


async def test_without_calls_the_list_of_tools_stays(server, model):
    await run(model, asking(tools=(TOOL,), may_call=False))
    assert server.bodies[0]["tool_choice"] == "none"
    assert len(server.bodies[0]["tools"]) == 1


async def test_the_key_and_address_come_from_the_configuration_alone(server, monkeypatch):
    for name in ("API_KEY", "ADMIN_KEY", "ORG_ID", "PROJECT_ID", "WEBHOOK_SECRET"):
        monkeypatch.setenv(f"OPENAI_{name}", "from-the-environment")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "X-Extra: from-the-environment")
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    model = model_on(server, max_retries=0)
    await run(model)
    await model.close()
    (headers,) = server.headers
    assert "from-the-environment" not in str(headers)
    assert headers["Authorization"] == f"Bearer {SECRET}"


async def test_an_address_without_a_path_is_that_of_the_server(server):
    model = OpenAIModel(ServiceConfig(base_url=server.root), window_store=TextStoreInMemory())
    words, _ = await run(model)
    await model.close()
    assert words == "Hi there"


async def test_nothing_of_it_comes_into_a_log(server, model, caplog):
    caplog.set_level(logging.DEBUG)
    await run(model)
    server.answers = [api.fails(400, message=WORDS)]
    with pytest.raises(errors.ModelRejected):
        await run(model)
    assert WORDS not in caplog.text
    assert SECRET not in caplog.text


# --- what a server does not take -----------------------------------------------------------------


async def test_a_server_that_refuses_everything_is_not_asked_for_ever(server, model):
    server.answers = [
        api.fails(
            400, message="stream_options max_tokens max_completion_tokens not supported tools"
        )
    ]
    with pytest.raises(errors.ModelRejected):
        await run(model, asking(tools=(TOOL,)))
    assert len(server.bodies) == 5  # the last one without a limit


# --- what comes back -----------------------------------------------------------------------------


async def test_usage_tells_what_was_read_from_a_cache(server, model):
    server.answers = [
        api.streams(api.chunk("stop", content="Hi"), api.usage(100, 7, cached_tokens=60), api.DONE)
    ]
    _, reply = await run(model)
    assert reply.usage == Usage(input_tokens=40, output_tokens=7, cache_read_tokens=60)


@pytest.mark.parametrize(
    ("finish", "stop"),
    [
        ("stop", "end"),
        ("length", "max_tokens"),
        ("content_filter", "refusal"),
        ("tool_calls", "end"),  # there are none
        ("something_new", "end"),
    ],
)
async def test_every_finish_reason_has_a_meaning(server, model, finish, stop):
    server.answers = [api.streams(api.chunk(finish, content="Hi"), api.DONE)]
    assert (await run(model))[1].stop == stop


@pytest.mark.parametrize(
    "chunks",
    [
        (api.chunk(content="Hi"), api.chunk("stop")),  # no [DONE]
        (api.chunk(content="Hi"), api.DONE),  # no finish_reason
        (b": OPENROUTER PROCESSING\n\n", api.chunk("stop", content="Hi"), api.DONE),
        (b'data:{"choices":[{"delta":{"content":"Hi"},"finish_reason":"stop"}]}\r\n\r\n',),
        (b'data: {"choices":[{"delta":{"content":"Hi"},"finish_reason":"stop"}]}',),
        (b'data: {"choices":[{"message":{"content":"Hi"},"finish_reason":"stop"}]}\n\n',),
        (api.chunk("stop", role="assistant", content=[{"type": "text", "text": "Hi"}]), api.DONE),
        ({"choices": [{"delta": {"content": "Hi", "tool_calls": None}}], "usage": None}, api.DONE),
    ],
)
async def test_servers_may_leave_out_much(server, model, chunks):
    server.answers = [api.streams(*chunks)]
    words, reply = await run(model)
    assert (words, reply.stop) == ("Hi", "end")


async def test_a_server_that_does_not_stream_is_understood(server, model):
    whole = {
        "choices": [{"message": {"role": "assistant", "content": "Hi"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 5, "completion_tokens": 1},
    }
    server.answers = [api.answers_json(whole)]
    words, reply = await run(model)
    assert (words, reply.usage) == ("Hi", Usage(5, 1))


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
async def test_what_is_thought_is_no_part_of_the_reply(server, model, field):
    thought = [api.chunk(**{field: piece}) for piece in ("First ", "this.")]
    server.answers = [api.streams(*thought, api.chunk("stop", content="Hi"), api.DONE)]
    _, reply = await run(model)
    assert reply.message.blocks == (Text("Hi"),)


async def test_thinking_aloud_is_no_part_of_the_reply(server, model):
    pieces = ("<th", "ink>\nFirst </", "thi", "nk>\n", "\nUse <think> tags", ".")
    server.answers = [api.says(*pieces)]
    assert (await run(model))[0] == "Use <think> tags."


async def test_a_reply_that_only_begins_like_a_thought_comes_whole(server, model):
    server.answers = [api.says("<th")]
    assert (await run(model))[0] == "<th"


async def test_thoughts_go_back_with_the_calls_they_led_to_in_every_later_request(server, model):
    made = api.call(0, "look", "{}", "call_1")
    extra = {"google": {"thought_signature": "c2ln"}}
    server.answers = [
        api.streams(
            api.chunk(reasoning_content="First this."),
            api.chunk("tool_calls", tool_calls=[{**made, "extra_content": extra}]),
            api.DONE,
        ),
        api.says("Hi"),
    ]
    request = asking(tools=(TOOL,))
    _, reply = await run(model, request)
    assert reply.message.text == ""
    result = Message("user", (ToolResult("call_1", "seen"),))
    turn = replace(request, messages=(*request.messages, reply.message, result))
    await run(model, turn)
    later = Message("user", (Text("thanks"),))
    await run(model, replace(turn, messages=(*turn.messages, later), begins=3))
    _, during, after = (
        next(m for m in body["messages"] if m["role"] == "assistant") if n else None
        for n, body in enumerate(server.bodies)
    )
    assert during["reasoning_content"] == "First this."
    assert after["reasoning_content"] == "First this."
    assert during["tool_calls"][0]["extra_content"] == extra
    assert after["tool_calls"][0]["extra_content"] == extra


# --- tool calls ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "calls",
    [
        [  # as OpenAI streams them
            [api.call(0, "look", "", "a")],
            [api.call(0, None, '{"at":')],
            [api.call(0, None, ' "x"}')],
            [api.call(1, "hear", "", "b")],
            [api.call(1, None, "{}")],
        ],
        [[api.call(0, "look", '{"at": "x"}', "a"), api.call(1, "hear", "{}", "b")]],
        [[api.call(0, "look", '{"at": "x"}', "a")], [api.call(0, "hear", "{}", "b")]],  # one number
        [[api.call(None, "look", '{"at": ', "a")], [api.call(None, None, '"x"}')],
         [api.call(None, "hear", None, "b")]],
        [[{"id": "a", "function": {"name": "look", "arguments": {"at": "x"}}}],
         [{"id": "b", "function": {"name": "hear", "arguments": {}}}]],
    ],
)  # fmt: skip
@pytest.mark.parametrize("finish", ["tool_calls", "stop", "function_call"])
async def test_calls_side_by_side_however_they_are_numbered(server, model, calls, finish):
    chunks = [api.chunk(tool_calls=each) for each in calls]
    server.answers = [api.streams(*chunks, api.chunk(finish), api.DONE)]
    _, reply = await run(model)
    assert reply.stop == "tool_use"
    assert reply.message.blocks == (ToolUse("a", "look", {"at": "x"}), ToolUse("b", "hear", {}))


async def test_a_call_without_an_id_gets_one(server, model):
    calls = [api.call(0, "look", "{}"), api.call(1, "look", "{}")]
    server.answers = [api.streams(api.chunk("tool_calls", tool_calls=calls), api.DONE)]
    _, reply = await run(model)
    one, two = (block for block in reply.message.blocks if isinstance(block, ToolUse))
    assert one.id
    assert two.id
    assert one.id != two.id


@pytest.mark.parametrize("arguments", ['{"at": ', "[1]", "null", '"text"', '{"at": "cut of'])
async def test_arguments_that_cannot_be_read_are_the_models_to_mend(server, model, arguments):
    calls = [api.call(0, "look", arguments, "a"), api.call(1, "hear", "{}", "b")]
    server.answers = [api.streams(api.chunk("tool_calls", tool_calls=calls), api.DONE)]
    _, reply = await run(model)
    garbled = ToolUse("a", "look", {}, garbled=arguments)
    assert reply.message.blocks == (garbled, ToolUse("b", "hear", {}))
    assert reply.stop == "tool_use"


async def test_a_call_that_was_cut_off_is_none(server, model):
    calls = [api.call(0, "look", '{"at": "a very lo', "a")]
    server.answers = [
        api.streams(api.chunk(content="Hi", tool_calls=calls), api.chunk("length"), api.DONE)
    ]
    _, reply = await run(model)
    assert (reply.stop, reply.message.blocks) == ("max_tokens", (Text("Hi"),))


# --- failures ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (api.fails(400, message="no"), errors.ModelRejected),
        (
            api.fails(400, message="This model's maximum context length is 9"),
            errors.ModelContextFull,
        ),
        (api.fails(401, "invalid_api_key"), errors.ModelAuth),
        (api.fails(404, "model_not_found"), errors.ModelNotFound),
        (api.fails(429, "rate_limit_exceeded"), errors.ModelRateLimited),
        (api.streams({"error": {"message": "no", "code": 502}}), errors.ModelFailed),
        (api.streams({"error": {"message": "no", "code": 429}}), errors.ModelRateLimited),
        (api.streams({"error": {"message": "no", "code": "server_error"}}), errors.ModelFailed),
        (api.streams({"error": "context size exceeded"}), errors.ModelContextFull),
        (api.streams({"choices": "none"}), errors.ModelBadReply),
        (api.streams({"choices": [{"delta": {"content": 5}}]}), errors.ModelBadReply),
        (api.streams(), errors.ModelBadReply),
        (api.streams(b"data: " + b"x" * (17 * 1024 * 1024)), errors.ModelBadReply),
        (api.answers_json([]), errors.ModelBadReply),
    ],
)
async def test_every_failure_is_one_of_ours(server, model, answer, kind):
    server.answers = [answer]
    with pytest.raises(kind) as caught:
        await run(model)
    assert type(caught.value) is kind
    assert SECRET not in str(caught.value)
    assert WORDS not in str(caught.value)
    server.answers = [api.says("Hi")]
    assert (await run(model))[0] == "Hi"


async def test_blocks_of_other_services_are_not_sent(server, model):
    thought: Mapping[str, Any] = {"type": "thinking", "thinking": "x", "signature": "y"}
    said = Message("assistant", (Opaque(thought), Text("Hi")))
    await run(model, asking(Message("user", (Text("a"),)), said, Message("user", (Text("b"),))))
    assert server.bodies[0]["messages"][2] == {"role": "assistant", "content": "Hi"}


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
async def faked(request, tmp_path):
    kind, path = KINDS[request.param]
    with fakellm.running(tmp_path, RULES) as address:
        config = ServiceConfig(base_url=address + path, api_key=SecretStr("k"))
        faked = kind(config, window_store=TextStoreInMemory(), max_retries=0)
        yield faked
        await faked.close()


def question(text: str) -> Request:
    return Request("m", "Be brief.", (Message("user", (Text(text),)),), (LOOK, HEAR))


async def whole(faked: Model, request: Request) -> Reply:
    events = [event async for event in faked.stream(request)]
    reply = events[-1]
    assert isinstance(reply, Reply)
    deltas = "".join(event.text for event in events if isinstance(event, TextDelta))
    assert deltas == reply.message.text
    return reply


async def test_words_and_tools_side_by_side(faked):
    assert (await whole(faked, question("hello"))).message.text == "A plain answer. 你好 🎉"

    request = question("use the tools")
    reply = await whole(faked, request)
    assert reply.stop == "tool_use"
    uses = [block for block in reply.message.blocks if isinstance(block, ToolUse)]
    assert [(use.name, use.input) for use in uses] == [
        ("look", {"at": "peanuts 花生"}),
        ("hear", {}),
    ]
    results = Message("user", tuple(ToolResult(use.id, "seen") for use in uses))
    following = replace(request, messages=(*request.messages, reply.message, results))
    answer = await whole(faked, following)
    assert (answer.stop, answer.message.text) == ("end", "The tools answered 花生.")
