"""Write `tests/data/folders/`: a storage folder of every version of the tables, by its program.

The history of the repository has the program of each version: the last commit that runs before the
next step of `bot/storage/schema.py`. It is checked out beside, runs `scripts/earlier_story.py` with
today's packages, and what it leaves is packed: the database as SQL, everything else as it is.
Without numbers those that are missing are made.

    .venv/bin/python scripts/earlier_folders.py [VERSION …]
"""

from __future__ import annotations

import gzip
import io
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import apsw
import apsw.shell

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ROOT / "tests" / "data" / "folders"
STORY = Path(__file__).with_name("earlier_story.py")
SCHEMA = "bot/storage/schema.py"
SQL = "confidant.sql"
FACTS = "said.json"
_LEFT_OUT = {"confidant.lock", "index"}  # made anew


def commits() -> dict[int, list[str]]:
    """The commits with programs of each version, the last first."""
    found: dict[int, list[str]] = {}
    changes = _git("log", "--reverse", "--format=%H", "--", SCHEMA).split()
    for change, following in zip(changes, [*changes[1:], ""], strict=True):
        last = f"{following}^" if following else "HEAD"
        text = _git("show", f"{change}:{SCHEMA}")
        names: dict[str, object] = {}
        exec(compile(text, SCHEMA, "exec"), names)  # noqa: S102 - our own history
        steps = names["MIGRATIONS"]
        if isinstance(steps, tuple):
            between = _git("rev-list", f"{change}..{last}").split()
            found[len(steps)] = [*between, change]
    return found


def make(version: int, every: Sequence[str]) -> tuple[Path, str]:
    """Let the last program that runs make its version's folder, and pack that; which one did."""
    for commit in every:
        try:
            return _made(version, commit), commit
        except subprocess.CalledProcessError:  # a commit on the way
            continue
    raise SystemExit(f"no program of version {version} runs")


def _made(version: int, commit: str) -> Path:
    with tempfile.TemporaryDirectory() as scratch, _checked_out(commit, Path(scratch)) as program:
        folder, facts = Path(scratch, "folder"), Path(scratch, FACTS)
        kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
        subprocess.run(  # noqa: S603
            [sys.executable, str(STORY), str(folder), str(facts)],
            cwd=program,
            env={**kept, "HOME": scratch, "PYTHONPATH": str(program)},
            check=True,
            timeout=120,
            stdout=2,
        )
        target = FOLDERS / f"version-{version:02}.tar.gz"
        target.parent.mkdir(exist_ok=True)
        target.write_bytes(_packed(folder, facts))
    return target


@contextmanager
def _checked_out(commit: str, scratch: Path) -> Iterator[Path]:
    program = scratch / "program"
    _git("worktree", "add", "--quiet", "--detach", str(program), commit)
    try:
        yield program
    finally:
        _git("worktree", "remove", "--force", str(program))


def _packed(folder: Path, facts: Path) -> bytes:
    members = {SQL: _dumped(folder / "confidant.db"), FACTS: facts.read_bytes()}
    templates = {path.name for path in (ROOT / "config" / "workspace").iterdir()}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder)
        is_template = path.parent.name == "workspace" and path.name in templates
        is_made_anew = name.parts[0] in _LEFT_OUT or name.name.startswith("confidant.db")
        if path.is_file() and not (is_template or is_made_anew):
            members[str(name)] = path.read_bytes()
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name, data in sorted(members.items()):
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(data), 0o600
            archive.addfile(info, io.BytesIO(data))
    return gzip.compress(packed.getvalue(), mtime=0)


def _dumped(database: Path) -> bytes:
    """A database as SQL, with the tables of its full-text index as they are."""
    connection = apsw.Connection(str(database))
    said = io.StringIO()
    apsw.shell.Shell(stdout=said, db=connection).process_command(".dump")
    connection.close()
    # Its comments name the folder it was made in, and the hour.
    return re.sub(r"^--.*\n", "", said.getvalue(), flags=re.MULTILINE).encode()


def _git(*words: str) -> str:
    done = subprocess.run(  # noqa: S603
        ["git", *words],  # noqa: S607
        cwd=ROOT, check=True, capture_output=True, text=True,
    )  # fmt: skip
    return done.stdout


def main() -> None:
    """Make the folders of some versions, or those that are missing."""
    every = commits()
    missing = [v for v in every if not (FOLDERS / f"version-{v:02}.tar.gz").exists()]
    for version in map(int, sys.argv[1:]) if sys.argv[1:] else missing:
        made, commit = make(version, every[version])
        print(f"{made.name}: {made.stat().st_size:,} bytes, by {commit[:7]}")  # noqa: T201


if __name__ == "__main__":
    main()
