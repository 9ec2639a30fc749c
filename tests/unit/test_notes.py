"""Daily notes: appended whole, on disk when told so, and never outside the view's own space."""

import asyncio
import errno
import os
import stat
import threading
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.errors import NotVisible, ToolError
from bot.identity.view import MAIN_SPACE, MemoryView
from bot.memory import note_store
from bot.memory.layout import space_folders
from bot.memory.markdown import bullet
from bot.memory.note_store import FolderNotes
from bot.memory.notes import Notes, Place, Replaced, listed
from tests.support import PATIENCE, write_file

NOW = datetime(2026, 7, 1, 14, 3, tzinfo=ZoneInfo("Europe/Berlin"))
MAIN = MemoryView(MAIN_SPACE, ("agent:main",), private=True)
ADA = MemoryView("people/ada", ("agent:ada",), private=True)
ROOM = MemoryView("rooms/telegram-7", ("agent:room",), private=False)
NOTHING = MemoryView("", (), private=False)
REFUSAL = str(NotVisible())


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    return tmp_path / "workspace"


@pytest.fixture
def notes(workspace: Path) -> Notes:
    return Notes(FolderNotes(workspace))


@pytest.mark.parametrize(
    ("view", "folder"), [(MAIN, ""), (ADA, "people/ada"), (ROOM, "rooms/telegram-7")]
)
async def test_a_note_goes_to_its_own_space_and_the_persons_date(notes, workspace, view, folder):
    place = await notes.remember(view, "Tea, not coffee.", NOW)
    assert place == Place("memory/2026-07-01.md", 3)
    text = (workspace / folder / "memory/2026-07-01.md").read_text()
    assert text == "# 2026-07-01\n\n- 14:03 Tea, not coffee.\n"


async def test_the_date_is_the_persons_own(notes: Notes, workspace: Path):
    there = NOW.replace(hour=23).astimezone(ZoneInfo("Asia/Shanghai"))
    assert (await notes.remember(MAIN, "夜里", there)).path == "memory/2026-07-02.md"
    assert "- 05:03 夜里\n" in (workspace / "memory/2026-07-02.md").read_text()


async def test_many_lines_are_one_bullet(notes: Notes, workspace: Path):
    await notes.remember(MAIN, "  one\r\ntwo\n\n# three\x00\u2028four ", NOW)
    await notes.remember(MAIN, "five", NOW)
    text = (workspace / "memory/2026-07-01.md").read_text()
    assert text == "# 2026-07-01\n\n- 14:03 one\n  two\n\n  # three\n  four\n- 14:03 five\n"


async def test_the_line_is_where_the_note_begins(notes: Notes, workspace: Path):
    for text in ("one", "two\ntwo", "three", "四"):
        place = await notes.remember(MAIN, text, NOW)
        lines = (workspace / place.path).read_text().split("\n")
        assert lines[place.line - 1] == f"- 14:03 {text.splitlines()[0]}"


@pytest.mark.parametrize("before", ["mine, no line break", "mine\n", "\n", "说\n\n"])
async def test_what_a_person_wrote_stays_and_the_note_begins_a_line(notes, workspace, before):
    file = write_file(workspace / "memory/2026-07-01.md", before)
    place = await notes.remember(MAIN, "new", NOW)
    text = file.read_text()
    assert text == f"{before}{'' if before.endswith(chr(10)) else chr(10)}- 14:03 new\n"
    assert text.split("\n")[place.line - 1] == "- 14:03 new"


async def test_many_at_once_are_all_there(notes: Notes, workspace: Path):
    places = await asyncio.gather(*(notes.remember(MAIN, f"note {n}", NOW) for n in range(50)))
    lines = (workspace / "memory/2026-07-01.md").read_text().splitlines()
    assert len({place.line for place in places}) == 50
    for number, place in enumerate(places):
        assert lines[place.line - 1] == f"- 14:03 note {number}"


