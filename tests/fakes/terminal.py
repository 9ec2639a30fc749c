"""A terminal with a program in it, as a person has it: a pseudo-terminal, keys and a screen."""

from __future__ import annotations

import asyncio
import fcntl
import os
import re
import struct
import sys
import termios
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path

SECONDS = 120.0  # a start on a loaded machine
# The program gets the terminal as its own, so that keys become signals, and both take turns in it.
# Whoever began the tests in the background may have had them ignore Ctrl-C.
_OWN = (
    "import fcntl, os, signal, sys, termios; os.setsid(); "
    "fcntl.ioctl(0, termios.TIOCSCTTY, 0); signal.signal(signal.SIGINT, signal.SIG_DFL); "
    "os.execvpe(sys.argv[1], sys.argv[1:], os.environ)"
)
_TAKEN_AWAY = re.compile(r"[^\n]*\n(?:\x1b\[\?25h)?\r\x1b\[1A\x1b\[2K")  # a bar, at its end
_COMMANDS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def environment(folder: Path, **more: str) -> dict[str, str]:
    """The variables of a program whose home and data are in a folder."""
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "CONFIDANT_STORAGE__DIR": str(folder / "data"),
        "CONFIDANT_DASHBOARD__PORT": "0",
        "CONFIDANT_MEMORY__EMBEDDER__PROVIDER": "none",
        **more,
    }


class Terminal:
    """What is typed and shown there; `raw` is all of it, with what commands the terminal."""

    def __init__(self, process: asyncio.subprocess.Process, ours: int) -> None:
        self.process = process
        self.raw = ""
        self._ours = ours
        self._is_over = False  # nobody has the other end any more
        self._news = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(ours, self._read)

    @property
    def text(self) -> str:
        """All that was written, without what commands the terminal."""
        return _COMMANDS.sub("", self.raw).replace("\r\n", "\n")

    @property
    def lines(self) -> list[str]:
        """What stands on the screen: of what was painted over, the last."""
        shown = _TAKEN_AWAY.sub("", self.raw.replace("\r\n", "\n")).split("\n")
        return [_COMMANDS.sub("", re.split(r"\r\x1b\[2?K", line)[-1]) for line in shown]

    def type(self, keys: str) -> None:
        """Press keys; "\\x03" is Ctrl-C."""
        os.write(self._ours, keys.encode())

    async def shows(self, words: str) -> None:
        """Wait until something is written."""
        async with asyncio.timeout(SECONDS):
            while words not in self.text:
                assert not self._is_over, self.text
                self._news.clear()
                await self._news.wait()

    async def ends(self) -> int:
        """Wait until the program has ended; its exit status."""
        async with asyncio.timeout(SECONDS):
            code = await self.process.wait()
            while not self._is_over:
                self._news.clear()
                await self._news.wait()
        return code

    def _read(self) -> None:
        try:
            data = os.read(self._ours, 65536)
        except OSError:
            data = b""
        self.raw += data.decode(errors="replace")
        if not data:
            self._is_over = True
            self._loop.remove_reader(self._ours)
        self._news.set()

    def close(self) -> None:
        """Take the terminal away."""
        self._loop.remove_reader(self._ours)
        os.close(self._ours)
        with suppress(ProcessLookupError):
            self.process.kill()


@asynccontextmanager
async def terminal(
    *program: str | Path, folder: Path, variables: Mapping[str, str], columns: int = 80
) -> AsyncGenerator[Terminal]:
    """A terminal in which this program was started, with these variables and no others."""
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-S", "-c", _OWN),
        *program,
        cwd=folder,
        env={"TERM": "xterm", "LANG": "C.UTF-8", **variables},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    shown = Terminal(process, ours)
    try:
        yield shown
    finally:
        shown.close()
        await process.wait()
