"""Everything of one person in one file, and nothing of anybody else's; made while the bot runs."""

from __future__ import annotations

import asyncio
import errno
import json
import zipfile
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from bot.cli.main import cli
from tests.fakes.persons import ADA, BO, OPEN_ROOMS, talk
from tests.support import running

pytestmark = pytest.mark.usefixtures("logs_stay")


def invoke(folder: Path, *words: str, typed: str = "") -> Result:
    where = {
        "CONFIDANT_STORAGE__DIR": str(folder),
        "CONFIDANT_MEMORY__EMBEDDER__PROVIDER": "none",
        "CONFIDANT_MEMORY__WATCH": "false",
    }
    return CliRunner().invoke(cli, list(words), env=where, input=typed)


def content(archive: Path) -> dict[str, str]:
    with zipfile.ZipFile(archive) as file:
        return {name: file.read(name).decode() for name in file.namelist()}


async def test_everything_of_one_and_nothing_of_another_while_the_bot_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bot.coordination.LOOK_SECONDS", 0.01)
    target = tmp_path / "ada.zip"
    async with running(tmp_path / "home", channels=OPEN_ROOMS) as engine:
        await talk(engine)
        before = len(engine.sent_to("ada"))
        done = await asyncio.to_thread(invoke, engine.folder, "export", "memory:ada", str(target))
        assert done.exit_code == 0, done.exception
        await engine.channel.wait_until(lambda _: len(engine.sent_to("ada")) > before)
        assert "everything I keep about you" in engine.sent_to("ada")[before]
        assert not [text for text in engine.sent_to("bo") if "everything I keep" in text]
    assert target.stat().st_mode & 0o777 == 0o600
    held = content(target)
    assert not [name for name, text in held.items() if BO in text]
    holding = sorted(name.partition("/")[0] for name, text in held.items() if ADA in text)
    # Two conversations and a room, each as Markdown and JSONL, two notes, a reminder.
    assert holding == [*4 * ["conversations"], "data", "notes", "notes", "rooms", "rooms"]
    assert held["notes/memory/旅行.md"] == f"- {ADA} by train\n"
    assert json.loads(held["data/reminders.json"])[0]["text"] == f"{ADA} the plants"
    assert "About memory:ada" in held["README.md"]
    kept = {path.name: path for path in (tmp_path / "home" / "sessions").rglob("*.jsonl")}
    copied = [name for name in held if name.startswith("conversations/") and name[-1] == "l"]
    assert len(copied) == 2
    for name in copied:
        (path,) = [path for own, path in kept.items() if name.endswith(own)]
        assert path.read_text().startswith(held[name])


async def greet(home: Path) -> None:
    async with running(home) as engine:
        await engine.ask("hello")


def test_what_cannot_be_exported_is_said_and_leaves_nothing(tmp_path: Path) -> None:
    home = tmp_path / "home"
    asyncio.run(greet(home))
    there = tmp_path / "there.zip"
    there.write_text("mine")
    for words, said in (
        (("nobody", str(tmp_path / "x.zip")), "Nobody is called 'nobody'"),
        (("memory:stranger", str(tmp_path / "x.zip")), "Nothing is kept about memory:stranger"),
        (("memory:ada", str(there)), "is there already. Nothing was changed"),
        (("memory:ada", str(tmp_path / "no" / "x.zip")), "There is no folder"),
    ):
        result = invoke(home, "export", *words)
        assert said in str(result.exception), result.output
    assert sorted(path.name for path in tmp_path.iterdir()) == ["home", "there.zip"]
    assert there.read_text() == "mine"


def test_a_full_disk_leaves_no_export_and_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    asyncio.run(greet(home))
    with monkeypatch.context() as patch:
        patch.setattr("bot.storage.files.os.fsync", full)
        result = invoke(home, "export", "memory:ada", str(tmp_path / "x.zip"))
    assert "the disk is full. Nothing was changed." in str(result.exception)
    assert [path.name for path in tmp_path.iterdir()] == ["home"]
    assert invoke(home, "export", "memory:ada", str(tmp_path / "x.zip")).exit_code == 0


def full(_file: int) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")
