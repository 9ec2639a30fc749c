"""Whatever the program keeps is for its own account only, from the first moment."""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from bot.sessions.mirror import Mirror
from bot.storage import backup, files
from bot.storage.sqlite import SqliteDatabase
from tests.support import NOON, FakeClock, beside, running, until

EMBEDDER = {"embedder": {"provider": "multilingual"}}


@pytest.fixture(autouse=True)
def everything_allowed() -> Iterator[None]:
    """The most careless umask there is."""
    before = os.umask(0)
    yield
    os.umask(before)


def open_to_others(folder: Path) -> list[str]:
    """What anybody but its owner may do something with, below a folder and itself."""
    found = [folder, *folder.rglob("*")]
    modes: dict[Path, int] = {}
    for path in found:
        with contextlib.suppress(FileNotFoundError):  # what was being written has its name by now
            modes[path] = stat.S_IMODE(path.lstat().st_mode)
    return [f"{path.relative_to(folder)} {mode:o}" for path, mode in modes.items() if mode & 0o077]


async def use(folder: Path) -> None:
    """Let a program do all that makes files: talk, notes, an index, a backup, a kept transcript."""
    clock = FakeClock()
    async with running(folder, clock=clock, memory=EMBEDDER) as engine:
        await engine.ask("hello there")
        await engine.ask("hello from a room", sender="bob")
        await engine.ask_each("/remind me in 5 minutes to stretch", "/new")
        transcript = next((folder / "sessions").rglob("*.jsonl"))
        await asyncio.to_thread(backup.make, folder / "confidant.db", 3, NOON)
        await until((folder / "index" / "embeddings.db-wal").exists)
        assert open_to_others(folder) == []
    transcript.write_bytes(b"what the database does not know\n")
    async with running(folder, clock=clock, memory=EMBEDDER):
        await until(lambda: bool([*(folder / "sessions").rglob("*.kept-*")]))
        assert open_to_others(folder) == []


async def test_nothing_in_the_folder_of_a_used_program_is_for_others(tmp_path):
    folder = tmp_path / "data"
    await use(folder)
    assert open_to_others(folder) == []
    made = {path.name.rpartition(".")[2] for path in folder.rglob("*") if path.is_file()}
    assert {"db", "jsonl", "kept-1", "lock", "md"} <= made


async def test_what_an_earlier_version_left_open_is_mended_at_the_start(tmp_path):
    folder = tmp_path / "data"
    await use(folder)
    notes = folder / "workspace" / "MEMORY.md"
    notes.write_text("- mine\n")
    for path in (*folder.rglob("*.jsonl*"), *folder.rglob("*.db*"), notes):
        path.chmod(0o664)
    (folder / "sessions").chmod(0o755)
    async with running(folder):
        await until(lambda: open_to_others(folder) == ["workspace/MEMORY.md 664"])


async def test_a_database_left_open_by_an_earlier_version_opens_its_log_to_nobody(tmp_path):
    path = tmp_path / "confidant.db"
    await (await SqliteDatabase.open(path)).close()
    path.chmod(0o644)
    database = await SqliteDatabase.open(path)
    await database.write(lambda tx: tx.execute("DELETE FROM meta"))
    assert [each.stat().st_mode & 0o077 for each in tmp_path.glob("confidant.db*")] == [0, 0, 0]
    await database.close()


async def test_a_transcript_is_written_again_as_a_private_file(tmp_path, monkeypatch):
    """Also the one that is written beside it, before it takes its place."""
    seen: list[int] = []
    replace = Path.replace

    def watched(self: Path, target: Path) -> Path:
        if Path(target).suffix == ".jsonl":
            seen.append(self.stat().st_mode & 0o777)
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", watched)
    folder = tmp_path / "data"
    async with running(folder) as engine:
        await engine.ask("hello")
    for path in (folder / "sessions").rglob("*.jsonl"):
        path.write_bytes(b"")
    async with beside(folder) as database:
        mirror = Mirror(database, folder / "sessions")
        await mirror.start()
        assert await mirror.repair() == 1
        await mirror.stop()
    assert seen == [0o600]


def test_links_and_what_is_gone_are_left_alone(tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("somebody's own")
    elsewhere.chmod(0o644)
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "link").symlink_to(elsewhere)
    (folder / "open").write_text("")
    assert files.mend([folder, folder / "gone"]) == 2
    assert files.mend([folder]) == 0
    assert elsewhere.stat().st_mode & 0o777 == 0o644
    assert open_to_others(folder) == ["link 777"]
