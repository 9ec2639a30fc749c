"""Pictures of numbers, as SVG: values in, markup out. Pure.

A picture needs no script. Its parts have classes (`s0`, `s1`, …) whose colours `charts.css` gives,
hovering over a place says the exact numbers there, and the template puts a table below.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Final, Literal

from markupsafe import Markup

WIDTH: Final = 400  # units of the picture, about a pixel each on a phone
HEIGHT: Final = 190
LEFT, TOP, RIGHT, BOTTOM = 60, 12, 392, 160  # of the plot
COLOURS: Final = 8  # classes there are
MOST_SERIES: Final = COLOURS  # of one picture, the last of which may stand for several
MOST: Final = 1e15  # what is larger is drawn as this
LEAST: Final = 1e-6  # what is smaller is drawn as nothing

Kind = Literal["bars", "lines"]

_CHARACTER: Final = 6.6  # units of a label's character at most; Chinese ones take two
_LONGEST: Final = 80.0  # units of a label
_APART: Final = 6.0  # units between labels
_DECIMALS: Final = 1
_EDGE: Final = 2  # units around a bar that lies
_SHARE_HEIGHT: Final = 32  # units
_SHORT: Final = ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k"))


@dataclass(frozen=True, slots=True)
class Series:
    """Numbers that belong together, one for each place; None where there is none."""

    name: str
    values: tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class Chart:
    """What is drawn: `labels` name the places from left to right, `shown` says a number exactly."""

    title: str
    labels: tuple[str, ...]
    series: tuple[Series, ...]
    shown: Callable[[float], str]

    @property
    def is_empty(self) -> bool:
        """True when there is nothing to see."""
        return not any(_sound(value) for each in self.series for value in each.values)


@dataclass(frozen=True, slots=True)
class Picture:
    """A chart as a template takes it: drawn, with what its colours mean, and as a table."""

    title: str
    drawn: Markup
    keys: tuple[tuple[Markup, str], ...]
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Box:
    """A part of a bar, or the place of a text, in units from the upper left corner."""

    left: float
    top: float
    width: float
    height: float

    @property
    def right(self) -> float:
        """Where it ends."""
        return self.left + self.width

    @property
    def bottom(self) -> float:
        """Where it ends below."""
        return self.top + self.height


@dataclass(frozen=True, slots=True)
class Tick:
    """A text beside the plot, and where it is."""

    text: str
    box: Box


def largest(series: Sequence[Series], others: str, most: int = MOST_SERIES) -> tuple[Series, ...]:
    """At most so many series, the largest first; the rest become one, called `others`."""
    sums = [sum(value or 0 for value in each.values) for each in series]
    order = sorted(range(len(series)), key=lambda at: (-sums[at], series[at].name))
    found = tuple(series[at] for at in order)
    if len(found) <= most:
        return found
    kept, rest = found[: most - 1], found[most - 1 :]
    together = zip(*(each.values for each in rest), strict=True)
    return (*kept, Series(others, tuple(sum(v or 0 for v in values) for values in together)))


def ceiling(most: float) -> float:
    """The round number that the plot goes up to."""
    if most < LEAST:
        return 1.0
    power = 10.0 ** math.floor(math.log10(most))
    return next((step * power for step in (1, 2, 2.5, 5) if step * power >= most), 10 * power)


def stacks(chart: Chart) -> list[list[Box]]:
    """The parts of each bar, from below: the series in their order.

    Rounding is done on the running sum, so a bar is as high as its numbers together.
    """
    most = ceiling(max(_tops(chart), default=0))
    width = _slot(chart) * 0.8
    found: list[list[Box]] = []
    for place in range(len(chart.labels)):
        sums = accumulate((_sound(each.values[place]) for each in chart.series), initial=0.0)
        ends = [round((BOTTOM - TOP) * total / most, _DECIMALS) for total in sums]
        left = _middle(chart, place) - width / 2
        found.append(
            [Box(left, BOTTOM - upper, width, upper - lower) for lower, upper in pairwise(ends)]
        )
    return found


def points(chart: Chart) -> list[list[tuple[float, float] | None]]:
    """Where each series' line goes, place by place; None where it has a gap."""
    tops = [_sound(value) for each in chart.series for value in each.values]
    most = ceiling(max(tops, default=0))
    return [
        [
            None
            if value is None
            else (_middle(chart, place), BOTTOM - (BOTTOM - TOP) * _sound(value) / most)
            for place, value in enumerate(each.values)
        ]
        for each in chart.series
    ]


