"""Estimating how many tokens a text is, and counting them where that is possible.

A token is about four characters of an alphabetic script and about one character of a CJK one;
four characters a token for everything would count Chinese at a quarter of what it costs.

`estimate` needs nothing and is what everything pure uses. A `TokenCounter` is nearer to the truth
where tiktoken's ranks are at hand; nothing is ever downloaded for it.
"""

from __future__ import annotations

import binascii
import hashlib
import importlib
import os
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FunctionType
from typing import Annotated, Any, Final, Literal, TypeVar, cast

import orjson
from pydantic import Field, TypeAdapter, ValidationError

from bot.messages import Message

CHARACTERS_PER_TOKEN = 4
_WIDE = re.compile("[\u2e80-\U0010ffff]+")  # CJK and what comes after it

EXACT = 16_000  # characters; encoding more would hold up everything else
SAMPLES = 8  # pieces of a longer text that are encoded
SAMPLE = EXACT // SAMPLES  # characters of each

Count = Callable[[str], int]
"""About how many tokens a text is: `estimate`, or a `TokenCounter`."""

Encode = Callable[[str], Sequence[int]]
"""Turns a text into tokens."""

Choice = Literal["auto", "tiktoken", "estimate"]
"""The counter to use; "auto" is tiktoken where it has ranks, else the estimate."""

ESTIMATE = "estimate"  # the name of the counter that only estimates

Load = Callable[..., Mapping[bytes, int]]
"""Gives the ranks of `(url, expected_hash=sha256)`, as tiktoken's `load_tiktoken_bpe` does."""

Define = Callable[[Load], Mapping[str, Any]]
"""An encoding as tiktoken defines it: its pattern and its ranks."""

_MOST_BYTES = 16_000_000  # of a file of ranks; a larger one is something else
_DEFINITIONS = "tiktoken_ext.openai_public"  # the module in which tiktoken defines its encodings


def weight(text: str) -> int:
    """The characters of an alphabetic script that would be about as many tokens as a text."""
    if text.isascii():
        return len(text)
    wide = len(text) - len(_WIDE.sub("", text))
    return len(text) + wide * (CHARACTERS_PER_TOKEN - 1)


def estimate(text: str) -> int:
    """About how many tokens a text is; never less than one for a text that is not empty."""
    if not text:
        return 0
    return (len(text) if text.isascii() else weight(text)) // CHARACTERS_PER_TOKEN + 1


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
            step = (len(text) - SAMPLE) / (SAMPLES - 1)
            starts = (round(number * step) for number in range(SAMPLES))
            pieces = [text[start : start + SAMPLE] for start in starts]
            counted = sum(len(self._encode(piece)) for piece in pieces)
        except Exception:  # noqa: BLE001 - whatever an encoding stumbles over, a turn must go on
            return estimate(text)
        return max(1, round(estimate(text) * counted / sum(estimate(piece) for piece in pieces)))


def known(name: str) -> Define:
    """Tiktoken's own definition of an encoding, which gets its ranks from nowhere but `Load`."""

    def define(load: Load) -> Mapping[str, Any]:
        names: Mapping[str, object] = vars(importlib.import_module(_DEFINITIONS))
        own = cast("FunctionType", names[name])  # anything else has no code, and is not used
        # Of its module it sees the texts alone: nothing else of it can be called, so no download.
        texts = {key: value for key, value in names.items() if isinstance(value, str)}
        return FunctionType(own.__code__, {**texts, "load_tiktoken_bpe": load})()

    return define


KNOWN: Mapping[str, Define] = {name: known(name) for name in ("o200k_base", "cl100k_base")}


def counter(
    choice: Choice = "auto",
    environment: Mapping[str, str] | None = None,
    encodings: Mapping[str, Define] = KNOWN,
) -> TokenCounter:
    """The best counter that was chosen, without asking the network: once, off the event loop.

    tiktoken is used when one of its files of ranks stands, unharmed, where it looks for them, but
    not for the choice "estimate". Loading takes a quarter of a second and 80 MB.
    """
    folder = cache_folder(os.environ if environment is None else environment)
    if choice != "estimate" and folder is not None and folder.is_dir():
        for name, define in encodings.items():
            if (encode := _load(name, define, folder)) is not None:
                return TokenCounter(name, encode)
    return TokenCounter()


def cache_folder(environment: Mapping[str, str]) -> Path | None:
    """The folder where tiktoken keeps ranks; None when it was told to keep none."""
    for name in ("TIKTOKEN_CACHE_DIR", "DATA_GYM_CACHE_DIR"):
        if (folder := environment.get(name)) is not None:
            return Path(folder) if folder else None
    return Path(tempfile.gettempdir()) / "data-gym-cache"


