"""`confidant sessions` shows and writes what a person may still see: nothing that was forgotten."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from bot.cli.main import cli
from bot.sessions.transcript_files import path_of
from tests.support import running

pytestmark = pytest.mark.usefixtures("logs_stay")

WORDS = "harbour code"


@pytest.fixture
async def session(tmp_path: Path) -> str:
    """A conversation in a folder, of which something was forgotten."""
    async with running(tmp_path / "data") as engine:
        await engine.ask(f"my {WORDS} is 4711")
        await engine.ask("and the cat is grey")
        await engine.ask(f"/memory forget {WORDS}")
        await engine.ask("/memory forget yes")
    (mirror,) = (tmp_path / "data" / "sessions").rglob("*.jsonl")
    assert WORDS in mirror.read_text("utf-8")  # what the program keeps only grows
    return mirror.stem


def ran(*arguments: str) -> str:
    done = CliRunner().invoke(cli, ["sessions", *arguments], catch_exceptions=False)
    assert done.exit_code == 0
    return done.output


def test_what_was_forgotten_is_neither_shown_nor_exported(
    session: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CONFIDANT_STORAGE__DIR", str(tmp_path / "data"))
    shown = ran("show", session)
    ran("export", str(tmp_path / "out"))
    lines = (tmp_path / "out" / f"{session}.jsonl").read_text("utf-8")
    for text in (shown, lines):
        assert WORDS not in text
        assert "4711" not in text
        assert "and the cat is grey" in text
    assert shown.count(": (forgotten)\n") == 2
    mirror = path_of(tmp_path / "data" / "sessions", session)
    kept = mirror.read_text("utf-8").splitlines()
    same = [line for line in kept if WORDS not in line and "4711" not in line]
    written = lines.splitlines()
    assert len(written) == len(kept)
    assert set(same) <= set(written)  # to the byte
