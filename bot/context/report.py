"""What fills a conversation's window, in words. Pure."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Literal, get_args

from bot.context.budget import Budget, Window, percent_full
from bot.i18n import text

PartName = Literal["persona", "tools", "memory", "summary", "history", "tool_results", "other"]
ORDER: tuple[PartName, ...] = get_args(PartName)

MOST_DETAILS = 12  # of one part; the rest are told of together
BRIEF = 3  # parts that a notice names

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
    """How full a conversation is, and of what.

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
        """How full it is: at more than 100 the older part becomes a summary."""
        return percent_full(self.used, self.budget)

    def fitted(self) -> tuple[Part, ...]:
        """Every part once and in order, together exactly `used`."""
        return fit(self.parts, self.used)


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


def bar(percent: int, width: int = 20) -> str:
    """A bar of `width` characters: empty only for nothing, full only from 100 on."""
    blocks = min(max(percent, 0), 100) * width // 100
    if percent > 0 and width > 1:
        blocks = max(blocks, 1)
    return _FULL * blocks + _FREE * (width - blocks)


def grouped(number: int) -> str:
    """A number as people read it: 12 345, with thin spaces."""
    return f"{number:,}".replace(",", _THIN_SPACE)


def brief(report: Report, language: str) -> str:
    """The parts that fill the most, in a few words."""
    largest = sorted(report.fitted(), key=lambda part: -part.tokens)[:BRIEF]
    return text(language, "context.comma").join(
        text(
            language,
            "context.brief",
            name=text(language, f"context.part.{part.name}"),
            percent=percent_full(part.tokens, report.budget),
        )
        for part in largest
        if percent_full(part.tokens, report.budget)
    )


def lines(report: Report, language: str, detail: bool) -> list[str]:  # noqa: FBT001
    """The report as Markdown; `detail` adds what parts are made of and how the window is used."""
    shares, window = report.budget, report.window
    limit = grouped(shares.compact_above)
    percent = report.percent
    found = [
        text(language, "context.full", percent=percent, used=grouped(report.used), limit=limit),
        f"`{bar(percent)}`",
    ]
    for part in report.fitted():
        if part.tokens:
            found.append(_line(part, report, language))
            found += _details(part, language) if detail else []
    found.append("")
    found.append(text(language, "context.measured" if report.measured else "context.estimated"))
    if not detail:
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


def _line(part: Part, report: Report, language: str) -> str:
    return text(
        language,
        "context.line",
        name=text(language, f"context.part.{part.name}"),
        tokens=grouped(part.tokens),
        percent=percent_full(part.tokens, report.budget),
    )


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
    """Whole numbers in about the same proportion that add up to `total`, which is less."""
    whole = sum(sizes)
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
    """Where each part begins and ends in the bar, in pixels from its left end.

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
    pen.text((right, top - 24), _amounts(used, limit), fill=SOFT, font=small, anchor="rs")
    for mark in MARKS:
        at = left + (right - left) * mark // 100
        pen.rectangle((at - 1, bottom + 4, at, bottom + 13), fill=SOFT)
        pen.text((at, bottom + 18), f"{mark}%", fill=SOFT, font=small, anchor="mt")
    file = io.BytesIO()
    image.save(file, "PNG", optimize=True)
    return file.getvalue()


def _colour(index: int) -> int:
    return min(index, len(COLOURS) - 1)


def _amounts(used: int, limit: int) -> str:
    """Both numbers, grouped; beyond a trillion they say nothing any more."""
    most = 10**12
    return f"{min(used, most):,} / {min(max(limit, 0), most):,}".replace(",", " ")
