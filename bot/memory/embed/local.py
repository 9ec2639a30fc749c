"""WordLlama's word vectors, read from its installed package: no key, no download, no start-up cost.

The mean of the vectors of a text's tokens is its vector, as WordLlama's own `embed` makes it, but
for Chinese function words, which are left out.
Its weights are mapped, not loaded, so that only the words that are used take memory; and its Python
package is not imported, because that configures logging for the whole program and takes 0.4 s.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bot.errors import EmbedderError
from bot.memory.vectors import Vectors, normalised
from bot.storage import fulltext

if TYPE_CHECKING:
    from tokenizers import Tokenizer

PACKAGE = "wordllama"
MODEL = "l2_supercat_256"
MAX_WORDS = 32_000  # kept with their vectors, at most 16 MB
BATCH = 256  # texts; bounds the memory of one call

# A Chinese sentence is so short that these would be half of its mean; measured in bench/chinese.
_PUNCTUATION = "，。？！、；：“”‘’（）《》…"
_LITTLE = str.maketrans("", "", "".join(fulltext.FUNCTION_CHARACTERS) + _PUNCTUATION)

_WEIGHTS = f"weights/{MODEL}.safetensors"
_TOKENIZER = "tokenizers/l2_supercat_tokenizer_config.json"
_TENSOR = "embedding.weight"
_TYPES = {"F16": np.dtype("<f2"), "F32": np.dtype("<f4")}


class LocalEmbedder:
    """`bot.memory.embed.Embedder` from files inside an installed package."""

    provider = "local"
    endpoint = ""

    def __init__(self, folder: Path | None = None) -> None:
        self.model = f"{PACKAGE}/{MODEL}/content"
        self._folder = folder
        self._thread: ThreadPoolExecutor | None = None
        self._lock = threading.Lock()
        self._loaded: _Model | None = None
        # Single words come again and again; rows that were never written take no memory.
        self._places: dict[str, int] = {}
        self._rows = np.zeros((0, 0), np.float16)
        self._words_lock = threading.Lock()

    @property
    def dims(self) -> int:
        """256 once it was used."""
        return self._loaded.dims if self._loaded else 0

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """One vector of length one for each text; a text without words gets zeros.

        Raises:
            EmbedderError: the package's files are missing or damaged.
        """
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="confidant-embed")
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, self._embed, list(texts))

    async def close(self) -> None:
        """End its thread and let go of the weights."""
        thread, self._thread = self._thread, None
        if thread is not None:
            await asyncio.to_thread(thread.shutdown)
        self._loaded = None
        self._places.clear()
        self._rows = np.zeros((0, 0), np.float16)

    def word_vectors(self, texts: Sequence[str]) -> Vectors:
        """One vector of length one for each word, at once, in whatever thread.

        Raises:
            EmbedderError: the package's files are missing or damaged.
        """
        if len(texts) > MAX_WORDS:
            return self._embed(list(texts))
        with self._words_lock:
            new = list(dict.fromkeys(text for text in texts if text not in self._places))
            if len(self._places) + len(new) > MAX_WORDS:
                self._places.clear()
                new = list(dict.fromkeys(texts))
            if new:
                rows = self._model().embed(new)
                if not len(self._rows):
                    self._rows = np.zeros((MAX_WORDS, rows.shape[1]), np.float16)
                first = len(self._places)
                self._rows[first : first + len(new)] = rows
                self._places.update(zip(new, range(first, first + len(new)), strict=True))
            return self._rows[[self._places[text] for text in texts]].astype(np.float32)

    def _model(self) -> _Model:
        with self._lock:
            if self._loaded is None:
                self._loaded = _load(self._folder or _package_folder())
            return self._loaded

    def _embed(self, texts: list[str]) -> Vectors:
        model = self._model()
        parts = [model.embed(texts[at : at + BATCH]) for at in range(0, len(texts), BATCH)]
        return np.concatenate(parts) if parts else np.zeros((0, model.dims), np.float32)


class _Model:
    """A tokenizer and a vector for each of its tokens."""

    def __init__(self, tokenizer: Tokenizer, weights: NDArray[Any]) -> None:
        self._tokenizer = tokenizer
        self._weights = weights
        self.dims = int(weights.shape[1])

    def embed(self, texts: list[str]) -> Vectors:
        """The mean of the vectors of each text's tokens, scaled to length one."""
        said = [text if text.isascii() else text.translate(_LITTLE) or text for text in texts]
        encoded = self._tokenizer.encode_batch_fast(said, add_special_tokens=False)
        ids = [each.ids for each in encoded]
        sums = np.zeros((len(texts), self.dims), np.float32)
        # Only the rows that are used are widened, each once; then each text adds up its own.
        used, places = np.unique(
            np.array([i for each in ids for i in each], np.int64), return_inverse=True
        )
        rows = self._weights[np.minimum(used, len(self._weights) - 1)].astype(np.float32)
        end = 0
        for at, each in enumerate(ids):
            start, end = end, end + len(each)
            if each:
                rows[places[start:end]].sum(axis=0, out=sums[at])
        return normalised(sums)


def _package_folder() -> Path:
    found = importlib.util.find_spec(PACKAGE)
    if found is None or not found.submodule_search_locations:
        raise EmbedderError(f"the package {PACKAGE} is not installed")
    return Path(next(iter(found.submodule_search_locations)))


def _load(folder: Path) -> _Model:
    from tokenizers import Tokenizer  # noqa: PLC0415 - only who searches by meaning pays for it

    try:
        tokenizer = Tokenizer.from_file(str(folder / _TOKENIZER))
        tokenizer.no_padding()
        tokenizer.no_truncation()
        return _Model(tokenizer, _tensor(folder / _WEIGHTS))
    except Exception as error:  # the tokenizer raises bare Exceptions
        reason = type(error).__name__
        raise EmbedderError(f"the files of {PACKAGE} cannot be read: {reason}") from error


def _tensor(path: Path) -> NDArray[Any]:
    """A tensor of a safetensors file, mapped: eight bytes of length, a JSON header, the data."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        entry = json.loads(file.read(length))[_TENSOR]
    start, end = entry["data_offsets"]
    kind = _TYPES[entry["dtype"]]
    rows, columns = entry["shape"]
    if end - start != rows * columns * kind.itemsize or path.stat().st_size < 8 + length + end:
        raise ValueError("the tensor is not as long as its header says")
    return np.memmap(path, dtype=kind, mode="r", offset=8 + length + start, shape=(rows, columns))
