import subprocess
import sys

import pytest
from pydantic import ValidationError

from adapters.discord import AccountConfig, DiscordConfig, GuildConfig, plugin
from bot.channel import Inbound, reveal


def config(**values):
    return DiscordConfig.model_validate(values)


def said(chat="501", *, parent="", server="500", kind="channel"):
    return Inbound("discord", "default", chat, kind, "7", "1", "x", 0, parent=parent, server=server)


def test_importing_the_plugin_does_not_import_the_sdk():
    code = (
        "import sys, adapters.discord; "
        "sys.exit(any(m in sys.modules for m in ('discord', 'aiohttp', 'structlog')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_every_field_has_a_default_and_a_description():
    for model in (DiscordConfig, AccountConfig, GuildConfig):
        for name, field in model.model_fields.items():
            assert field.description, name
            assert not field.is_required(), name


@pytest.mark.parametrize(
    ("values", "ready"),
    [
        ({}, False),
        ({"token": " "}, False),
        ({"token": "a"}, True),
        ({"accounts": {"work": {"token": "b"}}}, True),
        ({"accounts": {"work": {}}}, False),
    ],
)
def test_the_channel_is_ready_once_any_bot_has_a_token(values, ready):
    assert plugin.ready(config(**values)) is ready


def test_tokens_are_those_of_the_accounts_that_have_one():
    section = config(token="a", accounts={"work": {"token": "b"}, "idle": {}})
    assert {name: reveal(t) for name, t in section.tokens().items()} == {
        "default": "a",
        "work": "b",
    }


@pytest.mark.parametrize(
    "values",
    [
        {"token": "a", "accounts": {"work": {"token": "a "}}},
        {"attachment_hosts": ["cdn.example.org"]},
        {"attachment_hosts": ["https://cdn.example.org/files"]},
        {"attachment_hosts": ["https://me@cdn.example.org"]},
        {"attachment_hosts": ["https://"]},
        {"attachment_hosts": ["https://[::1"]},
        {"attachment_hosts": ["ftp://cdn.example.org"]},
        {"accounts": {"work": {"attachment_hosts": ["https://cdn.example.org:x"]}}},
        {"api_root": "ftp://x"},
        {"gateway_url": "https://x"},
        {"guilds": {"5": {"mention_patterns": ["("]}}},
        {"accounts": {"a": {"guilds": {"5": {"mention_patterns": ["("]}}}}},
        {"accounts": {"Big": {}}},
        {"guilds": {"5": {"chanels": []}}},
        {"dm_policy": "open"},
    ],
)
def test_what_cannot_work_is_an_error(values):
    with pytest.raises(ValidationError):
        config(**values)


def test_the_nearest_entry_decides():
    section = config(
        require_mention=True,
        groups={"601": {"language": "zh"}, "501": {"language": "en"}, "*": {"enabled": False}},
        guilds={"500": {"require_mention": False}},
    )
    assert section.room(said("601", parent="501")).language == "zh"
    assert section.room(said("602", parent="501")).language == "en"
    assert section.room(said("502")).require_mention is False
    assert section.room(said("502")).enabled is True
    assert section.room(said("9", server="8")).enabled is False
    assert section.room(said("7", server="", kind="direct")) is section


def test_a_server_that_names_channels_closes_the_others():
    section = config(
        group_policy="open", guilds={"500": {"channels": ["501"]}, "*": {"language": "zh"}}
    )
    assert section.room(said("501")).enabled
    assert section.room(said("601", parent="501", kind="thread")).enabled
    assert not section.room(said("502")).enabled
    assert section.room(said("9", server="8")).language == "zh"
    assert section.listed(said("9", server="")) is None


def test_an_account_has_rooms_of_its_own():
    section = config(token="a", accounts={"work": {"token": "b", "guilds": {"5": {}}}})
    assert section.account("work").listed(said(server="5")) is not None
    assert section.listed(said(server="5")) is None
