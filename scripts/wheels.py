"""Fail when a pinned package has no wheel for a Python and a machine that Confidant runs on.

Asks the package index through uv; nothing is installed. Takes a minute.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path

PYTHONS = ("3.11", "3.12", "3.13", "3.14")
MACHINES = {
    "Linux x86-64": "x86_64-manylinux_2_28",
    "Linux arm64": "aarch64-manylinux_2_28",
    "macOS arm64": "aarch64-apple-darwin",
}
LOCK = "requirements-dev.lock"  # has what requirements.lock has, and the tests' tools
MACOS = "14.0"  # the oldest macOS that is looked at
PATIENCE = 300  # seconds for one answer

Ask = Callable[[Sequence[str]], str]
"""Runs uv with arguments; returns what it complained of, empty if it did not."""


def complaints(ask: Ask) -> list[str]:
    """A line for each Python and machine that lacks a wheel."""

    def look(wanted: tuple[str, str]) -> str:
        python, machine = wanted
        said = ask(
            (
                "pip", "compile", "--quiet", "--no-deps", "--only-binary", ":all:", "--no-header",
                "--no-python-downloads", "--python-version", python,
                "--python-platform", MACHINES[machine], "--output-file", os.devnull, LOCK,
            )
        )  # fmt: skip
        return f"Python {python}, {machine}: {said}" if said else ""

    with ThreadPoolExecutor(2) as pool:
        return [line for line in pool.map(look, product(PYTHONS, MACHINES)) if line]


def _ask(arguments: Sequence[str]) -> str:
    uv = Path(sys.executable).with_name("uv")
    done = subprocess.run(  # noqa: S603 - our own arguments
        [uv, *arguments],
        cwd=Path(__file__).resolve().parents[1],
        env={**os.environ, "MACOSX_DEPLOYMENT_TARGET": MACOS},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    return (done.stderr.strip() or f"exit status {done.returncode}") if done.returncode else ""


def main() -> int:
    """Ask for every combination and print what is missing."""
    found = complaints(_ask)
    sys.stderr.writelines(f"{line}\n" for line in found)
    if not found:
        sys.stdout.write(f"Every pinned wheel exists for Python {', '.join(PYTHONS)}.\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
