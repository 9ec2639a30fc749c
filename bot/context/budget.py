"""Tokens of a text, the size of the window, and how it is shared out. Pure.

A token is about four characters of an alphabetic script and about one character of a CJK one; four
characters a token for everything would count Chinese at a quarter of what it costs. `estimate`
needs nothing and is what everything pure uses. A `TokenCounter` is nearer to the truth where
tiktoken's ranks are at hand; nothing is ever downloaded for it.

This is the one place that shares the window out; what is due at which share,
`bot.upkeep.active_session` says. The figures are those of a window of 200 000 tokens (20 000 kept
free, memories saved 4 000 before that); small windows scale them down, so that 16 000 tokens
converse instead of compacting with every turn.
"""

from __future__ import annotations

import binascii
import hashlib
import importlib
import io
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from pathlib import Path
from types import FunctionType
from typing import Annotated, Any, Final, Literal, TypeVar, cast, get_args

import orjson
from pydantic import Field, TypeAdapter, ValidationError

from bot.config import ContextConfig
from bot.i18n import text
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


# --- the window -----------------------------------------------------------------------------------


DEFAULT_WINDOW = 200_000  # tokens, when neither the service nor the configuration knows
SMALL = 32_000  # a window of less is worth a warning
NARROW = 16_000  # a window of less has a short prompt
TOO_SMALL = 4_000  # a window of less is refused

# The most that each may take of a window.
RESERVE_PART = 4  # a quarter
OUTPUT_PART = 4
KEEP_RECENT_PART = 6
SOFT_PART = 15  # of what is left beside the reserve: a twentieth of a small window
SPARE_PART = 2  # of the reserve, for a reply in a full window: the rest is room to go on meanwhile


@dataclass(frozen=True, slots=True)
class Window:
    """The size of a model's window: `tokens` are used of the `reported` ones.

    `source` says who reported them; `capped` that the configuration lets less of them be used.
    """

    tokens: int
    reported: int
    source: Literal["service", "config", "default"]
    capped: bool

    @property
    def is_small(self) -> bool:
        """True when conversations will be short in it."""
        return self.tokens < SMALL

    @property
    def wants_short(self) -> bool:
        """True when the usual beginning of a prompt would leave little room in it."""
        return self.tokens < NARROW

    @property
    def is_too_small(self) -> bool:
        """True when it is too small to converse in."""
        return self.tokens < TOO_SMALL


@dataclass(frozen=True, slots=True)
class Budget:
    """A window shared out, in tokens; `flush_from <= compact_above < hard < window`.

    Attributes:
        window: all of it.
        output: the longest reply to ask for; where that does not fit any more, `window - hard`.
        reserve: what is kept free for the reply and what comes with it.
        compact_above: with more than this a conversation is full.
        flush_from: with this or more, memories are saved; 0 when that is never.
        keep_recent: how much of the latest messages a compaction leaves whole.
        hard: with more than this no request can be sent that leaves room for its reply. From
            `compact_above` to here a conversation goes on while its summary is being written.
    """

    window: int
    output: int
    reserve: int
    compact_above: int
    flush_from: int
    keep_recent: int
    hard: int


def resolve(
    reported: int,
    config: ContextConfig,
    model: str,
    *,
    configured: int = 0,
    assumed: int = DEFAULT_WINDOW,
) -> Window:
    """The window of a model whose service reported so many tokens; 0 when it did not.

    What the operator says of a model, or `configured` for all of its service, counts more: a server
    between may report anything. Where nobody says anything, it is `assumed`.
    """
    source: Literal["service", "config", "default"]
    said = config.windows.get(model, 0) or config.windows.get(model.partition("/")[2], 0)
    if (told := max(0, said) or configured) > 0:
        window, source = told, "config"
    elif reported > 0:
        window, source = reported, "service"
    else:
        window, source = assumed, "default"
    used = min(window, config.context_tokens)
    return Window(used, window, source, capped=used < window)