def _load(name: str, define: Define, folder: Path) -> Encode | None:
    """The encoder made from checked ranks, or None when they cannot be used.

    tiktoken is given the ranks that were checked here: left to find them, it would replace a
    damaged file by a download.
    """

    def load(url: str, expected_hash: str) -> dict[bytes, int]:
        # The name of a file in its cache is tiktoken's, made from where it comes from.
        path = folder / hashlib.sha1(url.encode(), usedforsecurity=False).hexdigest()
        if not path.is_file() or path.stat().st_size > _MOST_BYTES:
            raise FileNotFoundError(path)
        raw = path.read_bytes()
        if hashlib.sha256(raw).hexdigest() != expected_hash:
            raise ValueError("the ranks are damaged")
        pairs = (line.split() for line in raw.splitlines() if line)
        return {binascii.a2b_base64(token): int(rank) for token, rank in pairs}

    try:
        defined = define(load)
        tiktoken: Any = importlib.import_module("tiktoken")
        encoding = tiktoken.Encoding(
            name,
            pat_str=defined["pat_str"],
            mergeable_ranks=defined["mergeable_ranks"],
            special_tokens={},
        )
    except Exception:  # noqa: BLE001 - another version of tiktoken, a folder nobody may read, …
        return None
    encode: Encode = encoding.encode_ordinary
    return encode


LOW, HIGH = 0.5, 3.0  # times an estimate: what is reported beyond that was counted wrongly
LEAST = 200  # tokens; in fewer, what a service adds to every request would count too much
START = 2_000  # tokens that an estimate is believed for before anything was reported
SAMPLE_CAP = 20_000  # tokens that one report can count for
MEMORY_CAP = 60_000  # tokens that all reports before it count for
MOST_MODELS = 64


def is_plausible(reported: int, estimated: int) -> bool:
    """True for a reported number of tokens that what was sent may well come to."""
    return reported <= HIGH * max(estimated, LEAST)


_Factor = Annotated[float, Field(ge=LOW, le=HIGH)]
_Seen = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_KEPT: Final[TypeAdapter[dict[str, tuple[_Factor, _Seen]]]] = TypeAdapter(
    Annotated[dict[str, tuple[_Factor, _Seen]], Field(max_length=MOST_MODELS)]
)


@dataclass(frozen=True, slots=True)
class ModelFactor:
    """A model's factor, and the tokens it was learned from."""

    factor: float
    seen: float


@dataclass(frozen=True, slots=True)
class Calibration:
    """The factor of estimates for each model."""

    models: Mapping[str, ModelFactor] = field(default_factory=dict[str, ModelFactor])

    def factor(self, model: str) -> float:
        """Reported tokens for each estimated one; 1.0 for a model nothing is known of."""
        learned = self.models.get(model)
        return learned.factor if learned else 1.0

    def learn(self, model: str, estimated: int, reported: int) -> Calibration:
        """This, after a request that was estimated at so many tokens and reported as so many."""
        if min(estimated, reported) < LEAST:
            return self
        ratio = min(max(reported / estimated, LOW), HIGH)
        before = self.models.get(model, ModelFactor(1.0, START))
        counts = min(estimated, SAMPLE_CAP)
        seen = before.seen + counts
        factor = (before.factor * before.seen + ratio * counts) / seen
        others = {name: each for name, each in self.models.items() if name != model}
        while len(others) >= MOST_MODELS:
            del others[next(iter(others))]  # the one that was heard of least recently
        return Calibration({**others, model: _learned(factor, seen)})

    def to_json(self) -> str:
        """As a text to keep."""
        return orjson.dumps({name: [m.factor, m.seen] for name, m in self.models.items()}).decode()


def from_json(raw: str | None) -> Calibration:
    """The calibration that `to_json` wrote; an empty one for anything else."""
    try:
        kept = _KEPT.validate_json(raw or "{}", strict=True)
    except ValidationError:
        return Calibration()
    return Calibration({name: _learned(factor, seen) for name, (factor, seen) in kept.items()})


def _learned(factor: float, seen: float) -> ModelFactor:
    return ModelFactor(min(max(float(factor), LOW), HIGH), min(float(seen), float(MEMORY_CAP)))


# What is made of a conversation's messages again and again, made once of each message.

V = TypeVar("V")


class Folding:
    """Keeps what was made of a conversation's messages, by name, for when more were added.

    It belongs to one conversation and goes with it. Messages that are the same objects as before
    are compared in no time, so a long conversation costs what was said since.
    """

    __slots__ = ("_kept",)

    def __init__(self) -> None:
        self._kept: dict[str, tuple[tuple[Message, ...], Any]] = {}

    def of(
        self,
        name: str,
        messages: tuple[Message, ...],
        begin: Callable[[], V],
        add: Callable[[V, Message], V],
    ) -> V:
        """All messages, added one by one to what it begins with; `add` may change that itself.

        Nobody else may.
        """
        # Taken out, so that what fails in the middle is not gone on with.
        known, made = self._kept.pop(name, ((), None))
        if made is None or messages[: len(known)] != known:
            known, made = (), begin()
        for message in messages[len(known) :]:
            made = add(made, message)
        self._kept[name] = messages, made
        return made
