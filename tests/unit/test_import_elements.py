"""Lists of JSON taken apart piece by piece, and what is saved of those that are broken."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from bot.importing.elements import Element, elements, objects

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
TALK = {"uuid": "1", "name": 'a "b" \\ [c]', "chat_messages": [{"uuid": "2"}, {"uuid": "3"}]}


def taken(data: bytes, size: int = 7, limit: int = 1_000_000) -> list[Element]:
    pieces = (data[at : at + size] for at in range(0, len(data), size))
    return list(elements(pieces, limit))


@given(st.lists(VALUES, max_size=5), st.integers(1, 40), st.sampled_from([None, 1]))
def test_any_list_in_any_pieces_comes_apart_into_its_elements(values, size, indent):
    data = json.dumps(values, indent=indent, ensure_ascii=False).encode("utf-8", "replace")
    found = taken(data, size)
    assert [each.problem for each in found] == [""] * len(found)
    assert [json.loads(each.data) for each in found] == json.loads(data)


@given(st.binary(max_size=200), st.integers(1, 9))
def test_bytes_that_are_no_json_end_without_an_error(data, size):
    for each in taken(b"[" + data, size):
        objects(each, "uuid")


def test_what_is_no_list_is_told():
    for data in (b"", b"  ", b'{"a": []}', b"\x00[1]", b"nothing"):
        assert [each.problem for each in taken(data)] == ["none"]


def test_a_mark_of_the_byte_order_before_the_list_is_read_over():
    assert [each.data for each in taken(b"\xef\xbb\xbf \n[1, 2]\n")] == [b"1", b"2"]


def test_an_element_that_is_too_long_is_told_and_the_rest_is_read():
    data = json.dumps([1, "x" * 500, 2]).encode()
    found = taken(data, limit=100)
    assert [(each.data, each.problem) for each in found] == [(b"1", ""), (b"", "long"), (b"2", "")]


def test_a_list_that_ends_in_the_middle_keeps_what_came_before():
    whole = json.dumps([TALK, TALK]).encode()
    found = taken(whole[:-20])
    assert [each.problem for each in found] == ["", "cut"]
    assert objects(found[0], "chat_messages") == ([TALK], True)
    assert objects(found[1], "chat_messages") == ([], False)


def test_of_an_element_with_a_missing_bracket_those_behind_it_are_saved():
    talks = [{**TALK, "uuid": str(number)} for number in range(5)]
    data = json.dumps(talks).replace('"uuid": "1", "name"', '"uuid": [["1", "name"', 1).encode()
    read: list[Any] = []
    for each in taken(data, 50):
        read += objects(each, "chat_messages")[0]
    assert [each["uuid"] for each in read] == ["0", "2", "3", "4"]


def test_of_a_list_that_ends_too_early_what_stands_behind_it_is_saved():
    talks = [{**TALK, "uuid": str(number)} for number in range(4)]
    first, *rest = (json.dumps(each) for each in talks)
    data = f"[{first}}}, {', '.join(rest)}]".encode()
    found = taken(data, 50)
    assert [each.problem for each in found] == ["", "rest"]
    saved = objects(found[1], "chat_messages")
    assert ([each["uuid"] for each in saved[0]], saved[1]) == (["1", "2", "3"], False)


def test_looking_for_what_can_be_saved_ends_however_often_it_fails():
    data = b"[" + b'[{"id":' * 50_000
    assert objects(taken(data, 4096)[0], "mapping") == ([], False)
