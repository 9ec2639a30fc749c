"""The generated documents and the models say the same."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from bot import settings
from bot.settings.fields import env_name, tables
from scripts.docs import documents, reference_markdown, reference_toml
from tests.fakes.config_channels import CHANNELS, load

ROOT = Path(__file__).resolve().parents[2]
MODEL = settings.config_model(settings.installed_channels())
PIGEON_MODEL = settings.config_model(CHANNELS)
OPTION = re.compile(r"^#(?=\w+ = )", re.MULTILINE)


@pytest.mark.parametrize("name", ["config/confidant.toml", "docs/configuration.md"])
def test_the_committed_file_is_the_generated_one(name):
    committed = (ROOT / name).read_text("utf-8")
    assert committed == documents()[name], f"{name} is out of date: run `make docs`"


def test_the_reference_file_changes_nothing_as_it_is(tmp_path):
    text = reference_toml(MODEL)
    path = tmp_path / "reference.toml"
    path.write_text(text, "utf-8")
    loaded = settings.load(path, {}, tmp_path)
    assert loaded.config.model_dump() == settings.load(None, {}, tmp_path).config.model_dump()
    assert loaded.warnings == ()


def test_the_file_of_the_short_guide_says_what_it_is_meant_to(tmp_path):
    page = (ROOT / "docs" / "setting-up.md").read_text("utf-8")
    (example,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    (secrets,) = re.findall(r"```sh\n(.*?)```", page, re.DOTALL)
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
    path.write_text(OPTION.sub("", reference_toml(MODEL)), "utf-8")
    loaded = settings.load(path, {}, tmp_path)
    assert loaded.config.model_dump() == settings.load(None, {}, tmp_path).config.model_dump()


def test_the_reference_file_has_every_option():
    text = reference_toml(MODEL)
    data = tomllib.loads(OPTION.sub("", text))
    for key, _, options in tables(MODEL):
        table = data
        for name in key:
            table = table.get(name, {})
        for option in options:
            if option.shape.kind == "secret":
                assert f'# In this file: {option.key[-1]} = "file:' in text
            else:
                assert option.key[-1] in table, option.key


def test_every_option_is_described():
    for _, table, options in tables(MODEL):
        assert table.__doc__
        for option in options:
            assert option.field.description, option.key


def test_the_reference_file_fits_a_screen():
    lines = reference_toml(MODEL).split("\n")
    assert max(map(len, lines)) <= 100


def test_the_page_has_every_option_and_variable():
    page = reference_markdown(MODEL)
    for _, _, options in tables(MODEL):
        for option in options:
            assert f"| `{option.key[-1]}` |" in page
            assert env_name(option.key) in page


def test_the_page_names_plain_variables_and_the_options_of_nested_tables():
    plain = settings.plain_names(CHANNELS, PIGEON_MODEL)
    page = reference_markdown(PIGEON_MODEL, plain)
    assert (
        "| `token` | secret | not set | `PIGEON_TOKEN`, `CONFIDANT_CHANNELS__PIGEON__TOKEN` |"
        in page
    )
    assert "### `[channels.pigeon.accounts.<name>]`" in page
    assert "### `[[scope.rules]]`" in page
    assert '| `action` | `"allow"` or `"deny"` | required |' in page
    assert "number above 0, at most 40" in page


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
    assert set(data) == set(type(loaded.config).model_fields) - {"models"} | {"models"}


def test_what_is_in_effect_can_be_loaded_again(tmp_path):
    text = settings.show(load(tmp_path))
    (tmp_path / "again.toml").write_text(text, "utf-8")
    again = settings.load(Path("again.toml"), {}, tmp_path, CHANNELS)
    assert settings.show(load(tmp_path)) == re.sub(
        "# again.toml:\\d+", "# default", settings.show(again)
    )