def ticks(chart: Chart) -> list[Tick]:
    """The names below the plot: as many as there is room for, none over another."""
    texts = [_clipped(label) for label in chart.labels]
    widest = max(map(_width, texts), default=0.0) + _APART
    step = max(1, math.ceil(widest / _slot(chart)))
    found = [
        Tick(texts[at], Box(_middle(chart, at) - width / 2, BOTTOM + 6, width, 16))
        for at in range(0, len(texts), step)
        for width in (_width(texts[at]),)
    ]
    return [each for each in found if each.box.left >= 0 and each.box.right <= WIDTH]


def short(value: float) -> str:
    """A round number in few characters."""
    for size, letter in _SHORT:
        if value >= size:
            return f"{value / size:.3g}{letter}" if value < 1000 * size else f"{value:.0e}"
    return f"{value:.3g}"


def bars(chart: Chart) -> Markup:
    """Stacked bars, one for each place."""
    shapes = [
        Markup().join(
            Markup('<rect class="s{}" x="{}" y="{}" width="{}" height="{}"/>').format(
                number % COLOURS, *map(_plain, (box.left, box.top, box.width, box.height))
            )
            for number, box in enumerate(stack)
            if box.height > 0
        )
        for stack in stacks(chart)
    ]
    return _picture(chart, max(_tops(chart), default=0), shapes)


def lines(chart: Chart) -> Markup:
    """A line for each series, with a dot at each place."""
    found = points(chart)
    shapes = [
        Markup().join(
            Markup('<circle class="s{}" cx="{}" cy="{}" r="2.5"/>').format(
                number % COLOURS, *map(_plain, point)
            )
            for number, line in enumerate(found)
            if (point := line[place]) is not None
        )
        for place in range(len(chart.labels))
    ]
    tops = [_sound(value) for each in chart.series for value in each.values]
    paths = Markup().join(
        Markup('<path class="line l{}" d="{}"/>').format(number % COLOURS, _path(line))
        for number, line in enumerate(found)
    )
    return _picture(chart, max(tops, default=0), shapes, paths)


def picture(chart: Chart, kind: Kind, heading: str) -> Picture:
    """A chart in one of the two ways; `heading` says what its places are."""
    return Picture(
        title=chart.title,
        drawn=bars(chart) if kind == "bars" else lines(chart),
        keys=tuple((key(number), each.name) for number, each in enumerate(chart.series)),
        head=(heading, *(each.name for each in chart.series)),
        rows=tuple(
            (label, *(_exactly(chart, each.values[place]) for each in chart.series))
            for place, label in enumerate(chart.labels)
        ),
    )


def _exactly(chart: Chart, value: float | None) -> str:
    return "–" if value is None else chart.shown(value)


def share(
    title: str, parts: Sequence[tuple[str, float]], limit: float, shown: Callable[[float], str]
) -> Markup:
    """One bar from left to right: what each part takes of a limit, which is all of the bar.

    What goes beyond the limit is cut off; hovering says the numbers all the same.
    """
    whole, width = max(1.0, _sound(limit)), WIDTH - 2 * _EDGE
    sums = accumulate((_sound(size) for _, size in parts), initial=0.0)
    ends = [round(_EDGE + width * min(1.0, total / whole), _DECIMALS) for total in sums]
    found = [
        Markup('<svg class="chart" viewBox="0 0 {} {}" role="img" aria-label="{}">').format(
            WIDTH, _SHARE_HEIGHT, title
        ),
        Markup('<rect class="free" x="{}" y="{}" width="{}" height="{}"/>').format(
            _EDGE, _EDGE, width, _SHARE_HEIGHT - 2 * _EDGE
        ),
    ]
    for number, ((name, size), (left, right)) in enumerate(zip(parts, pairwise(ends), strict=True)):
        found.append(
            Markup('<rect class="s{}" x="{}" y="{}" width="{}" height="{}">{}</rect>').format(
                number % COLOURS,
                _plain(left),
                _EDGE,
                _plain(right - left),
                _SHARE_HEIGHT - 2 * _EDGE,
                Markup("<title>{}: {}</title>").format(name, shown(size)),
            )
        )
    return Markup().join([*found, Markup("</svg>")])


