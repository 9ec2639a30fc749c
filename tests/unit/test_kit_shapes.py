"""JSON of any shape is read, and what is read can be kept."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.channel.kit import shapes

ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(st.dictionaries(st.sampled_from(["a", "b"]), ANY))
def test_nothing_is_an_error(parent: shapes.Json) -> None:
    assert isinstance(shapes.mapping(parent.get("a")), dict)
    assert shapes.child(parent, "a") == shapes.mapping(parent.get("a"))
    assert all(isinstance(each, dict) for each in shapes.children(parent, "a", 3))
    number = shapes.integer(parent, "a")
    assert number is None or abs(number) <= 1 << 63
    found = shapes.text(parent, "a")
    assert "\0" not in found
    assert len(shapes.label(found).encode()) <= 4 * shapes.MAX_LABEL
    assert "\n" not in shapes.label(found)


@pytest.mark.parametrize(
    ("raw", "value"),
    [(b'{"a": "\xff"}', {"a": "\ufffd"}), (b'"\\ud83d"', "\ud83d"), ("[1]", [1])],
)
def test_broken_texts_are_read_all_the_same(raw: bytes | str, value: object) -> None:
    assert shapes.parse_json(raw) == value


@pytest.mark.parametrize("raw", [b"", b"{", b"[" * 100_000, "nul"])
def test_what_is_no_json_says_so(raw: bytes | str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  # it is all that is promised
        shapes.parse_json(raw)


def test_names_stay_on_one_line_and_emoji_whole() -> None:
    assert shapes.label(" A\n[b]\u202e\u200b👩‍👩‍👧 ") == "A (b) 👩‍👩‍👧"
    assert shapes.is_blank(" \u200b")
    assert not shapes.is_blank(" x")
