"""WordLlama's word vectors, read from its installed package: no key, no download, no start-up cost.

Its weights are mapped, not loaded, so that only the words that are used take memory; and its Python
package is not imported, because that configures logging for the whole program and takes 0.4 s.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bot.errors import EmbedderError
from bot.memory.embed.installed import Threads, folder_of
from bot.memory.vectors import Vectors

if TYPE_CHECKING:
    from bot.memory.embed.word_vectors import WordVectors

PACKAGE = "wordllama"
MODEL = "l2_supercat_256"
TOKENIZER = "tokenizers/l2_supercat_tokenizer_config.json"

_WEIGHTS = f"weights/{MODEL}.safetensors"
_WORD_VECTORS = "bot.memory.embed.word_vectors"  # loads numpy, so it is imported when it is used


class LocalEmbedder:
    """`bot.memory.embed.Embedder` from files inside an installed package."""

    provider = "local"
    endpoint = ""

    def __init__(self, folder: Path | None = None) -> None:
        self.model = f"{PACKAGE}/{MODEL}/glosses"
        self._folder = folder
        self._threads = Threads(1)
        self._lock = threading.Lock()
        self._loaded: WordVectors | None = None

    @property
    def dims(self) -> int:
        """256 once it was used."""
        return self._loaded.dims if self._loaded else 0

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """One vector of length one for each text; a text without words gets zeros.

        Raises:
            EmbedderError: the package's files are missing or damaged.
        """
        return await self._threads.run(lambda texts: self._model().embed(texts), texts)

    async def close(self) -> None:
        """End its thread and let go of the weights."""
        await self._threads.close()
        self._loaded = None

    def word_vectors(self, texts: Sequence[str]) -> Vectors:
        """One vector of length one for each word, at once, in whatever thread.

        Raises:
            EmbedderError: the package's files are missing or damaged.
        """
        return self._model().of_words(texts)

    def _model(self) -> WordVectors:
        with self._lock:
            if self._loaded is None:
                self._loaded = _load(self._folder or folder_of(PACKAGE))
            return self._loaded


def _load(folder: Path) -> WordVectors:
    try:
        module = importlib.import_module(_WORD_VECTORS)
        return module.read(folder / TOKENIZER, folder / _WEIGHTS)
    except (OSError, ValueError, KeyError, TypeError) as error:
        reason = type(error).__name__
        raise EmbedderError(f"the files of {PACKAGE} cannot be read: {reason}") from error