def _picture(
    chart: Chart, most: float, shapes: Sequence[Markup], below: Markup | None = None
) -> Markup:
    top = ceiling(most)
    parts = [
        Markup('<svg class="chart" viewBox="0 0 {} {}" role="img" aria-label="{}">').format(
            WIDTH, HEIGHT, chart.title
        )
    ]
    for share in (0, 0.5, 1):
        at = _plain(BOTTOM - share * (BOTTOM - TOP))
        parts.append(
            Markup('<line class="rule" x1="{}" x2="{}" y1="{}" y2="{}"/>').format(
                LEFT, RIGHT, at, at
            )
        )
        parts.append(
            Markup('<text x="{}" y="{}" text-anchor="end" dominant-baseline="middle">{}</text>')
            .format(LEFT - 6, at, short(share * top))
        )  # fmt: skip
    parts += [
        Markup('<text x="{}" y="{}" text-anchor="middle">{}</text>').format(
            _plain(tick.box.left + tick.box.width / 2), _plain(tick.box.bottom - 3), tick.text
        )
        for tick in ticks(chart)
    ]
    if below is not None:
        parts.append(below)
    for place, shape in enumerate(shapes):
        hit = Markup('<rect class="hit" x="{}" y="{}" width="{}" height="{}"/>').format(
            _plain(_middle(chart, place) - _slot(chart) / 2),
            TOP,
            _plain(_slot(chart)),
            BOTTOM - TOP,
        )
        title = Markup("<title>{}</title>").format(said(chart, place))
        parts.append(Markup("<g>{}{}{}</g>").format(title, hit, shape))
    return Markup().join([*parts, Markup("</svg>")])


def said(chart: Chart, place: int) -> str:
    """The exact numbers of a place, a line for each series that has one there."""
    values = [(each.name, each.values[place]) for each in chart.series]
    return "\n".join(
        [chart.labels[place]]
        + [f"{name}: {chart.shown(value)}" for name, value in values if value is not None]
    )


def _tops(chart: Chart) -> list[float]:
    return [
        sum(_sound(each.values[place]) for each in chart.series)
        for place in range(len(chart.labels))
    ]


def _sound(value: float | None) -> float:
    """A number as it can be drawn."""
    if value is None or not value > 0:
        return 0.0
    return min(float(value), MOST)


def _slot(chart: Chart) -> float:
    return (RIGHT - LEFT) / max(1, len(chart.labels))


def _middle(chart: Chart, place: int) -> float:
    return LEFT + (place + 0.5) * _slot(chart)


def _path(line: Sequence[tuple[float, float] | None]) -> str:
    found: list[str] = []
    pen = "M"
    for point in line:
        if point is None:
            pen = "M"
            continue
        found.append(f"{pen}{_plain(point[0])} {_plain(point[1])}")
        pen = "L"
    return "".join(found)


def _plain(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")


def _width(text: str) -> float:
    return sum(
        _CHARACTER * (2 if unicodedata.east_asian_width(letter) in "WFA" else 1) for letter in text
    )


def _clipped(text: str) -> str:
    if _width(text) <= _LONGEST:
        return text
    while _width(text) > _LONGEST - _CHARACTER * 2:
        text = text[:-1]
    return f"{text}…"


def key(number: int) -> Markup:
    """The mark of a series in the list of what the colours mean."""
    return Markup('<svg class="key" viewBox="0 0 10 10" aria-hidden="true">{}</svg>').format(
        Markup('<rect class="s{}" width="10" height="10" rx="2"/>').format(number % COLOURS)
    )
