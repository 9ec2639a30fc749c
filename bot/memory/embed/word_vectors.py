"""Vectors of texts from those of their pieces, as WordLlama makes them; numpy is loaded with this.

The mean of the vectors of a text's pieces is its vector; a Chinese word counts as one piece, whose
vector is the mean of its English meanings (`glosses`). The table of vectors is mapped, not loaded.
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
from bot.memory.embed.installed import let_go
from bot.memory.embed.merges import Merges, merges_of
from bot.memory.vectors import Vectors, normalised

MAX_WORDS = 32_000  # kept with their vectors, at most 16 MB
BATCH = 256  # texts; bounds the memory of one call

# Measured in bench/chinese and on questions of our own.
WORD = 10.0  # the length of a Chinese word's vector: what an English word's mostly is
CHARACTER = 0.6  # of that for a single character, which may mean many things

_TENSOR = "embedding.weight"
_TYPES = {"F16": np.dtype("<f2"), "F32": np.dtype("<f4")}


class WordVectors:
    """The pieces that texts are cut into, and a vector for each of them."""

    def __init__(self, merges: Merges, weights: np.memmap[Any, Any]) -> None:
        self._merges = merges
        self._weights = weights
        self.dims = int(weights.shape[1])
        self._chinese = _Chinese(self)
        self._words = _Words()

    def embed(self, texts: list[str]) -> Vectors:
        """One vector of length one for each text; a text without words gets zeros."""
        parts = [self._embed(texts[at : at + BATCH]) for at in range(0, len(texts), BATCH)]
        return np.concatenate(parts) if parts else np.zeros((0, self.dims), np.float32)

    def of_words(self, words: Sequence[str]) -> Vectors:
        """One vector of length one for each word; those of the last ones are kept."""
        return self._words.vectors(words, self.embed)

    def _embed(self, texts: list[str]) -> Vectors:
        """The mean of the vectors of each text's pieces, scaled to length one."""
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

    def __init__(self, model: WordVectors) -> None:
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


def read(tokenizer: Path, weights: Path) -> WordVectors:
    """The vectors of files such as the package has.

    Raises:
        OSError: one cannot be read.
        ValueError: one is of another kind, or damaged.
        KeyError: something is missing in one.
        TypeError: something in one is of another kind.
    """
    return WordVectors(merges_of(tokenizer.read_bytes()), _tensor(weights))


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
