"""Has the files people send opened, each in a process apart (a `sandbox` program).

A process is started for the first file, ends when none come, and is killed by one that takes too
long. Nobody has more than one at once, and nobody gets more than a share of their time.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import re
import signal
import sys
import time
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import structlog

from bot.clock import Clock
from bot.errors import PoolFull
from bot.files import sandbox
from bot.files.sandbox import Head, Unreadable
from bot.shares import OPENERS, Budget, Pool, Share
from bot.storage.records import MetaStore, read_alone
from bot.unicode import BYTE_ORDER_MARKS

PROGRAM = Path(__file__).with_name("program.py")
MARK = "opening:"  # in `meta`, with a task and the SHA-256 of a file: that is being done with it
MARKED_MS = 30 * 86_400_000  # how long what ended a process is not opened again
DYING = 5.0  # seconds for a process to end by itself once its output has
_REASONS = {  # by the signal that ends a process
    int(getattr(signal, "SIGXCPU", 0)): "slow",  # it used up its seconds
    int(signal.SIGABRT): "memory",  # a compiled library got no more of it
}

T = TypeVar("T")

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits for opening files."""

    megabytes: int = 512  # of address space; 16 million pixels of any format take 330
    seconds: int = 12  # of a processor for one file, and …
    wall: float = 30.0  # … seconds of waiting for it, on a machine that is busy
    idle: float = 60.0  # seconds after the last file until the process ends
    share: float = 60.0  # seconds one person may use at once …
    refill: float = 0.1  # … and that come back every second


def mark_of(task: str, data: bytes) -> str:
    """Under what it is noted that something is being done with a file."""
    return f"{MARK}{task}:{hashlib.sha256(data).hexdigest()}"