async def test_an_editor_appending_meanwhile_loses_nothing(notes: Notes, workspace: Path):
    file = workspace / "memory/2026-07-01.md"
    await notes.remember(MAIN, "first", NOW)
    enough = threading.Event()

    def edit() -> int:
        written = 0
        while not enough.is_set():
            with file.open("a") as editor:
                editor.write(f"edit {written}\n")
            written += 1
        return written

    editing = asyncio.create_task(asyncio.to_thread(edit))
    for number in range(50):
        await notes.remember(MAIN, f"note {number}", NOW)
    enough.set()
    edits = await editing
    lines = file.read_text().splitlines()
    assert all(f"- 14:03 note {number}" in lines for number in range(50))
    assert all(f"edit {number}" in lines for number in range(edits))


async def test_a_file_replaced_under_the_pen_gets_the_note_too(notes, workspace, monkeypatch):
    await notes.remember(MAIN, "first", NOW)
    file = workspace / "memory/2026-07-01.md"
    real = os.write
    saved: list[str] = []

    def write(fd: int, data: bytes) -> int:
        if not saved:  # an editor saves its own copy just now
            saved.append("copy")
            (workspace / "copy").write_text("an editor's copy\n")
            (workspace / "copy").replace(file)
        return real(fd, data)

    monkeypatch.setattr(os, "write", write)
    place = await notes.remember(MAIN, "second", NOW)
    assert file.read_text() == "an editor's copy\n- 14:03 second\n"
    assert place.line == 2


async def test_a_full_disk_leaves_no_half_note(notes, workspace, monkeypatch):
    await notes.remember(MAIN, "first", NOW)
    before = (workspace / "memory/2026-07-01.md").read_bytes()
    real = os.write

    def write(fd: int, data: bytes) -> int:
        return real(fd, data[:5])

    monkeypatch.setattr(os, "write", write)
    with pytest.raises(ToolError, match=os.strerror(errno.ENOSPC)):
        await notes.remember(MAIN, "second", NOW)
    assert (workspace / "memory/2026-07-01.md").read_bytes() == before


