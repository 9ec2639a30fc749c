"""Runs a command of `confidant`, and ends it as hard as can be at its n-th touch of a folder.

    python -m tests.proofs.killed FOLDER N COMMAND…

A touch is whatever may change what is there: a file opened, renamed or removed, and each write of
SQLite's. With 0 it runs to its end, and says how many there were.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable

import apsw

from bot.cli.main import cli
from bot.errors import ConfidantError

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
    files = _counting(folder, touch)
    try:
        cli(words, standalone_mode=False)
    except ConfidantError as error:
        sys.exit(str(error))
    files.unregister()
    print(f"touches {touches}")


def _is_in(folder: str, path: object) -> bool:
    return isinstance(path, (str, os.PathLike)) and os.fspath(path).startswith(folder)  # type: ignore[arg-type]


def _counting(folder: str, touch: Callable[[], None]) -> apsw.VFS:
    real = apsw.vfs_names()[0]

    class File(apsw.VFSFile):
        def __init__(self, name: str | apsw.URIFilename | None, flags: list[int]) -> None:
            super().__init__(real, name, flags)
            path = name.filename() if isinstance(name, apsw.URIFilename) else str(name)
            self._here = path.startswith(folder)

        def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802 - SQLite's name
            if self._here:
                touch()
            super().xWrite(data, offset)  # pyright: ignore[reportUnknownMemberType]

        def xLock(self, level: int) -> None:  # noqa: N802 - SQLite's name
            try:
                super().xLock(level)
            except apsw.IOError as error:  # SQLite takes it so, where a file is only read
                raise apsw.BusyError from error

    class Files(apsw.VFS):
        def __init__(self) -> None:
            super().__init__("counting", real, makedefault=True)

        def xOpen(  # noqa: N802 - SQLite's name
            self, name: str | apsw.URIFilename | None, flags: list[int]
        ) -> File:
            return File(name, flags)

    return Files()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3:])
