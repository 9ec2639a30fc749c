"""The layers of Google's multilingual universal sentence encoder; numpy is loaded with them.

The package keeps the table of words compressed; it is written once beside the index, and mapped.
"""

from __future__ import annotations

import fcntl
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bot.memory.embed.installed import let_go
from bot.memory.embed.multilingual import DIMS, TABLE
from bot.memory.embed.pieces import Pieces, pieces_of
from bot.memory.vectors import Vectors
from bot.storage import files

LONGEST = 4_000  # characters of a text that are looked at: it was made for sentences
CHARACTERS = 16_000  # that are cut into pieces at once
TOKENS = 512  # that go through the layers at once: what they pass stays in the processor's cache

_PARTS = 17  # of the table: word n is row n // 17 of part n % 17
_WORDS = 7530  # in each
_SHAPE = (_PARTS * _WORDS, DIMS)
_ROW = 256  # of a layer's values for a token
_ORDERS = ((2, 0), (3, 1), (5, 2))  # tokens that are looked at together, and those before the first
_GAP = 2  # empty rows between texts, so that nothing is seen across their ends


class SentenceEncoder:
    """What texts are cut by, and the layers their pieces pass."""

    def __init__(self, pieces: Pieces, encoder: _Encoder) -> None:
        self._pieces = pieces
        self._encoder = encoder

    def embed(self, texts: list[str]) -> Vectors:
        """One vector of length one for each text."""
        made = np.zeros((len(texts), DIMS), np.float32)
        # Texts of about the same length are cut together, and each is put back in its place.
        order = sorted(range(len(texts)), key=lambda at: len(texts[at]))
        start = 0
        while start < len(order):
            end = start + 1
            while end < len(order) and (end - start + 1) * len(texts[order[end]]) <= CHARACTERS:
                end += 1
            places = order[start:end]
            ids = self._pieces.encode([texts[at][:LONGEST] for at in places])
            for some in _within(ids, TOKENS):
                made[places[some]] = self._encoder.encode(ids[some])
            start = end
        return made


class _Encoder:
    """The layers, by their names in the package's file."""

    def __init__(self, weights: dict[str, NDArray[Any]], table: np.memmap[Any, Any]) -> None:
        self._table = table
        self._scale, self._low = weights["scale"], weights["lo"]
        self._epsilon = float(weights["eps"])
        names = [str(tokens) for tokens, _ in _ORDERS]
        self._project = np.concatenate([weights[f"proj{name}"] for name in names], axis=1)
        self._project_bias = np.concatenate([weights[f"proj_b{name}"] for name in names])
        self._project_norm = (
            np.concatenate([weights[f"ln_g{name}"] for name in names]),
            np.concatenate([weights[f"ln_b{name}"] for name in names]),
        )
        self._layers = [
            [(weights[f"w{n}_{name}"], weights[f"b{n}_{name}"]) for n in (1, 2)] for name in names
        ]
        self._norm = (weights["ln_g"], weights["ln_b"])
        self._out, self._out_bias = weights["cnn_W"], weights["cnn_b"]
        self._dense = {name: weights[name] for name in ("d0", "d1", "d2", "d3", "p1", "p3")}

    def encode(self, texts: Sequence[NDArray[np.int32]]) -> Vectors:
        """One vector of length one for the pieces of each text."""
        lengths = np.array([len(text) for text in texts], np.int64)
        starts = _GAP + np.concatenate(([0], np.cumsum(lengths[:-1] + _GAP)))
        every = np.zeros(int(starts[-1] + lengths[-1]) + _GAP, np.int64)
        is_there = np.zeros((len(every), 1), np.float32)
        for start, text in zip(starts.tolist(), texts, strict=True):
            every[start : start + len(text)] = text
            is_there[start : start + len(text)] = 1.0
        seen = np.empty((len(every), DIMS + len(_ORDERS) * _ROW), np.float32)
        words = seen[:, :DIMS]
        part = every % _PARTS
        np.multiply(self._table[every], self._scale[part, None], out=words)
        let_go(self._table)
        words += self._low[part, None]
        projected = words @ self._project
        projected += self._project_bias
        _normed(projected, *self._project_norm, self._epsilon)
        projected *= is_there
        for at, ((tokens, before), layers) in enumerate(zip(_ORDERS, self._layers, strict=True)):
            values = projected[:, at * _ROW : (at + 1) * _ROW]
            for weight, bias in layers:
                together = _beside(values, tokens, before) @ weight
                together += bias
                np.maximum(together, 0.0, out=together)
                together += values
                together *= is_there
                values = together
            seen[:, DIMS + at * _ROW : DIMS + (at + 1) * _ROW] = values
        _normed(seen, *self._norm, self._epsilon)
        edges = np.stack([starts, starts + lengths], axis=1).ravel()
        sums = np.add.reduceat(seen, edges, axis=0)[::2] @ self._out
        counts = lengths[:, None].astype(np.float32)
        sums += counts * self._out_bias
        sums /= np.sqrt(counts)
        return self._finished(sums)

    def _finished(self, mean: Vectors) -> Vectors:
        dense = self._dense
        first = np.maximum(mean @ dense["d0"], 0.0) @ dense["d1"] + mean @ dense["p1"]
        first = np.maximum(first, 0.0)
        second = np.maximum(first @ dense["d2"], 0.0) @ dense["d3"] + first @ dense["p3"]
        rows = np.tanh(second)
        lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows))[:, None]
        return rows / np.maximum(lengths, self._epsilon)


