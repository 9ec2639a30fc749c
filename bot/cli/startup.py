"""Settings for a fast, small start: garbage collector, glibc's allocator, structlog.

A full collection over every module and type takes 0.15 s in which nobody is answered, and under
load one came every 400 turns. With an arena for each of twenty threads, glibc's default, the
program takes 10 MB more. Where rich is installed, structlog imports it, and pygments with it: 4 MB
and a tenth of the start, for coloured tracebacks that are never shown. Commands that print tables
load rich themselves.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
from contextlib import suppress

from bot.imports import without

NEW_OBJECTS = 10_000  # made and not freed since the last collection; Python's default is 700
POOLS = 2  # malloc arenas for all threads together
_M_ARENA_MAX = -8  # from glibc's malloc.h


def load_log() -> None:
    """Load structlog without rich; call it before anything else loads it."""
    with without("rich"):
        importlib.import_module("structlog")


def hold() -> None:
    """Collect no garbage until `settle`: loading makes next to none."""
    gc.disable()
    _allocator("mallopt", _M_ARENA_MAX, POOLS)


def settle() -> None:
    """Collect garbage from now on, among what is made from now on."""
    _allocator("malloc_trim", 0)
    gc.freeze()
    gc.set_threshold(NEW_OBJECTS)
    gc.enable()


def _allocator(name: str, *arguments: int) -> None:
    """Call a function of the C library's allocator, where that is glibc's."""
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None)[name](*arguments)
