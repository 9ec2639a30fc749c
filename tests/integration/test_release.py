"""What is released: wheel and source distribution, installed and used as on a new machine."""

from __future__ import annotations

import os
import subprocess
import sysconfig
import tarfile
import tomllib
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

from bot import __version__
from scripts import release

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The wheel and the source distribution."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SOURCE_DATE_EPOCH", "1795262400")
        return release.build(tmp_path_factory.mktemp("dist"))


def in_packages() -> set[str]:
    """The files of the program in the repository."""
    return {
        str(path.relative_to(ROOT))
        for package in ("bot", "adapters")
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def test_the_wheel_has_all_that_is_needed_and_nothing_else(made):
    names = zipfile.ZipFile(made[0]).namelist()
    packed = {name for name in names if ".dist-info/" not in name}
    templates = {path.name for path in (ROOT / "config/workspace").iterdir()}
    assert packed == in_packages() | {f"bot/memory/workspace/{name}" for name in templates}
    for needed in (
        "bot/i18n/zh.toml",
        "bot/dashboard/templates/page.html",
        "bot/dashboard/static/page.css",
        "adapters/web/static/connection.js",
        "bot/storage/schema.py",
    ):
        assert needed in packed
    beside = {name.partition(".dist-info/")[2] for name in names} - {""}
    assert beside == {"METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE"}


def test_the_source_distribution_has_what_it_takes_to_build_and_set_up(made):
    with tarfile.open(made[1]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert in_packages() <= names
    beside = {name for name in names if name.partition("/")[0] not in {"bot", "adapters", "docs"}}
    assert beside == files("config") | files("deploy") | {
        "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "PKG-INFO", "README.md", "README.zh-CN.md",
        "pyproject.toml", ".gitignore", "requirements.lock", "requirements-extras.lock",
    }  # fmt: skip
    assert "docs/operating.md" in names
    assert not any(name.startswith("docs/images") for name in names)


def files(folder: str) -> set[str]:
    return {str(path.relative_to(ROOT)) for path in (ROOT / folder).rglob("*") if path.is_file()}


def test_both_are_the_same_to_the_last_byte_each_time(made, tmp_path, monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1795262400")
    again = release.build(tmp_path)
    assert [path.name for path in again] == [path.name for path in made]
    assert [path.read_bytes() for path in again] == [path.read_bytes() for path in made]


def test_the_version_stands_in_one_place(made):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert "version" not in project
    wheel = zipfile.ZipFile(made[0])
    (metadata,) = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
    assert Parser().parsestr(wheel.read(metadata).decode())["Version"] == __version__
    assert f"-{__version__}-" in made[0].name
    assert made[1].name.endswith(f"-{__version__}.tar.gz")


@pytest.mark.proof
def test_installed_on_a_new_machine_it_starts_answers_and_stops(made, tmp_path):
    folder, home = tmp_path / "venv", tmp_path / "home"
    home.mkdir()
    packages = Path(sysconfig.get_paths()["purelib"])
    programs = release.environment(folder, packages)
    release.install(made[0], folder)
    where = "import bot, adapters; print(bot.__file__, adapters.__file__)"
    done = subprocess.run(
        [programs / "python", "-c", where],
        cwd=home, env={"PATH": os.environ["PATH"]}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.count(str(folder)) == 2
    release.try_out([str(programs / "confidant")], home)
    database = home / ".confidant" / "confidant.db"
    assert database.exists()


def test_a_program_that_does_not_answer_as_it_should_is_no_release(tmp_path):
    program = tmp_path / "confidant"
    program.write_text("#!/bin/sh\necho confidant 0.0.0\n")
    program.chmod(0o755)
    with pytest.raises(release.ReleaseError, match=rf"“confidant {__version__}” was expected"):
        release.try_out([str(program)], tmp_path)
    program.write_text("#!/bin/sh\necho it cannot start >&2\nexit 3\n")
    with pytest.raises(release.ReleaseError, match="ended with 3: it cannot start"):
        release.try_out([str(program)], tmp_path)


def test_the_checksums_are_as_sha256sum_reads_them(tmp_path):
    for name in ("one.whl", "two.tar.gz"):
        (tmp_path / name).write_text(name)
    sums = release.write_sums(tmp_path / "one.whl", tmp_path / "two.tar.gz")
    subprocess.run(["sha256sum", "--check", "--strict", sums.name], cwd=tmp_path, check=True)
    assert sums.read_text().count("\n") == 2


# --- what people are told ------------------------------------------------------------------------


def test_the_version_has_a_section_of_the_changelog():
    notes = release.notes_of((ROOT / "CHANGELOG.md").read_text("utf-8"), __version__)
    assert notes.startswith(f"## {__version__} ")


@pytest.mark.parametrize(
    "changelog", ["", "## 1.2.30\n\n- x\n", "## 1.2.3\n\n## 1.2.2\n\n- x\n", "# 1.2.3\n\n- x\n"]
)
def test_a_version_nothing_is_said_of_is_no_release(changelog):
    with pytest.raises(release.ReleaseError, match=r"no section “## 1\.2\.3” that says what is"):
        release.notes_of(changelog, "1.2.3")
    ours = "## 1.2.3 (2026-11-23)\n\n### New\n\n- It works.\n"
    whole = f"# All\n\n## 1.2.4 (2026-11-24)\n\n- y\n\n{ours}\n## 1.2.2\n\n- x\n"
    assert release.notes_of(whole, "1.2.3") == ours


def test_what_is_not_committed_or_not_dated_is_not_released(tmp_path, monkeypatch):
    monkeypatch.setattr(release, "ROOT", tmp_path)
    for command in (
        ["init", "-q"],
        ["config", "user.email", "a@b.c"],
        ["config", "user.name", "a"],
    ):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    (tmp_path / "CHANGELOG.md").write_text(f"## {__version__} (unreleased)\n\n- It works.\n")
    with pytest.raises(release.ReleaseError, match=r"committed \(CHANGELOG\.md\)"):
        release.check_tree()
    for command in (["add", "."], ["commit", "-qm", "all"]):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    with pytest.raises(release.ReleaseError, match="put the date of the release there"):
        release.check_tree()
    dated = f"## {__version__} (2026-11-28)\n\n- It works.\n"
    (tmp_path / "CHANGELOG.md").write_text(dated)
    subprocess.run(["git", "commit", "-qam", "date"], cwd=tmp_path, check=True)
    assert release.check_tree() == dated


@pytest.mark.parametrize("there", [{"3.12": "/opt/python3.12", "3.14": "python3.14"}, {}])
def test_a_release_tries_both_files_with_each_python_that_is_here_and_names_the_others(
    tmp_path, monkeypatch, there
):
    """The building and the trying are pretended: what is left is what is done with them."""
    tried: list[tuple[str, str]] = []
    said: list[str] = []
    python = ""

    def build(target: Path) -> tuple[Path, Path]:
        target.mkdir()
        made = target / "confidant.whl", target / "confidant.tar.gz"
        for path in made:
            path.write_text(path.name)
        return made

    def environment(folder: Path, packages: None, program: str) -> Path:
        nonlocal python
        python = program
        folder.mkdir()
        return folder

    def run(command: list[str], *_: object) -> str:
        return there.get(command[-1], "") if "scripts/python.sh" in command else "0"

    for name, fake in {
        "ROOT": tmp_path,
        "check_tree": lambda: "## 1.2.3\n\n- It works.\n",
        "build": build,
        "environment": environment,
        "install": lambda path, _: tried.append((python, path.name)),
        "try_out": lambda _, __: None,
        "_run": run,
    }.items():
        monkeypatch.setattr(release, name, fake)
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")
    (tmp_path / "dist").mkdir()
    (tmp_path / "dist" / "old").touch()
    if not there:
        with pytest.raises(release.ReleaseError, match=r"no Python from 3\.11 to 3\.14"):
            release.release(tmp_path / "dist", said.append)
        assert not (tmp_path / "dist").exists()
        return
    release.release(tmp_path / "dist", said.append)
    assert tried == [
        (program, name)
        for program in there.values()
        for name in ("confidant.whl", "confidant.tar.gz")
    ]
    assert [line for line in said if "not tried" in line] == [
        f"There is no Python {version} here: it was not tried." for version in ("3.11", "3.13")
    ]
    assert sorted(path.name for path in (tmp_path / "dist").iterdir()) == [
        "NOTES.md", "SHA256SUMS", "confidant.tar.gz", "confidant.whl",
    ]  # fmt: skip
    assert (tmp_path / "dist" / "NOTES.md").read_text() == "## 1.2.3\n\n- It works.\n"


def test_the_makefile_releases_with_the_tests_environment():
    text = (ROOT / "Makefile").read_text("utf-8")
    rule = text.partition("\nrelease:")[2].partition("\n\n")[0]
    assert "scripts.release" in rule
