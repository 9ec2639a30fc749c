"""WordLlama's word vectors, read from its installed package: no key, no download, no start-up cost.

The mean of the vectors of a text's tokens is its vector, as WordLlama's own `embed` makes it; a
Chinese word counts as one token, whose vector is the mean of its English meanings (`glosses`).
Its weights are mapped, not loaded, so that only the words that are used take memory; and its Python
package is not imported, because that configures logging for the whole program and takes 0.4 s.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bot.errors import EmbedderError
from bot.memory.embed import chinese, glosses
from bot.memory.embed.glosses import Glosses
from bot.memory.embed.installed import OneThread, folder_of, let_go
from bot.memory.embed.merges import Merges, merges_of
from bot.memory.vectors import Vectors, normalised

PACKAGE = "wordllama"
MODEL = "l2_supercat_256"
MAX_WORDS = 32_000  # kept with their vectors, at most 16 MB
BATCH = 256  # texts; bounds the memory of one call

# Measured in bench/chinese and on questions of our own.
WORD = 10.0  # the length of a Chinese word's vector: what an English word's mostly is
CHARACTER = 0.6  # of that for a single character, which may mean many things

_WEIGHTS = f"weights/{MODEL}.safetensors"
_TOKENIZER = "tokenizers/l2_supercat_tokenizer_config.json"
_TENSOR = "embedding.weight"
_TYPES = {"F16": np.dtype("<f2"), "F32": np.dtype("<f4")}


class LocalEmbedder:
    """`bot.memory.embed.Embedder` from files inside an installed package."""

    provider = "local"
    endpoint = ""

    def __init__(self, folder: Path | None = None) -> None:
        self.model = f"{PACKAGE}/{MODEL}/glosses"
        self._folder = folder
        self._thread = OneThread()
        self._lock = threading.Lock()
        self._loaded: _Model | None = None
        self._words = _Words()

    @property
    def dims(self) -> int:
        """256 once it was used."""
        return self._loaded.dims if self._loaded else 0

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """One vector of length one for each text; a text without words gets zeros.

        Raises:
            EmbedderError: the package's files are missing or damaged.
        """
        return await self._thread.run(self._embed, texts)

    async def close(self) -> None:
        """End its thread and let go of the weights."""
        await self._thread.close()
        self._loaded = None
        self._words = _Words()

    def word_vectors(self, texts: Sequence[str]) -> Vectors:
        """One vector of length one for each word, at once, in whatever thread.

        Raises:
            EmbedderError: the package's files are missing or damaged.
        """
        return self._words.vectors(texts, self._embed)

    def _model(self) -> _Model:
        with self._lock:
            if self._loaded is None:
                self._loaded = _load(self._folder or folder_of(PACKAGE))
            return self._loaded

    def _embed(self, texts: list[str]) -> Vectors:
        model = self._model()
        parts = [model.embed(texts[at : at + BATCH]) for at in range(0, len(texts), BATCH)]
        return np.concatenate(parts) if parts else np.zeros((0, model.dims), np.float32)


class _Model:
    """The pieces that texts are cut into, and a vector for each of them."""

    def __init__(self, merges: Merges, weights: np.memmap[Any, Any]) -> None:
        self._merges = merges
        self._weights = weights
        self.dims = int(weights.shape[1])
        self._chinese = _Chinese(self)

    def embed(self, texts: list[str]) -> Vectors:
        """The mean of the vectors of each text's tokens, scaled to length one."""
        said = {at: text for at, text in enumerate(texts) if not text.isascii()}
        han = {at: runs for at, text in said.items() if (runs := chinese.han_runs(text))}
        rest = [glosses.without_han(text) if at in han else text for at, text in enumerate(texts)]
        sums = self.sums(rest)
        for at, runs in han.items():
            sums[at] += self._chinese.sum(runs)
        return normalised(sums)

    def sums(self, texts: list[str]) -> Vectors:
        """The sum of the vectors of each text's tokens."""
        ids = [self._merges.encode(text) for text in texts]
        sums = np.zeros((len(texts), self.dims), np.float32)
        if not ids:
            return sums
        # Only the rows that are used are widened, each once; then each text adds up its own.
        used, places = np.unique(np.concatenate(ids), return_inverse=True)
        rows = self._weights[np.minimum(used, len(self._weights) - 1)].astype(np.float32)
        let_go(self._weights)
        end = 0
        for at, each in enumerate(ids):
            start, end = end, end + len(each)
            if len(each):
                rows[places[start:end]].sum(axis=0, out=sums[at])
        return sums


class _Chinese:
    """Chinese words, each with a vector made of its meanings."""

    def __init__(self, model: _Model) -> None:
        self._model = model
        self._words = _Words()
        self._lock = threading.Lock()
        self._loaded: Glosses | None = None

    def sum(self, runs: list[str]) -> Vectors:
        """The sum of the vectors of the words in some runs of Chinese characters."""
        words = self._glosses().words_of(runs)
        weights = [CHARACTER if len(word) == 1 else 1.0 for word in words]
        return np.array(weights, np.float32) @ self._words.vectors(words, self._made)

    def _glosses(self) -> Glosses:
        with self._lock:
            if self._loaded is None:
                self._loaded = _dictionary()
            return self._loaded

    def _made(self, words: list[str]) -> Vectors:
        meanings = [self._glosses().meanings(word) for word in words]
        every = normalised(self._model.sums([each for some in meanings for each in some]))
        made = np.zeros((len(words), self._model.dims), np.float32)
        end = 0
        for at, some in enumerate(meanings):
            start, end = end, end + len(some)
            if some:
                made[at] = WORD * every[start:end].mean(axis=0)
        return made


class _Words:
    """The vectors of single words, which come again and again: the last `MAX_WORDS` or fewer."""

    def __init__(self) -> None:
        self._places: dict[str, int] = {}
        self._rows = np.zeros((0, 0), np.float16)
        self._lock = threading.Lock()

    def vectors(self, words: Sequence[str], make: Callable[[list[str]], Vectors]) -> Vectors:
        """One vector for each word; `make` gives those of the new ones."""
        if len(words) > MAX_WORDS:
            return make(list(words))
        with self._lock:
            new = list(dict.fromkeys(word for word in words if word not in self._places))
            if len(self._places) + len(new) > MAX_WORDS:
                self._places.clear()
                new = list(dict.fromkeys(words))
            if new:
                rows = make(new)
                if not len(self._rows):  # those that are never written take no memory
                    self._rows = np.zeros((MAX_WORDS, rows.shape[1]), np.float16)
                first = len(self._places)
                self._rows[first : first + len(new)] = rows
                self._places.update(zip(new, range(first, first + len(new)), strict=True))
            return self._rows[[self._places[word] for word in words]].astype(np.float32)


def _dictionary() -> Glosses:
    try:
        return Glosses.installed()
    except (OSError, ValueError) as error:
        raise EmbedderError(f"the dictionary of Chinese words cannot be read: {error}") from error


def _load(folder: Path) -> _Model:
    try:
        return _Model(merges_of((folder / _TOKENIZER).read_bytes()), _tensor(folder / _WEIGHTS))
    except (OSError, ValueError, KeyError, TypeError) as error:
        reason = type(error).__name__
        raise EmbedderError(f"the files of {PACKAGE} cannot be read: {reason}") from error


def _tensor(path: Path) -> np.memmap[Any, Any]:
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
