import json

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.sessions.entries import (
    Entry,
    NewEntry,
    entry_id,
    header_line,
    line_of,
    parse,
    parse_header,
)

TEXTS = st.text(max_size=40) | st.sampled_from(
    ["\x00", "\u2028", "\u2029", "\x85", "\r\n", "\n", "😀", "\ufeff", '"\\', "\x7f"]
)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)
NEWS = st.builds(
    NewEntry,
    kind=st.sampled_from(["message", "command", "notice"]),
    role=st.sampled_from(["user", "assistant"]),
    text=TEXTS,
    content=st.lists(st.dictionaries(TEXTS, JSON, max_size=3), max_size=3).map(tuple),
    source=TEXTS,
)


@given(NEWS, st.none() | TEXTS, st.integers(0, 2**53))
def test_an_entry_comes_back_from_its_line_as_it_was(new, parent, at):
    line = line_of(new, "s.1", parent, at)
    assert parse(line) == Entry(
        "s.1", parent, new.kind, new.role, at, new.text, new.content, new.source
    )
    assert parse(line.encode()) == parse(line)


@given(NEWS)
def test_a_line_is_one_line_of_json_for_everybody(new):
    line = line_of(new, "s.1", None, 1)
    assert len(line.encode().splitlines()) == 1
    assert json.loads(line)["message"]["text"] == new.text


@given(NEWS)
def test_a_line_written_again_is_the_same_bytes(new):
    line = line_of(new, "s.1", "s.0", 5)
    back = parse(line)
    again = NewEntry(back.kind, back.role, back.text, back.content, back.source)
    assert line_of(again, back.id, back.parent_id, back.at) == line


@given(st.binary(max_size=60))
def test_what_is_no_entry_is_refused_with_a_value_error(data):
    with pytest.raises(ValueError, match=r".*"):
        parse(data)


@given(JSON)
def test_json_that_is_no_entry_is_refused_with_a_value_error(value):
    with pytest.raises(ValueError, match=r".*"):
        parse(orjson.dumps(value))


@given(NEWS, st.data())
def test_a_torn_line_is_never_taken_for_a_whole_one(new, data):
    line = line_of(new, "s.1", None, 1).encode()
    cut = data.draw(st.integers(0, len(line) - 1))
    with pytest.raises(ValueError, match=r".*"):
        parse(line[:cut])


@given(st.dictionaries(st.sampled_from(["id", "key", "chat"]), TEXTS))
def test_a_header_comes_back(facts):
    assert parse_header(header_line(facts)) == {"type": "session", "version": 1, **facts}


@pytest.mark.parametrize("line", ["", "{", "[]", "1", '{"type":"message"}', "\x00"])
def test_what_is_no_header_is_none(line):
    assert parse_header(line) is None


def test_entries_are_numbered_within_their_session():
    assert [entry_id("s", n) for n in (1, 2)] == ["s.1", "s.2"]
