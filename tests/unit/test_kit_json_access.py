"""JSON of any shape is read, and what is read can be kept."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.channel.kit import json_access

ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(st.dictionaries(st.sampled_from(["a", "b"]), ANY))
def test_nothing_is_an_error(parent: json_access.Json) -> None:
    assert isinstance(json_access.mapping(parent.get("a")), dict)
    assert json_access.child(parent, "a") == json_access.mapping(parent.get("a"))
    assert all(isinstance(each, dict) for each in json_access.children(parent, "a", 3))
    number = json_access.integer(parent, "a")
    assert number is None or abs(number) <= 1 << 63
    found = json_access.text(parent, "a")
    assert "\0" not in found
    assert len(json_access.label(found).encode()) <= 4 * json_access.MAX_LABEL
    assert "\n" not in json_access.label(found)


@pytest.mark.parametrize(
    ("raw", "value"),
    [(b'{"a": "\xff"}', {"a": "\ufffd"}), (b'"\\ud83d"', "\ud83d"), ("[1]", [1])],
)
def test_broken_texts_are_read_all_the_same(raw: bytes | str, value: object) -> None:
    assert json_access.parse_json(raw) == value


@pytest.mark.parametrize("raw", [b"", b"{", b"[" * 100_000, "nul"])
def test_what_is_no_json_says_so(raw: bytes | str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  # it is all that is promised
        json_access.parse_json(raw)


def test_names_stay_on_one_line_and_emoji_whole() -> None:
    assert json_access.label(" A\n[b]\u202e\u200b👩‍👩‍👧 ") == "A (b) 👩‍👩‍👧"
    assert json_access.is_blank(" \u200b")
    assert not json_access.is_blank(" x")
