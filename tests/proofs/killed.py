"""Runs a command of `confidant`, and ends it as hard as can be at its n-th touch of a folder.

    python -m tests.proofs.killed FOLDER N COMMAND…

A touch is whatever may change what is there: a file opened, renamed or removed, and each write of
SQLite's. With 0 it runs to its end, and says how many there were.
"""

from __future__ import annotations

import os
import signal
import sys

from bot.cli.main import cli
from bot.errors import ConfidantError
from tests.faults import watched_files

_TOUCHES = frozenset({"open", "os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.truncate"})


def main(folder: str, at: int, words: list[str]) -> None:
    touches = 0

    def touch() -> None:
        nonlocal touches
        touches += 1
        if touches == at:
            os.kill(os.getpid(), signal.SIGKILL)

    def hear(event: str, arguments: tuple[object, ...]) -> None:
        if event in _TOUCHES and arguments and _is_in(folder, arguments[0]):
            touch()

    sys.addaudithook(hear)
    files = watched_files("counting", lambda path: touch() if path.startswith(folder) else None)
    try:
        cli(words, standalone_mode=False)
    except ConfidantError as error:
        sys.exit(str(error))
    files.unregister()
    print(f"touches {touches}")


def _is_in(folder: str, path: object) -> bool:
    return isinstance(path, (str, os.PathLike)) and os.fspath(path).startswith(folder)  # type: ignore[arg-type]


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3:])
