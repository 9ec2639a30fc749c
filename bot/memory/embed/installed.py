"""What embedders have in common whose model is inside an installed package."""

from __future__ import annotations

import asyncio
import importlib.util
import mmap
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bot.errors import EmbedderError
from bot.memory.vectors import Vectors

if TYPE_CHECKING:
    import numpy as np


def folder_of(package: str) -> Path:
    """Where a package is; nothing of it is imported.

    Raises:
        EmbedderError: it is not installed.
    """
    found = importlib.util.find_spec(package)
    if found is None or not found.submodule_search_locations:
        raise EmbedderError(f"the package {package} is not installed")
    return Path(next(iter(found.submodule_search_locations)))


def let_go(mapped: np.memmap[Any, Any]) -> None:
    """Take no memory for what was read of a mapped file: the system has it still.

    It maps more than is read, so some hundred rows of a table would be the whole of it.
    """
    memory: mmap.mmap = getattr(mapped, "_mmap")  # noqa: B009 - numpy has no other name for it
    memory.madvise(mmap.MADV_DONTNEED)


class Threads:
    """Threads in which a model works beside the event loop; made when they are first needed."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._pool: ThreadPoolExecutor | None = None

    async def run(self, work: Callable[[list[str]], Vectors], texts: Sequence[str]) -> Vectors:
        """Have the work done in the next one that is free."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._count, thread_name_prefix="confidant-embed")
        return await asyncio.get_running_loop().run_in_executor(self._pool, work, list(texts))

    async def close(self) -> None:
        """End them; they may be used again."""
        pool, self._pool = self._pool, None
        if pool is not None:
            await asyncio.to_thread(pool.shutdown)
