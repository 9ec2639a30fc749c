"""Google's multilingual universal sentence encoder, version 3: no key, no download.

Its weights and its pieces are read from an installed package (Apache-2.0) whose code is not used.
The package keeps the table of words compressed; it is written once beside the index and mapped, so
that only what is used of it takes memory. The time of day that an entry begins with is left out: a
sentence encoder takes it for a part of what is said.
Yang et al., "Multilingual Universal Sentence Encoder for Semantic Retrieval", ACL 2020.
"""

from __future__ import annotations

import asyncio
import fcntl
import importlib.util
import mmap
import os
import re
import threading
import zipfile
import zlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bot.errors import EmbedderError
from bot.memory.embed import BUILT_IN, PACKAGE
from bot.memory.embed.pieces import Pieces, pieces_of
from bot.memory.vectors import NDArray, Vectors, np
from bot.storage import files

if TYPE_CHECKING:
    from numpy import memmap

MODEL = "use-multilingual-3"
DIMS = 512
TABLE = f"{MODEL}.table"  # the file its words are mapped from
PIECES_FILE = f"{MODEL}.pieces.npz"  # those they are cut into

FEW = 16  # texts that are not worth more than one thread
WORKERS = min(2, os.cpu_count() or 1)  # threads for many texts; each takes 10 MB more
LONGEST = 4_000  # characters of a text that are looked at: it was made for sentences
CHARACTERS = 16_000  # that are cut into pieces at once
TOKENS = 1024  # that go through the layers at once: more take more memory, and are hardly faster

_CLOCK = re.compile(r"^([-*+]\s+)\d{1,2}:\d\d\s+", re.MULTILINE)
_PARTS = 17  # of the table: word n is row n // 17 of part n % 17
_WORDS = 7530  # in each
_SHAPE = (_PARTS * _WORDS, DIMS)
_ROW = 256  # of a layer's values for a token
_ORDERS = ((2, 0), (3, 1), (5, 2))  # tokens that are looked at together, and those before the first
_GAP = 2  # empty rows between texts, so that nothing is seen across their ends
_NOTHING = -1  # what stands there, before every piece


class MultilingualEmbedder:
    """`bot.memory.embed.Embedder` from files inside an installed package."""

    provider = BUILT_IN
    endpoint = ""
    model = f"{MODEL}/without times of day"
    dims = DIMS

    def __init__(self, cache: Path, package: Path | None = None) -> None:
        """`cache` is a folder in which its table is kept, and made anew when it is not there."""
        self._cache = cache
        self._package = package
        self._threads: ThreadPoolExecutor | None = None
        self._waiting: list[tuple[list[str], asyncio.Future[Vectors]]] = []
        self._serving: asyncio.Task[None] | None = None
        self._lock = threading.Lock()
        self._loaded: SentenceEncoder | None = None

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """One vector of length one for each text.

        Raises:
            EmbedderError: the package's files are missing or damaged, or the table cannot be kept.
        """
        timeless = [_CLOCK.sub(r"\1", text) for text in texts]
        if len(texts) <= FEW:
            made = asyncio.get_running_loop().create_future()
            self._waiting.append((timeless, made))
            if self._serving is None or self._serving.done():
                self._serving = asyncio.create_task(self._serve())
            return await made
        parts = await asyncio.gather(*(self._run(timeless[at::WORKERS]) for at in range(WORKERS)))
        rows = np.empty((len(texts), DIMS), np.float32)
        for at, some in enumerate(parts):
            rows[at::WORKERS] = some
        return rows

    async def _serve(self) -> None:
        """Embed what waits, all of it at once: ten short texts cost about as much as two."""
        while self._waiting:
            asked, self._waiting = self._waiting[:FEW], self._waiting[FEW:]
            try:
                rows = await self._run([text for texts, _ in asked for text in texts])
            except Exception as error:  # noqa: BLE001 - told to everyone who asked
                for _, made in asked:
                    if not made.done():
                        made.set_exception(error)
                continue
            end = 0
            for texts, made in asked:
                start, end = end, end + len(texts)
                if not made.done():
                    made.set_result(rows[start:end])

    async def _run(self, texts: list[str]) -> Vectors:
        if self._threads is None:  # one more than many texts take: a question waits for none
            self._threads = ThreadPoolExecutor(WORKERS + 1, thread_name_prefix="confidant-embed")
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._embed, texts)

    async def close(self) -> None:
        """End its threads and let go of the weights; it may be used again."""
        if self._serving is not None:
            await asyncio.wait({self._serving})
        threads, self._threads = self._threads, None
        if threads is not None:
            await asyncio.to_thread(threads.shutdown)
        self._loaded = None

    def _embed(self, texts: list[str]) -> Vectors:
        with self._lock:
            if self._loaded is None:
                self._loaded = load(self._cache, self._package)
            model = self._loaded
        return model.embed(texts)


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

    def __init__(self, weights: dict[str, NDArray[Any]], table: memmap[Any, Any]) -> None:
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
        self._layers = [_Layers(weights, tokens, before) for tokens, before in _ORDERS]
        # The end of the last norm, and what follows the sum over a text, are one product.
        self._out = weights["ln_g"][:, None] * weights["cnn_W"]
        self._out_bias = weights["ln_b"] @ weights["cnn_W"] + weights["cnn_b"]
        self._dense = {name: weights[name] for name in ("d0", "d1", "d2", "d3", "p1", "p3")}

    def encode(self, texts: Sequence[NDArray[np.int32]]) -> Vectors:
        """One vector of length one for the pieces of each text."""
        lengths = np.array([len(text) for text in texts], np.int64)
        starts = _GAP + np.concatenate(([0], np.cumsum(lengths[:-1] + _GAP)))
        every = np.full(int(starts[-1] + lengths[-1]) + _GAP, _NOTHING, np.int64)
        places = [slice(*ends) for ends in zip(starts, starts + lengths, strict=True)]
        for place, text in zip(places, texts, strict=True):
            every[place] = text
        # Pieces come again and again: what is made of one alone is made once. The first is nothing.
        used, which = np.unique(every, return_inverse=True)
        words, projected = self._alone(used)
        seen = [
            layers.seen(projected[:, at * _ROW : (at + 1) * _ROW], which)
            for at, layers in enumerate(self._layers)
        ]
        counts = lengths[:, None].astype(np.float32)
        mean = self._sums(words, which, seen, places) @ self._out
        mean += counts * self._out_bias
        mean /= np.sqrt(counts)
        return self._finished(mean)

    def _alone(self, used: NDArray[np.int64]) -> tuple[Vectors, Vectors]:
        """Each piece's own vector, and what the layers are given of it: zeros for the first."""
        part = used % _PARTS
        words = self._table[used] * self._scale[part, None]
        memory: mmap.mmap = getattr(self._table, "_mmap")  # noqa: B009 - it has no other name
        memory.madvise(mmap.MADV_DONTNEED)  # of what was read: the system has it still
        words += self._low[part, None]
        projected = words @ self._project
        projected += self._project_bias
        _normed(projected, *self._project_norm, self._epsilon)
        projected[0] = 0.0
        return words, projected

    def _sums(
        self,
        words: Vectors,
        which: NDArray[np.intp],
        seen: Sequence[Vectors],
        places: Sequence[slice],
    ) -> Vectors:
        """The sum of each text's rows, normalised: its pieces' words, and what is seen there.

        No row is normalised by itself. Its sums tell by what it is to be multiplied, and a text's
        rows are summed by a product with that.
        """
        width = words.shape[1] + sum(rows.shape[1] for rows in seen)
        totals, squares = (each[which] for each in _moments(words))
        for rows in seen:
            total, of_squares = _moments(rows)
            totals += total
            squares += of_squares
        means = totals / width
        shares = 1.0 / np.sqrt(squares / width - means * means + self._epsilon)
        sums = np.empty((len(places), width), np.float32)
        for text, place in enumerate(places):
            share = shares[place]
            parts = [share @ words[which[place]], *(share @ rows[place] for rows in seen)]
            np.concatenate(parts, out=sums[text])
            sums[text] -= share @ means[place]
        return sums

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


