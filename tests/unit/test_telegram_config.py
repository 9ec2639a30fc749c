import subprocess
import sys

import pytest
from pydantic import SecretStr, ValidationError

from adapters.telegram import AccountConfig, TelegramConfig, plugin
from bot.channel import reveal


def config(**values):
    return TelegramConfig.model_validate(values)


def test_importing_the_plugin_does_not_import_the_sdk():
    code = (
        "import sys, adapters.telegram; "
        "sys.exit(any(m in sys.modules for m in ('telegram', 'aiohttp', 'httpx', 'markdown_it')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_every_field_has_a_default_and_a_description():
    for model in (TelegramConfig, AccountConfig):
        for name, field in model.model_fields.items():
            assert field.description, name
            assert not field.is_required(), name
    assert plugin.config is TelegramConfig


@pytest.mark.parametrize(
    ("values", "ready"),
    [
        ({}, False),
        ({"token": ""}, False),
        ({"token": "1:a"}, True),
        ({"accounts": {"work": {"token": "2:b"}}}, True),
        ({"accounts": {"work": {}}}, False),
    ],
)
def test_the_channel_is_ready_once_any_bot_has_a_token(values, ready):
    assert plugin.ready(config(**values)) is ready


def test_the_top_level_token_is_the_default_account_and_others_do_not_inherit_it():
    section = config(token="1:a", accounts={"work": {"token": "2:b"}, "idle": {}})
    assert {name: reveal(token) for name, token in section.tokens().items()} == {
        "default": "1:a",
        "work": "2:b",
    }


def test_an_account_named_default_replaces_the_top_level_token():
    section = config(token="1:a", accounts={"default": {"token": "2:b"}})
    assert section.tokens() == {"default": SecretStr("2:b")}


def test_an_account_inherits_what_it_does_not_set():
    section = config(
        token="1:a",
        api_root="http://127.0.0.1:1",
        allow_from=["5"],
        accounts={"work": {"token": "2:b", "dm_policy": "allowlist"}},
    )
    work = section.account("work")
    assert isinstance(work, TelegramConfig)
    assert (work.dm_policy, work.allow_from, work.api_root) == (
        "allowlist",
        ("5",),
        "http://127.0.0.1:1",
    )


@pytest.mark.parametrize("name", ["Work", "-a", "a b", "", "a" * 65, "ä"])
def test_account_ids_follow_the_rule_of_session_keys(name):
    with pytest.raises(ValidationError):
        config(accounts={name: {"token": "1:a"}})


def test_two_accounts_with_one_token_are_an_error():
    with pytest.raises(ValidationError, match="same token"):
        config(token="1:a", accounts={"work": {"token": "1:a"}})


WEBHOOK = {"mode": "webhook", "webhook_url": "https://bot.example", "webhook_secret": "s3cret"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"webhook_url": ""}, "needs webhook_url"),
        ({"webhook_secret": None}, "needs webhook_secret"),
        ({"webhook_secret": ""}, "needs webhook_secret"),
        ({"webhook_secret": "no spaces"}, "1-256 letters"),
        ({"webhook_secret": "a" * 257}, "1-256 letters"),
        ({"webhook_url": "http://bot.example"}, "https://"),
    ],
)
def test_an_incomplete_webhook_is_an_error(change, message):
    with pytest.raises(ValidationError, match=message):
        config(**(WEBHOOK | change))


def test_an_accounts_webhook_is_checked_with_what_it_inherits():
    accounts = {"work": {"token": "2:b", "mode": "webhook"}}
    with pytest.raises(ValidationError, match='account "work"'):
        config(accounts=accounts)
    assert config(webhook_url="https://bot.example", webhook_secret="s", accounts=accounts).account(
        "work"
    )


def test_a_local_bot_api_server_may_call_over_http():
    assert config(**(WEBHOOK | {"webhook_url": "http://10.0.0.2", "api_root": "http://10.0.0.1"}))


def test_no_error_and_no_repr_shows_a_token():
    token = "123456:SECRETSECRETSECRETSECRET"
    with pytest.raises(ValidationError) as caught:
        config(token=token, mode="webhook", accounts={"x": {"token": token}})
    assert "SECRET" not in str(caught.value)
    assert "SECRET" not in repr(config(token=token))
