"""A new workspace gets the templates; one with a `memory.md` keeps what it says."""

from __future__ import annotations

from pathlib import Path

import pytest

from bot.memory import folders


def listed(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


@pytest.mark.parametrize("name", ["memory.md", "Memory.md", "memory.MD"])
def test_a_memory_md_becomes_the_memory_and_no_template_takes_its_place(tmp_path: Path, name: str):
    (tmp_path / name).write_text("- sails a red boat\n")
    assert folders.prepare(tmp_path) == 0
    assert listed(tmp_path) == {"MEMORY.md"}
    assert (tmp_path / "MEMORY.md").read_text() == "- sails a red boat\n"


def test_a_memory_md_beside_a_memory_or_that_is_a_link_is_left(tmp_path: Path):
    (tmp_path / "MEMORY.md").write_text("- new fact\n")
    (tmp_path / "memory.md").write_text("- old fact\n")
    folders.prepare(tmp_path)
    assert (tmp_path / "MEMORY.md").read_text() == "- new fact\n"
    (tmp_path / "MEMORY.md").unlink()
    (tmp_path / "memory.md").unlink()
    (tmp_path / "memory.md").symlink_to(tmp_path / "secret.txt")
    folders.prepare(tmp_path)
    assert (tmp_path / "memory.md").is_symlink()
