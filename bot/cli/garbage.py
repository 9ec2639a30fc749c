"""When Python looks for garbage: not while the program loads, and later not in what was loaded.

A full look at every module and type takes 0.15 s in which nobody is answered, and under load it
came every 400 turns. And how the C library keeps freed memory: with a pool for each of twenty
threads, as it would by itself, the program takes 10 MB more.
"""

from __future__ import annotations

import ctypes
import gc
from contextlib import suppress

NEW_OBJECTS = 10_000  # made and not freed since the last look; Python waits for 700
POOLS = 2  # of memory for all threads together
_M_ARENA_MAX = -8  # from glibc's malloc.h


def hold() -> None:
    """Do not look until `settle`: loading makes next to no garbage."""
    gc.disable()
    _allocator("mallopt", _M_ARENA_MAX, POOLS)


def settle() -> None:
    """Look from now on, and only at what is made from now on."""
    _allocator("malloc_trim", 0)
    gc.freeze()
    gc.set_threshold(NEW_OBJECTS)
    gc.enable()


def _allocator(name: str, *arguments: int) -> None:
    """Ask something of the C library's allocator, where that is glibc's."""
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None)[name](*arguments)
