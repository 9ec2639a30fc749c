"""What the options of a service and of its models add to what goes over the wire."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from pydantic import SecretStr, ValidationError

from bot import errors
from bot.agent.models import Request
from bot.agent.models.anthropic import AnthropicModel
from bot.agent.models.capabilities import option_fields, refused_options
from bot.agent.models.openai import OpenAIModel
from bot.config import ANTHROPIC, OPENAI, ModelsConfig, ServiceConfig
from bot.messages import Message, Picture, Text
from tests.fakes import completions_api, messages_api
from tests.fakes.model_server import Answer, waits
from tests.fakes.text_store import TextStoreInMemory
from tests.support import PATIENCE

APIS = [(OpenAIModel, completions_api), (AnthropicModel, messages_api)]
SECRET = "s3cret-of-the-gateway"


def config_of(**table: Any) -> ServiceConfig:
    return ModelsConfig.model_validate({"own": {"api_key": "k", **table}}).services["own"]


def model_on(kind: Any, server: Any, **table: Any) -> Any:
    config = config_of(base_url=server.base_url, **table)
    return kind(config, window_store=TextStoreInMemory(), max_retries=0)


async def said(model: Any, name: str = "m", **more: Any) -> str:
    request = Request(name, "", (Message("user", (Text("hi"),)),), max_tokens=8_000, **more)
    events = [event async for event in model.stream(request)]
    return events[-1].message.text


# --- what is sent --------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "api"), APIS)
async def test_the_options_of_a_service_are_sent_with_each_request(kind, api):
    async with api.running(api.says("Hello")) as server:
        options = {"temperature": 0.3, "top_p": 0.9, "extra_body": {"seed": 7}}
        model = model_on(kind, server, headers={"X-Team": SECRET}, **options)
        assert await said(model) == "Hello"
        await model.close()
    (body,), (headers,) = server.bodies, server.headers
    sent = {name: body.get(name) for name in ("temperature", "top_p", "seed")}
    assert sent == {"temperature": 0.3, "top_p": 0.9, "seed": 7}
    assert headers.get("X-Team") == SECRET
    assert headers["Authorization"] == "Bearer k"


@pytest.mark.parametrize(("kind", "api"), APIS)
async def test_a_model_has_options_of_its_own(kind, api):
    own = {"temperature": 0.1, "extra_body": {"seed": 8}, "headers": {"X-Model": "b"}}
    async with api.running(api.says("Hello")) as server:
        options = {"temperature": 0.3, "top_p": 0.9, "extra_body": {"user": "u"}}
        per_model = {"b/c:1": own}
        model = model_on(kind, server, headers={"X-Team": "a"}, per_model=per_model, **options)
        for name in ("a", "b/c:1"):
            assert await said(model, name) == "Hello"
        await model.close()
    (one, two), (first, second) = server.bodies, server.headers
    names = ("temperature", "top_p", "user", "seed")
    assert [one.get(name) for name in names] == [0.3, 0.9, "u", None]
    assert [two.get(name) for name in names] == [0.1, 0.9, "u", 8]
    assert [each.get("X-Team") for each in (first, second)] == ["a", "a"]
    assert [each.get("X-Model") for each in (first, second)] == [None, "b"]


async def test_a_model_may_be_silent_for_as_long_as_it_says_itself():
    over = asyncio.Event()
    async with completions_api.running(waits(over)) as server:
        per_model = {"fast": {"timeout": 0.1}}
        model = model_on(OpenAIModel, server, timeout=PATIENCE, per_model=per_model)
        with pytest.raises(errors.ModelTimeout):
            await said(model, "fast")
        over.set()
        await model.close()


async def test_without_options_nothing_is_added():
    config = config_of()
    assert option_fields(OPENAI, "http://a.b", "m", config, thinking="", longest=100) == {}
    assert option_fields(ANTHROPIC, "http://a.b", "m", config, thinking="", longest=100) == {}


CLAUDE, LIKE = "https://api.anthropic.com", "https://api.deepseek.com/anthropic"
ADAPTIVE = {"type": "adaptive", "display": "summarized"}


@pytest.mark.parametrize(
    ("kind", "url", "model", "level", "sent"),
    [
        (ANTHROPIC, CLAUDE, "claude-sonnet-5-5", "off", {"thinking": {"type": "disabled"}}),
        *(
            (
                *(ANTHROPIC, CLAUDE, model, "low"),
                {"thinking": ADAPTIVE, "output_config": {"effort": "low"}},
            )
            for model in ("claude-sonnet-5-5", "claude-opus-4-6", "claude-sonnet-4-6-20260217")
        ),
        *(
            (
                *(ANTHROPIC, CLAUDE, model, "medium"),
                {"thinking": {"type": "enabled", "budget_tokens": 4_000}},
            )
            for model in (
                *("claude-3-7-sonnet-latest", "claude-sonnet-4-20250514", "claude-opus-4-1"),
                *("claude-haiku-4-5", "claude-opus-4-5-20251101"),
            )
        ),
        (
            ANTHROPIC,
            LIKE,
            "deepseek-chat",
            "low",
            {"thinking": {"type": "enabled", "budget_tokens": 2_000}},
        ),
        (ANTHROPIC, LIKE, "deepseek-chat", "off", {"thinking": {"type": "disabled"}}),
        (OPENAI, "https://api.openai.com/v1", "gpt-5.2", "high", {"reasoning_effort": "high"}),
        (OPENAI, "https://api.openai.com/v1", "gpt-5.2", "off", {"reasoning_effort": "none"}),
        (OPENAI, "http://127.0.0.1:11434/v1", "qwen3:8b", "low", {"reasoning_effort": "low"}),
        (OPENAI, "http://127.0.0.1:11434/v1", "qwen3:8b", "off", {"reasoning_effort": "none"}),
        (
            *(OPENAI, "http://gpu:8000/v1", "Qwen/Qwen3-32B", "off"),
            {"chat_template_kwargs": {"enable_thinking": False, "thinking": False}},
        ),
        (
            *(OPENAI, "http://gpu:8000/v1", "zai-org/GLM-4.6", "high"),
            {"chat_template_kwargs": {"enable_thinking": True, "thinking": True}},
        ),
        (OPENAI, "http://gpu:8000/v1", "openai/gpt-oss-20b", "low", {"reasoning_effort": "low"}),
        (
            *(OPENAI, "https://api.deepseek.com", "deepseek-chat", "high"),
            {"thinking": {"type": "enabled"}, "reasoning_effort": "high"},
        ),
        (
            *(OPENAI, "https://api.deepseek.com", "deepseek-chat", "off"),
            {"thinking": {"type": "disabled"}},
        ),
        *(
            (OPENAI, url, model, "off", {"thinking": {"type": "disabled"}})
            for url, model in (
                ("https://api.moonshot.cn/v1", "kimi-k2.5"),
                ("https://open.bigmodel.cn/api/paas/v4", "glm-4.6"),
                ("https://api.z.ai/api/paas/v4", "glm-5"),
                ("https://ark.cn-beijing.volces.com/api/v3", "doubao-seed-1-6"),
            )
        ),
        *(
            (OPENAI, url, "Qwen/Qwen3-8B", level, {"enable_thinking": thinks})
            for url in (
                "https://dashscope.aliyuncs.com/compatible-mode/v1",
                "https://api.siliconflow.cn/v1",
            )
            for level, thinks in (("off", False), ("medium", True))
        ),
        (OPENAI, "https://openrouter.ai/api/v1", "x/y", "low", {"reasoning": {"effort": "low"}}),
        (OPENAI, "https://openrouter.ai/api/v1", "x/y", "off", {"reasoning": {"enabled": False}}),
        (OPENAI, "https://nobody.example/v1", "new", "medium", {"reasoning_effort": "medium"}),
    ],
)
def test_thinking_is_told_as_each_vendor_wants_it(kind, url, model, level, sent):
    config = config_of(thinking=level)
    assert option_fields(kind, url, model, config, thinking="", longest=8_000) == sent
    chosen = config_of(thinking="low" if level == "high" else "high")
    assert option_fields(kind, url, model, chosen, thinking=level, longest=8_000) == sent


@pytest.mark.parametrize(("kind", "api"), APIS)
async def test_what_was_chosen_for_a_conversation_beats_the_option(kind, api):
    async with api.running(api.says("Hello")) as server:
        model = model_on(kind, server, thinking="high")
        await said(model)
        await said(model, thinking="off")
        await model.close()
    one, two = (str(body) for body in server.bodies)
    assert "high" in one or "budget_tokens" in one
    assert "none" in two or "disabled" in two


def test_a_field_of_the_options_beats_what_thinking_would_send():
    config = config_of(thinking="high", extra_body={"reasoning_effort": "xhigh"})
    sent = option_fields(OPENAI, "http://a.b", "m", config, thinking="", longest=8_000)
    assert sent == {"reasoning_effort": "xhigh"}


# --- what a service refuses ----------------------------------------------------------------------


REFUSALS = [
    "Unrecognized request argument supplied: reasoning_effort",
    "Unsupported parameter: 'temperature' is not supported with this model.",
    "temperature: may only be set to 1 when thinking is enabled",
    "thinking.type.enabled: Input should be adaptive",
    "1 validation error: body -> seed: Extra inputs are not permitted",
    "参数错误",
    "",
]


@pytest.mark.parametrize("refusal", REFUSALS)
@pytest.mark.parametrize(("kind", "api"), APIS)
async def test_a_field_that_is_refused_is_left_out_from_then_on(kind, api, refusal):
    def picky(name: str) -> Answer:
        async def answer(request):
            body = await request.json()
            wrong = {"reasoning_effort", "thinking", "temperature", "seed"} & body.keys()
            return await (api.fails(400, name, refusal) if wrong else api.says("Hello"))(request)

        return answer

    async with api.running(picky("invalid_request_error")) as server:
        options = {"thinking": "low", "temperature": 0.5, "top_p": 0.9}
        model = model_on(kind, server, extra_body={"seed": 1}, **options)
        for _ in range(2):
            assert await said(model) == "Hello"
        await model.close()
    before = len(server.bodies)
    assert before <= 6  # once each, the second message at once
    assert not {"thinking", "seed", "temperature"} & server.bodies[-1].keys()


async def test_other_options_are_tried_again_and_the_same_ones_are_not():
    async def answer(request):
        hot = (await request.json()).get("temperature", 0) > 1
        said = "'temperature' has to be below 1"
        return await (api.fails(400, message=said) if hot else api.says("Hello"))(request)

    api, store = completions_api, TextStoreInMemory()
    async with api.running(answer) as server:
        for temperature in (2.0, 2.0, 0.5):
            config = config_of(base_url=server.base_url, temperature=temperature)
            model = OpenAIModel(config, window_store=store, max_retries=0)
            assert await said(model) == "Hello"
            await model.close()
    assert [body.get("temperature") for body in server.bodies] == [2.0, None, None, 0.5]


async def test_a_key_that_is_refused_says_nothing_of_the_options():
    async with completions_api.running(completions_api.fails(401, message="seed?")) as server:
        model = model_on(OpenAIModel, server, extra_body={"seed": 7})
        with pytest.raises(errors.ModelAuth):
            await said(model)
        await model.close()
    assert len(server.bodies) == 1


async def test_a_picture_that_is_refused_without_a_reason_costs_no_option():
    photo = Message("user", (Picture("image/png", "r", "QUJD"), Text("hi")))

    async def answer(request):
        words = await request.text()
        refused = "image_url" in words
        return await (api.fails(400, message="no") if refused else api.says("Hello"))(request)

    api = completions_api
    async with api.running(answer) as server:
        model = model_on(OpenAIModel, server, temperature=0.5)
        async for _ in model.stream(Request("m", "", (photo,), max_tokens=8_000)):
            pass
        assert await said(model) == "Hello"
        await model.close()
    assert [body.get("temperature") for body in server.bodies] == [0.5, None, 0.5, 0.5]


@pytest.mark.parametrize(
    ("words", "left"),
    [
        ("Unknown parameter: 'reasoning_effort'.", {"reasoning_effort"}),
        ("reasoning_effort and temperature are not supported", {"reasoning_effort", "temperature"}),
        ("my_temperature is unknown", set()),
        ("output_config.effort: this model takes none", {"output_config"}),
        ("budget_tokens must be less than max_tokens", {"thinking"}),
        ("messages.1.content.0.thinking.signature: Field required", set()),
        ("a final assistant message must start with a thinking block", set()),
        ("prompt is too long: 5 > 4", set()),
        ("Extra inputs: THINKING", {"thinking"}),
    ],
)
def test_a_refusal_names_the_fields_it_is_about(words, left):
    extra = {
        "reasoning_effort": "low",
        "temperature": 1.0,
        "output_config": {"effort": "low"},
        "thinking": {"type": "enabled", "budget_tokens": 1024},
    }
    assert refused_options(extra, words) == left


# --- what may not be set -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "table",
    [
        *(
            {"headers": {name: SECRET}}
            for name in ("Authorization", "x-api-key", "HOST", "a b", "")
        ),
        *({"headers": {"X-Team": value}} for value in (f"{SECRET}\n", f"{SECRET}\r\nX: y", "\0")),
        *(
            {"extra_body": {name: SECRET}}
            for name in ("model", "messages", "System", "tools", "stream", "max_tokens", "api_key")
        ),
        *({"thinking": "much"}, {"temperature": 3}, {"top_p": 0}, {"timeout": 0}),
        {"proxy": f"gopher://{SECRET}"},
    ],
)
@pytest.mark.parametrize("where", ["service", "model"])
def test_what_is_the_programs_own_is_refused_with_a_sentence(where, table):
    with pytest.raises(ValidationError) as failed:
        config_of(**(table if where == "service" else {"per_model": {"m": table}}))
    assert SECRET not in str(failed.value)


def test_headers_are_secrets():
    config = config_of(headers={"X-Team": SECRET})
    assert isinstance(config.headers["X-Team"], SecretStr)
    assert SECRET not in repr(config)
    assert SECRET not in config.model_dump_json()
