"""Server-sent events come out whole, however their bytes were cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.agent.models.sse import MOST_BYTES, EventReader
from bot.errors import ModelBadReply

lines = st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), max_size=12)
ENDS = st.sampled_from(["\n", "\r\n"])


def read(*chunks: bytes) -> list[bytes]:
    reader = EventReader()
    return [*(data for chunk in chunks for data in reader.feed(chunk)), *reader.end()]


@given(st.lists(st.lists(lines, min_size=1, max_size=3), max_size=5), ENDS, st.data())
def test_every_event_comes_out_once(events: list[list[str]], end: str, data: st.DataObject):
    text = "".join(
        f": a comment{end}event: x{end}"
        + "".join(f"data: {line}{end}" for line in event)
        + f"id: 1{end}{end}"
        for event in events
    )
    raw = text.encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=8)))
    chunks = [raw[a:b] for a, b in zip([0, *cuts], [*cuts, len(raw)], strict=True)]
    assert read(*chunks) == ["\n".join(event).encode() for event in events]


def test_the_last_event_may_end_with_the_stream():
    assert read(b"data: a\n\ndata: b") == [b"a", b"b"]
    assert read(b"data: a\n\ndata: b\n") == [b"a", b"b"]


@pytest.mark.parametrize("chunk", [b"x" * MOST_BYTES, b"data: " + b"x" * 1024 * 1024 + b"\n"])
def test_an_event_without_end_is_given_up(chunk: bytes):
    with pytest.raises(ModelBadReply):
        read(*[chunk] * 20)
