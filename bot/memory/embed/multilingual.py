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
import struct
import threading
import zipfile
import zlib
from array import array
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bot.errors import EmbedderError
from bot.memory.embed import BUILT_IN, PACKAGE
from bot.memory.vectors import NDArray, Vectors, np
from bot.storage import files
from bot.unicode import normal_form

if TYPE_CHECKING:
    from numpy import memmap


# Cutting text into the pieces a model knows, many texts at once: SentencePiece's unigram model.
#
# A model file of SentencePiece lists its pieces with the logarithm of how likely each is; a text
# is cut so that its pieces are the likeliest together (Kudo, "Subword Regularization", ACL 2018).
# Pieces are kept as 64-bit hashes of their characters, which is 3 MB for 128 000 of them, and
# every step works on all texts of a batch.

UNKNOWN, BEGIN, END = 0, 1, 2
SPACE = "\u2581"  # what SentencePiece writes for a space
LESS_LIKELY = 10.0  # than the least likely piece: a character that no piece has

_FACTOR = 0x9E3779B97F4A7C15
_MIX = 0xBF58476D1CE4E5B9
_SHIFT = 29
_VARINT, _BYTES = 0, 2  # kinds of fields in a protocol buffer
_SIZES = {1: 8, 5: 4}  # of those with a fixed one
_FLOAT = struct.Struct("<f")


@dataclass(frozen=True, slots=True)
class Pieces:
    """The pieces of a model.

    `keys` are the hashes of all their beginnings, in order; `numbers` are those pieces' places in
    the model, or -1 for what is a beginning only; `scores` belong to those places.
    """

    keys: NDArray[np.uint64]
    numbers: NDArray[np.int32]
    scores: NDArray[np.float32]
    longest: int

    def encode(self, texts: Sequence[str]) -> list[NDArray[np.int32]]:
        """The pieces of each text, between a mark of its begin and one of its end."""
        plain = [normalised(text) for text in texts]
        lengths = np.array([len(text) for text in plain], np.int64)
        if not lengths.sum():
            return [np.array([BEGIN, UNKNOWN, END], np.int32) for _ in texts]
        found = self._found(plain, lengths)
        return [
            np.array([BEGIN, *(ids or [UNKNOWN]), END], np.int32)
            for ids in self._likeliest(found, lengths)
        ]

    def _found(self, texts: Sequence[str], lengths: NDArray[np.int64]) -> NDArray[np.int32]:
        """The piece that begins at each (text, place, length - 1), -1 for none."""
        most = int(lengths.max())
        characters = np.zeros((len(texts), most + self.longest), np.uint32)
        for row, text in enumerate(texts):
            characters[row, : len(text)] = np.frombuffer(
                text.encode("utf-32-le", "replace"), np.uint32
            )
        found = np.full((len(texts), most, self.longest), -1, np.int32)
        rows, places = np.nonzero(characters[:, :most])
        hashes = np.zeros(len(rows), np.uint64)
        for length in range(self.longest):
            following = characters[rows, places + length]
            hashes = hashed(hashes, following)
            at = np.minimum(np.searchsorted(self.keys, hashes), len(self.keys) - 1)
            is_known = (self.keys[at] == hashes) & (following > 0)
            rows, places, hashes = rows[is_known], places[is_known], hashes[is_known]
            if not len(rows):
                break
            found[rows, places, length] = self.numbers[at[is_known]]
        return found

    def _likeliest(
        self, found: NDArray[np.int32], lengths: NDArray[np.int64]
    ) -> Iterator[list[int]]:
        """The pieces of each text by which it is likeliest."""
        texts, most, longest = found.shape
        worth = np.where(found >= 0, self.scores[np.maximum(found, 0)], -np.inf).astype(np.float64)
        is_unknown = found[:, :, 0] < 0
        worth[:, :, 0][is_unknown] = float(self.scores.min()) - LESS_LIKELY
        best = np.full((texts, most + longest), -np.inf)
        best[:, 0] = 0.0
        sizes = np.zeros((texts, most + longest), np.int8)  # of the piece that ends there
        steps = np.arange(1, longest + 1, dtype=np.int8)
        for place in range(most):
            reached = best[:, place, None] + worth[:, place]
            ends = best[:, place + 1 : place + 1 + longest]
            width = ends.shape[1]
            is_better = reached[:, :width] > ends
            np.copyto(ends, reached[:, :width], where=is_better)
            np.copyto(sizes[:, place + 1 : place + 1 + longest], steps[:width], where=is_better)
        for row, (length, cuts) in enumerate(zip(lengths.tolist(), sizes.tolist(), strict=True)):
            ids: list[int] = []
            end = int(length)
            while end > 0:
                size = int(cuts[end])
                ids.append(max(UNKNOWN, int(found[row, end - size, size - 1])))
                end -= size
            ids.reverse()
            yield ids


