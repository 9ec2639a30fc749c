"""`make release`: a wheel and a source distribution in `dist/`, tried as somebody would use them.

The version is the one of `bot/__init__.py`. The wheel is built from what the source distribution
holds, so that has all of it; both are built twice, and must be the same to the last byte. Then
each is installed into fresh environments with the locked packages, one for each supported Python
that is on this machine, where it has to start, to answer and to stop. What was checked is in
`dist/SHA256SUMS`, what CHANGELOG.md says of the version in `dist/NOTES.md`.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from bot import __version__
from scripts.wheels import PYTHONS

ROOT = Path(__file__).resolve().parents[1]
LOCK = ROOT / "requirements.lock"
SUMS, NOTES = "SHA256SUMS", "NOTES.md"
PATIENCE = 120.0  # seconds a program may take

Say = Callable[[str], object]


class ReleaseError(Exception):
    """A reason why there can be no release, in a sentence."""


def check_tree() -> str:
    """Make sure that what is released is what was committed; what people are told of it.

    Raises:
        ReleaseError: it is not, or CHANGELOG.md does not say what is new, and since when.
    """
    if changed := _run(["git", "status", "--porcelain"], cwd=ROOT).strip():
        first = changed.splitlines()[0].split(maxsplit=1)[1]
        raise ReleaseError(f"Not everything is committed ({first}): commit or remove it first.")
    notes = notes_of((ROOT / "CHANGELOG.md").read_text("utf-8"), __version__)
    title = notes.partition("\n")[0].removeprefix("## ")
    if "(unreleased)" in title:
        raise ReleaseError(f"CHANGELOG.md says “{title}”: put the date of the release there.")
    return notes


def notes_of(changelog: str, version: str) -> str:
    """A version's section, with its heading.

    Raises:
        ReleaseError: it has none, or there is nothing in it.
    """
    for section in re.split(r"^(?=## )", changelog, flags=re.MULTILINE):
        title, _, said = section.partition("\n")
        if title.split()[:2] == ["##", version] and said.strip():
            return f"{section.strip()}\n"
    raise ReleaseError(f"CHANGELOG.md has no section “## {version}” that says what is new.")


def build(target: Path) -> tuple[Path, Path]:
    """Build the source distribution, and from what is in it the wheel; both end up in `target`."""
    with tempfile.TemporaryDirectory() as scratch:
        _run([sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", scratch], cwd=ROOT)
        (sdist,) = Path(scratch).glob("*.tar.gz")
        with tarfile.open(sdist) as archive:
            archive.extractall(scratch, filter="data")
        unpacked = Path(scratch, sdist.name.removesuffix(".tar.gz"))
        _run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", scratch], unpacked)
        (wheel,) = Path(scratch).glob("*.whl")
        target.mkdir(parents=True, exist_ok=True)
        return Path(shutil.copy(wheel, target)), Path(shutil.copy(sdist, target))


def environment(folder: Path, packages: Path | None, python: str = sys.executable) -> Path:
    """A fresh virtual environment with the locked packages; its programs.

    With `packages` it sees what is installed there instead: nothing is downloaded.
    """
    _run([python, "-m", "venv", *(["--without-pip"] if packages else []), str(folder)])
    if packages is not None:
        (site,) = folder.glob("lib/python*/site-packages")
        (site / "packages.pth").write_text(f"{packages}\n", encoding="utf-8")
    else:
        _run([*_pip(folder), "install", "--require-hashes", "-r", str(LOCK)])
    return folder / "bin"


def install(made: Path, folder: Path) -> None:
    """Install what was built, and nothing else, into a virtual environment."""
    options = ["--no-deps", "--no-index", "--no-build-isolation", "--force-reinstall"]
    _run([*_pip(folder), "install", *options, str(made)])


def try_out(
    confidant: Sequence[str], home: Path, variables: Mapping[str, str] | None = None
) -> None:
    """Use an installed program, called like this, as somebody would on a new machine.

    Raises:
        ReleaseError: it does not do what it should.
    """
    kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    environ = {**kept, "HOME": str(home), "CONFIDANT_DASHBOARD__PORT": "0", **(variables or {})}
    _expect(f"confidant {__version__}", _run([*confidant, "--version"], home, environ))
    _expect("✓", _run([*confidant, "doctor"], home, environ))
    said = "remember that the harbour code is 4711\nwhat do you know about the harbour?\n"
    _expect("4711", _run([*confidant, "chat"], home, environ, said=said))
    _serve(confidant, home, environ)


def _serve(confidant: Sequence[str], home: Path, environ: Mapping[str, str]) -> None:
    with subprocess.Popen(  # noqa: S603
        [*confidant, "run"], cwd=home, env=environ, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    ) as process:  # fmt: skip
        try:
            lines = iter(process.stdout or ())
            found = (re.search(r"http://127\.0\.0\.1:\d+", line) for line in lines)
            address = next((match[0] for match in found if match), "")
            if not address:
                raise ReleaseError("`confidant run` ended before it said where its page is.")
            for path, words in (("/healthz", ""), ("/", "Confidant")):
                with urllib.request.urlopen(f"{address}{path}", timeout=PATIENCE) as answer:  # noqa: S310
                    _expect(words, answer.read().decode())
            process.terminate()
            if code := process.wait(PATIENCE):
                raise ReleaseError(f"`confidant run` ended with {code} when it was told to stop.")
        finally:
            process.kill()


def write_sums(*made: Path) -> Path:
    """Write the checksums of files beside them, as `sha256sum -c` reads them."""
    lines = (f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in made)
    sums = made[0].with_name(SUMS)
    sums.write_text("".join(lines), encoding="utf-8")
    return sums


def release(target: Path, say: Say) -> None:
    """Build, try and sum up.

    Raises:
        ReleaseError: something is not as it should be; nothing is in `target` then.
    """
    notes = check_tree()
    shutil.rmtree(target, ignore_errors=True)
    os.environ["SOURCE_DATE_EPOCH"] = _run(["git", "log", "-1", "--format=%ct"], ROOT).strip()
    with tempfile.TemporaryDirectory() as scratch:
        say("Building …")
        made = build(Path(scratch, "dist"))
        for path, again in zip(made, build(Path(scratch, "again")), strict=True):
            if path.read_bytes() != again.read_bytes():
                raise ReleaseError(f"{path.name} is another one each time it is built.")
        tried = False
        for version in PYTHONS:
            python = _run(["sh", "scripts/python.sh", version], ROOT).strip()
            if not python:
                say(f"There is no Python {version} here: it was not tried.")
                continue
            tried = True
            folder = Path(scratch, version)
            programs = environment(folder, None, python)
            for path in made:
                say(f"Trying {path.name} with Python {version} …")
                install(path, folder)
                home = Path(tempfile.mkdtemp(dir=folder))
                try_out([str(programs / "confidant")], home)
        if not tried:
            raise ReleaseError(f"There is no Python from {PYTHONS[0]} to {PYTHONS[-1]} here.")
        write_sums(*made).with_name(NOTES).write_text(notes, encoding="utf-8")
        shutil.copytree(Path(scratch, "dist"), target)
    for path in sorted(target.iterdir()):
        say(f"{path.relative_to(ROOT)}: {path.stat().st_size:,} bytes")


def _expect(words: str, said: str) -> None:
    if words not in said:
        raise ReleaseError(f"“{words}” was expected, and this came: {said[-500:]}")


def _pip(folder: Path) -> list[str]:
    python = str(folder / "bin" / "python")
    options = ["--disable-pip-version-check", "--no-input", "--quiet", "--python", python]
    return [sys.executable, "-m", "pip", *options]


def _run(
    command: list[str],
    cwd: Path | None = None,
    environ: Mapping[str, str] | None = None,
    *,
    said: str = "",
) -> str:
    done = subprocess.run(  # noqa: S603
        command, cwd=cwd, env=environ, input=said, text=True, capture_output=True, check=False,
        timeout=PATIENCE * 10,
    )  # fmt: skip
    if done.returncode:
        words = f"{done.stdout[-1000:]}{done.stderr[-1000:]}"
        raise ReleaseError(f"{' '.join(command[:4])} … ended with {done.returncode}: {words}")
    return done.stdout


def main() -> int:
    """Release what is committed."""
    try:
        release(ROOT / "dist", lambda line: print(line, flush=True))  # noqa: T201
    except ReleaseError as error:
        print(f"release: {error}", file=sys.stderr)  # noqa: T201
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
