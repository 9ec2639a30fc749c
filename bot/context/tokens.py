"""Estimating how many tokens a text is, and counting them where that is possible.

A token is about four characters of an alphabetic script and about one character of a CJK one;
four characters a token for everything would count Chinese at a quarter of what it costs.

`estimate` needs nothing and is what everything pure uses. A `TokenCounter` is nearer to the truth
where tiktoken and its ranks are at hand; nothing is ever downloaded for it.
"""

from __future__ import annotations

import binascii
import hashlib
import importlib
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CHARACTERS_PER_TOKEN = 4
_WIDE = re.compile("[\u2e80-\U0010ffff]+")  # CJK and what comes after it

EXACT = 16_000  # characters; encoding more would hold up everything else
SAMPLES = 8  # pieces of a longer text that are encoded
SAMPLE = EXACT // SAMPLES  # characters of each

Count = Callable[[str], int]
"""About how many tokens a text is: `estimate`, or a `TokenCounter`."""

Encode = Callable[[str], Sequence[int]]
"""Turns a text into tokens."""

ESTIMATE = "estimate"  # the name of the counter that only estimates

_LETTER = r"[^\r\n\p{L}\p{N}]"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_CONTRACTED = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"


@dataclass(frozen=True, slots=True)
class Ranks:
    """A vocabulary as tiktoken keeps it: `file` in its cache, checked by `sha256`.

    `pattern` is how texts are split for it.
    """

    name: str
    file: str
    sha256: str
    pattern: str


# File names and checksums are tiktoken's, as are the patterns, which define the encodings. They
# are given here because tiktoken itself downloads what it does not find.
KNOWN = (
    Ranks(
        "o200k_base",
        "fb374d419588a4632f3f557e76b4b70aebbca790",
        "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
        "|".join(
            (
                rf"{_LETTER}?{_UPPER}*{_LOWER}+{_CONTRACTED}?",
                rf"{_LETTER}?{_UPPER}+{_LOWER}*{_CONTRACTED}?",
                r"\p{N}{1,3}",
                r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
                r"\s*[\r\n]+",
                r"\s+(?!\S)",
                r"\s+",
            )
        ),
    ),
    Ranks(
        "cl100k_base",
        "9b5ad71b2ce5302211f9c61530b329a4922fc6a4",
        "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
        "|".join(
            (
                r"'(?i:[sdmt]|ll|ve|re)",
                rf"{_LETTER}?+\p{{L}}++",
                r"\p{N}{1,3}+",
                r" ?[^\s\p{L}\p{N}]++[\r\n]*+",
                r"\s++$",
                r"\s*[\r\n]",
                r"\s+(?!\S)",
                r"\s",
            )
        ),
    ),
)
_MOST_BYTES = 16_000_000  # of a file of ranks; a larger one is something else


def weight(text: str) -> int:
    """The characters of an alphabetic script that would be about as many tokens as a text."""
    if text.isascii():
        return len(text)
    wide = len(text) - len(_WIDE.sub("", text))
    return len(text) + wide * (CHARACTERS_PER_TOKEN - 1)


def estimate(text: str) -> int:
    """About how many tokens a text is; never less than one for a text that is not empty."""
    return weight(text) // CHARACTERS_PER_TOKEN + 1 if text else 0


class TokenCounter:
    """Counts tokens with an encoding, or estimates them without one; fast, and never fails.

    Long texts are counted by samples: what the estimate got wrong in them, it is assumed to have
    got wrong in all of the text.
    """

    __slots__ = ("_encode", "name")

    def __init__(self, name: str = ESTIMATE, encode: Encode | None = None) -> None:
        self.name = name
        self._encode = encode

    def __call__(self, text: str) -> int:
        """About how many tokens a text is; never less than one for a text that is not empty."""
        if self._encode is None or not text:
            return estimate(text)
        try:
            if len(text) <= EXACT:
                return max(1, len(self._encode(text)))
            pieces = _samples(text)
            counted = sum(len(self._encode(piece)) for piece in pieces)
        except Exception:  # noqa: BLE001 - whatever an encoding stumbles over, a turn must go on
            return estimate(text)
        return max(1, round(estimate(text) * counted / sum(estimate(piece) for piece in pieces)))


def counter(
    environment: Mapping[str, str] | None = None, known: Iterable[Ranks] = KNOWN
) -> TokenCounter:
    """The best counter there is, without asking the network: call it once, off the event loop.

    tiktoken is used when it is installed and one of its files of ranks stands, unharmed, where it
    looks for them. Loading takes a quarter of a second and 80 MB.
    """
    folder = _cache_folder(os.environ if environment is None else environment)
    if folder is not None:
        for ranks in known:
            if (encode := _load(ranks, folder)) is not None:
                return TokenCounter(ranks.name, encode)
    return TokenCounter()


def _samples(text: str) -> list[str]:
    step = (len(text) - SAMPLE) / (SAMPLES - 1)
    starts = [round(number * step) for number in range(SAMPLES)]
    return [text[start : start + SAMPLE] for start in starts]


def _cache_folder(environment: Mapping[str, str]) -> Path | None:
    """Where tiktoken keeps ranks; None when it was told to keep none."""
    for name in ("TIKTOKEN_CACHE_DIR", "DATA_GYM_CACHE_DIR"):
        if (folder := environment.get(name)) is not None:
            return Path(folder) if folder else None
    return Path(tempfile.gettempdir()) / "data-gym-cache"


def _load(ranks: Ranks, folder: Path) -> Encode | None:
    """How texts are encoded with ranks, or None when they cannot be used.

    tiktoken is given the ranks that were checked here: left to find them, it would replace a
    damaged file by a download.
    """
    path = folder / ranks.file
    try:
        if not path.is_file() or path.stat().st_size > _MOST_BYTES:
            return None
        raw = path.read_bytes()
        if hashlib.sha256(raw).hexdigest() != ranks.sha256:
            return None
        tiktoken: Any = importlib.import_module("tiktoken")
        encoding = tiktoken.Encoding(
            ranks.name, pat_str=ranks.pattern, mergeable_ranks=_parse(raw), special_tokens={}
        )
    except Exception:  # noqa: BLE001 - no tiktoken, another version of it, a folder nobody may read
        return None
    encode: Encode = encoding.encode_ordinary
    return encode


def _parse(raw: bytes) -> dict[bytes, int]:
    pairs = (line.split() for line in raw.splitlines() if line)
    return {binascii.a2b_base64(token): int(rank) for token, rank in pairs}
