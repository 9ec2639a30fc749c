"""Notices while it happens that something holds the event loop, and logs where.

Nobody is answered while the loop is held. A thread sees that a beat of the loop is late and logs
the stack of the loop's thread: files, lines and functions, never values.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
import traceback
from collections import deque
from itertools import takewhile
from pathlib import PurePath
from types import FrameType
from typing import Self

import structlog

from bot.metrics import Metrics

BEAT_SECONDS = 0.25  # between two beats of the loop, and two looks of the thread
HELD_SECONDS = 0.5  # longer than this and people notice
AGAIN_SECONDS = 60.0  # between two stacks in the log; what came between is counted
LATELY_SECONDS = 300.0
MOST_FRAMES = 24  # of one stack, the innermost
PARTS = 3  # of a file's path: enough to find it, without whose machine it is
_LOOP = frozenset({"asyncio.base_events", "asyncio.events", "asyncio.runners"})

log = structlog.get_logger(__name__)


class Watchdog:
    """Watches the loop in which it is entered, for the length of a `with`."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._held: deque[tuple[float, float]] = deque(maxlen=100)  # when each ended, how long
        self._beat = 0.0
        self._thread = threading.get_ident()
        self._ended = threading.Event()
        self._next: asyncio.TimerHandle | None = None
        self._unlogged = 0

    def __enter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._beat = self._loop.time()
        self._go_on()
        threading.Thread(target=self._watch, name="watchdog", daemon=True).start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._ended.set()
        if self._next is not None:
            self._next.cancel()

    def longest(self) -> float:
        """For how many seconds at most the loop was held in one go, in the last five minutes."""
        since = self._loop.time() - LATELY_SECONDS
        return max((seconds for when, seconds in tuple(self._held) if when > since), default=0.0)

    def _late(self) -> float:
        """For how long the loop has not come to its next beat, in seconds."""
        return max(0.0, self._loop.time() - self._beat - BEAT_SECONDS)

    def _go_on(self) -> None:
        self._next = self._loop.call_later(BEAT_SECONDS, self._on_beat)

    def _on_beat(self) -> None:
        late = self._late()
        self._beat = self._loop.time()
        self._metrics.loop_lag.set(late)
        if late > HELD_SECONDS:
            self._held.append((self._beat, late))
            self._metrics.loop_held.observe(late)
        self._go_on()

    def _watch(self) -> None:
        """In its own thread: log each time the loop is held, once, while it is."""
        told, logged = 0.0, -AGAIN_SECONDS  # the beat it was told after, and when
        while not self._ended.wait(BEAT_SECONDS):
            beat, late = self._beat, self._late()
            if late <= HELD_SECONDS or beat == told:
                continue
            frame = sys._current_frames().get(self._thread)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
            stack = stack_of(frame)
            del frame  # it keeps alive what it has
            if beat != self._beat or not stack:  # it is over; or the whole machine was asleep
                continue
            told = beat
            if time.monotonic() - logged < AGAIN_SECONDS:
                self._unlogged += 1
                continue
            logged = time.monotonic()
            log.warning("loop.held", seconds=round(late, 1), before=self._unlogged, at=stack)
            self._unlogged = 0


def stack_of(frame: FrameType | None) -> list[str]:
    """The stack of a thread inside its loop, the innermost first; empty while it waits for work."""
    inner = [each for each, _ in takewhile(_is_ours, traceback.walk_stack(frame))] if frame else []
    if not inner or inner[-1].f_globals.get("__name__") == "selectors":
        return []
    return [
        f"{'/'.join(PurePath(each.f_code.co_filename).parts[-PARTS:])}:{each.f_lineno} "
        f"{each.f_code.co_name}"
        for each in inner[:MOST_FRAMES]
    ]


def _is_ours(at: tuple[FrameType, int]) -> bool:
    """False for the loop's own frames, which are around every step."""
    return at[0].f_globals.get("__name__") not in _LOOP
