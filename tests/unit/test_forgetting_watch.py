"""Writing with a watch: refused once something was forgotten, whatever the moment."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from bot.errors import ToolError
from bot.identity.view import MAIN_SPACE, MemoryView
from bot.memory import disk
from bot.memory.folder_notes import FolderNotes
from bot.memory.note_store import Watch
from bot.memory.notes import Notes
from tests.support import until

NOW = datetime(2026, 7, 1, 14, 3, tzinfo=UTC)
MAIN = MemoryView(MAIN_SPACE, ("agent:main",), private=True)
ADA = MemoryView("people/ada", ("agent:ada",), private=True)

Write = Callable[[Notes, Watch | None], Awaitable[Any]]

WRITES: dict[str, Write] = {
    "remember": lambda notes, watch: notes.remember(MAIN, "Green tea.", NOW, watch=watch),
    "add": lambda notes, watch: notes.add(MAIN, "MEMORY.md", "Green tea.", NOW, watch=watch),
    "append": lambda notes, watch: notes.append(MAIN, "memory/x.md", "- tea\n", watch=watch),
    "supersede": lambda notes, watch: notes.supersede(
        MAIN, "MEMORY.md", old="Black tea.", text="Green tea.", now=NOW, watch=watch
    ),
    "replace_section": lambda notes, watch: notes.replace_section(
        MAIN, "MEMORY.md", title="Drinks", text="Tea.", now=NOW, by="agent", watch=watch
    ),
}


def files(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    folder.mkdir()
    (folder / "MEMORY.md").write_text("# Drinks\n\n- Black tea.\n")
    return folder


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
async def test_what_was_read_before_is_not_written_after(workspace: Path, write: Write):
    notes = Notes(FolderNotes(workspace))
    before = files(workspace)
    async with notes.watching(MAIN) as watch:
        async with notes.forgetting(MAIN, "coffee"):
            with pytest.raises(ToolError, match="forgotten"):
                await write(notes, watch)
        with pytest.raises(ToolError, match="forgotten"):
            await write(notes, watch)
        assert watch.words == ["coffee"]
    assert files(workspace) == before
    async with notes.watching(MAIN) as watch:
        await write(notes, watch)
        assert watch.words == []
    assert files(workspace) != before


async def test_other_spaces_and_what_a_person_writes_by_command_go_on(workspace: Path):
    notes = Notes(FolderNotes(workspace))
    async with notes.watching(ADA) as watch, notes.forgetting(MAIN, "coffee"):
        await notes.remember(ADA, "Ada likes coffee.", NOW, watch=watch)
        await notes.remember(MAIN, "By hand.", NOW)
        assert watch.words == []


async def test_who_comes_while_it_lasts_waits_and_hears_nothing_of_it(workspace: Path):
    notes = Notes(FolderNotes(workspace))
    heard: list[list[str]] = []

    async def come() -> None:
        async with notes.watching(MAIN) as watch:
            heard.append(watch.words)

    async with notes.forgetting(MAIN, "coffee"):
        coming = asyncio.create_task(come())
        async with notes.watching(ADA):
            pass
        assert not coming.done()
        assert heard == []
    await coming
    assert heard == [[]]


async def test_a_write_that_was_let_through_is_on_disk_when_words_are_removed(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
):
    notes = Notes(FolderNotes(workspace))
    writing, gate = threading.Event(), threading.Event()
    append = disk.append

    def slow(*given: Any) -> int:
        writing.set()
        assert gate.wait(10)
        return append(*given)

    monkeypatch.setattr("bot.memory.disk.append", slow)
    async with notes.watching(MAIN) as watch:
        write = asyncio.create_task(notes.remember(MAIN, "Black coffee.", NOW, watch=watch))
        await until(writing.is_set)
        begun = asyncio.Event()

        async def forget() -> tuple[str, ...]:
            async with notes.forgetting(MAIN, "coffee"):
                begun.set()
                return await notes.forget(MAIN, "memory/2026-07-01.md", "coffee")

        forgetting = asyncio.create_task(forget())
        await until(lambda: bool(watch.words))
        assert not begun.is_set()
        gate.set()
        place = await write
        assert await forgetting == ("- 14:03 Black coffee.",)
    assert "coffee" not in (workspace / place.path).read_text()
