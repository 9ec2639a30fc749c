"""Commands in a real terminal: what a person sees there."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bot.cli.main import cli
from tests.fakes.terminal import terminal
from tests.support import running

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("logs_stay")]

PROGRAM = Path(sys.executable).with_name("confidant")


def variables(folder: Path, **more: str) -> dict[str, str]:
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "CONFIDANT_STORAGE__DIR": str(folder / "data"),
        "CONFIDANT_DASHBOARD__PORT": "0",
        "CONFIDANT_MEMORY__EMBEDDER__PROVIDER": "none",
        **more,
    }


async def test_a_backup_and_a_restore_show_how_far_they_are(tmp_path):
    async with running(tmp_path / "data") as engine:
        await engine.ask("hello")
    here = variables(tmp_path)
    for words, bar, last in (
        (("backup", "all.backup"), "Backing up", "It is not sealed"),
        (("restore", "--check", "all.backup"), "Checking", "Nothing was changed."),
        (("restore", "all.backup"), "Restoring", "What was there is kept in"),
    ):
        async with terminal(PROGRAM, *words, folder=tmp_path, variables=here) as seen:
            assert await seen.ends() == 0, seen.text
        assert last in seen.text
        assert not any(bar in line for line in seen.lines)  # nothing is left of it
        assert re.search(rf"\r\x1b\[K{bar}  [█░]+  \d+ %  [\d.,]+", seen.raw), seen.raw
        again = ("backup", "again.backup") if words[0] == "backup" else words
        async with terminal(PROGRAM, *again, "--quiet", folder=tmp_path, variables=here) as seen:
            assert await seen.ends() == 0, seen.text
        assert last in seen.text
        assert bar not in seen.text


def test_the_index_shows_how_far_it_is(tmp_path, monkeypatch):
    folder = tmp_path / "data" / "workspace" / "memory"
    folder.mkdir(parents=True)
    for number in range(30):
        (folder / f"{number}.md").write_text(f"- note {number}\n" * 400)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("bot.cli.memory.LOOK_SECONDS", 0.001)
    monkeypatch.setattr("bot.cli.progress.has_terminal", lambda _: True)
    done = CliRunner().invoke(cli, ["memory", "index"], env=variables(tmp_path))
    assert done.exit_code == 0, done.output
    assert "passages of 32 files." in done.stdout
    assert re.search(r"\r\x1b\[KIndexing notes  .+  \d+ %  \d+ of 32 notes", done.stderr)
    assert done.stderr.endswith("\r\x1b[K")
