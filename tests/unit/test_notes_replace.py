"""Replacing what a file says: in one step, never against an editor, and nothing is lost."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from bot.errors import NotVisible, ToolError
from bot.identity.view import MAIN_SPACE, MemoryView
from bot.memory import disk
from bot.memory.folder_notes import FolderNotes
from bot.memory.notes import Notes, Place, Replaced
from tests.support import PATIENCE

NOW = datetime(2026, 7, 1, 14, 3, tzinfo=ZoneInfo("Europe/Berlin"))
MAIN = MemoryView(MAIN_SPACE, ("agent:main",), private=True)
ROOM = MemoryView("rooms/telegram-7", ("agent:room",), private=False)
BEFORE = "# Memory\n\n- Lives in Berlin. <!-- owner 2026-01-05 -->\n- Likes tea\n"
NOTE = "memory/2026-07-01.md"


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    (tmp_path / "MEMORY.md").write_text(BEFORE)
    return tmp_path


@pytest.fixture
def notes(workspace: Path) -> Notes:
    return Notes(FolderNotes(workspace))


async def move(
    notes: Notes, old: str = "lives in Berlin", text: str = "Lives in Paris."
) -> Replaced:
    return await notes.supersede(MAIN, "MEMORY.md", old=old, text=text, now=NOW, by="owner")


async def test_the_old_entry_moves_to_the_days_note_with_its_date(notes: Notes, workspace: Path):
    assert await move(notes) == Replaced(Place("MEMORY.md", 3), Place(NOTE, 3))
    assert (workspace / "MEMORY.md").read_text() == (
        "# Memory\n\n- Lives in Paris. <!-- owner 2026-07-01 -->\n- Likes tea\n"
    )
    assert (workspace / NOTE).read_text() == (
        "# 2026-07-01\n\n- 14:03 ~~Lives in Berlin.~~ "
        "<!-- owner 2026-01-05, in MEMORY.md until 2026-07-01 -->\n"
    )
    assert sorted(path.name for path in workspace.iterdir()) == ["MEMORY.md", "memory"]


@pytest.mark.parametrize("old", ["Lives in Rome", "li", "", "- "])
async def test_what_is_not_there_changes_nothing(notes: Notes, workspace: Path, old: str):
    with pytest.raises(ToolError, match="nothing was changed"):
        await move(notes, old)
    assert (workspace / "MEMORY.md").read_text() == BEFORE
    assert not (workspace / NOTE).exists()


async def test_a_section_is_replaced_and_what_stood_there_is_kept(notes: Notes, workspace: Path):
    (workspace / "memory").mkdir()
    (workspace / "memory/trip.md").write_text("# trip\n\n## When\n\nin May\n\n## Who\n\nus\n")
    done = await notes.replace_section(
        MAIN, "memory/trip.md", title="When", text="in June", now=NOW, by="agent"
    )
    assert done == Replaced(Place("memory/trip.md", 5), Place(NOTE, 3))
    assert (workspace / "memory/trip.md").read_text() == (
        "# trip\n\n## When\n\nin June <!-- agent 2026-07-01 -->\n\n## Who\n\nus\n"
    )
    assert "- 14:03 ~~in May~~ <!-- owner in memory/trip.md" in (workspace / NOTE).read_text()


async def test_a_new_file_is_made_with_its_section(notes: Notes, workspace: Path):
    done = await notes.replace_section(
        ROOM, "ROOM.md", title="Rules", text="be kind", now=NOW, by="agent"
    )
    assert done == Replaced(Place("ROOM.md", 3), None)
    file = workspace / "rooms/telegram-7/ROOM.md"
    assert file.read_text() == "## Rules\n\nbe kind <!-- agent 2026-07-01 -->\n"
    assert file.stat().st_mode & 0o077 == 0


async def test_a_days_note_is_never_rewritten(notes: Notes, workspace: Path):
    await notes.remember(MAIN, "Tea", NOW)
    with pytest.raises(ToolError, match="only appended"):
        await notes.supersede(MAIN, NOTE, old="Tea", text="Coffee", now=NOW)


@pytest.mark.parametrize("path", ["ROOM.md", "../MEMORY.md", "shared/a.md", "AGENTS.md", "/a.md"])
async def test_only_the_views_own_files_are_changed(notes: Notes, workspace: Path, path: str):
    with pytest.raises(NotVisible):
        await notes.supersede(MAIN, path, old="x", text="y", now=NOW)
    with pytest.raises(NotVisible):
        await notes.add(MAIN, path, "x", NOW.date())


async def test_a_link_is_not_followed_and_what_it_leads_to_stays(notes: Notes, workspace: Path):
    outside = workspace.parent / "outside.md"
    outside.write_text(BEFORE)
    (workspace / "MEMORY.md").unlink()
    (workspace / "MEMORY.md").symlink_to(outside)
    with pytest.raises(NotVisible):
        await move(notes)
    assert outside.read_text() == BEFORE


async def test_the_files_permissions_stay(notes: Notes, workspace: Path):
    (workspace / "MEMORY.md").chmod(0o640)
    await move(notes)
    assert (workspace / "MEMORY.md").stat().st_mode & 0o777 == 0o640


# --- editors -------------------------------------------------------------------------------------


def save_in_place(file: Path, text: str) -> None:
    file.write_text(text)


def save_beside(file: Path, text: str) -> None:
    beside = file.with_suffix(".editor")
    beside.write_text(text)
    beside.replace(file)


SAVES: list[Callable[[Path, str], None]] = [save_in_place, save_beside]


MOMENTS = [*(("open", n) for n in range(1, 9)), *(("fsync", n) for n in range(1, 5)), ("fchmod", 1)]


@pytest.mark.parametrize("save", SAVES)
@pytest.mark.parametrize("moment", MOMENTS)
async def test_an_editor_that_saves_at_any_moment_loses_nothing(
    workspace: Path,
    monkeypatch: pytest.MonkeyPatch,
    save: Callable[[Path, str], None],
    moment: tuple[str, int],
):
    notes, (call, nth) = Notes(FolderNotes(workspace)), moment
    file, calls, real = workspace / "MEMORY.md", [0], getattr(os, call)
    await notes.remember(MAIN, "warm up", NOW)  # so that calls are those of the rewrite

    def meddling(*args: object, **kwargs: object) -> object:
        calls[0] += 1
        if calls[0] == nth:
            monkeypatch.setattr(os, call, real)
            save(file, f"{file.read_text()}- by hand\n")
        return real(*args, **kwargs)

    monkeypatch.setattr(os, call, meddling)
    await move(notes)
    assert calls[0] >= nth
    text = file.read_text()
    assert "- by hand\n" in text
    assert "- Lives in Paris." in text
    assert "Berlin" not in text


async def test_an_editor_that_saves_just_before_the_swap_wins_its_words(
    notes: Notes, workspace: Path, monkeypatch: pytest.MonkeyPatch
):
    file, real = workspace / "MEMORY.md", disk._exchange

    def late(parent: int, one: str, other: str) -> bool:
        monkeypatch.setattr(disk, "_exchange", real)
        save_beside(file, f"{file.read_text()}- by hand\n")
        return real(parent, one, other)

    monkeypatch.setattr(disk, "_exchange", late)
    await move(notes)
    text = file.read_text()
    assert "- by hand\n" in text
    assert "- Lives in Paris." in text


async def test_an_editor_that_never_stops_is_told_and_nothing_is_written(
    notes: Notes, workspace: Path, monkeypatch: pytest.MonkeyPatch
):
    file, real = workspace / "MEMORY.md", os.fchmod
    count = [0]

    def always(fd: int, mode: int) -> None:
        count[0] += 1
        save_beside(file, f"{BEFORE}- by hand {count[0]}\n")
        real(fd, mode)

    monkeypatch.setattr(os, "fchmod", always)
    with pytest.raises(ToolError, match="nothing was written"):
        await move(notes)
    assert file.read_text() == f"{BEFORE}- by hand {count[0]}\n"
    assert sorted(path.name for path in workspace.iterdir()) == ["MEMORY.md", "memory"]


async def test_an_editor_appending_all_the_while_loses_nothing(notes: Notes, workspace: Path):
    file, enough = workspace / "MEMORY.md", threading.Event()
    pause = 0.002

    def edit() -> int:
        written = 0
        while not enough.is_set():
            with file.open("a") as editor:
                editor.write(f"- edit {written}\n")
            written += 1
            enough.wait(pause)
        return written

    editing = asyncio.create_task(asyncio.to_thread(edit))
    moved = 0
    async with asyncio.timeout(PATIENCE):
        while moved < 20:
            try:
                await move(notes, f"Lives in {moved or 'Berlin'}", f"Lives in {moved + 1}")
            except ToolError:  # the editor was too quick for us, on a machine that is busy
                pause *= 1.5
            else:
                moved += 1
    enough.set()
    edits = await editing
    lines = file.read_text().splitlines()
    assert [line for line in lines if line.startswith(f"- Lives in {moved}")]
    # One that the swap overtook comes after the ones written meanwhile; none is lost or doubled.
    found = sorted(int(line.removeprefix("- edit ")) for line in lines if "- edit" in line)
    assert found == list(range(edits))


async def test_where_names_cannot_be_exchanged_it_is_replaced_after_one_more_look(
    notes: Notes, workspace: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(disk, "_exchange", lambda *_: False)
    await move(notes)
    assert "- Lives in Paris." in (workspace / "MEMORY.md").read_text()
    assert sorted(path.name for path in workspace.iterdir()) == ["MEMORY.md", "memory"]


# --- disks ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", ["write", "fsync", "fchmod"])
async def test_a_disk_that_fails_leaves_the_file_as_it_was(
    notes: Notes, workspace: Path, monkeypatch: pytest.MonkeyPatch, call: str
):
    await notes.remember(MAIN, "warm up", NOW)

    def broken(*_args: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, call, broken)
        with pytest.raises(ToolError, match=os.strerror(errno.ENOSPC)):
            await move(notes)
    assert (workspace / "MEMORY.md").read_text() == BEFORE
    assert sorted(path.name for path in workspace.iterdir()) == ["MEMORY.md", "memory"]
    await move(notes)
    assert "- Lives in Paris." in (workspace / "MEMORY.md").read_text()


async def test_a_half_written_file_never_takes_the_place(
    notes: Notes, workspace: Path, monkeypatch: pytest.MonkeyPatch
):
    await notes.remember(MAIN, "warm up", NOW)
    real, written = os.write, [0]

    def few(fd: int, data: bytes) -> int:
        if b"Paris" not in bytes(data) and not written[0]:
            return real(fd, data)
        written[0] += 1
        return real(fd, bytes(data)[:5]) if written[0] == 1 else 0

    monkeypatch.setattr(os, "write", few)
    with pytest.raises(ToolError):
        await move(notes)
    assert (workspace / "MEMORY.md").read_text() == BEFORE


async def test_what_a_crash_left_beside_is_no_obstacle(notes: Notes, workspace: Path):
    (workspace / ".MEMORY.md.tmp").write_text("half")
    await move(notes)
    assert sorted(path.name for path in workspace.iterdir()) == ["MEMORY.md", "memory"]


async def test_a_file_that_is_full_or_unreadable_is_told_and_kept(notes: Notes, workspace: Path):
    full = "- Lives in Berlin\n" + "x" * disk.MAX_WRITE
    (workspace / "MEMORY.md").write_text(full)
    for work in (move(notes), notes.add(MAIN, "MEMORY.md", "x", NOW.date())):
        with pytest.raises(ToolError, match="full"):
            await work
    assert (workspace / "MEMORY.md").read_text() == full
    latin = "- Lives in Berlin\n- caf\xe9\n".encode("latin-1")
    (workspace / "MEMORY.md").write_bytes(latin)
    with pytest.raises(ToolError, match="not UTF-8"):
        await move(notes)
    assert (workspace / "MEMORY.md").read_bytes() == latin
