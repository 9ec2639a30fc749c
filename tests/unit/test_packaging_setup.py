"""Setting up: the Makefile, the locks, what is in the package, and what CI counts as passing."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

import pytest

from bot.memory import embed
from scripts import stats, wheels
from scripts.no_skips import complaints

ROOT = Path(__file__).resolve().parents[2]

# What stands in for a new machine: a Python that only writes down what it was asked to do.
FAKE_PYTHON = """#!/bin/sh
case "$*" in
    -c*"'%d.%d'"*"'{version}'"*) exit 0 ;;
    -c*"'%d.%d'"*) exit 1 ;;
    -c*) exit {too_old} ;;
    -V) echo "Python {version}" ;;
    "-m venv --clear .venv") mkdir -p .venv/bin && cp "$0" .venv/bin/python
        printf '#!/bin/sh\\necho started "$@"\\n' > .venv/bin/confidant
        chmod +x .venv/bin/confidant ;;
    *) echo "$*" >> .venv/asked ;;
esac
"""


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A fresh copy in a folder with a space in its name, with its own pretended Python."""
    folder = tmp_path / "my bot's clone"
    folder.mkdir()
    for name in ("Makefile", "requirements.lock", "requirements-dev.lock", "pyproject.toml"):
        shutil.copy(ROOT / name, folder)
    (folder / "scripts").mkdir()
    shutil.copy(ROOT / "scripts" / "python.sh", folder / "scripts")
    write_python(folder / "python", "3.12", too_old=0)
    return folder


def write_python(path: Path, version: str, *, too_old: int) -> None:
    path.write_text(FAKE_PYTHON.format(version=version, too_old=too_old))
    path.chmod(0o755)