async def test_a_note_is_on_disk_before_it_is_told(notes, workspace, monkeypatch):
    synced: list[int] = []
    real = os.fsync

    def fsync(fd: int) -> None:
        synced.append(stat.S_IFMT(os.fstat(fd).st_mode))
        real(fd)

    monkeypatch.setattr(os, "fsync", fsync)
    await notes.remember(ADA, "x", NOW)
    assert synced[-2:] == [stat.S_IFREG, stat.S_IFDIR]
    assert synced.count(stat.S_IFDIR) == 4  # people, ada, memory, and the note's own folder

    def broken(fd: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fsync", broken)
    with pytest.raises(ToolError):
        await notes.remember(ADA, "y", NOW)


async def test_what_is_written_is_the_persons_own(notes: Notes, workspace: Path):
    await notes.remember(ADA, "x", NOW)
    for path in workspace.rglob("*"):
        assert path.stat().st_mode & 0o077 == 0


async def test_a_view_of_nothing_writes_nothing(notes: Notes, workspace: Path):
    with pytest.raises(NotVisible):
        await notes.remember(NOTHING, "x", NOW)
    assert not workspace.exists()


def todays(workspace: Path) -> Path:
    """Where the day's note would be, in a folder that is there."""
    (workspace / "memory").mkdir()
    return workspace / "memory/2026-07-01.md"


TRAPS: dict[str, Callable[[Path, Path], object]] = {
    "a folder that is a link": lambda here, outside: (here / "memory").symlink_to(outside),
    "a link": lambda here, outside: todays(here).symlink_to(outside / "secret.md"),
    "a link to nothing": lambda here, outside: todays(here).symlink_to(outside / "new.md"),
    "a pipe": lambda here, _: os.mkfifo(todays(here)),
    "a folder": lambda here, _: todays(here).mkdir(),
    "a file for a folder": lambda here, _: (here / "memory").write_text("x"),
}


@pytest.mark.parametrize("trap", TRAPS.values(), ids=TRAPS)
async def test_links_and_odd_files_are_refused_in_the_same_words(notes, workspace, tmp_path, trap):
    outside = tmp_path / "outside"
    write_file(outside / "secret.md", "secret\n")
    workspace.mkdir()
    trap(workspace, outside)
    with pytest.raises(NotVisible) as caught:
        await notes.remember(MAIN, "x", NOW)
    assert str(caught.value) == REFUSAL
    assert [path.name for path in outside.iterdir()] == ["secret.md"]
    assert (outside / "secret.md").read_text() == "secret\n"


async def test_a_link_in_the_place_of_a_space_is_refused(notes: Notes, workspace: Path):
    await notes.remember(MAIN, "private", NOW)
    (workspace / "people").mkdir()
    (workspace / "people/ada").symlink_to(workspace, target_is_directory=True)
    with pytest.raises(NotVisible):
        await notes.remember(ADA, "x", NOW)


async def test_the_workspace_itself_may_be_behind_a_link(tmp_path: Path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "disk", target_is_directory=True)
    await Notes(FolderNotes(tmp_path / "link")).remember(MAIN, "x", NOW)
    assert (tmp_path / "disk/memory/2026-07-01.md").is_file()


async def test_a_workspace_that_cannot_be_is_an_error_with_its_reason(tmp_path: Path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(ToolError):
        await Notes(FolderNotes(tmp_path / "file/workspace")).remember(MAIN, "x", NOW)


@given(st.text(min_size=1))
def test_no_space_leads_anywhere_else(space: str):
    try:
        parts = space_folders(MemoryView(space, (), private=True))
    except NotVisible:
        return
    assert parts == () or (len(parts) == 2 and parts[0] in {"people", "rooms"})
    assert not {"", ".", ".."} & set(parts)


@given(st.text())
def test_a_bullet_is_one_bullet_whatever_is_in_it(text: str):
    first, *rest = bullet(text, NOW)[:-1].split("\n")
    assert first.startswith("- 14:03")
    assert all(line == "" or line.startswith("  ") for line in rest)
    assert bullet(text, NOW).endswith("\n")


async def test_each_change_is_told_once_and_a_failed_one_is_not(workspace: Path):
    told: list[None] = []
    notes = Notes(FolderNotes(workspace), lambda: told.append(None))
    await notes.remember(MAIN, "x", NOW)
    await notes.add(MAIN, "MEMORY.md", "y", NOW.date())
    assert len(told) == 2
    with pytest.raises(ToolError):
        await notes.supersede(MAIN, "MEMORY.md", old="nothing", text="z", now=NOW)
    assert len(told) == 2


def test_places_are_listed_by_file_with_lines_in_a_row_together():
    places = [Place("a.md", n) for n in (3, 5, 4, 9, 3)] + [Place("MEMORY.md", 7)]
    assert listed(places) == "a.md:3-5, a.md:9, MEMORY.md:7"
    assert listed([]) == ""


BEFORE = "# Memory\n\n- Lives in Berlin. <!-- owner 2026-01-05 -->\n- Likes tea\n"
NOTE = "memory/2026-07-01.md"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "MEMORY.md").write_text(BEFORE)
    return tmp_path


@pytest.fixture
def remembered(home: Path) -> Notes:
    return Notes(FolderNotes(home))


async def move(
    remembered: Notes, old: str = "lives in Berlin", text: str = "Lives in Paris."
) -> Replaced:
    return await remembered.supersede(MAIN, "MEMORY.md", old=old, text=text, now=NOW, by="owner")


async def test_the_old_entry_moves_to_the_days_note_with_its_date(remembered: Notes, home: Path):
    assert await move(remembered) == Replaced(Place("MEMORY.md", 3), Place(NOTE, 3))
    assert (home / "MEMORY.md").read_text() == (
        "# Memory\n\n- Lives in Paris. <!-- owner 2026-07-01 -->\n- Likes tea\n"
    )
    assert (home / NOTE).read_text() == (
        "# 2026-07-01\n\n- 14:03 ~~Lives in Berlin.~~ "
        "<!-- owner 2026-01-05, in MEMORY.md until 2026-07-01 -->\n"
    )
    assert sorted(path.name for path in home.iterdir()) == ["MEMORY.md", "memory"]


@pytest.mark.parametrize("old", ["Lives in Rome", "li", "", "- "])
async def test_what_is_not_there_changes_nothing(remembered: Notes, home: Path, old: str):
    with pytest.raises(ToolError, match="nothing was changed"):
        await move(remembered, old)
    assert (home / "MEMORY.md").read_text() == BEFORE
    assert not (home / NOTE).exists()


async def test_a_section_is_replaced_and_what_stood_there_is_kept(remembered: Notes, home: Path):
    (home / "memory").mkdir()
    (home / "memory/trip.md").write_text("# trip\n\n## When\n\nin May\n\n## Who\n\nus\n")
    done = await remembered.replace_section(
        MAIN, "memory/trip.md", title="When", text="in June", now=NOW, by="agent"
    )
    assert done == Replaced(Place("memory/trip.md", 5), Place(NOTE, 3))
    assert (home / "memory/trip.md").read_text() == (
        "# trip\n\n## When\n\nin June <!-- agent 2026-07-01 -->\n\n## Who\n\nus\n"
    )
    assert "- 14:03 ~~in May~~ <!-- owner in memory/trip.md" in (home / NOTE).read_text()


async def test_a_new_file_is_made_with_its_section(remembered: Notes, home: Path):
    done = await remembered.replace_section(
        ROOM, "ROOM.md", title="Rules", text="be kind", now=NOW, by="agent"
    )
    assert done == Replaced(Place("ROOM.md", 3), None)
    file = home / "rooms/telegram-7/ROOM.md"
    assert file.read_text() == "## Rules\n\nbe kind <!-- agent 2026-07-01 -->\n"
    assert file.stat().st_mode & 0o077 == 0


async def test_a_days_note_is_never_rewritten(remembered: Notes, home: Path):
    await remembered.remember(MAIN, "Tea", NOW)
    with pytest.raises(ToolError, match="only appended"):
        await remembered.supersede(MAIN, NOTE, old="Tea", text="Coffee", now=NOW)


@pytest.mark.parametrize("path", ["ROOM.md", "../MEMORY.md", "shared/a.md", "AGENTS.md", "/a.md"])
async def test_only_the_views_own_files_are_changed(remembered: Notes, home: Path, path: str):
    with pytest.raises(NotVisible):
        await remembered.supersede(MAIN, path, old="x", text="y", now=NOW)
    with pytest.raises(NotVisible):
        await remembered.add(MAIN, path, "x", NOW.date())


async def test_a_link_is_not_followed_and_what_it_leads_to_stays(remembered: Notes, home: Path):
    outside = home.parent / "outside.md"
    outside.write_text(BEFORE)
    (home / "MEMORY.md").unlink()
    (home / "MEMORY.md").symlink_to(outside)
    with pytest.raises(NotVisible):
        await move(remembered)
    assert outside.read_text() == BEFORE


async def test_the_files_permissions_stay(remembered: Notes, home: Path):
    (home / "MEMORY.md").chmod(0o640)
    await move(remembered)
    assert (home / "MEMORY.md").stat().st_mode & 0o777 == 0o640


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
async def test_an_editor_that_saves_at_any_moment_loses_nothing(home, monkeypatch, save, moment):
    remembered, (call, nth) = Notes(FolderNotes(home)), moment
    file, calls, real = home / "MEMORY.md", [0], getattr(os, call)
    await remembered.remember(MAIN, "warm up", NOW)  # so that calls are those of the rewrite

    def meddling(*args: object, **kwargs: object) -> object:
        calls[0] += 1
        if calls[0] == nth:
            monkeypatch.setattr(os, call, real)
            save(file, f"{file.read_text()}- by hand\n")
        return real(*args, **kwargs)

    monkeypatch.setattr(os, call, meddling)
    await move(remembered)
    assert calls[0] >= nth
    text = file.read_text()
    assert "- by hand\n" in text
    assert "- Lives in Paris." in text
    assert "Berlin" not in text


async def test_an_editor_that_saves_just_before_the_swap_wins_its_words(
    remembered, home, monkeypatch
):
    file, real = home / "MEMORY.md", note_store._exchange

    def late(parent: int, one: str, other: str) -> bool:
        monkeypatch.setattr(note_store, "_exchange", real)
        save_beside(file, f"{file.read_text()}- by hand\n")
        return real(parent, one, other)

    monkeypatch.setattr(note_store, "_exchange", late)
    await move(remembered)
    text = file.read_text()
    assert "- by hand\n" in text
    assert "- Lives in Paris." in text


async def test_an_editor_that_never_stops_is_told_and_nothing_is_written(
    remembered, home, monkeypatch
):
    file, real = home / "MEMORY.md", os.fchmod
    count = [0]

    def always(fd: int, mode: int) -> None:
        count[0] += 1
        save_beside(file, f"{BEFORE}- by hand {count[0]}\n")
        real(fd, mode)

    monkeypatch.setattr(os, "fchmod", always)
    with pytest.raises(ToolError, match="nothing was written"):
        await move(remembered)
    assert file.read_text() == f"{BEFORE}- by hand {count[0]}\n"
    assert sorted(path.name for path in home.iterdir()) == ["MEMORY.md", "memory"]


async def test_an_editor_appending_all_the_while_loses_nothing(remembered: Notes, home: Path):
    file, enough = home / "MEMORY.md", threading.Event()
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
                await move(remembered, f"Lives in {moved or 'Berlin'}", f"Lives in {moved + 1}")
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
    remembered, home, monkeypatch
):
    monkeypatch.setattr(note_store, "_exchange", lambda *_: False)
    await move(remembered)
    assert "- Lives in Paris." in (home / "MEMORY.md").read_text()
    assert sorted(path.name for path in home.iterdir()) == ["MEMORY.md", "memory"]


