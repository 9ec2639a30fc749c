"""What options decide by themselves: whose own they are, who may talk, and what rules match."""

from __future__ import annotations

import asyncio
import logging
from zoneinfo import ZoneInfo

import pytest
import structlog
from aiohttp import web
from aiohttp.test_utils import TestServer
from pydantic import SecretStr
from yarl import URL

from adapters import discord, nextcloud_talk, telegram
from adapters.console import ConsoleConfig
from adapters.discord.account import Account as DiscordAccount
from adapters.discord.account import Pace as DiscordPace
from adapters.discord.files import origin
from adapters.web import WebConfig
from bot import logs
from bot.agent.models import Request
from bot.agent.models.anthropic import AnthropicModel
from bot.agent.models.openai import OpenAIModel
from bot.agent.models.registry import Models, configured
from bot.channel import ChannelConfig, ChannelScope, GroupConfig, Inbound, Rule, ScopeConfig, reveal
from bot.config import (
    AgentConfig,
    CompactionConfig,
    Config,
    ContextConfig,
    EmbedderConfig,
    LogConfig,
    ModelsConfig,
    SendPolicyConfig,
    ServiceConfig,
)
from bot.context.budget import budget
from bot.errors import ModelTimeout
from bot.identity.access import AccessDecision, decide
from bot.identity.view import Subject, allows, permits
from bot.identity.zone import local_zone
from bot.memory.embed.remote import RemoteEmbedder
from bot.messages import Message, Text
from bot.testing import RecordingEngine
from tests.fakes.text_store import TextStoreInMemory
from tests.support import PATIENCE

ROOM = Inbound("memory", "default", "7", "group", "ada", "m1", "hello", 0)
OWN = {
    "dm_policy": "disabled",
    "allow_from": ("42",),
    "group_policy": "open",
    "group_allow_from": ("43",),
    "require_mention": False,
    "mention_patterns": ("robot",),
    "notices": "on",
    "language": "zh",
    "streaming": False,
    "groups": {"7": GroupConfig()},
    "guilds": {"8": discord.GuildConfig()},
    "token": SecretStr("t"),
    "mode": "webhook",
    "attachment_hosts": ("https://cdn.own.example",),
    "bot_secret": SecretStr("s"),
    "api_password": SecretStr("p"),
    "webhook_secret": SecretStr("w"),
}
SECTIONS = {
    telegram.AccountConfig: telegram.TelegramConfig(),
    discord.AccountConfig: discord.DiscordConfig(),
    nextcloud_talk.AccountConfig: nextcloud_talk.NextcloudTalkConfig(),
}


@pytest.mark.parametrize(
    ("account", "option"),
    [(account, option) for account in SECTIONS for option in account.model_fields],
)
def test_an_accounts_own_option_takes_the_place_of_the_channels(account, option):
    own = OWN.get(option, f"own {option}")
    section, each = SECTIONS[account], account.model_construct({option}, **{option: own})
    found = section.model_copy(update={"accounts": {"second": each}}).account("second")
    assert getattr(found, option) == own
    assert getattr(section.account("second"), option) != own


@pytest.mark.parametrize("option", sorted(GroupConfig.model_fields.keys() - {"enabled"}))
def test_a_rooms_own_option_takes_the_place_of_the_channels(option):
    room = GroupConfig.model_validate({option: OWN[option]})
    section = ChannelConfig(groups={"7": room})
    assert getattr(section.room(ROOM), option) == OWN[option]
    assert getattr(ChannelConfig().room(ROOM), option) != OWN[option]


@pytest.mark.parametrize("section", [ConsoleConfig, WebConfig])
def test_the_configuration_decides_who_may_talk_at_the_terminal_and_on_the_page(section):
    inbound = Inbound("web", "default", "owner", "direct", "owner", "m1", "hello", 0)
    assert decide(section(), inbound, is_owner=False) is AccessDecision.ALLOW
    assert decide(section(dm_policy="disabled"), inbound, is_owner=False) is AccessDecision.DENY
    listed = section(dm_policy="allowlist", allow_from=("owner",))
    assert decide(listed, inbound, is_owner=False) is AccessDecision.ALLOW


def subject(key: str = "agent:main:web:dm:ada") -> Subject:
    return Subject("web", "default", "direct", "ada", "ada", key)


def test_a_channels_own_scope_comes_before_the_general_one():
    general = ScopeConfig(default="deny", rules=())
    deny = Rule(action="deny", channel="web")
    assert allows(ChannelScope(default="allow").within(general), subject())
    assert not allows(ChannelScope().within(general), subject())
    assert allows(ChannelScope().within(ScopeConfig()), subject())
    assert not allows(ChannelScope(rules=(deny,)).within(ScopeConfig()), subject())


@pytest.mark.parametrize(
    ("option", "mine", "other"),
    [
        ("channel", "web", "telegram"),
        ("account", "default", "second"),
        ("chat_type", "direct", "group"),
        ("chat", "ada", "bob"),
        ("sender", "ada", "bob"),
        ("key_prefix", "agent:main:web:", "agent:main:telegram:"),
    ],
)
def test_a_rule_matches_by_what_it_names(option, mine, other):
    for value in (mine, other):
        config = ScopeConfig(rules=(Rule.model_validate({"action": "allow", option: value}),))
        assert allows(config, subject()) is (value == mine)


