"""`confidant memory pull`, `push` and `edit`, over files and over rows, as they are typed."""

from __future__ import annotations

import asyncio
import os
import stat
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from bot.cli.main import cli
from bot.clock import system_clock
from bot.cluster.extra import visiting
from bot.errors import ConfidantError
from bot.memory.exchange import MADE_OF
from bot.memory.memory import store_of
from bot.memory.note_store import MAX_WRITE, NoteStore
from bot.settings import load

pytestmark = pytest.mark.usefixtures("logs_stay")

OWNER = {
    "MEMORY.md": "# Memory\n\n- Lives in Berlin\n",
    "SOUL.md": "Be kind.\n",
    "memory/trip.md": "# Trip\n\n去北京\n",
    "shared/house.md": "Everyone may know.\n",
}
OTHERS = {
    "people/ada/MEMORY.md": "Ada's secret\n",
    "rooms/telegram-7/ROOM.md": "The room's secret\n",
}


@dataclass
class Desk:
    """A person at a terminal."""

    folder: Path
    monkeypatch: pytest.MonkeyPatch

    def __call__(self, *arguments: str | Path, given: str = "") -> Result:
        return CliRunner().invoke(cli, ["memory", *map(str, arguments)], input=given)

    def use(self, work: Callable[[NoteStore], None]) -> None:
        """What another program does with the notes."""

        async def once() -> None:
            config = load(None, os.environ, Path.cwd()).config
            async with visiting(config) as shared:
                store = store_of(config, system_clock, shared)
                await asyncio.to_thread(work, store)

        asyncio.run(once())

    def write(self, path: str, text: str) -> None:
        *folders, name = path.split("/")
        self.use(
            lambda store: store.rewrite(tuple(folders), name, lambda _: text.encode()) and None
        )

    def read(self, path: str) -> str:
        *folders, name = path.split("/")
        found: list[str] = []
        self.use(
            lambda store: found.append(store.read(tuple(folders), name, MAX_WRITE)[0].decode())
        )
        return found[0]

    def editor(self, script: str) -> None:
        """What the person's editor does to the file it is given."""
        program = self.folder / "an editor"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        self.monkeypatch.setenv("EDITOR", f"'{program}'")


