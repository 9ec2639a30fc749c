"""The chart of what fills a conversation: one bar, its free space, and the marks of the notices.

The picture holds digits only, so it needs no font for any language; what its colours mean stands
in the caption, each part beside the square that `legend` gives it.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from itertools import accumulate, pairwise

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
