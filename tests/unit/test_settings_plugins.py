"""Channels that come from other packages, and those that are broken."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pytest

from bot import settings
from bot.channel import ChannelPlugin
from bot.errors import ConfigError
from tests.fakes.config_channels import CHANNELS, PigeonConfig, load


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of installed packages; what is imported from it is forgotten afterwards."""
    known = set(sys.modules)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in set(sys.modules) - known:
        del sys.modules[name]


def install(folder: Path, package: str, name: str, code: str, group: str = "channels") -> None:
    """Put a package with one channel, or with tools, into a folder, as an installer would."""
    (folder / f"{package}.py").write_text(dedent(code))
    meta = folder / f"{package}-1.dist-info"
    meta.mkdir()
    (meta / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1\n")
    (meta / "entry_points.txt").write_text(f"[confidant.{group}]\n{name} = {package}:plugin\n")


GOOD = """
    from pydantic import Field
    from bot.channel import ChannelConfig, ChannelPlugin
    class RavenConfig(ChannelConfig):
        wit: int = Field(default=3, description="How clever.")
    plugin = ChannelPlugin("raven", RavenConfig, create=lambda config: None)
"""


def test_the_channels_of_this_project_are_found():
    assert {"console", "telegram", "web"} <= set(settings.installed_channels())


def test_the_plain_names_are_known(tmp_path):
    environ = {"TELEGRAM_BOT_TOKEN": "1:a", "ANTHROPIC_API_KEY": "k"}
    config = settings.load(None, environ, tmp_path).config
    telegram = config.channels.get("telegram")
    assert telegram.model_dump()["token"].get_secret_value() == "1:a"
    assert config.models.anthropic.api_key is not None


def test_a_channel_of_another_package_is_configured_like_ours(packages):
    install(packages, "raven_channel", "raven", GOOD)
    assert "raven" in settings.installed_channels()
    loaded = settings.load(None, {"CONFIDANT_CHANNELS__RAVEN__WIT": "5"}, packages)
    assert loaded.config.channels.get("raven").model_dump()["wit"] == 5
    assert loaded.plugins["raven"].name == "raven"


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("import nothing_of_this_name", "cannot be loaded: ModuleNotFoundError: No module named"),
        ("1 / 0", "cannot be loaded: ZeroDivisionError"),
        ("", "cannot be loaded: AttributeError"),
        ("plugin = 3", "is no channel: it names a int"),
        (GOOD.replace('"raven"', '"crow"'), 'calls itself "crow", which cannot be its name'),
    ],
)
def test_a_broken_channel_is_named(packages, code, reason):
    install(packages, "raven_channel", "raven", code)
    with pytest.raises(ConfigError) as caught:
        settings.load(None, {}, packages)
    assert 'the channel "raven" (raven_channel, raven_channel:plugin) ' in str(caught.value)
    assert reason in str(caught.value)


def test_two_packages_with_one_channel_are_told(packages):
    install(packages, "raven_channel", "raven", GOOD)
    install(packages, "other_raven", "raven", GOOD)
    with pytest.raises(ConfigError, match='two packages bring a channel "raven"'):
        settings.installed_channels()


def test_a_rule_may_name_what_servers_and_other_packages_bring(packages, tmp_path):
    rules = "[[tools.rules]]\naction = 'deny'\ntools = ['Memory_*', 'files_read', 'fi*', '*']\n"
    rules += "channel = 'PIGEON'\n"
    server = "[tools.mcp.files]\ncommand = 'x'\n"
    assert load(tmp_path, rules + server).warnings == ()
    for said in ("files_read", "fi*"):
        with pytest.raises(ConfigError, match=f'no tool is called "{re.escape(said)}"'):
            load(tmp_path, rules)
    install(packages, "some_tools", "tools", "", group="tools")
    (warning, other) = load(tmp_path, rules).warnings  # its tools are known once it is loaded
    assert 'no tool is called "files_read"' in warning
    assert 'no tool is called "fi*"' in other


def test_a_channel_whose_options_have_no_default_is_refused(tmp_path):
    class Needy(PigeonConfig):
        needed: int

    plugin = ChannelPlugin("needy", Needy, CHANNELS["owl"].create)
    with pytest.raises(ConfigError, match=r"without a default: \['needed'\]"):
        settings.load(None, {}, tmp_path, {"needy": plugin})


def test_a_plain_name_for_an_option_that_does_not_exist_is_refused(tmp_path):
    plugin = ChannelPlugin("p", PigeonConfig, CHANNELS["owl"].create, env={"P_KEY": ("key",)})
    with pytest.raises(ConfigError, match='the channel "p" has no option for P_KEY'):
        settings.load(None, {}, tmp_path, {"p": plugin})