@pytest.fixture(params=["files", "rows"])
def desk(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    url = request.getfixturevalue("postgres_url") if request.param == "rows" else None
    for name in [name for name in os.environ if name.startswith("CONFIDANT_")]:
        monkeypatch.delenv(name)
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("CONFIDANT_STORAGE__DIR", str(tmp_path / "data"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.chdir(tmp_path)
    if url is not None:
        monkeypatch.setenv("CONFIDANT_STORAGE__URL", url)
        CliRunner().invoke(cli, ["migrate"], catch_exceptions=False)
    desk = Desk(tmp_path, monkeypatch)
    for path, text in {**OWNER, **OTHERS}.items():
        desk.write(path, text)
    return desk


def test_what_was_pulled_and_edited_is_pushed(desk: Desk):
    copy = desk.folder / "copy"
    assert desk("pull", copy).exit_code == 0
    found = {path.relative_to(copy).as_posix() for path in copy.rglob("*.md")}
    assert found == {*OWNER}  # and nothing of anybody else's
    (copy / "MEMORY.md").write_text("# Memory\n\n- Lives in Paris\n")
    (copy / "memory/new.md").write_text("# New\n")
    done = desk("push", copy, given="y\n")
    assert done.exit_code == 0, done.output
    assert "-- Lives in Berlin\n+- Lives in Paris\n" in done.output
    assert desk.read("MEMORY.md") == "# Memory\n\n- Lives in Paris\n"
    assert desk.read("memory/new.md") == "# New\n"
    again = desk("push", copy)
    assert (again.exit_code, again.output) == (0, "There is nothing to write.\n")
    (copy / "MEMORY.md").write_text("# Memory\n")  # it goes on from what was pushed
    assert desk("push", copy, "--yes").exit_code == 0
    assert desk.read("MEMORY.md") == "# Memory\n"


def test_what_changed_meanwhile_is_refused_and_all_else_is_written(desk: Desk):
    copy = desk.folder / "copy"
    desk("pull", copy)
    desk.write("MEMORY.md", "# Memory\n\n- Lives in Rome\n")
    (copy / "MEMORY.md").write_text("# Memory\n\n- Lives in Paris\n")
    (copy / "SOUL.md").write_text("Be brief.\n")
    done = desk("push", copy, "--yes")
    assert done.exit_code == 1
    assert "MEMORY.md: it was changed meanwhile" in done.output
    assert desk.read("MEMORY.md") == "# Memory\n\n- Lives in Rome\n"
    assert desk.read("SOUL.md") == "Be brief.\n"


def test_nothing_is_written_when_the_person_says_no(desk: Desk):
    copy = desk.folder / "copy"
    desk("pull", copy)
    (copy / "SOUL.md").write_text("Be brief.\n")
    assert desk("push", copy, given="n\n").exit_code == 1
    assert desk.read("SOUL.md") == "Be kind.\n"


@pytest.mark.parametrize(
    ("name", "data", "why"),
    [
        ("people/ada/MEMORY.md", b"mine now\n", "no note can have this name"),
        ("memory/.hidden/a.txt", b"", ""),
        ("notes.txt", b"text\n", "no note can have this name"),
        ("memory/cafe.md", "café".encode("latin-1"), "not UTF-8"),
        ("memory/picture.md", b"PNG\0\0", "binary"),
        ("memory/long.md", b"x" * (MAX_WRITE + 1), "at most 1000 kB"),
    ],
)
def test_what_is_no_note_is_refused_by_name(desk: Desk, name: str, data: bytes, why: str):
    copy = desk.folder / "copy"
    desk("pull", copy)
    (copy / name).parent.mkdir(parents=True, exist_ok=True)
    (copy / name).write_bytes(data)
    done = desk("push", copy, "--yes")
    assert done.exit_code == bool(why)
    assert why in done.output
    assert desk.read("people/ada/MEMORY.md") == "Ada's secret\n"


def test_a_link_in_a_copy_is_not_followed(desk: Desk):
    copy = desk.folder / "copy"
    desk("pull", copy)
    (copy / "memory/passwd.md").symlink_to("/etc/passwd")
    done = desk("push", copy, "--yes")
    assert done.exit_code == 1
    assert "memory/passwd.md: it is no plain file" in done.output


def test_folders_that_will_not_do_are_told(desk: Desk):
    full = desk.folder / "full"
    full.mkdir()
    (full / "mine.md").write_text("mine\n")
    for arguments, why in (
        (("pull", full), "is not empty"),
        (("push", full), "no copy of the notes"),
        (("push", desk.folder / "nowhere"), "no copy of the notes"),
    ):
        done = desk(*arguments)
        assert done.exit_code
        assert why in str(done.exception)
        assert isinstance(done.exception, ConfidantError)
    assert [path.name for path in full.iterdir()] == ["mine.md"]
    (full / MADE_OF).write_text("[]")
    assert "damaged" in str(desk("push", full).exception)


def test_a_note_that_left_the_copy_stays_where_it_is(desk: Desk):
    copy = desk.folder / "copy"
    desk("pull", copy)
    (copy / "SOUL.md").unlink()
    done = desk("push", copy, "--yes")
    assert "SOUL.md: it is not in the folder; push removes no note" in done.output
    assert desk.read("SOUL.md") == "Be kind.\n"


# --- in an editor ---------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["MEMORY.md", "SOUL.md", "memory/trip.md", "shared/house.md"])
def test_a_note_is_edited(desk: Desk, path: str):
    desk.editor('echo "- more" >> "$1"')
    done = desk("edit", path)
    assert (done.exit_code, done.output) == (0, f"{path}: written\n")
    assert desk.read(path) == f"{OWNER[path]}- more\n"


def test_a_new_note_is_made(desk: Desk):
    desk.editor('echo "# New" > "$1"')
    assert desk("edit", "memory/deep/new.md").exit_code == 0
    assert desk.read("memory/deep/new.md") == "# New\n"


def test_an_editor_that_changes_nothing_changes_nothing(desk: Desk):
    desk.editor("true")
    assert desk("edit", "memory/new.md").output == "Nothing was changed.\n"
    assert not list(desk.folder.glob("confidant-*"))


@pytest.mark.parametrize(
    "path", ["people/ada/MEMORY.md", "../MEMORY.md", "/etc/passwd", "ROOM.md", "a.txt", "shared"]
)
def test_a_name_that_is_none_of_the_owners_is_refused(desk: Desk, path: str):
    desk.editor('echo "more" >> "$1"')
    done = desk("edit", path)
    assert "is no name of a note" in str(done.exception)
    assert desk.read("people/ada/MEMORY.md") == "Ada's secret\n"


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("exit 3", "status 3"),
        ('echo "half" >> "$1"; exit 3', "Your text is kept in"),
        ('printf "\\\\377" >> "$1"', "not UTF-8"),
        (f'head -c {MAX_WRITE + 1} /dev/zero | tr "\\\\0" x > "$1"', "too long"),
    ],
)
def test_an_editor_that_fails_changes_nothing_and_loses_no_text(desk: Desk, script: str, why: str):
    desk.editor(script.replace("\\\\", "\\"))
    done = desk("edit", "MEMORY.md")
    assert why in str(done.exception)
    assert desk.read("MEMORY.md") == OWNER["MEMORY.md"]
    kept = list(desk.folder.glob("confidant-*/MEMORY.md"))
    assert bool(kept) == (script != "exit 3")


def test_an_editor_that_is_not_there_is_told(desk: Desk):
    for named in ("/nowhere/editor", "an 'open quote"):
        desk.monkeypatch.setenv("EDITOR", named)
        assert "set $EDITOR" in str(desk("edit", "MEMORY.md").exception)


def test_a_note_that_changes_while_it_is_edited_is_not_written_over(desk: Desk):
    other = desk.folder / "other.py"
    other.write_text(
        "import asyncio, os, pathlib\n"
        "from bot.cluster.extra import visiting\n"
        "from bot.clock import system_clock\n"
        "from bot.memory.memory import store_of\n"
        "from bot.settings import load\n"
        "async def once():\n"
        "    config = load(None, os.environ, pathlib.Path.cwd()).config\n"
        "    async with visiting(config) as shared:\n"
        "        store = store_of(config, system_clock, shared)\n"
        "        await asyncio.to_thread(store.append, (), 'MEMORY.md', '- theirs\\n', '')\n"
        "asyncio.run(once())\n"
    )
    python, here = sys.executable, Path(__file__).parents[2]
    desk.editor(f'echo "- mine" >> "$1"; PYTHONPATH="{here}" "{python}" "{other}"')
    done = desk("edit", "MEMORY.md")
    assert "changed meanwhile" in str(done.exception)
    assert desk.read("MEMORY.md") == f"{OWNER['MEMORY.md']}- theirs\n"
    (kept,) = desk.folder.glob("confidant-*/MEMORY.md")
    assert str(kept) in str(done.exception)
    assert kept.read_text() == f"{OWNER['MEMORY.md']}- mine\n"


def test_an_edit_of_rows_reaches_the_nodes(desk: Desk):
    url = os.environ.get("CONFIDANT_STORAGE__URL")
    desk.editor('echo "- more" >> "$1"')
    desk("edit", "MEMORY.md")
    if url is None:
        return
    import psycopg

    with psycopg.connect(url) as connection:
        rows = connection.execute("SELECT name FROM events WHERE topic = 'notes'").fetchall()
    assert ("MEMORY.md",) in rows