def normalised(text: str) -> str:
    """Text as SentencePiece's "nmt_nfkc" has it: compatible forms made one, spaces marked."""
    words = normal_form("NFKC", text).split()
    return SPACE + SPACE.join(words) if words else ""


def hashed(before: NDArray[np.uint64], following: NDArray[np.uint32]) -> NDArray[np.uint64]:
    """The hash of some characters and one more."""
    mixed = (before + following + 1) * _FACTOR
    mixed ^= mixed >> _SHIFT
    mixed *= _MIX
    return mixed


def pieces_of(model: bytes) -> Pieces:
    """The pieces that a model file of SentencePiece lists.

    Raises:
        ValueError: it is no such file.
    """
    # Not as 128 000 objects, which would leave holes of 30 MB in this process's memory.
    text, lengths, scores = StringIO(), array("q"), array("f")
    for number, value in _fields(model):
        if number != 1:
            continue
        end = 2 + value[1] if len(value) > 2 else 0  # no piece has 128 bytes
        if value[:1] != b"\n" or end > len(value):
            raise ValueError("a piece has no text")
        lengths.append(text.write(value[2:end].decode("utf-8")) if len(lengths) > END else 0)
        has_score = value[end : end + 1] == b"\x15" and len(value) >= end + 5
        scores.append(_FLOAT.unpack_from(value, end + 1)[0] if has_score else 0.0)
    if not text.tell():
        raise ValueError("there are no pieces in it")
    return _piece_table(text.getvalue(), np.array(lengths), np.array(scores))


def _piece_table(text: str, lengths: NDArray[np.int64], scores: NDArray[np.float32]) -> Pieces:
    """The pieces that a text is made of, of these lengths."""
    count, longest = len(lengths), int(lengths.max())
    characters = np.zeros((count, longest), np.uint32)
    codes = np.frombuffer(text.encode("utf-32-le", "replace"), np.uint32)
    characters[np.arange(longest) < lengths[:, None]] = codes
    hashes, whole = np.zeros(count, np.uint64), np.zeros(count, np.uint64)
    beginnings: list[NDArray[np.uint64]] = []
    for length in range(1, longest + 1):
        hashes = hashed(hashes, characters[:, length - 1])
        np.copyto(whole, hashes, where=lengths == length)
        beginnings.append(hashes[lengths > length])
    marks = END + 1
    # A whole piece comes before what only begins with the same characters.
    keys, first = np.unique(np.concatenate([whole[marks:], *beginnings]), return_index=True)
    numbers = np.where(first < count - marks, first + marks, -1).astype(np.int32)
    return Pieces(keys, numbers, scores, longest)


def _fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """The fields of a protocol buffer that are bytes; others are skipped."""
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        kind = tag & 7
        if kind == _BYTES:
            length, at = _varint(message, at)
            yield tag >> 3, message[at : at + length]
            at += length
        elif kind in _SIZES:
            at += _SIZES[kind]
        elif kind == _VARINT:
            _, at = _varint(message, at)
        else:
            raise ValueError("it is no protocol buffer")
    if at > len(message):
        raise ValueError("it ends too early")


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(message) and shift < 64:
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise ValueError("a number does not end")


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
        """`cache` is a folder in which its table is kept, and made again if it is missing."""
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
    """The pieces texts are cut into, and the layers these pass."""

    def __init__(
        self, pieces: Pieces, weights: dict[str, NDArray[Any]], table: memmap[Any, Any]
    ) -> None:
        """`weights` are by their names in the package's file."""
        self._pieces = pieces
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
                made[places[some]] = self._encode(ids[some])
            start = end
        return made

    def _encode(self, texts: Sequence[NDArray[np.int32]]) -> Vectors:
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
        """The layers' output at each place, from each piece's vector and which piece is where."""
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
        return SentenceEncoder(pieces, weights, table)
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
