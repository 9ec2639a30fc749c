"""Every client that calls out, through real proxies from PyPI.

The servers have a name that only the proxies know: what arrives came through one.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from pydantic import SecretStr, ValidationError

from adapters import discord, nextcloud_talk, telegram
from bot import errors
from bot.agent.models import Request
from bot.agent.models.anthropic import AnthropicModel
from bot.agent.models.openai import OpenAIModel
from bot.agent.tools.web.browser import Browser
from bot.agent.tools.web.search import SearchFailed, SearXNG
from bot.channel import Address, Outbound
from bot.config import Config, ServiceConfig
from bot.messages import Message, Text
from bot.net.addresses import Guard
from bot.net.connection import ProxyFailed, ProxyTrouble, session
from bot.testing import RecordingEngine
from tests.fakes import (
    completions_api,
    discord_channel,
    messages_api,
    nextcloud,
    proxies,
    search_engines,
    telegram_channel,
)
from tests.fakes.discord import FakeDiscord
from tests.fakes.ports import free_port
from tests.fakes.telegram import FakeTelegram
from tests.fakes.text_store import TextStoreInMemory
from tests.support import PATIENCE

KINDS = ["http", "socks5"]
VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")
SECRET = proxies.LOGIN.partition(":")[2]


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch):
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@pytest.fixture(scope="module", params=KINDS, loop_scope="module")
async def proxy(request) -> AsyncIterator[str]:
    """A proxy that wants a login, in the whole address that has it."""
    async with proxies.running(request.param, proxies.LOGIN) as address:
        yield address


@pytest.fixture(params=["option", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "without a scheme"])
def option(request, proxy, monkeypatch) -> str:
    """What is configured, with the environment in its place where it is empty."""
    if request.param == "option":
        return proxy
    if request.param == "without a scheme":
        return proxy.removeprefix("http://")
    monkeypatch.setenv(request.param, proxy)
    return ""


def secret(option: str) -> SecretStr | None:
    return SecretStr(option) if option else None


# --- what goes through it -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "api"), [(OpenAIModel, completions_api), (AnthropicModel, messages_api)]
)
async def test_a_models_service_is_reached_through_it(kind, api, option):
    async with api.running(api.says("Hello")) as server:
        config = ServiceConfig(
            base_url=proxies.through(server.base_url),
            api_key=SecretStr("k"),
            proxy=secret(option),
        )
        assert await said(kind(config, window_store=TextStoreInMemory())) == "Hello"


async def said(model: Any) -> str:
    try:
        request = Request("m", "", (Message("user", (Text("hi"),)),))
        events = [event async for event in model.stream(request)]
    finally:
        await model.close()
    return events[-1].message.text


async def test_telegram_is_reached_through_it(proxy):
    engine = RecordingEngine()
    async with FakeTelegram() as fake:
        root = proxies.through(fake.url)
        config = telegram_channel.settings(fake, api_root=root, proxy=proxy)
        async with telegram_channel.running(engine, config) as channel:
            fake.say(42, "hello")
            (inbound,) = await engine.wait_received(1)
            assert inbound.text == "hello"
            await channel.send(Outbound(inbound.address, "hi"))
            assert (await fake.wait_sent(1))[0]["text"] == "hi"
        assert (await telegram_trial(config)).outcome == "known"


async def telegram_trial(config):
    from adapters.telegram.doctor import tried

    return await tried(config, "token")