def _moments(rows: Vectors) -> tuple[Vectors, Vectors]:
    """The sum of each row, and that of its squares."""
    return rows.sum(axis=1), np.einsum("ij,ij->i", rows, rows)


class _Layers:
    """Two layers that look at some tokens together, the first of them `before` the row they make.

    Each token is multiplied by its part of the weights, and all of it added up. In the first layer
    that is done once for each piece, however often it comes.
    """

    def __init__(self, weights: dict[str, NDArray[Any]], tokens: int, before: int) -> None:
        self._begin = _GAP - before  # the row of the first token, for the first row after a gap
        (self._first, self._first_bias), (self._second, self._second_bias) = (
            (weights[f"w{n}_{tokens}"].reshape(tokens, _ROW, _ROW), weights[f"b{n}_{tokens}"])
            for n in (1, 2)
        )

    def seen(self, pieces: Vectors, which: NDArray[np.intp]) -> Vectors:
        """What is seen at each place, by what each piece is and which one stands where."""
        values, made = (np.zeros((len(which), _ROW), np.float32) for _ in range(2))
        given, out = values[_GAP:-_GAP], made[_GAP:-_GAP]
        for at, weight in enumerate(self._first, self._begin):
            given += (pieces @ weight)[which[at : at + len(given)]]
        given += self._first_bias
        np.maximum(given, 0.0, out=given)
        given += pieces[which[_GAP:-_GAP]]
        values[which == 0] = 0.0
        for at, weight in enumerate(self._second, self._begin):
            out += values[at : at + len(out)] @ weight
        out += self._second_bias
        np.maximum(out, 0.0, out=out)
        out += given
        return made


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


def load(cache: Path, package: Path | None = None) -> SentenceEncoder:
    """The model of an installed package; its table is kept in a folder.

    Raises:
        EmbedderError: a file is missing or damaged, or the table cannot be kept.
    """
    if package is None:
        found = importlib.util.find_spec(PACKAGE)  # nothing of it is imported
        if found is None or not found.submodule_search_locations:
            raise EmbedderError(f"the package {PACKAGE} is not installed")
        package = Path(next(iter(found.submodule_search_locations)))
    resources = package / "resources"
    try:
        pieces = _pieces(cache / PIECES_FILE, resources / "sp.model")
        with (resources / "weights.npz").open("rb") as raw, np.load(raw) as file:
            weights = {name: file[name] for name in file.files if not name.startswith("q")}
            table = _table(cache / TABLE, file)
        return SentenceEncoder(pieces, _Encoder(weights, table))
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        reason = type(error).__name__
        raise EmbedderError(f"the files of {PACKAGE} cannot be read: {reason}") from error


def _pieces(path: Path, model: Path) -> Pieces:
    """The pieces of a model file, kept beside the table: reading them there takes half a second."""
    names = ("keys", "numbers", "scores", "longest")
    try:
        with np.load(path) as kept:
            keys, numbers, scores, longest = (kept[name] for name in names)
        return Pieces(keys, numbers, scores, int(longest))
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error):
        pieces = pieces_of(model.read_bytes())
    with suppress(OSError):  # a full disk, or another program that makes it: then next time
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with files.made(path) as made:
            np.savez(made, **{name: getattr(pieces, name) for name in names})
    return pieces


def _table(path: Path, file: Any) -> memmap[Any, Any]:
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
