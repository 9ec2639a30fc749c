"""Server-sent events, as services stream their replies in them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, Iterator
from typing import Final, cast

from bot.agent.models.wire import Json, Refused, load
from bot.errors import ModelBadReply

DONE: Final[Json] = {}  # the end of a stream, by its own word
MOST_BYTES = 16 * 1024 * 1024  # of one event, or of an answer that is not streamed


class EventReader:
    """Takes bytes however they were cut, and gives the data of each event once it is whole."""

    __slots__ = ("_data", "_rest", "_size", "has_begun")

    def __init__(self) -> None:
        self._rest = b""  # a line that is not whole yet
        self._data: list[bytes] = []
        self._size = 0
        self.has_begun = False  # an event came

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """The data of the events that these bytes complete.

        Raises:
            ModelBadReply: one is larger than any reply.
        """
        lines = (self._rest + chunk).split(b"\n")
        self._rest = lines.pop()
        if len(self._rest) > MOST_BYTES:
            raise ModelBadReply("an event of the reply does not end")
        for line in lines:
            if line.startswith(b"data:"):
                self._take(line)
            elif line in {b"", b"\r"} and self._data:
                yield self._event()

    def end(self) -> Iterator[bytes]:
        """The last event, where the empty line after it is missing."""
        if self._rest.startswith(b"data:"):
            self._take(self._rest)
        if self._data:
            yield self._event()

    def _take(self, line: bytes) -> None:
        data = line[5:].removesuffix(b"\r").removeprefix(b" ")
        self._data.append(data)
        self.has_begun = True
        self._size += len(data)
        if self._size > MOST_BYTES:
            raise ModelBadReply("an event of the reply does not end")

    def _event(self) -> bytes:
        data = b"\n".join(self._data)
        self._data, self._size = [], 0
        return data


async def events(chunks: AsyncIterable[bytes]) -> AsyncGenerator[Json]:
    """The JSON of each event of a stream; `DONE` where it is said that it is over.

    An answer that is none of events is one event if it is JSON.

    Raises:
        Refused: it is a page for people.
        ModelBadReply: an event is larger than any reply, or no JSON object.
        ValueError: it is no JSON.
    """
    reader, beginning, size = EventReader(), list[bytes](), 0
    async for chunk in chunks:
        if not reader.has_begun and size < MOST_BYTES:
            beginning.append(chunk)
            size += len(chunk)
        for data in reader.feed(chunk):
            if data:
                yield _parsed(data)
    for data in reader.end():
        yield _parsed(data)
    if not reader.has_begun and (text := b"".join(beginning).strip()):
        if text[:1] == b"<":
            raise Refused(200, {}, text.decode("utf-8", "replace"))
        if text[:1] in {b"{", b"["}:
            yield _parsed(text)
            yield DONE


def _parsed(data: bytes) -> Json:
    if data.startswith(b"[DONE]"):
        return DONE
    event: object = load(data)
    if isinstance(event, list) and event:  # as Gemini wraps its errors
        event = cast("list[object]", event)[0]
    if not isinstance(event, dict):
        raise ModelBadReply("an event of the reply is no object")
    return cast("Json", event)
