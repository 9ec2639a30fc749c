"""The page `/usage`, and `/api/usage` for the owner's programs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate, pairwise
from typing import Any, Final, Literal

from aiohttp import web

from bot import money
from bot.context.budget import grouped
from bot.dashboard.pages import NO_STORE, Pages, Visit, in_menu, route
from bot.i18n import text
from bot.identity.routing import OWNER
from bot.views.usage import DAYS, UsageReport, UsageViews

# Pictures of numbers: where everything is in them, for `charts.html` to draw as SVG. Pure.
#
# A picture needs no script. Its parts have classes (`s0`, `s1`, …) whose colours `charts.css`
# gives, hovering over a place says the exact numbers there, and a table is below.

WIDTH: Final = 400  # units of the picture, about a pixel each on a phone
LEFT, TOP, RIGHT, BOTTOM = 60, 12, 392, 160  # of the plot
MOST_SERIES: Final = 8  # of one picture, the last of which may stand for several
MOST: Final = 1e15  # what is larger is drawn as this
LEAST: Final = 1e-6  # what is smaller is drawn as nothing

Kind = Literal["bars", "lines"]

_DATE: Final = 74.0  # units that a date takes below the plot
_SHORT: Final = ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k"))


@dataclass(frozen=True, slots=True)
class Series:
    """Numbers that belong together, one for each place; None where there is none."""

    name: str
    values: tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class Chart:
    """Numbers to draw: `labels` are dates from left to right, `shown` writes a number in full."""

    title: str
    labels: tuple[str, ...]
    series: tuple[Series, ...]
    shown: Callable[[float], str]

    @property
    def rows(self) -> list[list[str]]:
        """The same as a table: each label with its numbers."""
        columns = [
            ["–" if value is None else self.shown(value) for value in each.values]
            for each in self.series
        ]
        return [list(row) for row in zip(self.labels, *columns, strict=True)]

    @property
    def is_empty(self) -> bool:
        """True when there is nothing to see."""
        return not any(_sound(value) for each in self.series for value in each.values)


@dataclass(frozen=True, slots=True)
class Place:
    """The values at one place of a chart, in units.

    `bars` are the tops and heights of a bar's parts from below, `dots` the heights of its points;
    both have one for each series.
    """

    middle: float
    said: str
    bars: tuple[tuple[float, float], ...] = ()
    dots: tuple[float | None, ...] = ()


@dataclass(frozen=True, slots=True)
class Picture:
    """A chart as `charts.html` draws it, in units from the upper left corner."""

    chart: Chart
    rules: tuple[tuple[float, str], ...]
    ticks: tuple[tuple[float, str], ...]
    slot: float
    places: tuple[Place, ...]
    paths: tuple[str, ...]


def largest(series: Sequence[Series], others: str) -> tuple[Series, ...]:
    """At most so many series, the largest first; the rest become one, called `others`."""
    sums = [sum(value or 0 for value in each.values) for each in series]
    order = sorted(range(len(series)), key=lambda at: (-sums[at], series[at].name))
    found = tuple(series[at] for at in order)
    if len(found) <= MOST_SERIES:
        return found
    kept, rest = found[: MOST_SERIES - 1], found[MOST_SERIES - 1 :]
    together = zip(*(each.values for each in rest), strict=True)
    return (*kept, Series(others, tuple(sum(v or 0 for v in values) for values in together)))


def ceiling(most: float) -> float:
    """The round number that the plot goes up to."""
    if most < LEAST:
        return 1.0
    power = 10.0 ** math.floor(math.log10(most))
    return next((step * power for step in (1, 2, 2.5, 5) if step * power >= most), 10 * power)


def short(value: float) -> str:
    """A round number in few characters."""
    for size, letter in _SHORT:
        if value >= size:
            return f"{value / size:.3g}{letter}" if value < 1000 * size else f"{value:.0e}"
    return f"{value:.3g}"


def picture(chart: Chart, kind: Kind) -> Picture:
    """A chart as stacked bars or as lines."""
    places = [tuple(each.values[at] for each in chart.series) for at in range(len(chart.labels))]
    tops = [
        sum(map(_sound, v)) if kind == "bars" else max(map(_sound, v), default=0) for v in places
    ]
    most = ceiling(max(tops, default=0))
    slot = (RIGHT - LEFT) / max(1, len(places))
    middles = [round(LEFT + (at + 0.5) * slot, 2) for at in range(len(places))]
    step = math.ceil(_DATE / slot)

    def height(value: float) -> float:
        return round(BOTTOM - (BOTTOM - TOP) * value / most, 1)

    drawn: list[Place] = []
    for middle, label, values in zip(middles, chart.labels, places, strict=True):
        named = zip(chart.series, values, strict=True)
        told = (f"{each.name}: {chart.shown(v)}" for each, v in named if v is not None)
        said = "\n".join((label, *told))
        if kind == "bars":
            # Rounding is done on the running sum, so a bar is as high as its numbers together.
            ends = [height(total) for total in accumulate(map(_sound, values), initial=0.0)]
            parts = tuple((upper, round(lower - upper, 1)) for lower, upper in pairwise(ends))
            drawn.append(Place(middle, said, bars=parts))
        else:
            dots = tuple(None if value is None else height(_sound(value)) for value in values)
            drawn.append(Place(middle, said, dots=dots))
    return Picture(
        chart,
        rules=tuple((height(part * most), short(part * most)) for part in (0, 0.5, 1)),
        ticks=tuple(
            (middle, label)
            for middle, label in list(zip(middles, chart.labels, strict=True))[::step]
            if middle <= WIDTH - _DATE / 2
        ),
        slot=round(slot, 2),
        places=tuple(drawn),
        paths=tuple(
            _path(middles, [place.dots[number] for place in drawn])
            for number in range(len(chart.series))
            if kind == "lines"
        ),
    )


def shares(
    parts: Sequence[tuple[str, float]], limit: float, shown: Callable[[float], str]
) -> list[tuple[float, float, str]]:
    """The parts of one bar from left to right: where each begins, how wide it is, what it says.

    The bar is `WIDTH` units wide and stands for the limit; what goes beyond that is cut off.
    """
    whole = max(1.0, _sound(limit))
    sums = accumulate((_sound(size) for _, size in parts), initial=0.0)
    ends = [round(WIDTH * min(1.0, total / whole), 1) for total in sums]
    return [
        (left, round(right - left, 1), f"{name}: {shown(size)}")
        for (name, size), (left, right) in zip(parts, pairwise(ends), strict=True)
    ]


def _sound(value: float | None) -> float:
    """A number as it can be drawn."""
    return min(float(value), MOST) if value is not None and value > 0 else 0.0


def _path(middles: Sequence[float], heights: Sequence[float | None]) -> str:
    """A line through the points there are, with a gap where there is none."""
    pieces = zip((None, *heights), middles, heights, strict=False)
    return "".join(
        f"{'M' if before is None else 'L'}{middle} {height}"
        for before, middle, height in pieces
        if height is not None
    )


MOST_PEOPLE: Final = 50  # of a table; the others are summed up in one row


@in_menu("/usage")
class UsagePages(Pages):
    """Numbers and names of people, never a word of what they said.

    The owner sees what everybody used; whoever else looks what is theirs.
    """

    def __init__(self, views: UsageViews) -> None:
        self._views = views

    @route("GET", "/usage", shared=True)
    async def _page(self, visit: Visit) -> web.Response:
        language = visit.language
        if visit.is_owner:
            report = await self._views.everybodys(visit.bot_zone)
        else:
            report = await self._views.of(visit.conversation)
        lines = dict(report.lines)
        if len(people := lines.get("person", ())) > MOST_PEOPLE:
            rest = replace(money.total(people[MOST_PEOPLE:]), name=text(language, "usage.others"))
            lines["person"] = [*people[:MOST_PEOPLE], rest]
        is_used = any(lines.values())
        return visit.page(
            "usage.html",
            days=DAYS,
            date=money.PRICES_LOOKED_UP,
            lead="lead" if visit.is_owner else "own_lead",
            pictures=_pictures(language, report) if is_used else [],
            tables={by: (found, money.total(found)) for by, found in lines.items() if is_used},
            columns=money.COLUMNS,
            cost=partial(money.cost_in_words, language),
            limits=report.limits,
            limited=report.limited[:MOST_PEOPLE],
            others=len(report.limited[MOST_PEOPLE:]),
            amounts=partial(money.amounts, language),
            named=partial(_name, language),
        )

    @route("GET", "/api/usage")
    async def _json(self, visit: Visit) -> web.Response:
        report = await self._views.everybodys(visit.bot_zone)
        body: dict[str, Any] = {
            "days": DAYS,
            "prices_of": str(money.PRICES_LOOKED_UP),
            **{f"by_{by}": list(map(money.plain, lines)) for by, lines in report.lines.items()},
        }
        return web.json_response(body, headers=NO_STORE)


def _pictures(language: str, report: UsageReport) -> list[Picture]:
    """Tokens and money, by model, and by person where there are several."""
    labels, others = tuple(each.day.name for each in report.days), text(language, "usage.others")
    drawn: list[Picture] = []
    for at, what in enumerate(("tokens", "dollars")):
        by_model, by_person = (
            [Series(_name(language, name), tuple(day[at] for day in days)) for name, days in found]
            for found in (report.models, report.most)
        )
        if len(report.lines.get("person", ())) > len(by_person):
            rest = (
                sum(each.values[day] or 0 for each in by_model)
                - sum(each.values[day] or 0 for each in by_person)
                for day in range(len(labels))
            )
            by_person.append(Series(others, tuple(max(0.0, each) for each in rest)))
        for by, series in (("model", largest(by_model, others)), ("person", by_person)):
            title = text(language, f"usage.picture.{what}_{by}")
            shown = money.shown_price if what == "dollars" else whole
            chart = Chart(title, labels, tuple(series), shown)
            if not chart.is_empty:
                drawn.append(picture(chart, "bars"))
    return drawn


def whole(value: float) -> str:
    """A number without a fraction, as people read it."""
    return grouped(round(value))


def _name(language: str, person: str) -> str:
    return text(language, "usage.you") if person == OWNER else person
