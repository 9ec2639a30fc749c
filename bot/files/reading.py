"""Makes of files that strangers made what a model can take: pictures to look at, texts to read."""

from __future__ import annotations

import re
from dataclasses import dataclass

from bot.files.opener import Opener
from bot.unicode import BYTE_ORDER_MARKS


@dataclass(frozen=True, slots=True)
class Document:
    """The text of a document, or the beginning of one that is too long to be read.

    Headings, tables and links are Markdown; a line in square brackets begins each page, slide or
    sheet. `unit` says which of these it has, if any: it was read up to number `read` of them, and
    there are `of`. `is_cut` is True when that is not all.
    """

    text: str
    unit: str = ""
    read: int = 0
    of: int = 0
    is_cut: bool = False


class FileReader:
    """Reads one person's file at a time, in a process that it may harm without harm to the bot."""

    def __init__(self, opener: Opener) -> None:
        self._opener = opener

    async def jpeg(self, person: str, data: bytes) -> bytes:
        """A picture as a JPEG; `person` is whose share of the time it takes.

        Raises:
            Unreadable: it cannot be shown; the reason says why.
            StorageError: that it is being opened could not be noted.
        """
        _, body = await self._opener.ask(person, {"task": "picture"}, data)
        return body

    async def text(
        self, person: str, data: bytes, content_type: str = "", name: str = "", url: str = ""
    ) -> Document:
        """The text of a PDF, an Office file, a page of HTML or a plain text.

        What it is, its content says; `content_type` and `name` count only for what any text might
        be. Of HTML that is at a `url`, only what is the page's own is read, without menus and the
        like.

        Raises:
            Unreadable: there is nothing to read; the reason says why.
            StorageError: that it is being opened could not be noted.
        """
        asked = {"task": "document", "content_type": content_type, "name": name, "url": url}
        head, body = await self._opener.ask(person, asked, data)
        return Document(body.decode(), head["unit"], head["read"], head["of"], head["is_cut"])


_CHARSET = re.compile(
    rb"""(?:charset|encoding)\s*+=\s*+["']?\s*+([a-z0-9_.:-]{1,40})""", re.IGNORECASE
)


def charset_of(data: bytes, content_type: str) -> str:
    """How a text says that it is written: beside it, or in its head as HTML and XML do."""
    found = _CHARSET.search(content_type.encode()) or _CHARSET.search(data[:1024])
    return found[1].decode() if found is not None else ""


def is_binary(data: bytes) -> bool:
    """True when these bytes are no text of any kind."""
    if data.startswith(tuple(mark for mark, _ in BYTE_ORDER_MARKS)):
        return False
    return b"\0" in data[:8192]
