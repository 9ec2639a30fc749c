"""Window sizes and names as servers of chat completions tell them, each in its own way."""

from __future__ import annotations

import pytest

from bot.agent.models import Reply, Request, Window
from bot.agent.models.openai import OpenAIModel
from bot.config import ServiceConfig
from bot.errors import ModelAuth, ModelNotFound, ModelUnreachable
from bot.messages import Message, Text
from tests.fakes import completions_api as api
from tests.fakes.text_store import TextStoreInMemory


@pytest.fixture
async def server():
    async with api.running(api.says("Hi")) as server:
        server.pages["/v1/models"] = api.models("m")
        yield server


@pytest.fixture
def store():
    return TextStoreInMemory()


@pytest.fixture
async def model(server, store):
    model = OpenAIModel(ServiceConfig(base_url=server.base_url), window_store=store, max_retries=0)
    yield model
    await model.close()


@pytest.mark.parametrize(
    ("entry", "window"),
    [
        ({"id": "m", "max_model_len": 40_960}, Window(40_960, 0)),  # vLLM
        (
            {
                "id": "m",
                "context_length": 131_072,
                "top_provider": {"context_length": 65_536, "max_completion_tokens": 16_384},
            },
            Window(131_072, 16_384),
        ),  # OpenRouter
        ({"id": "m", "context_window": 131_072, "max_completion_tokens": 9}, Window(131_072, 9)),
        ({"id": "models/m"}, Window(0, 0)),  # Gemini
        ({"id": "m", "max_model_len": "many"}, Window(0, 0)),
        ({"id": "m", "max_model_len": -1}, Window(0, 0)),
        ({"id": "m", "max_model_len": True}, Window(0, 0)),
    ],
)
async def test_the_list_of_models_may_say_it(server, model, entry, window):
    server.pages["/v1/models"] = api.models("other", entry)
    assert await model.check("m") == window


async def test_llama_cpp_says_it_among_its_properties(server, model):
    server.pages["/props"] = {"default_generation_settings": {"n_ctx": 24_576}}
    assert (await model.check("m")).max_input_tokens == 24_576


async def test_lm_studio_says_what_is_loaded(server, model):
    # It answers any question it does not know with 200.
    server.pages |= {
        "/api/show": {"error": "Unexpected endpoint"},
        "/props": {"error": "Unexpected endpoint"},
        "/api/v0/models/m": {"max_context_length": 131_072, "loaded_context_length": 20_000},
    }
    assert (await model.check("m")).max_input_tokens == 20_000


@pytest.mark.parametrize("loaded", [True, False])
async def test_ollama_says_what_it_gives_and_not_what_the_model_could_take(
    server, model, *, loaded
):
    server.pages = api.ollama(131_072, default=8_192, loaded=loaded)
    assert (await model.check("qwen3")).max_input_tokens == 8_192
    assert ("/api/generate" in server.asked) is not loaded


async def test_an_old_ollama_that_does_not_say_it_gives_the_least(server, model):
    server.pages = {**api.ollama(131_072), "/api/ps": {"models": [{"name": "qwen3:latest"}]}}
    assert (await model.check("qwen3")).max_input_tokens == 4_096


async def test_ollama_gives_the_window_that_was_configured(server):
    server.pages = api.ollama(131_072)
    config = ServiceConfig(base_url=server.base_url, window=32_768)
    model = OpenAIModel(config, window_store=TextStoreInMemory(), max_retries=0)
    request = Request("qwen3", "", (Message("user", (Text("hello"),)),))
    for _ in range(2):
        events = [event async for event in model.stream(request)]
        assert isinstance(events[-1], Reply)
    assert [body["model"] for body in server.bodies] == ["qwen3:latest-ctx32768"] * 2
    assert server.asked.count("/api/create") == 1
    assert await model.names() == ("qwen3:latest",)  # what was made there is nobody's to choose
    await model.close()


async def test_where_it_cannot_be_set_the_model_is_asked_as_it_is(server):
    server.pages = {**api.ollama(131_072), "/api/create": None}
    config = ServiceConfig(base_url=server.base_url, window=32_768)
    model = OpenAIModel(config, window_store=TextStoreInMemory(), max_retries=0)
    request = Request("qwen3", "", (Message("user", (Text("hello"),)),))
    assert [event async for event in model.stream(request)]
    assert [body["model"] for body in server.bodies] == ["qwen3"]
    await model.close()


async def test_a_model_that_is_not_in_the_list_is_not_known(server, model):
    with pytest.raises(ModelNotFound):
        await model.check("n")
    del server.pages["/v1/models"]  # nobody says which there are
    assert await model.check("n") == Window(0, 0)


async def test_who_is_not_let_in_is_told(server, model):
    server.pages["/v1/models"] = lambda _body: api.web.Response(status=401)
    with pytest.raises(ModelAuth):
        await model.check("m")


async def test_a_server_that_is_not_there_is_told():
    config = ServiceConfig(base_url="http://127.0.0.1:1/v1")
    model = OpenAIModel(config, window_store=TextStoreInMemory(), max_retries=0)
    with pytest.raises(ModelUnreachable):
        await model.check("m")
    await model.close()


async def test_what_nobody_says_is_a_guess(server, store, model):
    await model.window("m")
    await store.written.wait()
    assert await model.window("m") == Window(0, 8_192, assumed=32_000)


async def test_models_that_do_not_converse_are_not_listed(server, model):
    names = ("gpt-6", "text-embedding-3-small", "whisper-1", "gpt-6-mini-tts", "dall-e-3")
    server.pages["/v1/models"] = api.models(*names, {"object": "model"})
    assert await model.names() == ("gpt-6",)
