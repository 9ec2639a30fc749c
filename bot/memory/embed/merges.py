"""Cutting text into the pieces a model knows: byte-pair encoding, as Llama 2's tokenizer has it.

The pieces of a word are joined two at a time, whichever pair was learned first, until none is known
(Sennrich et al., "Neural Machine Translation of Rare Words with Subword Units", ACL 2016). Of
32 000 pieces and 61 000 pairs half a megabyte is kept, where the package they were made with keeps
17, and words that come again and again are cut once.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

SPACE = "\u2581"  # what these tokenizers write for a space
MAX_WORDS = 8_000  # kept with their pieces, in about 1.5 MB
LONGEST = 256  # smallest pieces of a word; what is longer is cut there

_MOST_PIECES = 1 << 16
_NO_PAIR = 1 << 32
_BYTE = "<0x{:02X}>"  # the piece of a byte, for characters that are no piece themselves
# No piece goes on behind the end of a word or of a line, so each is cut by itself.
_WORDS = re.compile(f"{SPACE}*[^{SPACE}\n]+|{SPACE}+|\n+")
_CROSSES = re.compile(f"[^{SPACE}\n][{SPACE}\n]|\n[^\n]")


class Merges:
    """The pieces of a model, and which two become which one."""

    def __init__(
        self, pieces: Mapping[str, int], pairs: Sequence[str], marks: Iterable[str]
    ) -> None:
        """Take pieces with their numbers, pairs in the order they count, and marks kept whole.

        Raises:
            ValueError: they are not as Llama's.
            KeyError: a pair is of pieces that are not there.
        """
        if not pieces or max(*pieces.values(), len(pairs)) >= _MOST_PIECES:
            raise ValueError("there are too many pieces, or none")
        if any(_CROSSES.search(piece) for piece in pieces):
            raise ValueError("a piece is of several words")
        self._characters = {piece: number for piece, number in pieces.items() if len(piece) == 1}
        self._bytes = [pieces[_BYTE.format(byte)] for byte in range(256)]
        self._marks = {mark: _packed([pieces[mark]]) for mark in marks}
        self._marked = re.compile(f"({'|'.join(map(re.escape, self._marks)) or '(?!)'})")
        self._pairs, self._ranked = _table(pieces, pairs)
        self._known: dict[str, bytes] = {}
        self._older: dict[str, bytes] = {}

    def encode(self, text: str) -> NDArray[np.uint16]:
        """The numbers of a text's pieces, in order."""
        found: list[bytes] = []
        for at, part in enumerate(self._marked.split(text)):
            if at % 2:
                found.append(self._marks[part])
            elif part:
                words = _WORDS.findall(SPACE + part.replace(" ", SPACE))
                found += [self._known.get(word) or self._cut(word) for word in words]
        return np.frombuffer(b"".join(found), np.uint16)

    def _cut(self, word: str) -> bytes:
        """The pieces of a word, from now on known; what was not asked for long is forgotten."""
        if len(self._known) >= MAX_WORDS // 2:
            self._known, self._older = {}, self._known
        if (known := self._older.get(word)) is not None:
            self._known[word] = known
            return known
        letters = list(self._letters(word))
        if len(letters) > LONGEST:
            parts = (letters[at : at + LONGEST] for at in range(0, len(letters), LONGEST))
            return b"".join(_packed(self._joined(part)) for part in parts)
        pieces = _packed(self._joined(letters))
        self._known[word] = pieces
        return pieces

    def _letters(self, word: str) -> Iterator[int]:
        """The smallest pieces of a word: characters, or the bytes of one that is no piece."""
        for character in word:
            number = self._characters.get(character)
            if number is not None:
                yield number
            else:
                yield from (self._bytes[byte] for byte in character.encode("utf-8", "replace"))

    def _joined(self, pieces: list[int]) -> list[int]:
        """The pieces after every pair that was learned is one."""
        pairs = [self._pair(left, right) for left, right in pairwise(pieces)]
        while pairs and (first := min(pairs)) != _NO_PAIR:
            at = pairs.index(first)
            pieces[at : at + 2] = [first % _MOST_PIECES]
            del pairs[at]
            if at < len(pairs):
                pairs[at] = self._pair(pieces[at], pieces[at + 1])
            if at:
                pairs[at - 1] = self._pair(pieces[at - 1], pieces[at])
        return pieces

    def _pair(self, left: int, right: int) -> int:
        """When two pieces are joined, and to which one: the less the earlier."""
        pair = left << 16 | right
        at = bisect_left(self._pairs, pair)
        is_known = at < len(self._pairs) and self._pairs[at] == pair
        return self._ranked[at] if is_known else _NO_PAIR


def merges_of(tokenizer: bytes) -> Merges:
    """The pieces of a `tokenizer.json` as Llama 2 has it.

    Raises:
        ValueError: it is another kind of tokenizer.
        KeyError: something is missing in it.
        TypeError: something in it is of another kind.
    """
    described: Any = orjson.loads(tokenizer)
    model = described["model"]
    if model["type"] != "BPE" or not model["byte_fallback"] or described["pre_tokenizer"]:
        raise ValueError("it is no tokenizer of that kind")
    marks = [mark["content"] for mark in described["added_tokens"]]
    return Merges(model["vocab"], model["merges"], marks)


def _packed(numbers: list[int]) -> bytes:
    return array("H", numbers).tobytes()


def _table(pieces: Mapping[str, int], pairs: Sequence[str]) -> tuple[array[int], array[int]]:
    """Both pieces of each pair as one number, in order; and its rank with what it becomes."""
    both, ranked = array("I"), array("I")
    for rank, pair in enumerate(pairs):
        left, _, right = pair.partition(" ")
        both.append(pieces[left] << 16 | pieces[right])
        ranked.append(rank << 16 | pieces[left + right])
    keys, values = (np.frombuffer(each, np.uint32) for each in (both, ranked))
    order = np.argsort(keys)
    return array("I", keys[order].tobytes()), array("I", values[order].tobytes())
