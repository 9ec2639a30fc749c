"""What options decide, and that each is documented, shown and noticed."""

import asyncio
import json
import logging
import os
import re
import subprocess
import sys
import tomllib
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
import structlog
from aiohttp import web
from aiohttp.test_utils import TestServer
from hypothesis import is_hypothesis_test
from pydantic import SecretStr
from yarl import URL

from adapters import discord, matrix, nextcloud_talk, slack, telegram
from adapters.console import ConsoleConfig
from adapters.discord.account import Account as DiscordAccount
from adapters.discord.account import Pace as DiscordPace
from adapters.discord.send import origin
from adapters.web import WebConfig
from bot import logs, settings
from bot.agent.models import Request
from bot.agent.models.anthropic import AnthropicModel
from bot.agent.models.openai import OpenAIModel
from bot.agent.models.registry import Models, configured
from bot.channel import (
    ChannelConfig,
    ChannelScope,
    GroupConfig,
    Inbound,
    ScopeConfig,
    ScopeRule,
    reveal,
)
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
from bot.identity.conversation import local_zone
from bot.identity.view import Subject, permits, view_for
from bot.memory.embed.remote import RemoteEmbedder
from bot.messages import Message, Text
from bot.settings.fields import is_live, tables
from bot.testing import RecordingEngine
from scripts.docs import REFERENCE, generated, reference
from tests.fakes.config_channels import CHANNELS, load
from tests.fakes.text_store import TextStoreInMemory
from tests.ignoring import options
from tests.proofs.rounds import sample
from tests.support import settings_of

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
    "bot_token": SecretStr("b"),
    "app_token": SecretStr("a"),
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
    slack.AccountConfig: slack.SlackConfig(),
    matrix.AccountConfig: matrix.MatrixConfig(),
}


@pytest.mark.parametrize("model", [*SECTIONS, *map(type, SECTIONS.values()), discord.GuildConfig])
def test_every_option_of_a_channel_has_a_default_and_a_description(model):
    fields = model.model_fields.items()
    assert [n for n, field in fields if field.is_required() or not field.description] == []


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


def allows(config: ScopeConfig, subject: Subject) -> bool:
    """True if a session may see memory."""
    return view_for(config, subject, people=("ada",), is_owner=False).space != ""


def subject(key: str = "agent:main:web:dm:ada") -> Subject:
    return Subject("web", "default", "direct", "ada", "ada", key)


def test_a_channels_own_scope_comes_before_the_general_one():
    general = ScopeConfig(default="deny", rules=())
    deny = ScopeRule(action="deny", channel="web")
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
        config = ScopeConfig(rules=(ScopeRule.model_validate({"action": "allow", option: value}),))
        assert allows(config, subject()) is (value == mine)


def test_without_a_rule_that_matches_the_default_decides():
    assert allows(ScopeConfig(default="allow", rules=()), subject())
    assert not allows(ScopeConfig(rules=()), subject())


def test_whether_the_model_answers_is_configured():
    allow = ScopeRule(action="allow", channel="web")
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
            base_url=str(server.make_url("/own")), api_key=SecretStr("k1"), timeout=0.2
        )
        model = AnthropicModel(config, window_store=TextStoreInMemory(), max_retries=0)
        request = Request("m", "", (Message("user", (Text("hello"),)),))
        answer = asyncio.create_task(anext(aiter(model.stream(request))))
        await asyncio.wait({answer}, timeout=10)
        await model.close()
        assert answer.done()
        assert isinstance(answer.exception(), ModelTimeout)
    assert asked == [("/own/v1/messages", "k1")]


def test_a_service_is_asked_in_the_way_it_is_configured():
    own = {"kind": "openai", "base_url": "http://127.0.0.1:9"}
    config = ModelsConfig.model_validate({"anthropic": own})
    found = configured(config, TextStoreInMemory())
    assert {name: type(model) for name, model in found.items()} == {"anthropic": OpenAIModel}


async def test_a_window_is_the_configured_one():
    settings = settings_of(models={"anthropic": {"api_key": "k", "window": 50_000}})
    assert (await Models(settings, {}).window("anthropic/m")).configured == 50_000


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


ROOT = Path(__file__).resolve().parents[2]
MODEL = settings.config_model(settings.installed_channels())
PIGEON_MODEL = settings.config_model(CHANNELS)
OPTION = re.compile(r"^#(?=\w+ = )", re.MULTILINE)


