"""How the program's commands can be typed where it was started."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from bot.invocation import called, command


def program(folder: Path, name: str = "confidant") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def test_where_typing_the_name_finds_it_the_name_will_do(tmp_path):
    path = program(tmp_path / "bin")
    elsewhere = program(tmp_path / "elsewhere")
    on_path = {"PATH": f"{path.parent}{os.pathsep}{elsewhere.parent}"}
    assert called([str(path)], "/python", "", on_path) == "confidant"
    assert called([str(elsewhere)], "/python", "", on_path) == str(elsewhere)


def test_else_it_is_typed_as_it_was(tmp_path):
    assert called([".venv/bin/confidant"], "/python", "", {}) == ".venv/bin/confidant"
    assert called(["/a b/confidant", "run"], "/python", "", {}) == "'/a b/confidant'"


def test_a_module_is_called_with_the_interpreter_that_has_it(tmp_path):
    python = program(tmp_path, "python3")
    arguments = (["/x/bot/cli/__main__.py"], str(python), "bot.cli")
    assert called(*arguments, {"PATH": str(tmp_path)}) == "python3 -m bot.cli"
    assert called(*arguments, {"PATH": "/nowhere"}) == f"{python} -m bot.cli"


def test_what_something_else_runs_is_found_beside_its_interpreter(tmp_path):
    assert called(["/x/pytest"], str(tmp_path / "python"), "pytest", {}) == "confidant"
    path = program(tmp_path)
    assert called(["/x/pytest"], str(tmp_path / "python"), "pytest", {}) == str(path)
    assert called([], str(tmp_path / "python"), "", {}) == str(path)


@pytest.mark.parametrize(
    ("said", "is_typed"),
    [
        ("docker compose exec confidant confidant", "docker compose exec confidant confidant"),
        ("docker exec -it {hostname} confidant", "docker exec -it 3f2a confidant"),
    ],
)
def test_in_a_container_it_is_typed_as_its_image_says(said, is_typed):
    there = {"TYPED_AS": said, "HOSTNAME": "3f2a", "PATH": "/bin"}
    assert called(["/bin/confidant"], "/python", "", there) == is_typed


def test_what_is_named_can_really_be_typed(tmp_path):
    typed = command("--version")
    done = subprocess.run(  # noqa: S602 - as a person's shell does
        typed, shell=True, capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("confidant ")
    module = subprocess.run(
        [sys.executable, "-m", "bot.cli", "--version"], capture_output=True, text=True, check=False
    )
    assert (module.returncode, module.stdout) == (0, done.stdout)
