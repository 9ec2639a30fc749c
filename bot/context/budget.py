"""The size of the window and how it is shared out. Pure.

This is the one place that says so; what is due at which share, `bot.upkeep.active_session` says.

The figures are those of a window of 200 000 tokens (20 000 kept free, memories saved 4 000 before
that); small windows scale them down, so that 16 000 tokens converse instead of compacting with
every turn.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Literal, get_args

from bot.config import ContextConfig
from bot.i18n import text

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
