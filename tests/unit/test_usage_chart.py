from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageColor

from bot.context.usage_chart import BAR, COLOURS, FREE, PAPER, SIZE, draw, legend, spans

LEFT, TOP, RIGHT, BOTTOM = BAR
ROOM = RIGHT - LEFT
PARTS = [("files", 12_000), ("tools", 3_000), ("memory", 20_000), ("history", 34_000)]


def row(data: bytes) -> list[tuple[int, ...]]:
    """The colours along the middle of the bar."""
    with Image.open(io.BytesIO(data)) as image:
        assert (image.format, image.size, image.mode) == ("PNG", SIZE, "RGB")
        pixels = image.load()
        return [pixels[x, (TOP + BOTTOM) // 2] for x in range(LEFT, RIGHT)]


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
