"""Window sizes and names from the Models API: cached, refreshed, and never in the way."""

from __future__ import annotations

import asyncio

import orjson
import pytest
from pydantic import SecretStr

from bot.agent.models import UNKNOWN_WINDOW, Window
from bot.agent.models.anthropic import KNOWN_NAMES, AnthropicModel
from bot.agent.models.capabilities import WEEK
from bot.config import ServiceConfig
from tests.fakes import messages_api as api
from tests.fakes.text_store import TextStoreInMemory

NOW = 1_800_000_000_000
SIZES = Window(300_000, 64_000)


class SettableClock:
    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> int:
        return self.now


@pytest.fixture
async def server():
    async with api.running(api.says("Hi")) as server:
        server.models["claude-x"] = api.model_info("claude-x", 300_000, 64_000)
        yield server


@pytest.fixture
def clock():
    return SettableClock()


@pytest.fixture
def store():
    return TextStoreInMemory()


@pytest.fixture
async def model(server, store, clock):
    model = new_model(server, store, clock)
    yield model
    await model.close()


def new_model(
    server: api.MessagesApi, store: TextStoreInMemory, clock: SettableClock
) -> AnthropicModel:
    config = ServiceConfig(base_url=server.base_url, api_key=SecretStr("k"))
    return AnthropicModel(config, window_store=store, max_retries=0, clock=clock)


async def fetched_window(model: AnthropicModel, store: TextStoreInMemory) -> Window:
    """The window once the fetch that asking for it starts has ended."""
    store.written.clear()
    await model.window("claude-x")
    await store.written.wait()
    return await model.window("claude-x")


async def test_the_first_turn_is_told_that_nothing_is_known_and_later_ones_the_truth(
    server, store, model
):
    server.models_gate = asyncio.Event()
    assert await model.window("claude-x") == UNKNOWN_WINDOW
    server.models_gate.set()
    assert await fetched_window(model, store) == SIZES
    assert server.model_requests == ["/v1/models/claude-x"]


async def test_sizes_survive_a_restart(server, store, clock, model):
    await fetched_window(model, store)
    again = new_model(server, store, clock)
    assert await again.window("claude-x") == SIZES
    await again.close()
    assert len(server.model_requests) == 1


async def test_old_sizes_serve_while_they_are_renewed(server, store, model, clock):
    assert await fetched_window(model, store) == SIZES
    server.models["claude-x"] = api.model_info("claude-x", 1_000_000, 64_000)
    clock.now += WEEK + 1
    server.models_gate = asyncio.Event()
    assert await model.window("claude-x") == SIZES
    server.models_gate.set()
    assert await fetched_window(model, store) == Window(1_000_000, 64_000)


async def test_a_clock_that_was_set_back_makes_sizes_old(server, store, model, clock):
    assert await fetched_window(model, store) == SIZES
    server.models["claude-x"] = api.model_info("claude-x", 1_000_000, 64_000)
    clock.now -= 1
    assert await fetched_window(model, store) == Window(1_000_000, 64_000)


async def test_a_window_the_service_does_not_tell_is_unknown(server, store, model):
    server.models["claude-x"] = api.model_info("claude-x", None, 5_000)
    expected = Window(UNKNOWN_WINDOW.max_input_tokens, 5_000)
    assert await fetched_window(model, store) == expected


async def test_a_failing_service_is_not_asked_at_every_turn(server, model):
    server.models_status = 500
    for _ in range(3):
        assert await model.window("claude-x") == UNKNOWN_WINDOW
        await model.names()  # waits for the network, so the answer about the window is in too
    assert sorted(server.model_requests) == ["/v1/models", "/v1/models/claude-x"]


@pytest.mark.parametrize("stored", ["", "no json", "[]", "{}", '{"max_input_tokens": "many"}'])
async def test_a_damaged_record_is_fetched_anew(server, store, model, stored):
    store.texts[f"models:{server.base_url}:window:claude-x"] = stored
    assert await fetched_window(model, store) == SIZES


async def test_a_broken_store_costs_only_the_memory(store, model):
    store.broken = True
    assert await fetched_window(model, store) == SIZES


async def test_names_are_the_services_own(server, store, model):
    server.models["gone"] = {**api.model_info("gone", 1, 1), "lifecycle": "retired"}
    server.models["claude-y"] = api.model_info("claude-y", None, None)
    assert await model.names() == ("claude-x", "claude-y")
    record = orjson.loads(store.texts[f"models:{server.base_url}:names"])
    assert record == {"names": ["claude-x", "claude-y"], "at": NOW}


async def test_names_of_another_service_are_never_made_up(server, model):
    server.models_status = 404
    assert await model.names() == ()


async def test_names_of_claude_are_known_without_a_key():
    model = AnthropicModel(ServiceConfig(), window_store=TextStoreInMemory())
    assert await model.names() == KNOWN_NAMES
    assert await model.window("claude-x") == UNKNOWN_WINDOW
    await model.close()


async def test_closing_does_not_wait_for_the_service(server, model):
    server.models_gate = asyncio.Event()
    await model.window("claude-x")
    await model.warm_up()
    await model.close()
    assert await model.window("claude-x") == UNKNOWN_WINDOW
    server.models_gate.set()
