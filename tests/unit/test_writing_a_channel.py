"""docs/writing-a-channel.md shows a channel that works as it stands there."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from dataclasses import fields
from pathlib import Path

import pytest
from pydantic import BaseModel

from bot import channel
from bot.channel import Health, Outbound
from bot.errors import SendTransient
from bot.settings.plugins import GROUP, config_model
from bot.testing import RecordingEngine
from tests.fakes import written_channel
from tests.support import post, until

ROOT = written_channel.DOCUMENT.parents[1]
LONGEST = 70  # lines
TEXT = written_channel.DOCUMENT.read_text("utf-8")
TOML = re.compile(r"^```toml\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PLACE = channel.Address("mailbox", "default", "ada")


@pytest.fixture
def ada(tmp_path: Path) -> Path:
    folder = tmp_path / "mail" / "ada"
    (folder / "in").mkdir(parents=True)
    return folder


@pytest.fixture
def mailbox(tmp_path: Path, ada: Path) -> channel.Channel:
    plugin = written_channel.plugin(tmp_path)
    return plugin.create(plugin.config.model_validate({"path": str(ada.parent)}))


def test_the_example_is_short_and_needs_nothing_but_the_contract():
    source = written_channel.source()
    assert len(source.splitlines()) <= LONGEST
    assert re.findall(r"^(?:from bot|import bot).*", source, re.MULTILINE) == [
        "from bot import channel, errors",
        "from bot.channel.kit.pieces import TakesMarkdown",
        "from bot.channel.kit.supervisor import Supervisor",
    ]


@pytest.mark.slow
def test_the_example_passes_the_linter_and_the_strict_type_checker(tmp_path):
    path = written_channel.write(tmp_path)
    # In a package of its own `bot` is one of the libraries.
    known = 'lint.isort.known-third-party = ["bot"]'
    ruff = [sys.executable, "-m", "ruff"]
    settings = ["--no-cache", "--config", str(ROOT / "pyproject.toml"), "--config", known]
    (tmp_path / "__init__.py").touch()
    run([*ruff, "check", *settings, str(path)])
    run([*ruff, "format", "--check", *settings, str(path)])
    project = {
        "typeCheckingMode": "strict",
        "include": [path.name],
        "extraPaths": [str(ROOT)],
        "pythonVersion": "3.11",
    }
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(project))
    python = ["--pythonpath", sys.executable]
    run([sys.executable, "-m", "basedpyright", "-p", str(tmp_path), *python])


def run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=os.sep)
    assert done.returncode == 0, done.stdout + done.stderr


def test_it_is_off_until_it_has_a_folder(tmp_path):
    plugin = written_channel.plugin(tmp_path)
    config = config_model({plugin.name: plugin}).model_validate({})
    assert not plugin.ready(config.channels.get("mailbox"))
    assert plugin.ready(plugin.config.model_validate({"path": "~/mailbox"}))


async def test_a_message_stays_until_it_is_stored(mailbox, ada):
    engine = RecordingEngine(failures=2)
    path = ada / "in" / "1.txt"
    path.write_text("hello\n")
    await mailbox.start(engine)
    await until(lambda: engine.attempts == 1 and bool(engine.health))
    assert engine.health["mailbox", "default"][0] is Health.DEGRADED
    assert path.exists()
    await until(lambda: not path.exists())
    await until(lambda: engine.health["mailbox", "default"][0] is Health.UP)
    await mailbox.stop()
    assert [inbound.text for inbound in engine.received] == ["hello"]


async def test_a_message_has_the_same_id_after_a_crash(mailbox, ada, tmp_path):
    engine, path = RecordingEngine(), ada / "in" / "1.txt"
    path.write_text("hello")
    os.link(path, tmp_path / "kept")
    for _ in range(2):
        await mailbox.start(engine)
        await until(lambda: not path.exists())
        await mailbox.stop()
        os.link(tmp_path / "kept", path)
    first, second = engine.received
    assert first == second


async def test_a_file_that_is_still_empty_waits_and_links_lead_nowhere(mailbox, ada, tmp_path):
    engine = RecordingEngine()
    (tmp_path / "secret.txt").write_text("secret")
    (ada / "in" / "0.txt").touch()
    (ada / "in" / "1.txt").symlink_to(tmp_path / "secret.txt")
    (ada / "in" / "2.txt").write_text("hello")
    await mailbox.start(engine)
    await until(lambda: bool(engine.health))
    await mailbox.stop()
    assert [inbound.text for inbound in engine.received] == ["hello"]
    assert sorted(path.name for path in (ada / "in").iterdir()) == ["0.txt", "1.txt"]


async def test_a_piece_that_is_sent_again_is_the_same_file(mailbox, ada):
    for _ in range(2):
        await post(mailbox, Outbound("o", PLACE, "hello", at=5))
    assert [path.name for path in (ada / "out").iterdir()] == ["5-o.md"]


async def test_somebody_without_a_folder_is_tried_again_later(mailbox):
    with pytest.raises(SendTransient):
        await post(mailbox, Outbound("o", channel.Address("mailbox", "default", "bob"), "hello"))


PARTS = [
    name
    for name in channel.__all__
    for part in (getattr(channel, name),)
    if isinstance(part, type) and not issubclass(part, BaseModel)
]


@pytest.mark.parametrize("name", PARTS)
def test_the_document_names_every_part_of_the_contract(name):
    assert f"`{name}" in TEXT


@pytest.mark.parametrize("part", [channel.Inbound, channel.ChannelPlugin, channel.Capabilities])
def test_the_document_names_every_field(part):
    assert [each.name for each in fields(part) if f"`{each.name}`" not in TEXT] == []


def test_the_document_names_everything_an_engine_can_be_asked():
    asked = {name for name in vars(channel.Engine) if not name.startswith("_")} - {"commands"}
    assert [name for name in asked if f"`Engine.{name}" not in TEXT] == []


async def test_the_test_it_shows_passes(tmp_path):
    (code,) = (code for code in written_channel.BLOCK.findall(TEXT) if "async def test_" in code)
    plugin = written_channel.plugin(tmp_path)
    names = {
        "RecordingEngine": RecordingEngine,
        "Mailbox": plugin.create,
        "MailboxConfig": plugin.config,
    }
    exec(code, names)  # noqa: S102
    await names["test_a_message_stays_until_it_is_stored"](tmp_path / "mail")


def test_its_package_brings_the_entry_point():
    (package,) = (text for text in TOML.findall(TEXT) if "[project]" in text)
    assert tomllib.loads(package)["project"]["entry-points"] == {
        GROUP: {"mailbox": "confidant_mailbox:plugin"}
    }


@pytest.mark.parametrize("page", ["README.md", "docs/architecture.md"])
def test_other_documents_lead_there(page):
    assert "writing-a-channel.md" in (ROOT / page).read_text("utf-8")