def _normed(rows: Vectors, scale: NDArray[Any], shift: NDArray[Any], epsilon: float) -> None:
    """Layer normalisation, in place."""
    rows -= rows.mean(axis=1, keepdims=True)
    variance = np.einsum("ij,ij->i", rows, rows) / rows.shape[1]
    rows *= (1.0 / np.sqrt(variance + epsilon))[:, None]
    rows *= scale
    rows += shift


def _beside(values: Vectors, tokens: int, before: int) -> Vectors:
    """Each row with those around it, in one."""
    after = tokens - 1 - before
    padded = np.pad(values, ((before, after), (0, 0)))
    shape, (step, inner) = (len(values), tokens * values.shape[1]), padded.strides
    return np.lib.stride_tricks.as_strided(padded, shape, (step, inner), writeable=False)


def _within(ids: Sequence[NDArray[np.int32]], most: int) -> list[slice]:
    """Runs of texts with at most so many pieces; a longer text is one by itself."""
    runs: list[slice] = []
    start = used = 0
    for at, text in enumerate(ids):
        if at > start and used + len(text) > most:
            runs.append(slice(start, at))
            start, used = at, 0
        used += len(text)
    return [*runs, slice(start, len(ids))] if ids else []


def read(package: Path, cache: Path) -> SentenceEncoder:
    """The model of an installed package; its table is kept in a folder.

    Raises:
        OSError: a file cannot be read, or the table not be kept.
        ValueError: one is of another kind, or damaged.
        KeyError: something is missing in one.
        EOFError: one ends too early.
        zipfile.BadZipFile: one is damaged.
        zlib.error: one is damaged.
    """
    resources = package / "resources"
    pieces = pieces_of((resources / "sp.model").read_bytes())
    with (resources / "weights.npz").open("rb") as raw, np.load(raw, allow_pickle=False) as file:
        weights = {name: file[name] for name in file.files if not name.startswith("q")}
        table = _table(cache / TABLE, file)
    return SentenceEncoder(pieces, _Encoder(weights, table))


def _table(path: Path, file: Any) -> np.memmap[Any, Any]:
    """The table of words, mapped; written from the package when it is not there as a whole."""
    if not _is_whole(path):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        beside = path.with_name(f"{path.name}.new")
        files.create(beside)
        with beside.open("r+b") as made:
            fcntl.flock(made, fcntl.LOCK_EX)  # until it is closed; who waits finds it written
            if not _is_whole(path):
                made.truncate(_SHAPE[0] * _SHAPE[1])
                rows = np.memmap(made, np.uint8, "r+", shape=_SHAPE)
                for part in range(_PARTS):
                    rows[part::_PARTS] = file[f"q{part + 1}"]
                rows.flush()
                beside.replace(path)
    return np.memmap(path, np.uint8, "r", shape=_SHAPE)


def _is_whole(path: Path) -> bool:
    try:
        return path.stat().st_size == _SHAPE[0] * _SHAPE[1]
    except FileNotFoundError:
        return False
