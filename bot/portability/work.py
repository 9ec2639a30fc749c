"""Work that takes long, in a thread, and ends soon when nobody waits for it any more."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

from bot.errors import ArchiveError

T = TypeVar("T")

Advance = Callable[[int], object]
"""Hears how many bytes more were read or written; what it raises ends the work."""


Copying = Callable[[int, int], None]
"""Hears how many steps of a copy are done, and of how many."""


class Stopped(ArchiveError):
    """It was not done: the program ended meanwhile."""


def unheard(_size: int) -> None:
    """Nobody is told how far it is."""


def nobody(_done: int, _total: int) -> None:
    """Nobody is told how far a copy is."""


async def in_thread(work: Callable[[Advance], T], advance: Advance = unheard) -> T:
    """Run `work` in a thread; when this task is cancelled, it ends before the task does.

    Raises:
        Exception: what `work` raises.
    """
    stopped = threading.Event()

    def step(size: int) -> None:
        if stopped.is_set():
            raise Stopped
        advance(size)

    running = asyncio.ensure_future(asyncio.to_thread(work, step))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        stopped.set()
        await asyncio.wait([running])
        running.exception()  # what came of it is nobody's any more
        raise
