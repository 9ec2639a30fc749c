"""Charts: whatever the numbers and names are, they stay within their place."""

import io
import itertools
import math
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageColor

from bot.context.budget import BAR, COLOURS, FREE, PAPER, SIZE, draw, legend, spans
from bot.dashboard import usage
from bot.dashboard.pages import _templates
from bot.dashboard.usage import BOTTOM, LEFT, RIGHT, TOP, WIDTH, Chart, Picture, Series

NUMBERS = st.one_of(
    st.none(), st.integers(-5, 10**9), st.floats(allow_nan=True, allow_infinity=True)
)
NAMES = st.text(st.characters(exclude_categories=("C", "Z")) | st.just(" "), max_size=30)


@st.composite
def drawings(draw: st.DrawFn) -> Chart:
    count = draw(st.integers(0, 40))
    values = st.lists(NUMBERS, min_size=count, max_size=count).map(tuple)
    labels = draw(st.lists(NAMES, min_size=count, max_size=count))
    series = draw(st.lists(st.builds(Series, NAMES, values), max_size=10))
    return Chart(draw(NAMES), tuple(labels), tuple(series), str)


def drawn(picture: Picture) -> ET.Element:
    module = _templates().get_template("charts.html").module
    return ET.fromstring(module.plot(picture))  # noqa: S314 - our own


def whole(value: float | None) -> float:
    return 0.0 if value is None or not value > 0 else min(float(value), usage.MOST)


@given(drawings())
def test_bars_add_up_within_the_plot_and_dates_below_it_are_never_over_another(chart: Chart):
    picture = usage.picture(chart, "bars")
    places, ticks = picture.places, picture.ticks
    sums = [sum(whole(each.values[at]) for each in chart.series) for at in range(len(places))]
    most = usage.ceiling(max(sums, default=0))
    for total, place in zip(sums, places, strict=True):
        height = sum(height for _, height in place.bars)
        assert height == pytest.approx((BOTTOM - TOP) * total / most, abs=0.06)
        edge = float(BOTTOM)
        for top, high in place.bars:
            assert high >= 0
            assert top + high == pytest.approx(edge)
            edge = top
        assert edge >= TOP - 0.06
    assert all(LEFT <= middle <= WIDTH - 33 for middle, _ in ticks)
    assert all(second - first >= 66 for (first, _), (second, _) in itertools.pairwise(ticks))


@given(drawings(), st.sampled_from(["bars", "lines"]))
def test_every_picture_is_well_formed_and_keeps_to_its_frame(chart: Chart, kind: str):
    picture = usage.picture(chart, kind)  # type: ignore[arg-type]
    root = drawn(picture)
    assert len(root.findall("g")) == len(chart.labels) == len(chart.rows)
    for each in root.iter():
        assert each.get("style") is None
        for name in ("x", "y", "width", "height", "cx", "cy", "y1", "y2"):
            number = float(each.get(name, "0"))
            assert math.isfinite(number)
            assert 0 <= number <= WIDTH
    for each in root.iter("circle"):
        assert TOP - 0.01 <= float(each.get("cy", "0")) <= BOTTOM
        assert LEFT <= float(each.get("cx", "0")) <= RIGHT


@given(st.floats(0, usage.MOST))
def test_the_plot_ends_at_a_round_number_not_far_above(most: float):
    top = usage.ceiling(most)
    assert top >= most
    assert most < usage.LEAST or top <= 2.5 * most * (1 + 1e-9)
    for share in (0, 0.5, 1):
        # On the left there is room for eight characters.
        assert len(usage.short(share * top)) <= 8


def chart(*series: Series, labels: tuple[str, ...] = ("one", "two")) -> Chart:
    return Chart("Title", labels, series, lambda value: f"{value:,.0f} of them")


@pytest.mark.parametrize("kind", ["bars", "lines"])
def test_names_are_text_and_every_number_is_said_exactly(kind):
    hostile = "<img src=x onerror=alert(1)>"
    series = (Series(hostile, (1234567, None)),)
    root = drawn(usage.picture(Chart(hostile, (hostile, '"&'), series, "{:,}".format), kind))
    titles = [each.text for each in root.iter("title")]
    assert titles == [f"{hostile}\n{hostile}: 1,234,567", '"&']
    assert root.get("aria-label") == hostile


@pytest.mark.parametrize("kind", ["bars", "lines"])
def test_nothing_at_all_is_an_empty_plot(kind):
    none = chart(labels=())
    assert none.is_empty
    assert chart(Series("a", (0, None))).is_empty
    assert not chart(Series("a", (0, 1))).is_empty
    root = drawn(usage.picture(none, kind))
    assert root.findall("g") == []
    assert "0" in [each.text for each in root.iter("text")]


def test_a_line_has_a_gap_where_there_is_no_number():
    series = Series("a", (1, None, 0, 0))
    picture = usage.picture(chart(series, labels=("a", "b", "c", "d")), "lines")
    assert [place.dots[0] for place in picture.places] == [TOP, None, BOTTOM, BOTTOM]
    (path,) = picture.paths
    assert (path.count("M"), path.count("L")) == (2, 1)


