"""Cutting text into the pieces a model knows, many texts at once: SentencePiece's unigram model.

A model file of SentencePiece lists its pieces with the logarithm of how likely each is; a text is
cut so that its pieces are the likeliest together (Kudo, "Subword Regularization", ACL 2018). Pieces
are kept as 64-bit hashes of their characters, which is 3 MB for 128 000 of them, and every step
works on all texts of a batch.
"""

from __future__ import annotations

import struct
import unicodedata
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import StringIO

from bot.memory.vectors import NDArray, np

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
        """Which piece begins where: (text, place, length - 1), -1 for none."""
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
    words = unicodedata.normalize("NFKC", text).split()
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
    return _table(text.getvalue(), np.array(lengths), np.array(scores))


def _table(text: str, lengths: NDArray[np.int64], scores: NDArray[np.float32]) -> Pieces:
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
