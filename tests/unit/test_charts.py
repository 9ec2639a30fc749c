"""Pictures of numbers: whatever the numbers and names are, they stay within their place."""

from __future__ import annotations

import itertools
import math
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.dashboard import charts
from bot.dashboard.charts import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, Chart, Series

NUMBERS = st.one_of(
    st.none(),
    st.integers(-5, 10**9),
    st.floats(allow_nan=True, allow_infinity=True),
)
NAMES = st.text(st.characters(exclude_categories=("C", "Z")) | st.just(" "), max_size=30)


@st.composite
def drawings(draw: st.DrawFn) -> Chart:
    count = draw(st.integers(0, 40))
    values = st.lists(NUMBERS, min_size=count, max_size=count).map(tuple)
    labels = draw(st.lists(NAMES, min_size=count, max_size=count))
    series = draw(st.lists(st.builds(Series, NAMES, values), max_size=10))
    return Chart(draw(NAMES), tuple(labels), tuple(series), str)


def parsed(markup: str) -> ET.Element:
    return ET.fromstring(markup)  # noqa: S314 - our own


def whole(value: float | None) -> float:
    return 0.0 if value is None or not value > 0 else min(float(value), charts.MOST)


@given(drawings())
def test_the_parts_of_a_bar_add_up_and_stay_within_the_plot(chart: Chart):
    stacks = charts.stacks(chart)
    sums = [sum(whole(each.values[at]) for each in chart.series) for at in range(len(stacks))]
    most = charts.ceiling(max(sums, default=0))
    for total, stack in zip(sums, stacks, strict=True):
        height = sum(box.height for box in stack)
        assert height == pytest.approx((BOTTOM - TOP) * total / most, abs=0.06)
        edge = float(BOTTOM)
        for box in stack:
            assert box.height >= -1e-9
            assert box.bottom == pytest.approx(edge)
            edge = box.top
            assert LEFT <= box.left <= box.right <= RIGHT
        assert edge >= TOP - 0.06


@given(drawings())
def test_what_is_written_below_the_plot_is_not_in_it_and_never_over_another(chart: Chart):
    ticks = charts.ticks(chart)
    for each in ticks:
        assert each.box.top > BOTTOM
        assert each.box.bottom <= HEIGHT
        assert 0 <= each.box.left <= each.box.right <= WIDTH
    for first, second in itertools.pairwise(ticks):
        assert first.box.right < second.box.left


@given(drawings(), st.sampled_from(["bars", "lines"]))
def test_every_picture_is_well_formed_and_keeps_to_its_frame(chart: Chart, kind: str):
    picture = charts.picture(chart, kind, "Day")  # type: ignore[arg-type]
    root = parsed(picture.drawn)
    assert root.get("aria-label") == chart.title
    assert len(root.findall("g")) == len(chart.labels) == len(picture.rows)
    for each in root.iter():
        assert each.get("style") is None
        for name in ("x", "y", "width", "height", "cx", "cy", "y1", "y2"):
            number = float(each.get(name, "0"))
            assert math.isfinite(number)
            assert 0 <= number <= WIDTH
    drawn = [float(dot.get("cy", "0")) for dot in root.iter("circle")]
    assert all(TOP - 0.01 <= at <= BOTTOM for at in drawn)


@given(st.floats(0, charts.MOST))
def test_the_plot_ends_at_a_round_number_not_far_above(most: float):
    top = charts.ceiling(most)
    assert top >= most
    assert most < charts.LEAST or top <= 2.5 * most * (1 + 1e-9)
    for share in (0, 0.5, 1):
        # On the left there is room for eight characters.
        assert len(charts.short(share * top)) <= 8


def chart(*series: Series, labels: tuple[str, ...] = ("one", "two")) -> Chart:
    return Chart("Title", labels, series, lambda value: f"{value:,.0f} of them")


@pytest.mark.parametrize("draw", [charts.bars, charts.lines])
def test_names_are_text_and_every_number_is_said_exactly(draw):
    hostile = "<img src=x onerror=alert(1)>"
    drawn = draw(
        Chart(hostile, (hostile, '"&'), (Series(hostile, (1234567, None)),), "{:,}".format)
    )
    assert "<img" not in drawn
    root = parsed(drawn)
    titles = [each.text for each in root.iter("title")]
    assert titles == [f"{hostile}\n{hostile}: 1,234,567", '"&']
    assert root.get("aria-label") == hostile


def test_nothing_at_all_is_an_empty_plot():
    none = chart(labels=())
    assert none.is_empty
    assert chart(Series("a", (0, None))).is_empty
    assert not chart(Series("a", (0, 1))).is_empty
    for draw in (charts.bars, charts.lines):
        assert "<g>" not in draw(none)
        assert "0" in draw(none)


def test_a_line_has_a_gap_where_there_is_no_number():
    (line,) = charts.points(chart(Series("a", (1, None, 0)), labels=("a", "b", "c")))
    assert line[1] is None
    assert line[0][1] == TOP
    assert line[2][1] == BOTTOM
    drawn = charts.lines(chart(Series("a", (1, None, 0)), labels=("a", "b", "c")))
    path = parsed(drawn).find("path").get("d")
    assert path.count("M") == 2
    assert "L" not in path


def test_the_largest_have_a_colour_of_their_own_and_the_rest_share_one():
    many = [Series(f"n{at:02}", (at, 1)) for at in range(12)]
    found = charts.largest(many, "others")
    assert [each.name for each in found] == [*(f"n{at:02}" for at in range(11, 4, -1)), "others"]
    assert found[-1].values == (0 + 1 + 2 + 3 + 4, 5)
    assert len(charts.largest(many[:8], "others")) == charts.MOST_SERIES == 8


def test_a_table_has_what_the_picture_has():
    found = charts.picture(chart(Series("a", (1, None)), Series("b", (2000, 3))), "bars", "Day")
    assert found.head == ("Day", "a", "b")
    assert found.rows == (("one", "1 of them", "2,000 of them"), ("two", "–", "3 of them"))
    assert [name for _, name in found.keys] == ["a", "b"]
    assert found.keys[0][0] != found.keys[1][0]


@pytest.mark.parametrize(
    ("value", "words"),
    [(0, "0"), (0.005, "0.005"), (12.5, "12.5"), (1000, "1k"), (2.5e6, "2.5M"), (1e15, "1e+15")],
)
def test_round_numbers_are_short(value: float, words: str):
    assert charts.short(value) == words
