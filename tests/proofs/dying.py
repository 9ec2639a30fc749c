"""Does something to a folder and dies on the way, or has its disk fill up; a process of its own.

Everything is imported once, then each try is a fork. Commands on standard input are
`WORDS FOLDER POINT`: the child ends, as hard as can be, just before the POINT-th thing that it does
to a file below FOLDER: it makes, opens for writing, writes, syncs, renames or removes one. With
POINT 0 it goes on to the end. With POINT below 0 nothing can be made or written from the one of
that number on. The answer is how many such things were done, "killed", or "refused: " and why.
"""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import apsw

from bot import logs
from bot.config import LogConfig
from bot.errors import ConfidantError
from tests.fakes import commands
from tests.faults import watched_files

_EVENTS = frozenset({"os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "os.truncate"})


class Counter:
    """Counts what is done to files below a folder, and ends the process at a point."""

    def __init__(self, folder: Path, point: int) -> None:
        self.folder = str(folder)
        self.point = point
        self.done = 0

    @property
    def is_full(self) -> bool:
        return self.point < 0 and self.done >= -self.point

    def step(self, *, writes: bool = True) -> None:
        self.done += 1
        if self.done == self.point:
            os.kill(os.getpid(), signal.SIGKILL)
        if writes and self.is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def heard(self, event: str, arguments: tuple[Any, ...]) -> None:
        """An audit hook."""
        is_writing = event == "open" and isinstance(arguments[2], int) and arguments[2] & 3
        if (is_writing or event in _EVENTS) and str(arguments[0]).startswith(self.folder):
            self.step(writes=is_writing or event == "os.mkdir")


def through(counter: Counter) -> apsw.VFS:
    """Have SQLite's files counted."""

    def write(_path: str) -> None:
        counter.step(writes=False)
        if counter.is_full:
            raise apsw.FullError("no space left on device")

    return watched_files("counted", write, settle=lambda _path: counter.step(writes=False))


Work = Callable[[list[str], Counter], Coroutine[Any, Any, object] | None]
"""What is done to a folder: its words, the folder's last. It may count more steps."""


def child(work: Work, words: list[str], point: int, result: int, *, counts_sqlite: bool) -> None:
    counter = Counter(Path(words[-1]), point)
    files = through(counter) if counts_sqlite else None
    sys.addaudithook(counter.heard)
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what it prints is no answer
    try:
        if (running := work(words, counter)) is not None:
            asyncio.run(running)
        said = str(counter.done)
    except ConfidantError as error:
        said = f"refused: {error}"
    os.write(result, said.encode())
    if files is not None:
        files.unregister()


def main(work: Work, *, counts_sqlite: bool = True) -> None:
    """Serve; without `counts_sqlite` its files are SQLite's own, so that they may be shared."""
    logs.configure(LogConfig(level="error"))
    print("ready", flush=True)
    for line in sys.stdin:
        *words, point = line.split()
        reading, result = os.pipe()
        if (pid := os.fork()) == 0:
            try:
                child(work, words, int(point), result, counts_sqlite=counts_sqlite)
                os._exit(0)
            finally:
                os._exit(1)
        os.close(result)
        status = os.waitpid(pid, 0)[1]
        said = os.read(reading, 2_000).decode()
        os.close(reading)
        is_killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        print("killed" if is_killed else said or f"failed {status}", flush=True)


class Dying:
    """The process that does it, from outside."""

    def __init__(self, work: str) -> None:
        """`work` is the name of one of `tests.proofs.works`."""
        self._process = subprocess.Popen(
            [*commands.module("tests.proofs.works"), work],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._read() == "ready"

    def run(self, *words: object, point: int = 0) -> str:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{' '.join(map(str, words))} {point}\n")
        self._process.stdin.flush()
        return self._read()

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(10)
        self._process.stdout.close()

    def _read(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()
