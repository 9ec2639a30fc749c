import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.channel.kit.text import closed, length, split

FRAGMENTS = st.sampled_from(
    [
        "```",
        "```py",
        "~~~",
        "````",
        " ",
        "\n",
        "\n\n",
        "a",
        "你好",
        "😀",
        "👨‍👩‍👧",
        "x" * 70,
        "word ",
        "é",
        "🇩🇪",
    ]
)
TEXTS = st.lists(st.one_of(FRAGMENTS, st.text(max_size=30)), max_size=60).map("".join)
UNITS = st.sampled_from(["chars", "utf16"])


@given(TEXTS, st.integers(64, 200), UNITS)
def test_no_piece_is_longer_than_the_limit_nor_empty(text, limit, unit):
    for piece in split(text, limit, unit):
        assert length(piece, unit) <= limit
        assert piece.strip()


@given(TEXTS.filter(lambda t: "```" not in t and "~~~" not in t), st.integers(64, 200), UNITS)
def test_nothing_is_lost_and_the_order_stays(text, limit, unit):
    assert "".join("".join(split(text, limit, unit)).split()) == "".join(text.split())


@given(st.lists(st.text("abc ", min_size=1, max_size=90), min_size=1, max_size=80))
def test_code_in_a_fence_survives_in_fences_of_its_own(code):
    found = split("before\n```py\n" + "\n".join(code) + "\n```\nafter", 100)
    for piece in found:
        assert piece.count("```") % 2 == 0
    inside = [
        line
        for piece in found
        for line in piece.split("\n")
        if line not in ("```py", "```", "before", "after")
    ]
    assert "".join("".join(inside).split()) == "".join("".join(code).split())


def test_a_text_that_fits_is_not_touched():
    assert split("one\n\ntwo", 64) == ["one\n\ntwo"]


def test_white_space_alone_makes_no_piece():
    assert split(" \n\n ", 64) == []


def test_a_block_that_fits_a_piece_of_its_own_is_not_torn():
    text = "a" * 60 + "\n\n" + "b" * 20 + "\n```\n" + "c" * 30 + "\n```"
    assert split(text, 100)[-1].startswith("```\n" + "c" * 30)


def test_an_emoji_of_several_code_points_is_not_cut():
    family = "👨‍👩‍👧‍👦"
    found = split(family * 20, 64, "utf16")
    assert "".join(found) == family * 20
    assert all(piece.startswith("👨") and piece.endswith("👦") for piece in found)


def test_lengths_count_as_telegram_counts():
    assert length("😀", "utf16") == 2
    assert length("你", "utf16") == 1
    assert split("😀" * 4096, 4096, "utf16") == ["😀" * 2048] * 2


@pytest.mark.parametrize(
    ("written", "whole"),
    [
        ("plain", "plain"),
        ("```py\ncode", "```py\ncode\n```"),
        ("```py\ncode\n", "```py\ncode\n```"),
        ("~~~~\n```\nboth", "~~~~\n```\nboth\n~~~~"),
        ("```\ncode\n```", "```\ncode\n```"),
    ],
)
def test_what_follows_a_text_is_not_in_its_code(written, whole):
    assert closed(written) == whole
