"""How the program's commands can be typed where it was started."""

from __future__ import annotations

import ast
import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from bot import __version__
from bot.cli.help import COMMANDS
from bot.invocation import called

ROOT = Path(__file__).resolve().parents[2]


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


def test_what_something_else_runs_has_the_usual_name():
    assert called(["/x/pytest"], "/x/python", "pytest", {}) == "confidant"
    assert called([], "/x/python", "", {}) == "confidant"


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


@pytest.mark.slow
@pytest.mark.parametrize("way", ["path", "name", "module"])
def test_what_a_text_names_can_be_typed(tmp_path, way):
    script = Path(sys.executable).with_name("confidant")
    typed = {"path": (script,), "name": ("confidant",), "module": (sys.executable, "-m", "bot.cli")}
    path = os.environ["PATH"]
    environ = {"HOME": str(tmp_path), "PATH": f"{script.parent}:{path}" if way == "name" else path}

    def run(*words: str | Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            words, env=environ, cwd=tmp_path, capture_output=True, text=True, check=False
        )

    refused = run("env", *typed[way], "sessions", "list")
    found = re.search(r"start `(.+) run` once", refused.stderr)
    assert found, refused.stderr
    assert (found[1] == "confidant") == (way == "name")
    done = run("sh", "-c", f"{found[1]} --version")
    assert (done.returncode, done.stdout) == (0, f"confidant {__version__}\n")


# Texts for strangers, who type nothing here; and for whoever reads the options.
GENERIC = {
    "bot/i18n/en.toml",
    "bot/i18n/zh.toml",
    "bot/housekeeping.py",
    "bot/importing/openclaw/proposal.py",  # a file that is read elsewhere, later
    "adapters/console.py",
    "adapters/nextcloud_talk/__init__.py",
}


def test_no_text_names_a_command_in_another_way():
    """In code it is f"`{confidant('doctor')}`", in the catalogues `{confidant} doctor`."""
    commands = "|".join(sorted({name.split()[0] for name in COMMANDS}))
    named = re.compile(rf"\bconfidant ({commands})\b")
    found: set[str] = set()
    for folder in ("bot", "adapters"):
        for path in sorted((ROOT / folder).rglob("*.*")):
            if path.suffix in {".py", ".toml", ".html", ".js"}:
                texts = strings(path) if path.suffix == ".py" else [path.read_text("utf-8")]
                if any(map(named.search, texts)):
                    found.add(path.relative_to(ROOT).as_posix())
    assert found == GENERIC


def strings(path: Path) -> list[str]:
    """What a module says, without what it says of itself."""
    tree = ast.parse(path.read_text("utf-8"))
    said = [
        node.body[0].value
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and ast.get_docstring(node) is not None
    ]
    return [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in said
    ]