class Opener:
    """Has a program do something with files: what that is, the `task` of a request's head says.

    With no `marks` it forgets at its end what ended that program: whoever asks counts by itself how
    often it was tried.
    """

    def __init__(
        self,
        marks: MetaStore | None,
        clock: Clock,
        limits: Limits | None = None,
        *,
        now: Callable[[], float] = time.monotonic,
        program: Path = PROGRAM,
        share: Share = OPENERS,
    ) -> None:
        self._marks = marks
        self._clock = clock
        self._limits = limits or Limits()
        self._now = now
        self._program = program
        self._used = Budget(self._limits.share, self._limits.refill, now)
        self._pool = Pool(share)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._idle: dict[_Program, asyncio.Task[None]] = {}  # each with what ends it in a while
        self._deadly: set[str] | None = None  # the marks of what ended a process

    async def ask(self, person: str, head: Head, data: bytes) -> tuple[Head, bytes]:
        """The program's answer for a person's file, once it is its turn.

        Raises:
            Unreadable: it cannot be opened; the reason says why.
            StorageError: that it is being opened could not be noted.
        """
        if self._used.is_used_up(person):
            raise Unreadable("share")
        try:
            async with self._pool.place(person):
                # A task of its own: closing ends what is being opened, and whoever waits for it.
                return await self._spawn(self._open(person, head, data))
        except PoolFull:
            raise Unreadable("share") from None

    async def close(self) -> None:
        """End the processes, whatever they are doing."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        idle, self._idle = self._idle, {}
        for program, ending in idle.items():
            ending.cancel()
            await program.end()

    async def _open(self, person: str, head: Head, data: bytes) -> tuple[Head, bytes]:
        program = _Program(self._program, self._limits)
        if self._idle:
            program, ending = self._idle.popitem()
            ending.cancel()
        try:
            return await self._opened(program, person, head, data)
        finally:
            self._idle[program] = self._spawn(self._rest(program))

    async def _rest(self, program: _Program) -> None:
        """End a process that has had nothing to do for a while."""
        await asyncio.sleep(self._limits.idle)
        del self._idle[program]
        await program.end()

    def _spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _opened(
        self, program: _Program, person: str, head: Head, data: bytes
    ) -> tuple[Head, bytes]:
        mark, deadly = mark_of(head["task"], data), await self._known_deadly()
        if mark in deadly:
            raise Unreadable("deadly")
        began = self._now()
        try:
            # Noted first: what ends the whole program is not opened a second time after its start.
            if self._marks is not None:
                await self._marks.set(mark, str(self._clock()))
            began = self._now()
            answer, body = await program.ask(head, data)
        except Unreadable as error:
            log.warning("file.deadly", task=head["task"], reason=error.reason)
            deadly.add(mark)
            raise
        except BaseException:
            await self._forget(mark)
            raise
        finally:
            self._used.add(person, self._now() - began)
        await self._forget(mark)
        if reason := answer.get("reason"):
            raise Unreadable(reason)
        return answer, body

    async def _forget(self, mark: str) -> None:
        if self._marks is not None:
            await self._marks.forget(mark)

    async def _known_deadly(self) -> set[str]:
        if self._deadly is None:
            found = await self._marks.under(MARK) if self._marks is not None else {}
            oldest = self._clock() - MARKED_MS
            times = {
                name: read_alone("meta", f"{MARK}{name}", int, at) or 0
                for name, at in found.items()
            }
            for name, at in times.items():
                if at < oldest:
                    await self._forget(f"{MARK}{name}")
            self._deadly = {f"{MARK}{name}" for name, at in times.items() if at >= oldest}
        return self._deadly


class _Program:
    """The process, as long as there is one."""

    def __init__(self, path: Path, limits: Limits) -> None:
        self._path = path
        self._limits = limits
        self._process: Process | None = None

    async def ask(self, head: Head, data: bytes) -> tuple[Head, bytes]:
        """The program's answer for a file.

        Raises:
            Unreadable: it ended the process, or had to be ended with it.
            OSError: no process could be started.
        """
        process = self._process or await self._start()
        self._process = process
        assert process.stdin is not None  # noqa: S101 - both are pipes
        assert process.stdout is not None  # noqa: S101
        try:
            async with asyncio.timeout(self._limits.wall):
                process.stdin.write(sandbox.packed(head, data))
                await process.stdin.drain()
                lengths = await process.stdout.readexactly(sandbox.LENGTHS.size)
                words, size = sandbox.LENGTHS.unpack(lengths)
                answer = json.loads(await process.stdout.readexactly(words))
                return answer, await process.stdout.readexactly(size)
        except TimeoutError:
            await self.end()
            raise Unreadable("slow") from None
        except (asyncio.IncompleteReadError, ConnectionError):
            with contextlib.suppress(TimeoutError):  # killed while it dies, its code can be lost
                async with asyncio.timeout(DYING):
                    await process.wait()
            ended = await self.end()
            raise Unreadable(_REASONS.get(-ended, "deadly")) from None
        except asyncio.CancelledError:
            await self.end()
            raise

    async def end(self) -> int:
        """End the process at once; its exit code."""
        process, self._process = self._process, None
        if process is None:
            return 0
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        if process.stdin is not None:
            process.stdin.close()
        return await process.wait()

    async def _start(self) -> Process:
        # None of this process's environment goes along: it holds keys and tokens.
        kept = {"LD_LIBRARY_PATH", "PATH", "SYSTEMROOT"}
        environment = {name: value for name, value in os.environ.items() if name in kept}
        environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",
            str(self._path),
            str(self._limits.megabytes),
            str(self._limits.seconds),
            stdin=PIPE,
            stdout=PIPE,
            stderr=DEVNULL,
            env=environment,
            start_new_session=True,  # an operator's Ctrl-C is for the bot
        )


@dataclass(frozen=True, slots=True)
class Mark:
    """A page, slide or sheet begins: its number, of how many, and what it is called."""

    unit: str
    number: int
    of: int
    name: str = ""

    def __str__(self) -> str:
        """A line of its own, as the model reads it."""
        name = " ".join(self.name.split()).replace("[", "(").replace("]", ")")
        return f"[{self.unit} {self.number} of {self.of}{f': {name}' if name else ''}]\n"


# Makes of files that strangers made what a model can take: pictures to look at, texts to read.


@dataclass(frozen=True, slots=True)
class Document:
    """The text of a document, or the beginning of one that is too long to be read.

    Headings, tables and links are Markdown; a line in square brackets begins each page, slide or
    sheet. `unit` says which of these it has, if any: it was read up to number `read` of them, and
    there are `of`. `is_cut` is True when that is not all.
    """

    text: str
    unit: str = ""
    read: int = 0
    of: int = 0
    is_cut: bool = False


class FileReader:
    """Reads one person's file at a time, in a process that it may harm without harm to the bot."""

    def __init__(self, opener: Opener) -> None:
        self._opener = opener

    async def jpeg(self, person: str, data: bytes) -> bytes:
        """A picture as a JPEG; `person` is whose share of the time it takes.

        Raises:
            Unreadable: it cannot be shown; the reason says why.
            StorageError: that it is being opened could not be noted.
        """
        _, body = await self._opener.ask(person, {"task": "picture"}, data)
        return body

    async def text(
        self, person: str, data: bytes, content_type: str = "", name: str = "", url: str = ""
    ) -> Document:
        """The text of a PDF, an Office file, a page of HTML or a plain text.

        What it is, its content says; `content_type` and `name` count only for what any text might
        be. Of HTML that is at a `url`, only what is the page's own is read, without menus and the
        like.

        Raises:
            Unreadable: there is nothing to read; the reason says why.
            StorageError: that it is being opened could not be noted.
        """
        asked = {"task": "document", "content_type": content_type, "name": name, "url": url}
        head, body = await self._opener.ask(person, asked, data)
        return Document(body.decode(), head["unit"], head["read"], head["of"], head["is_cut"])


_CHARSET = re.compile(
    rb"""(?:charset|encoding)\s*+=\s*+["']?\s*+([a-z0-9_.:-]{1,40})""", re.IGNORECASE
)


def charset_of(data: bytes, content_type: str) -> str:
    """The charset that a text declares: beside it, or in its head as HTML and XML do."""
    found = _CHARSET.search(content_type.encode()) or _CHARSET.search(data[:1024])
    return found[1].decode() if found is not None else ""


def is_binary(data: bytes) -> bool:
    """True when these bytes are no text of any kind."""
    if data.startswith(tuple(mark for mark, _ in BYTE_ORDER_MARKS)):
        return False
    return b"\0" in data[:8192]