def budget(window: int, config: ContextConfig, max_output: int) -> Budget:
    """The shares of a window of so many tokens, for replies of at most `max_output`."""
    output = min(max_output, window // OUTPUT_PART)
    # A reply longer than the reserve needs its room all the same: what is full can still be sent.
    reserve = max(output, min(config.compaction.reserve_tokens, window // RESERVE_PART))
    full = window - reserve
    return Budget(
        window=window,
        output=output,
        reserve=reserve,
        compact_above=full,
        flush_from=full - min(config.memory_flush_soft_tokens, full // SOFT_PART),
        keep_recent=min(config.compaction.keep_recent_tokens, window // KEEP_RECENT_PART),
        hard=window - min(output, max(1, reserve // SPARE_PART)),
    )


def percent_full(used: int, shares: Budget) -> int:
    """The fill of a conversation in percent, rounded down and never more than 100."""
    if shares.compact_above <= 0:
        return 100
    return min(100, max(0, used) * 100 // shares.compact_above)


# What fills a conversation's window, in words. Pure.

PartName = Literal["persona", "tools", "memory", "summary", "history", "tool_results", "other"]
ORDER: tuple[PartName, ...] = get_args(PartName)

FILES: tuple[PartName, ...] = ("persona", "memory", "history")  # what is made of them

MOST_DETAILS = 12  # of one part; the rest are told of together
BRIEF = 3  # parts that a notice names

WIDTH = 20  # characters of a bar
_FULL, _FREE = "█", "░"
_THIN_SPACE = "\u202f"  # no line breaks at it


@dataclass(frozen=True, slots=True)
class Part:
    """Something that fills the window; `detail` names what it is made of, with its tokens."""

    name: PartName
    tokens: int
    detail: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Report:
    """The fill of a conversation, and what makes it up.

    `used` is what counts, `measured` when the model's service counted it. The parts are estimates;
    `fitted` makes them add up to it.
    """

    parts: tuple[Part, ...]
    used: int
    budget: Budget
    window: Window
    model: str
    measured: bool

    @property
    def percent(self) -> int:
        """The fill in percent: above 100 the older part becomes a summary."""
        return percent_full(self.used, self.budget)

    def fitted(self) -> tuple[Part, ...]:
        """Every part once and in order, together exactly `used`."""
        return fit(self.parts, self.used)

    def percents(self) -> dict[PartName, int]:
        """The percentage of each part; together they are `percent`."""
        parts = self.fitted()
        shares = _scaled([part.tokens for part in parts], self.percent)
        return {part.name: share for part, share in zip(parts, shares, strict=True)}


def fit(parts: Iterable[Part], used: int) -> tuple[Part, ...]:
    """Parts that add up to `used` tokens, one of each name, in order.

    What the parts don't explain is "other"; parts that explain too much are scaled down. A part's
    details never add up to more than the part.
    """
    tokens: dict[PartName, int] = dict.fromkeys(ORDER, 0)
    details: dict[PartName, tuple[tuple[str, int], ...]] = dict.fromkeys(ORDER, ())
    for part in parts:
        tokens[part.name] += max(0, part.tokens)
        details[part.name] += tuple((name, max(0, size)) for name, size in part.detail)
    used = max(0, used)
    sizes = list(tokens.values())
    if sum(sizes) > used:
        sizes = _scaled(sizes, used)
    else:
        sizes[ORDER.index("other")] += used - sum(sizes)
    return tuple(
        Part(name, size, _within(details[name], size))
        for name, size in zip(ORDER, sizes, strict=True)
    )


def bar(percent: int) -> str:
    """A bar of `WIDTH` characters: empty only for nothing, full only from 100 on."""
    blocks = min(max(percent, 0), 100) * WIDTH // 100
    blocks = max(blocks, 1) if percent > 0 else blocks
    return _FULL * blocks + _FREE * (WIDTH - blocks)


def grouped(number: int) -> str:
    """A number as people read it: 12 345, with thin spaces."""
    return f"{number:,}".replace(",", _THIN_SPACE)


def brief(report: Report, language: str) -> str:
    """The parts that fill the most, in a few words."""
    largest = sorted(report.fitted(), key=lambda part: -part.tokens)[:BRIEF]
    percents = report.percents()
    return text(language, "context.comma").join(
        text(
            language,
            "context.brief",
            name=text(language, f"context.part.{part.name}"),
            percent=percents[part.name],
        )
        for part in largest
        if percents[part.name]
    )


def lines(report: Report, language: str, more: str = "") -> list[str]:
    """The report as Markdown.

    With `more`, "list" adds the files and attachments that parts are made of, "detail" all that
    they are made of and how the window is used.
    """
    named = ORDER if more == "detail" else FILES if more == "list" else ()
    shares, window = report.budget, report.window
    limit = grouped(shares.compact_above)
    percent, percents = report.percent, report.percents()
    found = [
        text(language, "context.full", percent=percent, used=grouped(report.used), limit=limit),
        f"`{bar(percent)}`",
    ]
    for part in report.fitted():
        if part.tokens:
            name, size = text(language, f"context.part.{part.name}"), grouped(part.tokens)
            share = percents[part.name]
            found.append(text(language, "context.line", name=name, tokens=size, percent=share))
            found += _details(part, language) if part.name in named else []
    found.append("")
    found.append(text(language, "context.measured" if report.measured else "context.estimated"))
    if more != "detail":
        return found
    reported, used = grouped(window.reported), grouped(window.tokens)
    found += [
        text(language, "context.then", limit=limit),
        text(
            language,
            "context.shares",
            flush_from=grouped(shares.flush_from),
            keep_recent=grouped(shares.keep_recent),
            output=grouped(shares.output),
        ),
        text(language, "context.model", model=_code(report.model), window=used),
        text(language, f"context.source.{window.source}", reported=reported),
    ]
    if window.capped:
        found.append(text(language, "context.capped", window=used))
    if window.is_small:
        found.append(text(language, "context.small"))
    return found


def _details(part: Part, language: str) -> list[str]:
    largest = sorted(part.detail, key=lambda each: (-each[1], each[0]))
    shown, rest = largest[:MOST_DETAILS], largest[MOST_DETAILS:]
    found = [
        text(language, "context.inner", name=_code(name), tokens=grouped(size))
        for name, size in shown
    ]
    if rest:
        together = grouped(sum(size for _, size in rest))
        found.append(text(language, "context.more", count=len(rest), tokens=together))
    return found


def _code(name: str) -> str:
    """A name as it may stand between backticks."""
    return " ".join(name.replace("`", "'").split()) or "?"


def _within(detail: tuple[tuple[str, int], ...], most: int) -> tuple[tuple[str, int], ...]:
    sizes = [size for _, size in detail]
    if sum(sizes) <= most:
        return detail
    return tuple((name, size) for (name, _), size in zip(detail, _scaled(sizes, most), strict=True))


def _scaled(sizes: Sequence[int], total: int) -> list[int]:
    """Whole numbers in about the same proportion that add up to `total`; none for no sizes."""
    whole = sum(sizes) or 1
    found = [size * total // whole for size in sizes]
    # What rounding down left over goes to those that lost the most by it.
    losses = sorted(range(len(sizes)), key=lambda i: (-(sizes[i] * total % whole), i))
    for index in losses[: total - sum(found)]:
        found[index] += 1
    return found


SIZE = (880, 248)  # pixels
BAR = (32, 112, 848, 172)  # left, top, right, bottom; right and bottom are the first pixels outside
MARKS = (70, 85)  # percent: where a person is told
MAX_PERCENT = 999

# The squares every chat can show, and colours after Okabe and Ito, which people tell apart whatever
# colours they see; the brown is darker than theirs, to stand off from the orange.
COLOURS = (
    ("\u2b1b", "#1b1b1b"),
    ("\U0001f7e6", "#0072b2"),
    ("\U0001f7e9", "#009e73"),
    ("\U0001f7e8", "#f0e442"),
    ("\U0001f7e7", "#e69f00"),
    ("\U0001f7e5", "#d5482a"),
    ("\U0001f7ea", "#b377c9"),
    ("\U0001f7eb", "#7a4a24"),
)
PAPER, FREE, INK, SOFT = "#ffffff", "#e6e4df", "#22252a", "#5f646d"

_GAP = 2  # pixels of paper between two parts


def legend(parts: Sequence[tuple[str, int]]) -> list[str]:
    """The square of each part, in its order; from the eighth on they share one."""
    return [COLOURS[_colour(index)][0] for index in range(len(parts))]


def spans(parts: Sequence[tuple[str, int]], limit: int) -> list[tuple[int, int]]:
    """The start and end of each part in the bar, in pixels from its left end.

    Rounding is done on the running sum, so no error adds up; what goes beyond `limit` is cut off.
    """
    room, whole = BAR[2] - BAR[0], max(1, limit)
    sums = accumulate((max(0, tokens) for _, tokens in parts), initial=0)
    ends = [min(room, (2 * total * room + whole) // (2 * whole)) for total in sums]
    return list(pairwise(ends))


def draw(parts: Sequence[tuple[str, int]], limit: int, percent: int) -> bytes:
    """A PNG of how full a conversation is; the same bytes for the same values.

    It takes some 20 ms, so it belongs into a thread.

    Args:
        parts: what fills it, each a name and its tokens, in the order they are drawn.
        limit: tokens the whole bar stands for.
        percent: how full it is, as it is to be read.
    """
    from PIL import Image, ImageDraw, ImageFont  # noqa: PLC0415 - only /context needs it

    image = Image.new("RGB", SIZE, PAPER)
    pen = ImageDraw.Draw(image)
    left, top, right, bottom = BAR
    pen.rectangle((left, top, right - 1, bottom - 1), fill=FREE)
    for index, (start, end) in enumerate(spans(parts, limit)):
        if end > start:
            box = (left + start, top, left + end - 1, bottom - 1)
            pen.rectangle(box, fill=COLOURS[_colour(index)][1])
            if start and end - start > 2 * _GAP:
                pen.rectangle((box[0], top, box[0] + _GAP - 1, bottom - 1), fill=PAPER)

    small, large = ImageFont.load_default(30), ImageFont.load_default(64)
    shown = f"{min(max(percent, 0), MAX_PERCENT)}%"
    pen.text((left, top - 24), shown, fill=INK, font=large, anchor="ls")
    used = sum(max(0, tokens) for _, tokens in parts)
    most = 10**12  # beyond a trillion numbers say nothing any more
    amounts = f"{min(used, most):,} / {min(max(limit, 0), most):,}".replace(",", " ")
    pen.text((right, top - 24), amounts, fill=SOFT, font=small, anchor="rs")
    for mark in MARKS:
        at = left + (right - left) * mark // 100
        pen.rectangle((at - 1, bottom + 4, at, bottom + 13), fill=SOFT)
        pen.text((at, bottom + 18), f"{mark}%", fill=SOFT, font=small, anchor="mt")
    file = io.BytesIO()
    image.save(file, "PNG", optimize=True)
    return file.getvalue()


def _colour(index: int) -> int:
    return min(index, len(COLOURS) - 1)
