"""Has the files people send opened, one at a time, in a process of its own (a `sandbox` program).

The process is started for the first file, ends when none come, and is killed by one that takes too
long. People take turns, and nobody gets more than a share of its time.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import signal
import sys
import time
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import structlog

from bot.clock import Clock
from bot.files import sandbox
from bot.files.sandbox import Head, Unreadable
from bot.storage.meta import MetaStore

PROGRAM = Path(__file__).with_name("program.py")
MARK = "opening:"  # in `meta`, with a task and the SHA-256 of a file: that is being done with it
MARKED_MS = 30 * 86_400_000  # how long what ended a process is not opened again
DYING = 5.0  # seconds for a process to end by itself once its output has
_REASONS = {  # by the signal that ends a process
    int(getattr(signal, "SIGXCPU", 0)): "slow",  # it used up its seconds
    int(signal.SIGABRT): "memory",  # a compiled library got no more of it
}

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Limits:
    """What opening files may take."""

    megabytes: int = 512  # of address space; 16 million pixels of any format take 330
    seconds: int = 12  # of a processor for one file, and …
    wall: float = 30.0  # … seconds of waiting for it, on a machine that is busy
    idle: float = 60.0  # seconds after the last file until the process ends
    share: float = 60.0  # seconds one person may use at once …
    refill: float = 0.1  # … and that come back every second


@dataclass(frozen=True, slots=True, eq=False)
class _Job:
    person: str
    head: Head
    data: bytes
    done: asyncio.Future[tuple[Head, bytes]]

    @property
    def mark(self) -> str:
        return mark_of(self.head["task"], self.data)


def mark_of(task: str, data: bytes) -> str:
    """Under what it is noted that something is being done with a file."""
    return f"{MARK}{task}:{hashlib.sha256(data).hexdigest()}"


class Shares:
    """How much of the process's time each person has used lately: a bucket that empties slowly."""

    def __init__(self, most: float, refill: float, now: Callable[[], float]) -> None:
        self._most, self._refill, self._now = most, refill, now
        self._used: dict[str, tuple[float, float]] = {}  # seconds, and when that was so

    def is_used_up(self, person: str) -> bool:
        """True when a person has to wait until others had their turn."""
        return self._left(person) >= self._most

    def add(self, person: str, seconds: float) -> None:
        """Count time a person's file took."""
        self._used[person] = (self._left(person) + seconds, self._now())
        for other in [other for other in self._used if self._left(other) <= 0]:
            del self._used[other]

    def _left(self, person: str) -> float:
        used, at = self._used.get(person, (0.0, 0.0))
        return max(0.0, used - (self._now() - at) * self._refill)


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
        now: Callable[[], float] = time.monotonic,
        program: Path = PROGRAM,
    ) -> None:
        self._marks = marks
        self._clock = clock
        self._limits = limits or Limits()
        self._now = now
        self._program = program
        self._shares = Shares(self._limits.share, self._limits.refill, now)
        self._waiting: dict[str, deque[_Job]] = {}
        self._wake = asyncio.Event()
        self._worker: asyncio.Task[None] | None = None
        self._deadly: set[str] | None = None  # the marks of what ended a process

    async def ask(self, person: str, head: Head, data: bytes) -> tuple[Head, bytes]:
        """What the program answers for a person's file, once those before it are done.

        Raises:
            Unreadable: it cannot be opened; the reason says why.
            StorageError: that it is being opened could not be noted.
        """
        if self._shares.is_used_up(person):
            raise Unreadable("share")
        job = _Job(person, head, data, asyncio.get_running_loop().create_future())
        self._waiting.setdefault(person, deque()).append(job)
        self._wake.set()
        if self._worker is None:
            self._worker = asyncio.create_task(self._work())
        try:
            return await job.done
        finally:
            jobs = self._waiting.get(person, ())
            if job in jobs:  # whoever asked does not wait any more
                self._waiting[person].remove(job)

    async def close(self) -> None:
        """End the process, whatever it is doing."""
        worker = self._worker
        if worker is not None:
            worker.cancel()
            await asyncio.wait([worker])

    async def _work(self) -> None:
        process = _Program(self._program, self._limits)
        try:
            while (job := await self._next()) is not None:
                try:
                    answer = await self._open(process, job)
                except Exception as error:  # noqa: BLE001 - whoever waits is told what it was
                    if not job.done.done():
                        job.done.set_exception(error)
                except asyncio.CancelledError:
                    job.done.cancel()
                    raise
                else:
                    if not job.done.done():
                        job.done.set_result(answer)
        finally:
            self._worker = None
            for jobs in self._waiting.values():
                for job in jobs:
                    job.done.cancel()
            self._waiting.clear()
            await process.end()

    async def _next(self) -> _Job | None:
        """The next file, of the person who waits longest for a turn; None when none come."""
        while True:
            for person in list(self._waiting):
                jobs = self._waiting.pop(person)
                if jobs:
                    job = jobs.popleft()
                    self._waiting[person] = jobs  # at the end: others come first
                    return job
            self._wake.clear()
            try:
                async with asyncio.timeout(self._limits.idle):
                    await self._wake.wait()
            except TimeoutError:
                if not self._waiting:
                    return None

    async def _open(self, program: _Program, job: _Job) -> tuple[Head, bytes]:
        mark, deadly = job.mark, await self._known_deadly()
        if mark in deadly:
            raise Unreadable("deadly")
        if self._shares.is_used_up(job.person):
            raise Unreadable("share")
        began = self._now()
        try:
            # Noted first: what ends the whole program is not opened a second time after its start.
            if self._marks is not None:
                await self._marks.set(mark, str(self._clock()))
            began = self._now()
            head, body = await program.ask(job.head, job.data)
        except Unreadable as error:
            log.warning("file.deadly", task=job.head["task"], reason=error.reason)
            deadly.add(mark)
            raise
        except BaseException:
            await self._forget(mark)
            raise
        finally:
            self._shares.add(job.person, self._now() - began)
        await self._forget(mark)
        if reason := head.get("reason"):
            raise Unreadable(reason)
        return head, body

    async def _forget(self, mark: str) -> None:
        if self._marks is not None:
            await self._marks.forget(mark)

    async def _known_deadly(self) -> set[str]:
        if self._deadly is None:
            found = await self._marks.under(MARK) if self._marks is not None else {}
            oldest = self._clock() - MARKED_MS
            for name, at in found.items():
                if int(at) < oldest:
                    await self._forget(f"{MARK}{name}")
            self._deadly = {f"{MARK}{name}" for name, at in found.items() if int(at) >= oldest}
        return self._deadly


class _Program:
    """The process, as long as there is one."""

    def __init__(self, path: Path, limits: Limits) -> None:
        self._path = path
        self._limits = limits
        self._process: Process | None = None

    async def ask(self, head: Head, data: bytes) -> tuple[Head, bytes]:
        """What becomes of a file.

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
