"""The text of documents, as much of it as is read. Runs in a bounded process.

Readers are generators of texts and marks (a page begins, a sheet begins); what they have found
before something ends them counts. Pure but for the clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import PurePath

from bot.files.opener import Mark, charset_of, is_binary
from bot.files.sandbox import Unreadable
from bot.unicode import decoded

MOST_CHARACTERS = 1_000_000
SECONDS = 8.0  # of a processor, however busy the machine is; then it ends with what was found
_OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"  # of Office before 2007, and of what it encrypts
_ENCRYPTED = "EncryptedPackage".encode("utf-16-le")
_HTML_TYPES = ("text/html", "application/xhtml+xml")
_HTML_SUFFIXES = (".html", ".htm", ".xhtml")
_HTML_STARTS = (b"<!doctype html", b"<html", b"\xef\xbb\xbf<!doctype html", b"\xef\xbb\xbf<html")


@dataclass(frozen=True, slots=True)
class Extract:
    """The text that was read; see `opener.Document`."""

    text: str
    unit: str = ""
    read: int = 0
    of: int = 0
    is_cut: bool = False


def text_of(
    data: bytes,
    content_type: str = "",
    name: str = "",
    url: str = "",
    *,
    most: int = MOST_CHARACTERS,
) -> Extract:
    """The text of a document, by what it really is; `url` is where it was found, if on the web.

    Raises:
        Unreadable: it is nothing that can be read, or holds no text; the reason says why.
    """
    return collected(_reader(data, content_type, name, url), most)


def collected(
    parts: Iterable[str | Mark],
    most: int,
    seconds: float = SECONDS,
    now: Callable[[], float] = time.process_time,
) -> Extract:
    """The findings of a reader, until they are too much or take too long.

    Raises:
        Unreadable: it found no text.
    """
    until, size, last, is_cut = now() + seconds, 0, None, False
    found: list[str] = []
    has_words = False
    try:
        for part in parts:
            if size > most or now() > until:
                is_cut = True
                break
            if isinstance(part, Mark):
                last = part
            else:
                has_words = has_words or bool(part.strip())
            found.append(str(part))
            size += len(found[-1])
    except Exception:
        # What stood before the damage is worth having.
        if not has_words:
            raise
        is_cut = True
    if not has_words:
        raise Unreadable("slow" if is_cut else "textless")
    text, is_cut = "".join(found)[:most], is_cut or size > most
    if last is None:
        return Extract(text, is_cut=is_cut)
    return Extract(text, last.unit, last.number, last.of, is_cut)


def _reader(data: bytes, content_type: str, name: str, url: str) -> Iterator[str | Mark]:
    """The reader of a file. Libraries are loaded only for the files that need them."""
    if b"%PDF-" in data[:1024]:
        from bot.files import pdf  # noqa: PLC0415

        return pdf.read(data)
    if data.startswith(b"PK\x03\x04"):
        from bot.files import office  # noqa: PLC0415

        return office.read(data)
    if data.startswith(_OLE):
        if _ENCRYPTED in data:
            raise Unreadable("encrypted")
        from bot.files import office  # noqa: PLC0415

        return office.read_sheets(data)
    if is_binary(data):
        raise Unreadable("type")
    plain = content_type.partition(";")[0].strip().lower()
    says_html = plain in _HTML_TYPES or PurePath(name).suffix.lower() in _HTML_SUFFIXES
    if says_html or data[:1024].lstrip().lower().startswith(_HTML_STARTS):
        from bot.files import html  # noqa: PLC0415

        page = decoded(data, charset_of(data, content_type))
        return html.read_webpage(page, url) if url else html.read(page)
    return iter((decoded(data, charset_of(b"", content_type)),))
