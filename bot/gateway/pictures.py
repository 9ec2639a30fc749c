"""Opens the pictures people send, one at a time, in a process of its own (`decoding.py`).

The process is started for the first picture, ends when none come, and is killed by one that takes
too long. People take turns, and nobody gets more than a share of its time.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
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
from bot.gateway import decoding
from bot.storage.meta import MetaStore

MARK = "picture.opening:"  # in `meta`, with the SHA-256 of a file: it is being opened
MARKED_MS = 30 * 86_400_000  # how long what ended a process is not opened again
_OUT_OF_TIME = int(getattr(signal, "SIGXCPU", 0))  # what ends a process that used up its seconds

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Limits:
    """What opening pictures may take."""

    megabytes: int = 512  # of address space; 16 million pixels of any format take 330
    seconds: int = 6  # of a processor for one picture, and …
    wall: float = 30.0  # … seconds of waiting for it, on a machine that is busy
    idle: float = 60.0  # seconds after the last picture until the process ends
    share: float = 60.0  # seconds one person may use at once …
    refill: float = 0.1  # … and that come back every second


class NotOpened(Exception):
    """A picture was not opened; `reason` is one of the words of `media.why` in `bot.i18n`."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True, eq=False)
class _Job:
    person: str
    data: bytes
    done: asyncio.Future[bytes]


class Shares:
    """How much of the process's time each person has used lately: a bucket that empties slowly."""

    def __init__(self, most: float, refill: float, now: Callable[[], float]) -> None:
        self._most, self._refill, self._now = most, refill, now
        self._used: dict[str, tuple[float, float]] = {}  # seconds, and when that was so

    def is_used_up(self, person: str) -> bool:
        """True when a person has to wait until others had their turn."""
        return self._left(person) >= self._most

    def add(self, person: str, seconds: float) -> None:
        """Count time a person's picture took."""
        self._used[person] = (self._left(person) + seconds, self._now())
        for other in [other for other in self._used if self._left(other) <= 0]:
            del self._used[other]

    def _left(self, person: str) -> float:
        used, at = self._used.get(person, (0.0, 0.0))
        return max(0.0, used - (self._now() - at) * self._refill)


class Pictures:
    """Makes JPEGs that a model can look at of what people send."""

    def __init__(
        self,
        marks: MetaStore,
        clock: Clock,
        limits: Limits | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._marks = marks
        self._clock = clock
        self._limits = limits or Limits()
        self._now = now
        self._shares = Shares(self._limits.share, self._limits.refill, now)
        self._waiting: dict[str, deque[_Job]] = {}
        self._wake = asyncio.Event()
        self._worker: asyncio.Task[None] | None = None
        self._deadly: set[str] | None = None  # the digests of what ended a process

    async def jpeg(self, person: str, data: bytes) -> bytes:
        """A picture of a person as a JPEG, once those before it are done.

        Raises:
            NotOpened: it cannot be shown; the reason says why.
            StorageError: that it is being opened could not be noted.
        """
        if self._shares.is_used_up(person):
            raise NotOpened("share")
        job = _Job(person, data, asyncio.get_running_loop().create_future())
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
        decoder = _Decoder(self._limits)
        try:
            while (job := await self._next(decoder)) is not None:
                try:
                    shown = await self._open(decoder, job)
                except Exception as error:  # noqa: BLE001 - whoever waits is told what it was
                    if not job.done.done():
                        job.done.set_exception(error)
                except asyncio.CancelledError:
                    job.done.cancel()
                    raise
                else:
                    if not job.done.done():
                        job.done.set_result(shown)
        finally:
            self._worker = None
            for jobs in self._waiting.values():
                for job in jobs:
                    job.done.cancel()
            self._waiting.clear()
            await decoder.end()

    async def _next(self, decoder: _Decoder) -> _Job | None:
        """The next picture, of the person who waits longest for a turn; None when none come."""
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

    async def _open(self, decoder: _Decoder, job: _Job) -> bytes:
        digest = hashlib.sha256(job.data).hexdigest()
        if digest in await self._known_deadly():
            raise NotOpened("deadly")
        if self._shares.is_used_up(job.person):
            raise NotOpened("share")
        began = self._now()
        try:
            # Noted first: what ends the whole program is not opened a second time after its start.
            await self._marks.set(f"{MARK}{digest}", str(self._clock()))
            began = self._now()
            verdict, shown = await decoder.ask(job.data)
        except NotOpened as error:
            log.warning("picture.deadly", reason=error.reason)
            (await self._known_deadly()).add(digest)
            raise
        except BaseException:
            await self._marks.forget(f"{MARK}{digest}")
            raise
        finally:
            self._shares.add(job.person, self._now() - began)
        await self._marks.forget(f"{MARK}{digest}")
        if verdict != decoding.SHOWN:
            raise NotOpened("large" if verdict == decoding.LARGE else "damaged")
        return shown

    async def _known_deadly(self) -> set[str]:
        if self._deadly is None:
            found = await self._marks.under(MARK)
            oldest = self._clock() - MARKED_MS
            for digest, at in found.items():
                if int(at) < oldest:
                    await self._marks.forget(f"{MARK}{digest}")
            self._deadly = {digest for digest, at in found.items() if int(at) >= oldest}
        return self._deadly


class _Decoder:
    """The process, as long as there is one."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._process: Process | None = None

    async def ask(self, data: bytes) -> tuple[bytes, bytes]:
        """What became of a picture; see `decoding`.

        Raises:
            NotOpened: it ended the process, or had to be ended with it.
            OSError: no process could be started.
        """
        process = self._process or await self._start()
        self._process = process
        assert process.stdin is not None  # noqa: S101 - both are pipes
        assert process.stdout is not None  # noqa: S101
        try:
            async with asyncio.timeout(self._limits.wall):
                process.stdin.write(decoding.LENGTH.pack(len(data)) + data)
                await process.stdin.drain()
                head = await process.stdout.readexactly(1 + decoding.LENGTH.size)
                size = decoding.LENGTH.unpack(head[1:])[0]
                return head[:1], await process.stdout.readexactly(size)
        except TimeoutError:
            await self.end()
            raise NotOpened("slow") from None
        except (asyncio.IncompleteReadError, ConnectionError):
            ended = await self.end()
            raise NotOpened("slow" if ended == -_OUT_OF_TIME else "deadly") from None
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
            str(Path(decoding.__file__)),
            str(self._limits.megabytes),
            str(self._limits.seconds),
            stdin=PIPE,
            stdout=PIPE,
            stderr=DEVNULL,
            env=environment,
            start_new_session=True,  # an operator's Ctrl-C is for the bot
        )
