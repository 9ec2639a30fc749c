"""Google's multilingual universal sentence encoder, version 3: no key, no download.

Its weights and its pieces are read from an installed package (Apache-2.0), whose code is not used:
the encoder is small (`sentence_encoder`), and its table of words is mapped instead of loaded, so
that only what is used of it takes memory. The time of day that an entry begins with is left out: a
sentence encoder takes it for a part of what is said.
Yang et al., "Multilingual Universal Sentence Encoder for Semantic Retrieval", ACL 2020.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import re
import threading
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bot.errors import EmbedderError
from bot.memory.embed import PACKAGE
from bot.memory.embed.installed import Threads, folder_of
from bot.memory.vectors import Vectors, np

if TYPE_CHECKING:
    from bot.memory.embed.sentence_encoder import SentenceEncoder

MODEL = "use-multilingual-3"
DIMS = 512
TABLE = f"{MODEL}.table"  # the file its words are mapped from

FEW = 16  # texts that are not worth more than one thread
WORKERS = min(2, os.cpu_count() or 1)  # threads for many texts; each takes 10 MB more

_CLOCK = re.compile(r"^([-*+]\s+)\d{1,2}:\d\d\s+", re.MULTILINE)
_ENCODER = "bot.memory.embed.sentence_encoder"  # loads numpy, so it is imported when it is used


class MultilingualEmbedder:
    """`bot.memory.embed.Embedder` from files inside an installed package."""

    provider = "multilingual"
    endpoint = ""
    model = f"{MODEL}/without times of day"
    dims = DIMS

    def __init__(self, cache: Path, package: Path | None = None) -> None:
        """`cache` is a folder in which its table is kept, and made anew when it is not there."""
        self._cache = cache
        self._package = package
        self._threads = Threads(WORKERS + 1)  # so that a question waits for no note
        self._lock = threading.Lock()
        self._loaded: SentenceEncoder | None = None

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """One vector of length one for each text.

        Raises:
            EmbedderError: the package's files are missing or damaged, or the table cannot be kept.
        """
        timeless = [_CLOCK.sub(r"\1", text) for text in texts]
        if len(timeless) <= FEW:
            return await self._threads.run(self._embed, timeless)
        parts = [slice(first, None, WORKERS) for first in range(WORKERS)]
        made = await asyncio.gather(
            *(self._threads.run(self._embed, timeless[part]) for part in parts)
        )
        rows = np.empty((len(timeless), DIMS), np.float32)
        for part, some in zip(parts, made, strict=True):
            rows[part] = some
        return rows

    async def close(self) -> None:
        """End its threads and let go of the weights."""
        await self._threads.close()
        self._loaded = None

    def _embed(self, texts: list[str]) -> Vectors:
        return self._model().embed(texts)

    def _model(self) -> SentenceEncoder:
        with self._lock:
            if self._loaded is None:
                self._loaded = _load(self._package or folder_of(PACKAGE), self._cache)
            return self._loaded


def _load(package: Path, cache: Path) -> SentenceEncoder:
    try:
        return importlib.import_module(_ENCODER).read(package, cache)
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        reason = type(error).__name__
        raise EmbedderError(f"the files of {PACKAGE} cannot be read: {reason}") from error
