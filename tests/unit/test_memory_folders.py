"""Moving a space's notes to another folder: nothing is lost, killed or not."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import pytest

from bot.memory import disk, folders

OLD, NEW = "people/ada-0123456789", "people/ada-new"
LARGE = "x" * 999_990


def plant(workspace: Path, **files: str) -> None:
    for name, text in files.items():
        folder, _, path = name.partition("__")
        file = (
            workspace / {"old": OLD, "new": NEW}[folder] / path.replace("_", "/").replace("~", ".")
        )
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


def words(workspace: Path) -> str:
    """Every line that stands anywhere, sorted, but for what the move itself says."""
    lines: list[str] = []
    for file in workspace.rglob("*"):
        if file.is_file() and not file.is_symlink():
            lines += [line for line in file.read_text().split("\n") if line]
    return "\n".join(sorted(line for line in lines if not line.startswith("<!-- moved")))


def both(workspace: Path) -> None:
    plant(
        workspace,
        **{
            "old__MEMORY~md": "- old fact\n- tea",
            "new__MEMORY~md": "- new fact\n- tea with milk\n",
            "old__USER~md": "- only old\n",
            "old__memory_day~md": "- the same\n",
            "new__memory_day~md": "- the same\n",
            "old__memory_trips_rome~md": "- Rome\n",
            "new__memory_trips_oslo~md": "- Oslo\n",
            "old__memory_plan~txt": "old plan",
            "new__memory_plan~txt": "new plan",
        },
    )


def test_a_folder_that_stands_alone_is_renamed(tmp_path: Path):
    plant(tmp_path, **{"old__MEMORY~md": "- a\n"})
    assert folders.move(tmp_path, OLD, NEW) == "moved"
    assert (tmp_path / NEW / "MEMORY.md").read_text() == "- a\n"
    assert not (tmp_path / OLD).exists()


def test_two_folders_become_one_and_a_note_of_both_says_where_its_end_came_from(tmp_path: Path):
    both(tmp_path)
    assert folders.move(tmp_path, OLD, NEW) == "merged"
    assert not (tmp_path / OLD).exists()
    new = tmp_path / NEW
    assert (new / "MEMORY.md").read_text() == (
        f"- new fact\n- tea with milk\n<!-- moved from {OLD}/MEMORY.md -->\n- old fact\n- tea\n"
    )
    assert (new / "USER.md").read_text() == "- only old\n"
    assert (new / "memory" / "day.md").read_text() == "- the same\n"
    assert {path.name for path in (new / "memory" / "trips").iterdir()} == {"rome.md", "oslo.md"}
    assert (new / "memory" / "plan.txt").read_text() == "new plan"
    assert (new / "memory" / "plan-moved.txt").read_text() == "old plan"


def test_a_note_that_would_be_too_long_stays_a_note_of_its_own(tmp_path: Path):
    plant(tmp_path, **{"old__MEMORY~md": f"- old {LARGE}\n", "new__MEMORY~md": f"- new {LARGE}\n"})
    assert folders.move(tmp_path, OLD, NEW) == "merged"
    assert (tmp_path / NEW / "memory" / "MEMORY-moved.md").read_text() == f"- old {LARGE}\n"


def test_links_are_moved_as_links_and_never_followed(tmp_path: Path):
    both(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "secret.md").write_text("- secret\n")
    (tmp_path / OLD / "memory" / "link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / NEW / "memory" / "link").mkdir()
    assert folders.move(tmp_path, OLD, NEW) == "merged"
    assert (tmp_path / NEW / "memory" / "link-2").is_symlink()
    assert (tmp_path / "elsewhere" / "secret.md").read_text() == "- secret\n"


def test_a_link_in_the_place_of_a_folder_is_left(tmp_path: Path):
    plant(tmp_path, **{"old__MEMORY~md": "- a\n"})
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / NEW).symlink_to(tmp_path / "elsewhere")
    assert folders.move(tmp_path, OLD, NEW) == "left"
    assert (tmp_path / OLD / "MEMORY.md").read_text() == "- a\n"
    assert list((tmp_path / "elsewhere").iterdir()) == []


class Killed(BaseException):
    """The program ends here."""


def kill_at(patch: pytest.MonkeyPatch, moment: int, *, after: bool) -> list[int]:
    """End the program at the n-th change of the disk, before or after it is made."""
    done = [0]

    def counted(owner: object, name: str) -> None:
        real = getattr(owner, name)

        def change(*arguments: object, **options: object) -> object:
            done[0] += 1
            if done[0] == moment and not after:
                raise Killed
            result = real(*arguments, **options)
            if done[0] == moment:
                raise Killed
            return result

        patch.setattr(owner, name, change)

    for name in ("rename", "unlink", "rmdir", "mkdir"):
        counted(Path, name)
    counted(disk, "append")
    return done


@pytest.mark.parametrize("after", [False, True])
def test_a_kill_at_any_moment_loses_nothing_and_the_next_start_completes_it(
    tmp_path: Path,
    after: bool,  # noqa: FBT001
):
    both(tmp_path / "whole")
    with pytest.MonkeyPatch.context() as patch:
        changes = kill_at(patch, 0, after=False)
        folders.move(tmp_path / "whole", OLD, NEW)
    wanted = words(tmp_path / "whole")
    assert changes[0] > 8
    for moment in range(1, changes[0] + 1):
        home = tmp_path / str(moment)
        both(home)
        with pytest.MonkeyPatch.context() as patch:
            kill_at(patch, moment, after=after)
            with pytest.raises(Killed):
                folders.move(home, OLD, NEW)
        assert set(words(home).split("\n")) >= set(wanted.split("\n")), moment
        if os.path.lexists(home / OLD):
            folders.move(home, OLD, NEW)
        assert not (home / OLD).exists(), moment
        assert words(home) == wanted, moment


def test_what_an_editor_saves_while_it_is_moved_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    both(tmp_path)
    real = disk.append

    def saving(*arguments: object) -> int:
        (tmp_path / OLD / "MEMORY.md").write_text("- saved just now\n")
        monkeypatch.setattr(disk, "append", real)
        return real(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(disk, "append", saving)
    assert folders.move(tmp_path, OLD, NEW) == "left"
    assert (tmp_path / OLD / "MEMORY.md").read_text() == "- saved just now\n"
    assert folders.move(tmp_path, OLD, NEW) == "merged"
    said = (tmp_path / NEW / "MEMORY.md").read_text()
    assert "- old fact\n- tea\n" in said
    assert "- saved just now\n" in said


# --- the memory.md of an older workspace ----------------------------------------------------------


def listed(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


@pytest.mark.parametrize("name", ["memory.md", "Memory.md", "memory.MD"])
def test_an_older_memory_becomes_the_memory_and_no_template_takes_its_place(
    tmp_path: Path, name: str
):
    (tmp_path / name).write_text("- sails a red boat\n")
    assert folders.prepare(tmp_path) == 0
    assert listed(tmp_path) == {"MEMORY.md"}
    assert (tmp_path / "MEMORY.md").read_text() == "- sails a red boat\n"
    assert folders.adopt(tmp_path) is None


def test_an_older_memory_gets_the_right_name_where_case_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "memory.md").write_text("- sails a red boat\n")
    real = Path.rename

    def rename(self: Path, target: Path) -> Path:
        if self.name.lower() == target.name.lower():
            return target  # as some disks do: it is one file, so there is nothing to do
        return real(self, target)

    monkeypatch.setattr(Path, "rename", rename)
    monkeypatch.setattr(
        os.path, "lexists", lambda path: Path(path).name.lower() in map(str.lower, listed(tmp_path))
    )
    assert folders.adopt(tmp_path) == "moved"
    assert listed(tmp_path) == {"MEMORY.md"}


def test_an_older_memory_beside_a_memory_is_added_to_it_and_that_is_said(tmp_path: Path):
    (tmp_path / "memory.md").write_text("- old fact\n")
    (tmp_path / "MEMORY.md").write_text("- new fact\n")
    assert folders.adopt(tmp_path) == "merged"
    assert listed(tmp_path) == {"MEMORY.md"}
    said = (tmp_path / "MEMORY.md").read_text()
    assert said == "- new fact\n<!-- moved from memory.md -->\n- old fact\n"


def test_an_older_memory_that_is_a_link_is_left(tmp_path: Path):
    (tmp_path / "secret.txt").write_text("secret")
    (tmp_path / "memory.md").symlink_to(tmp_path / "secret.txt")
    (tmp_path / "memory").mkdir()
    assert folders.adopt(tmp_path) is None
    assert listed(tmp_path) == {"secret.txt", "memory.md", "memory"}


@pytest.mark.parametrize("both_there", [False, True])
@pytest.mark.parametrize("after", [False, True])
def test_an_older_memory_survives_a_kill_at_any_moment(
    tmp_path: Path,
    after: bool,  # noqa: FBT001
    both_there: bool,  # noqa: FBT001
):
    for moment in range(1, 5):
        home = tmp_path / str(moment)
        home.mkdir()
        (home / "memory.md").write_text("- old fact\n")
        if both_there:
            (home / "MEMORY.md").write_text("- new fact\n")
        with pytest.MonkeyPatch.context() as patch:
            changes = kill_at(patch, moment, after=after)
            with suppress(Killed):
                folders.adopt(home)
        assert "- old fact" in words(home)
        folders.adopt(home)
        assert listed(home) == {"MEMORY.md"}
        assert words(home) == ("- new fact\n- old fact" if both_there else "- old fact")
        assert changes[0] >= 1
