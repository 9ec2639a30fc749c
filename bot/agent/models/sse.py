"""Server-sent events, as services stream their replies in them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, Iterator

from bot.errors import ModelBadReply

MOST_BYTES = 16 * 1024 * 1024  # of one event; a reply comes in far smaller ones


class EventReader:
    """Takes bytes however they were cut, and gives the data of each event once it is whole."""

    __slots__ = ("_data", "_rest", "_size")

    def __init__(self) -> None:
        self._rest = b""  # a line that is not whole yet
        self._data: list[bytes] = []
        self._size = 0

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
        self._size += len(data)
        if self._size > MOST_BYTES:
            raise ModelBadReply("an event of the reply does not end")

    def _event(self) -> bytes:
        data = b"\n".join(self._data)
        self._data, self._size = [], 0
        return data


async def events(chunks: AsyncIterable[bytes]) -> AsyncGenerator[bytes]:
    """The data of each event of a stream.

    Raises:
        ModelBadReply: an event is larger than any reply.
    """
    reader = EventReader()
    async for chunk in chunks:
        for data in reader.feed(chunk):
            yield data
    for data in reader.end():
        yield data
