"""What a page sends, up to a limit, whatever it is packed in."""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import aiohttp
from yarl import URL

from bot.errors import ToolError

ENCODINGS = "gzip, deflate"  # what a server is told it may use
_GZIP, _ZLIB, _RAW = 31, 15, -15  # what zlib calls what they stand for


@dataclass(frozen=True, slots=True)
class Download:
    """What came from an address; `url` is where it really was, after redirects.

    `content_type` is what the site says that it is, as it says it; `is_whole` is False when only
    the first bytes were read.
    """

    url: URL
    content_type: str
    data: bytes
    is_whole: bool

    @property
    def is_text(self) -> bool:
        """True when its beginning can be read without the rest, if the site is right."""
        kind = self.content_type.partition(";")[0].strip().lower()
        return kind.startswith("text/") or kind.endswith(("/json", "/xml", "+json", "+xml"))


async def read(answer: aiohttp.ClientResponse, most: int) -> tuple[bytes, bool]:
    """The first bytes of an answer, unpacked, and whether they are all of it.

    No more than `most` bytes are taken from the network, and no more come of them.

    Raises:
        ToolError: it is packed in another way than it was asked for, or the packing is broken.
        aiohttp.ClientError: the connection broke.
    """
    unpacker = _unpacker(answer.headers.get("Content-Encoding", ""))
    body, taken = bytearray(), 0
    async for part in answer.content.iter_any():
        taken += len(part)
        try:
            body += unpacker.unpack(part, most + 1 - len(body))
        except zlib.error:
            raise ToolError("what the site sent is damaged") from None
        if len(body) > most or taken > most:
            return bytes(body[:most]), False
    return bytes(body), True


class _Plain:
    """What is not packed."""

    def unpack(self, data: bytes, room: int) -> bytes:
        """At most so many bytes of it."""
        return data[:room]


class _Packed:
    """What is packed by zlib; after its end nothing counts."""

    def __init__(self, kind: int) -> None:
        self._unpacker = zlib.decompressobj(kind)
        self._may_be_raw = kind == _ZLIB  # many servers say "deflate" and leave out zlib's frame

    def unpack(self, data: bytes, room: int) -> bytes:
        """At most so many bytes of it.

        Raises:
            zlib.error: it is damaged.
        """
        if self._unpacker.eof:
            return b""
        try:
            found = self._unpacker.decompress(data, room)
        except zlib.error:
            if not self._may_be_raw:
                raise
            self._unpacker = zlib.decompressobj(_RAW)
            found = self._unpacker.decompress(data, room)
        self._may_be_raw = False
        return found


def _unpacker(encoding: str) -> _Plain | _Packed:
    match encoding.strip().lower():
        case "" | "identity":
            return _Plain()
        case "gzip" | "x-gzip":
            return _Packed(_GZIP)
        case "deflate":
            return _Packed(_ZLIB)
        case _:
            raise ToolError("the site packs its pages in a way nobody asked for")
