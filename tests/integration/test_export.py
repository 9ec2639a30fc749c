"""`confidant sessions export` from a database of nodes writes the same files as from a folder."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest
from typer.testing import CliRunner

from bot.cli.main import cli
from bot.portability import places
from bot.portability.move import Move
from tests.support import FakeClock, running

pytestmark = pytest.mark.usefixtures("logs_stay")


async def moved(folder: Path, url: str) -> None:
    async with (
        places.folder(folder, folder / "workspace") as source,
        places.server(url, 2) as target,
    ):
        await Move(source, target, FakeClock(), lambda _: None).run()


@pytest.fixture
async def folder(tmp_path, postgres_url) -> Path:
    async with running(tmp_path / "old") as engine:
        await engine.ask("hello 水母")
        await engine.ask_each("a nul \0 too", "/new", "again", sender="bo")
    await moved(tmp_path / "old", postgres_url)
    return tmp_path / "old"


def test_transcripts_are_exported_from_a_database_as_from_a_folder(
    folder, tmp_path, postgres_url, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CONFIDANT_STORAGE__DIR", str(folder))
    exported: list[dict[str, bytes]] = []
    for name in ("folder", "database"):
        done = CliRunner().invoke(
            cli, ["sessions", "export", str(tmp_path / name)], catch_exceptions=False
        )
        assert done.exit_code == 0
        assert "written to" in done.output
        exported.append({path.name: path.read_bytes() for path in (tmp_path / name).iterdir()})
        monkeypatch.setenv("CONFIDANT_STORAGE__URL", postgres_url)
    assert exported[0] == exported[1]
    assert len(exported[0]) >= 3
    index = orjson.loads(exported[0]["sessions.json"])
    assert {f"{each['sessionId']}.jsonl" for each in index.values()} <= set(exported[1])
    mirrored = {path.name: path.read_bytes() for path in (folder / "sessions").rglob("*.jsonl")}
    assert mirrored.items() <= exported[1].items()