def test_the_committed_file_is_the_generated_one():
    committed = (ROOT / REFERENCE).read_text("utf-8")
    assert committed == generated(), f"{REFERENCE} is out of date: run `make docs`"


def test_the_reference_file_changes_nothing_as_it_is(tmp_path):
    text = reference(MODEL)
    path = tmp_path / "reference.toml"
    path.write_text(text, "utf-8")
    loaded = settings.load(path, {}, tmp_path)
    assert loaded.config.model_dump() == settings.load(None, {}, tmp_path).config.model_dump()
    assert loaded.warnings == ()


def test_the_file_of_the_short_guide_says_what_it_is_meant_to(tmp_path):
    page = (ROOT / "docs" / "setting-up.md").read_text("utf-8")
    (example,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    (secrets,) = re.findall(r"```dotenv\n(.*?)```", page, re.DOTALL)
    (path := tmp_path / "confidant.toml").write_text(example, "utf-8")
    (tmp_path / ".env").write_text(secrets, "utf-8")
    loaded = settings.load(path, {}, tmp_path)
    assert loaded.warnings == ()
    assert loaded.config.agent.name == "Pinguin"
    assert loaded.config.session.owner == ("telegram:123456789",)
    assert loaded.config.limits.each.month_usd == 10.0
    for name in re.findall(r"([\w-]+\.md)$", example, re.MULTILINE):
        assert (ROOT / "docs" / name).exists()


def test_every_option_uncommented_is_its_default(tmp_path):
    path = tmp_path / "reference.toml"
    path.write_text(OPTION.sub("", reference(MODEL)), "utf-8")
    loaded = settings.load(path, {}, tmp_path)
    assert loaded.config.model_dump() == settings.load(None, {}, tmp_path).config.model_dump()


def test_the_reference_file_has_every_option():
    text = reference(MODEL)
    data = tomllib.loads(OPTION.sub("", text))
    for key, _, here in tables(MODEL):
        table = data
        for name in key:
            table = table.get(name, {})
        for option in here:
            if option.shape.kind == "secret":
                assert f'# In this file: {option.key[-1]} = "file:' in text
            else:
                assert option.key[-1] in table, option.key


def test_every_option_is_described():
    for _, table, here in tables(MODEL):
        assert table.__doc__
        for option in here:
            assert option.field.description, option.key


def test_the_reference_file_fits_a_screen():
    lines = reference(MODEL).split("\n")
    assert max(map(len, lines)) <= 100


def test_the_reference_file_says_what_takes_effect_at_once():
    heads = {
        block.partition("\n[")[2].partition("]")[0]: block.partition("\n[")[0].replace("\n# ", " ")
        for block in reference(MODEL).split("\n\n\n")
    }
    for key, _, here in tables(MODEL):
        for option in here:
            effect = heads[".".join(key)]
            named = re.findall(r"on restart, (.*) at once", effect)
            at_once = (
                option.key[-1] in named[0].split(", ") if named else "effect at once" in effect
            )
            assert at_once is is_live(option.key), option.key


def test_the_reference_file_names_plain_variables_ranges_and_options_of_nested_tables():
    plain = settings.plain_names(CHANNELS, PIGEON_MODEL)
    text = reference(PIGEON_MODEL, plain)
    assert "PIGEON_TOKEN sets token." in text
    assert "# Each is a table [channels.pigeon.accounts.<name>]: " in text
    assert "# Each is a table [[scope.rules]]: " in text
    assert '\n#   action ("allow" or "deny"): ' in text
    assert "  # above 0, at most 40\n" in text


def test_the_schema_is_one_for_editors():
    schema = settings.json_schema(PIGEON_MODEL)
    assert schema["$schema"].startswith("https://json-schema.org/")
    assert schema["additionalProperties"] is False
    channels = schema["$defs"]["Channels"]["properties"]
    assert set(channels) == {"owl", "pigeon"}


SHOWN = """
[agent]
name = 'A "quoted"\\n name'
[channels.pigeon.accounts.work]
token = "s3cret"
[session]
identity_links = { "a.b" = ["pigeon:1"] }
[[scope.rules]]
action = "deny"
sender = "7"
"""


def test_what_is_in_effect_is_toml_with_sources_and_no_secrets(tmp_path):
    loaded = load(tmp_path, SHOWN, {"PIGEON_TOKEN": "s3cret", "CONFIDANT_LOG__LEVEL": "debug"})
    text = settings.show(loaded)
    assert "s3cret" not in text
    assert 'level = "debug"  # CONFIDANT_LOG__LEVEL\n' in text
    assert 'token = "•••"  # PIGEON_TOKEN\n' in text
    assert 'format = "auto"  # default\n' in text
    assert 'accounts = { work = { token = "•••" } }  # confidant.toml:5\n' in text
    assert 'rules = [{ action = "deny", sender = "7" }]  # confidant.toml:8\n' in text
    data = tomllib.loads(text)
    assert data["agent"]["name"] == 'A "quoted"\\n name'
    assert data["session"]["identity_links"] == {"a.b": ["pigeon:1"]}
    assert set(data) == set(type(loaded.config).model_fields) - {"agents"}


def test_what_is_in_effect_can_be_loaded_again(tmp_path):
    text = settings.show(load(tmp_path))
    (tmp_path / "again.toml").write_text(text, "utf-8")
    again = settings.load(Path("again.toml"), {}, tmp_path, CHANNELS)
    assert settings.show(load(tmp_path)) == re.sub(
        "# again.toml:\\d+", "# default", settings.show(again)
    )


AT_ONCE = 4  # processes
ROWS: dict[str, str] = tomllib.loads((ROOT / "tests/data/options.toml").read_text())


def test_every_option_has_a_row():
    assert ROWS.keys() == options().keys()


def test_what_a_test_notices_does_not_depend_on_what_is_drawn():
    tests = {tuple(test.split("::")) for test in ROWS.values()}
    modules = {path: import_module(f"tests.{path[:-3].replace('/', '.')}") for path, _ in tests}
    assert not [name for path, name in tests if is_hypothesis_test(getattr(modules[path], name))]


WATCHED = sample(
    sorted(option for option, test in ROWS.items() if test.startswith("unit/")),
    sorted(option for option, test in ROWS.items() if not test.startswith("unit/")),
)


@pytest.fixture(scope="module")
def ignored_unnoticed(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> list[str]:
    """Of the options this run is about, those whose tests pass all the same when it is ignored."""
    name = test_an_option_that_is_ignored_is_noticed.__name__
    items = [each for each in request.session.items if isinstance(each, pytest.Function)]
    wanted = {item.callspec.params["option"] for item in items if item.originalname == name}
    rows = {option: test for option, test in ROWS.items() if option in wanted}
    return unnoticed(tmp_path_factory.mktemp("options"), rows)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("option", WATCHED)
def test_an_option_that_is_ignored_is_noticed(option: str, ignored_unnoticed: list[str]):
    assert option not in ignored_unnoticed


@pytest.mark.slow
def test_a_test_that_has_nothing_to_do_with_an_option_does_not_count(tmp_path: Path):
    other = "unit/test_options.py::test_a_rule_matches_by_what_it_names"
    assert unnoticed(tmp_path, {"log.level": other}) == ["log.level"]


def unnoticed(folder: Path, rows: dict[str, str]) -> list[str]:
    """The options whose tests pass all the same when they are ignored."""
    plan: dict[str, list[str]] = defaultdict(list)
    for option, test in sorted(rows.items(), key=lambda row: row[1]):
        plan[f"tests/{test}"].append(option)
    # Several at once: some wait long for what does not come. Each imports files of its own.
    files = sorted({test.partition("::")[0] for test in plan})
    many = min(1 + len(rows) // 75, AT_ONCE, len(files))
    parts = [
        {test: options for test, options in plan.items() if test.partition("::")[0] in these}
        for these in (files[n::many] for n in range(many))
    ]
    with ThreadPoolExecutor(AT_ONCE) as threads:
        found = threads.map(noticed, (folder / f"{n}.json" for n in range(len(parts))), parts)
        return sorted(rows.keys() - {option for part in found for option in part})


def noticed(file: Path, plan: dict[str, list[str]]) -> list[str]:
    """The options of a plan that its tests notice, run in a process of their own."""
    file.write_text(json.dumps(plan))
    environment = {"HOME": str(file.parent), "IGNORING": str(file), "PYTEST_ADDOPTS": ""}
    # What a failed test left open must not fail the next one in another way than by its assertion.
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "tests.ignoring", "-p", "no:cacheprovider",
         "-p", "no:unraisableexception", "-p", "no:xdist", "--timeout", "90",
         "--assert", "plain", "--tb", "native", *plan],
        cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    found = file.with_suffix(".noticed")
    assert found.exists(), done.stdout[-2_000:] + done.stderr[-2_000:]
    return json.loads(found.read_text())