# --- disks ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", ["write", "fsync", "fchmod"])
async def test_a_disk_that_fails_leaves_the_file_as_it_was(remembered, home, monkeypatch, call):
    await remembered.remember(MAIN, "warm up", NOW)

    def broken(*_args: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, call, broken)
        with pytest.raises(ToolError, match=os.strerror(errno.ENOSPC)):
            await move(remembered)
    assert (home / "MEMORY.md").read_text() == BEFORE
    assert sorted(path.name for path in home.iterdir()) == ["MEMORY.md", "memory"]
    await move(remembered)
    assert "- Lives in Paris." in (home / "MEMORY.md").read_text()


async def test_a_half_written_file_never_takes_the_place(remembered, home, monkeypatch):
    await remembered.remember(MAIN, "warm up", NOW)
    real, written = os.write, [0]

    def few(fd: int, data: bytes) -> int:
        if b"Paris" not in bytes(data) and not written[0]:
            return real(fd, data)
        written[0] += 1
        return real(fd, bytes(data)[:5]) if written[0] == 1 else 0

    monkeypatch.setattr(os, "write", few)
    with pytest.raises(ToolError):
        await move(remembered)
    assert (home / "MEMORY.md").read_text() == BEFORE


async def test_what_a_crash_left_beside_is_no_obstacle(remembered: Notes, home: Path):
    (home / ".MEMORY.md.tmp").write_text("half")
    await move(remembered)
    assert sorted(path.name for path in home.iterdir()) == ["MEMORY.md", "memory"]