def test_without_a_rule_that_matches_the_default_decides():
    assert allows(ScopeConfig(default="allow", rules=()), subject())
    assert not allows(ScopeConfig(rules=()), subject())


def test_whether_the_model_answers_is_configured():
    allow = Rule(action="allow", channel="web")
    assert permits(SendPolicyConfig(), subject())
    assert not permits(SendPolicyConfig(default="deny"), subject())
    assert permits(SendPolicyConfig(default="deny", rules=(allow,)), subject())


def test_the_window_is_shared_out_as_configured():
    usual = budget(200_000, ContextConfig(), 8192)
    compaction = CompactionConfig(reserve_tokens=40_000, keep_recent_tokens=1_000)
    shares = budget(200_000, ContextConfig(compaction=compaction), 8192)
    assert shares.compact_above == usual.compact_above - 20_000
    assert shares.keep_recent == 1_000
    earlier = budget(200_000, ContextConfig(memory_flush_soft_tokens=9_000), 8192)
    assert earlier.flush_from == usual.flush_from - 5_000


def test_times_are_those_of_the_configured_zone():
    agent = AgentConfig(timezone="Pacific/Chatham")
    assert local_zone(Config(agent=agent)) == ZoneInfo("Pacific/Chatham")


async def test_the_models_service_is_asked_as_configured():
    asked: list[tuple[str, str]] = []

    async def never(request: web.Request) -> web.Response:
        asked.append((request.path, request.headers["x-api-key"]))
        await asyncio.Event().wait()
        return web.Response()

    app = web.Application()
    app.router.add_post("/{path:.*}", never)
    async with TestServer(app) as server:
        config = ServiceConfig(
            base_url=str(server.make_url("/own")), api_key=SecretStr("k1"), timeout=2.0
        )
        model = AnthropicModel(config, window_store=TextStoreInMemory(), max_retries=0)
        request = Request("m", "", (Message("user", (Text("hello"),)),))
        answer = asyncio.create_task(anext(aiter(model.stream(request))))
        await asyncio.wait({answer}, timeout=PATIENCE)
        await model.close()
        assert answer.done()
        assert isinstance(answer.exception(), ModelTimeout)
    assert asked == [("/own/v1/messages", "k1")]


def test_a_service_is_asked_in_the_way_it_is_configured():
    own = {"kind": "openai", "base_url": "http://127.0.0.1:9"}
    config = ModelsConfig.model_validate({"anthropic": own})
    found = configured(config, TextStoreInMemory())
    assert {name: type(model) for name, model in found.items()} == {"anthropic": OpenAIModel}


def test_a_window_is_the_configured_one():
    config = ModelsConfig.model_validate({"anthropic": {"api_key": "k", "window": 50_000}})
    assert Models(config, {}, "m").configured_window("anthropic/m") == 50_000


def test_a_server_for_vectors_is_asked_for_the_configured_model():
    assert RemoteEmbedder(EmbedderConfig(provider="openai", model="own")).model == "own"


async def test_discord_is_reached_where_it_is_configured():
    config = discord.DiscordConfig(
        token=SecretStr("t"),
        api_root="http://127.0.0.1:9/api",
        gateway_url="ws://127.0.0.1:9/gateway",
        attachment_hosts=("https://cdn.own.example",),
    )
    account = DiscordAccount(
        name="default", config=config, token="t", engine=RecordingEngine(), pace=DiscordPace()
    )
    assert account.rest._root == "http://127.0.0.1:9/api"
    assert str(account._connection._url) == "ws://127.0.0.1:9/gateway"
    assert account.shelf.hosts == {origin(URL("https://cdn.own.example"))}
    await account._session.close()


def test_talks_password_goes_to_the_configured_server():
    section = nextcloud_talk.NextcloudTalkConfig(
        base_url="https://cloud.example",
        bot_secret=SecretStr("s" * 40),
        api_user="bot",
        api_password=SecretStr("p"),
    )
    assert reveal(section.seats()["default"].api_password) == "p"


@pytest.mark.parametrize(("form", "is_json"), [("json", True), ("console", False)])
def test_logs_have_the_configured_form(form, is_json, capfd):
    before, handlers, level = structlog.get_config(), logging.root.handlers[:], logging.root.level
    try:
        logs.configure(LogConfig(format=form))
        structlog.get_logger("test").info("something.happened")
    finally:
        structlog.configure(**before)
        logging.root.handlers[:] = handlers
        logging.root.setLevel(level)
    told = capfd.readouterr().err.splitlines()
    (line,) = (each for each in told if "something.happened" in each)
    assert line.startswith("{") is is_json


@pytest.mark.parametrize("level", ["debug", "warning"])
def test_the_least_serious_event_that_is_told_is_the_configured_one(level, capfd):
    before, handlers, root = structlog.get_config(), logging.root.handlers[:], logging.root.level
    try:
        logs.configure(LogConfig(level=level))
        structlog.get_logger("test").info("something.happened")
    finally:
        structlog.configure(**before)
        logging.root.handlers[:] = handlers
        logging.root.setLevel(root)
    assert ("something.happened" in capfd.readouterr().err) is (level == "debug")