def test_each_part_keeps_the_colour_of_its_series():
    series = (Series("a", (0, 1)), Series("b", (2, 2)))
    root = drawn(usage.picture(chart(*series), "bars"))
    shown = [[each.get("class") for each in place.iter("rect")] for place in root.findall("g")]
    assert shown == [["hit", "s1"], ["hit", "s0", "s1"]]


def test_the_largest_have_a_colour_of_their_own_and_the_rest_share_one():
    many = [Series(f"n{at:02}", (at, 1)) for at in range(12)]
    found = usage.largest(many, "others")
    assert [each.name for each in found] == [*(f"n{at:02}" for at in range(11, 4, -1)), "others"]
    assert found[-1].values == (0 + 1 + 2 + 3 + 4, 5)
    assert len(usage.largest(many[:8], "others")) == usage.MOST_SERIES == 8


def test_a_table_has_what_the_picture_has():
    found = chart(Series("a", (1, None)), Series("b", (2000, 3)))
    assert found.rows == [["one", "1 of them", "2,000 of them"], ["two", "–", "3 of them"]]


def test_shares_are_cut_off_at_the_limit():
    found = usage.shares([("a", 25), ("b", 50), ("c", 50)], 100, str)
    assert found == [(0, 100, "a: 25"), (100, 200, "b: 50"), (300, 100, "c: 50")]


@pytest.mark.parametrize(
    ("value", "words"),
    [(0, "0"), (0.005, "0.005"), (12.5, "12.5"), (1000, "1k"), (2.5e6, "2.5M"), (1e15, "1e+15")],
)
def test_round_numbers_are_short(value: float, words: str):
    assert usage.short(value) == words


BAR_LEFT, BAR_TOP, BAR_RIGHT, BAR_BOTTOM = BAR
ROOM = BAR_RIGHT - BAR_LEFT
PARTS = [("files", 12_000), ("tools", 3_000), ("memory", 20_000), ("history", 34_000)]


def row(data: bytes) -> list[tuple[int, ...]]:
    """The colours along the middle of the bar."""
    with Image.open(io.BytesIO(data)) as image:
        assert (image.format, image.size, image.mode) == ("PNG", SIZE, "RGB")
        pixels = image.load()
        return [pixels[x, (BAR_TOP + BAR_BOTTOM) // 2] for x in range(BAR_LEFT, BAR_RIGHT)]


def colour(index: int) -> tuple[int, ...]:
    return ImageColor.getrgb(COLOURS[index][1])


def test_each_part_takes_its_share_of_the_bar_in_its_order():
    seen = row(draw(PARTS, 120_000, 57))
    for index, (name, tokens) in enumerate(PARTS):
        assert abs(seen.count(colour(index)) - ROOM * tokens / 120_000) <= 3, name
    free = seen.count(ImageColor.getrgb(FREE))
    assert abs(free - ROOM * (120_000 - 69_000) / 120_000) <= 1
    order = [c for i, c in enumerate(seen) if i == 0 or c != seen[i - 1]]
    paper = ImageColor.getrgb(PAPER)
    expected = [colour(n) for n in range(4)] + [ImageColor.getrgb(FREE)]
    assert [c for c in order if c != paper] == expected


@pytest.mark.parametrize(
    ("parts", "limit", "percent"),
    [
        ([], 100, 0),
        ([("a", 0)], 0, -5),
        ([("a", -3), ("b", 5)], -1, 10**9),
        ([("a", 10**30)], 10**20, 100),
        ([(str(n), 1) for n in range(500)], 400, 125),
        ([("上下文", 7)], 10, 70),
    ],
)
def test_odd_numbers_still_make_a_picture_of_bounded_size(parts, limit, percent):
    data = draw(parts, limit, percent)
    assert len(row(data)) == ROOM
    assert len(data) < 32_000


def test_more_than_there_is_room_for_fills_the_bar_and_no_more():
    seen = row(draw([("a", 90), ("b", 90)], 100, 180))
    assert seen.count(colour(0)) == ROOM * 90 // 100
    assert seen.count(ImageColor.getrgb(FREE)) == 0


def test_the_same_values_make_the_same_bytes():
    assert draw(PARTS, 120_000, 57) == draw(list(PARTS), 120_000, 57)


def test_every_part_has_a_square_and_they_differ_as_far_as_squares_go():
    squares = legend([(str(n), n) for n in range(10)])
    assert "".join(squares) == "⬛🟦🟩🟨🟧🟥🟪🟫🟫🟫"
    assert legend([]) == []


@given(st.lists(st.tuples(st.just(""), st.integers(-5, 10**7)), max_size=12), st.integers(0, 10**7))
def test_spans_touch_and_stay_inside(parts, limit):
    found = spans(parts, limit)
    assert len(found) == len(parts)
    ends = [0, *(end for _, end in found)]
    assert [start for start, _ in found] == ends[:-1]
    assert ends == sorted(ends)
    assert ends[-1] <= ROOM