async def test_a_file_that_is_full_or_unreadable_is_told_and_kept(remembered: Notes, home: Path):
    full = "- Lives in Berlin\n" + "x" * note_store.MAX_WRITE
    (home / "MEMORY.md").write_text(full)
    for work in (move(remembered), remembered.add(MAIN, "MEMORY.md", "x", NOW.date())):
        with pytest.raises(ToolError, match="full"):
            await work
    assert (home / "MEMORY.md").read_text() == full
    latin = "- Lives in Berlin\n- caf\xe9\n".encode("latin-1")
    (home / "MEMORY.md").write_bytes(latin)
    with pytest.raises(ToolError, match="not UTF-8"):
        await move(remembered)
    assert (home / "MEMORY.md").read_bytes() == latin


async def test_writes_that_wait_keep_no_other_thread_busy(workspace: Path, monkeypatch):
    gate, real = threading.Event(), FolderNotes.append

    def append(*arguments: object) -> int:
        gate.wait(PATIENCE)
        return real(*arguments)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(FolderNotes, "append", append)
    notes = Notes(FolderNotes(workspace))
    writing = [asyncio.create_task(notes.remember(MAIN, f"fact {n}", NOW)) for n in range(60)]
    await asyncio.sleep(0.05)
    try:
        async with asyncio.timeout(PATIENCE / 2):  # as a name look-up of a model's service does
            await asyncio.get_running_loop().getaddrinfo("127.0.0.1", 80)
    finally:
        gate.set()
    places = await asyncio.gather(*writing)
    assert len(set(places)) == 60
