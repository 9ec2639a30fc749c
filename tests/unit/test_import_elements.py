"""Lists of JSON taken apart piece by piece, and what is saved of those that are broken."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.importing.elements import DAMAGED, NoList, elements

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
TALK = {"uuid": "1", "name": 'a "b" \\ [c]', "chat_messages": [{"uuid": "2"}, {"uuid": "3"}]}
TALKS = [{**TALK, "uuid": str(number)} for number in range(5)]


def taken(data: bytes, size: int = 7, limit: int = 1_000_000) -> list[Any]:
    pieces = (data[at : at + size] for at in range(0, len(data), size))
    return list(elements(pieces, "chat_messages", limit))


def numbers(found: list[Any]) -> list[str]:
    return [each if isinstance(each, str) else each["uuid"] for each in found]


@given(
    st.lists(st.dictionaries(st.text(), VALUES, max_size=4), max_size=5),
    st.integers(1, 40),
    st.sampled_from([None, 1]),
)
def test_any_list_in_any_pieces_comes_apart_into_its_elements(values, size, indent):
    data = json.dumps(values, indent=indent, ensure_ascii=False).encode("utf-8", "replace")
    assert taken(data, size) == json.loads(data)


@given(st.binary(max_size=200), st.integers(1, 9))
def test_bytes_that_are_no_json_end_without_an_error(data, size):
    taken(b"[" + data, size)


def test_what_is_no_list_is_told():
    for data in (b"", b"  ", b'{"a": []}', b"\x00[1]", b"nothing"):
        with pytest.raises(NoList):
            taken(data)


def test_a_mark_of_the_byte_order_before_the_list_is_read_over():
    assert taken(b'\xef\xbb\xbf \n[{"a": 1}, {}]\n') == [{"a": 1}, {}]


def test_an_element_that_is_too_long_or_no_object_is_told_and_the_rest_is_read():
    long = {**TALK, "name": "x" * 5000}
    data = json.dumps([TALK, long, TALK, 7, TALK]).encode()
    assert taken(data, limit=1000) == [TALK, DAMAGED, TALK, DAMAGED, TALK]


def test_a_list_that_ends_in_the_middle_keeps_what_came_before():
    assert taken(json.dumps([TALK, TALK]).encode()[:-20]) == [TALK, DAMAGED]


@pytest.mark.parametrize(
    ("right", "wrong"), [('"uuid": "1", "name"', '"uuid": [["1", "name"'), ('"1", "n', '"1, "n')]
)
def test_where_a_bracket_or_a_quote_is_missing_those_behind_it_are_read(right, wrong):
    data = json.dumps(TALKS).replace(right, wrong, 1).encode()
    assert numbers(taken(data, 50)) == ["0", DAMAGED, "2", "3", "4"]


def test_of_a_list_that_ends_too_early_what_stands_behind_it_is_read():
    first, *rest = map(json.dumps, TALKS)
    data = f"[{first}}}], {', '.join(rest)}]".encode()
    assert numbers(taken(data, 50)) == ["0", "1", "2", "3", "4"]


@pytest.mark.parametrize("data", [b'{"id":', b'[{"id":', b'{"id": 1}, [', b'{"id": "'])
def test_looking_for_what_can_be_read_ends_however_often_it_fails(data):
    assert len(taken(b"[" + data * 50_000, 4096)) <= 50_001