def make(
    folder: Path, *arguments: str, python: str = "PYTHON=./python", path: str = ""
) -> subprocess.CompletedProcess[str]:
    environ = {"PATH": path or os.environ["PATH"], "HOME": str(folder)}
    return subprocess.run(
        [str(shutil.which("make")), *arguments, *filter(None, [python])],
        cwd=folder, env=environ, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip


def test_make_run_sets_up_once_and_starts(clone):
    first = make(clone, "run", "ARGS=--config my.toml")
    assert first.returncode == 0, first.stderr
    assert first.stdout.endswith("started run --config my.toml\n")
    asked = (clone / ".venv" / "asked").read_text()
    assert "install --require-hashes -r requirements.lock\n" in asked
    assert "install --no-deps --no-build-isolation -e .\n" in asked
    assert "requirements-dev" not in asked

    second = make(clone, "run")
    assert second.stdout == "started run\n"
    assert (clone / ".venv" / "asked").read_text() == asked


def test_a_newer_lock_is_installed(clone):
    make(clone, "install")
    asked = (clone / ".venv" / "asked").read_text()
    later = (clone / ".venv" / ".ready-run").stat().st_mtime + 10
    os.utime(clone / "requirements.lock", (later, later))
    make(clone, "install")
    assert (clone / ".venv" / "asked").read_text() == asked * 2


def test_setting_up_in_parallel_does_each_step_once(clone):
    assert make(clone, "-j8", "install", "run").returncode == 0
    asked = (clone / ".venv" / "asked").read_text()
    assert asked.count("-r requirements.lock") == 1


def test_an_old_python_is_refused_in_a_sentence(clone):
    write_python(clone / "python", "3.9", too_old=1)
    done = make(clone, "run")
    assert done.returncode != 0
    assert "Confidant needs Python 3.11 or newer; ./python is Python 3.9." in done.stderr
    assert not (clone / ".venv").exists()
    (clone / "python").unlink()
    assert "There is no ./python here." in make(clone, "run").stderr


def machine(folder: Path, *pythons: tuple[str, str]) -> str:
    """A PATH on which these Pythons are, by name and version, and no others."""
    programs = folder / "programs"
    programs.mkdir()
    for tool in ("sh", "echo", "mkdir", "cp", "printf", "chmod", "rm", "touch"):
        where = shutil.which(tool)
        assert where is not None
        (programs / tool).symlink_to(where)
    for name, version in pythons:
        write_python(programs / name, version, too_old=0)
    return str(programs)


@pytest.mark.parametrize(
    ("there", "taken"),
    [
        ([("python3", "3.11")], "3.11"),
        ([("python3", "3.11"), ("python3.12", "3.12"), ("python3.13", "3.13")], "3.13"),
        ([("python3", "3.13"), ("python3.12", "3.12")], "3.13"),
        ([("python3", "3.14"), ("python3.14", "3.14"), ("python3.11", "3.11")], "3.11"),
        ([("python3", "3.14"), ("python3.13", "broken")], "3.14"),
        ([("python3", "3.15")], "3.15"),
    ],
)
def test_the_newest_python_that_every_package_is_built_for_is_taken(clone, there, taken):
    done = make(clone, "run", python="", path=machine(clone, *there))
    assert done.returncode == 0, done.stderr
    assert f"Making .venv with Python {taken} …" in done.stdout
    lacks = f"Python {taken} is newer than some packages are built for: memory will be searched by"
    assert (lacks in done.stderr) == (taken in {"3.14", "3.15"})


def test_the_pythons_of_the_makefile_are_those_that_every_wheel_exists_for():
    text = (ROOT / "scripts" / "python.sh").read_text("utf-8")
    (whole,) = re.findall(r"for version in ([\d. ]+); do", text)
    assert whole.split() == [*reversed(wheels.PYTHONS[:-1])]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    package = embed.NEEDS["local"][0]
    (limited,) = [each for each in project["dependencies"] if each.startswith(f"{package}>=")]
    assert f"python_version < '{wheels.PYTHONS[-1]}'" in limited
    assert project["requires-python"] == f">={wheels.PYTHONS[0]}"


def test_a_missing_wheel_is_told_with_its_python_and_machine():
    asked: list[str] = []

    def ask(arguments: Sequence[str]) -> str:
        said = " ".join(arguments)
        asked.append(said)
        return "no wheel" if "3.14" in said and "apple" in said else ""

    assert wheels.complaints(ask) == ["Python 3.14, macOS arm64: no wheel"]
    assert len(set(asked)) == len(wheels.PYTHONS) * len(wheels.MACHINES) == 12
    assert all("--only-binary :all:" in said for said in asked)
    assert all(said.endswith("requirements-dev.lock") for said in asked)
    assert wheels.complaints(lambda _: "") == []


SOURCE = """# a comment
\"\"\"A module,
with a docstring.\"\"\"

import os  # 1


class Named:
    \"\"\"Only a docstring.\"\"\"

    async def call(
        self,
    ):
        \"\"\"Two

        lines.\"\"\"
        text = \'\'\'one

        three\'\'\'
        return text, "no docstring"
"""


def test_lines_of_code_are_counted_without_blanks_comments_and_docstrings():
    assert stats.code_lines(SOURCE) == 9
    assert stats.code_lines("") == 0
    changes = stats.count("bot/storage/changes.py")
    assert changes == stats.code_lines((ROOT / "bot/storage/changes.py").read_text("utf-8"))
    others = stats.count("bot/storage", without="bot/storage/changes.py")
    assert others + changes == stats.count("bot/storage")


def test_a_failed_installation_is_tried_again(clone):
    python = clone / "python"
    whole = python.read_text()
    python.write_text(whole.replace('*) echo "$*"', '*-r*) exit 1 ;;\n    *) echo "$*"'))
    assert make(clone, "run").returncode != 0
    (clone / ".venv" / "bin" / "python").write_text(whole)
    assert make(clone, "run").stdout.endswith("started run\n")


def test_help_is_what_make_says_without_a_goal(clone):
    assert make(clone).stdout == make(clone, "help").stdout
    assert "make run" in make(clone).stdout.split("\n")[0]


def test_every_goal_of_the_help_exists():
    text = (ROOT / "Makefile").read_text("utf-8")
    for goal in re.findall(r"echo 'make (\w+)", text):
        assert re.search(rf"^{goal}:", text, re.MULTILINE), goal


def test_make_proof_runs_whatever_make_test_runs_shorter():
    text = (ROOT / "Makefile").read_text("utf-8")
    tests = [path.relative_to(ROOT) for path in (ROOT / "tests").rglob("test_*.py")]
    shorter = [path for path in tests if "import rounds\n" in (ROOT / path).read_text("utf-8")]
    assert len(shorter) > 10
    proof = text.partition("\nproof:")[2].partition("\n\n")[0].split()
    assert [each for each in shorter if not {str(each), *map(str, each.parents)} & {*proof}] == []


@pytest.mark.parametrize(
    "script", [".ci/run", "scripts/chromium.sh", "scripts/python.sh", "scripts/scratch.sh"]
)
def test_the_scripts_are_programs_without_mistakes_of_grammar(script):
    path = ROOT / script
    assert os.access(path, os.X_OK)
    shell = "bash" if path.read_text().startswith("#!/usr/bin/env bash") else "sh"
    subprocess.run([shell, "-n", str(path)], check=True)


def requirements(name: str) -> dict[str, str]:
    text = (ROOT / name).read_text("utf-8")
    entries = re.findall(
        r"^([a-z0-9-]+)(?:\[[a-z,]+\])?==(\S+)(.*?)(?=^[a-z]|\Z)", text, re.MULTILINE | re.DOTALL
    )
    for package, _, rest in entries:
        assert "--hash=sha256:" in rest, package
    # One version for every Python: two would have two sets of stubs, and two ways to fail.
    assert len({package for package, _, _ in entries}) == len(entries)
    return {package: version for package, version, _ in entries}


def test_the_locks_have_everything_pinned_and_agree():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    run, dev = requirements("requirements.lock"), requirements("requirements-dev.lock")
    assert run.items() <= dev.items()
    groups = project["dependency-groups"]
    wanted = project["project"]["dependencies"] + groups["build"]
    for name, lock in ((wanted, run), (groups["dev"][1:], dev)):
        for requirement in name:
            package = re.match(r"[\w.-]+", requirement)
            assert package is not None
            assert re.sub(r"[._-]+", "-", package[0].lower()) in lock, requirement
    # `make run` builds without isolation, so what builds must be pinned with the rest.
    assert project["build-system"]["requires"] == groups["build"][::-1]


def test_the_locks_name_no_place_to_download_from():
    for name in ("requirements.lock", "requirements-dev.lock"):
        text = (ROOT / name).read_text("utf-8")
        assert "://" not in text
        assert "--index-url" not in text


# --- a skipped test is a failed one ---------------------------------------------------------------

SUITE = """
import pytest
@pytest.mark.skip(reason="later")
def test_skipped(): ...
def test_skips_itself(): pytest.skip("no")
@pytest.mark.xfail
def test_expected_to_fail(): assert False
@pytest.mark.xfail
def test_unexpectedly_passes(): ...
def test_passes(): ...
"""


def run_suite(folder: Path, environ: dict[str, str], *arguments: str) -> str:
    (folder / "conftest.py").write_text((ROOT / "tests" / "conftest.py").read_text())
    (folder / "test_it.py").write_text(SUITE)
    (folder / "test_whole.py").write_text("import pytest\npytest.importorskip('no_such_thing')\n")
    # It is no worker of the run that this test is part of.
    ours = {name: value for name, value in os.environ.items() if "XDIST" not in name}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--rootdir", str(folder),
         "-c", os.devnull, "--junitxml", str(folder / "report.xml"), *arguments, str(folder)],
        env=ours | {"PYTEST_ADDOPTS": ""} | environ,
        capture_output=True, text=True, check=False, cwd=folder,
    )  # fmt: skip
    return done.stdout.strip().split("\n")[-1]


@pytest.mark.parametrize("arguments", [(), ("-n", "2")])
def test_in_ci_every_skip_is_a_failure(tmp_path, arguments):
    last = run_suite(tmp_path, {"CI": "true"}, *arguments)
    assert "skipped" not in last
    assert "xfailed" not in last
    assert "error" in last or "4 failed" in last
    assert run_suite(tmp_path, {"CI": ""}, *arguments).count("skipped") == 1


def test_the_report_of_a_run_with_skips_is_refused(tmp_path):
    run_suite(tmp_path, {"CI": ""})
    found = complaints((tmp_path / "report.xml").read_text())
    assert len(found) == 4
    assert [line for line in found if "test_skips_itself: no" in line]
    assert complaints("<testsuites><testsuite/></testsuites>") == ["no test was run"]
    passing = "<testsuite><testcase classname='a' name='b'/></testsuite>"
    assert complaints(passing) == []
