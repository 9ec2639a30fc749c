"""Opens storage folders of earlier versions and dies on the way; a process of its own.

Everything is imported once, then each try is a fork. Commands on standard input are
`FOLDER POINT`: the child ends, as hard as can be, just before the POINT-th thing that it does to a
file below FOLDER: it makes, opens for writing, writes, syncs, renames or removes one. With POINT 0
it goes on to the end. The answer is how many such things were done, or "killed".
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import apsw

from bot import logs
from bot.backend import open_backend
from bot.config import LogConfig
from tests.support import FakeClock, make_config

_EVENTS = frozenset({"os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "os.truncate"})


class Counter:
    """Counts what is done to files below a folder, and ends the process at a point."""

    def __init__(self, folder: Path, point: int) -> None:
        self.folder = str(folder)
        self.point = point
        self.done = 0

    def step(self) -> None:
        self.done += 1
        if self.done == self.point:
            os.kill(os.getpid(), signal.SIGKILL)

    def heard(self, event: str, arguments: tuple[Any, ...]) -> None:
        """An audit hook."""
        is_writing = event == "open" and isinstance(arguments[2], int) and arguments[2] & 3
        if (is_writing or event in _EVENTS) and str(arguments[0]).startswith(self.folder):
            self.step()


def through(counter: Counter) -> apsw.VFS:
    """Have SQLite's files counted."""
    real = apsw.vfs_names()[0]

    class File(apsw.VFSFile):
        def __init__(self, name: str | apsw.URIFilename | None, flags: list[int]) -> None:
            super().__init__(real, name, flags)

        def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802 - SQLite's names
            counter.step()
            super().xWrite(data, offset)

        def xSync(self, flags: int) -> None:  # noqa: N802
            counter.step()
            super().xSync(flags)

        def xTruncate(self, size: int) -> None:  # noqa: N802
            counter.step()
            super().xTruncate(size)

    class Files(apsw.VFS):
        def __init__(self) -> None:
            super().__init__("counted", real, makedefault=True)

        def xOpen(  # noqa: N802
            self, name: str | apsw.URIFilename | None, flags: list[int]
        ) -> File:
            return File(name, flags)

        def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: N802, FBT001
            counter.step()
            super().xDelete(filename, syncdir)

    return Files()


async def upgrade(folder: Path) -> None:
    """What the program does before anything else is begun."""
    async with AsyncExitStack() as stack:
        await open_backend(make_config(folder)[0], FakeClock(), stack)


def child(folder: Path, point: int, result: int) -> None:
    counter = Counter(folder, point)
    files = through(counter)
    sys.addaudithook(counter.heard)
    asyncio.run(upgrade(folder))
    os.write(result, str(counter.done).encode())
    files.unregister()


def main() -> None:
    logs.configure(LogConfig(level="error"))
    print("ready", flush=True)
    for line in sys.stdin:
        folder, _, point = line.strip().rpartition(" ")
        reading, result = os.pipe()
        if (pid := os.fork()) == 0:
            try:
                child(Path(folder), int(point), result)
                os._exit(0)
            finally:
                os._exit(1)
        os.close(result)
        status = os.waitpid(pid, 0)[1]
        said = os.read(reading, 100).decode()
        os.close(reading)
        is_killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        print("killed" if is_killed else said or f"failed {status}", flush=True)


if __name__ == "__main__":
    main()
