"""PDF documents, page by page."""

from __future__ import annotations

import io
from collections.abc import Iterator

from pypdf import PdfReader
from pypdf.errors import FileNotDecryptedError

from bot.files.opener import Mark
from bot.files.sandbox import Unreadable


def read(data: bytes) -> Iterator[str | Mark]:
    """The text of a document; a page without any, such as a scanned one, says so.

    Raises:
        Unreadable: it needs a password.
    """
    try:
        reader = PdfReader(io.BytesIO(data))
        # With an empty password many can be read that must not be printed or changed.
        if reader.is_encrypted and not reader.decrypt(""):
            raise Unreadable("encrypted")
        count = len(reader.pages)
    except FileNotDecryptedError:
        raise Unreadable("encrypted") from None
    for index in range(count):
        words, note = _words(reader, index)
        yield Mark("page", index + 1, count, note)
        yield words


def _words(reader: PdfReader, index: int) -> tuple[str, str]:
    """The text of a page, and what there is to say about it if it has none."""
    try:
        words = reader.pages[index].extract_text().strip()
    except MemoryError:
        raise
    except Exception:  # noqa: BLE001 - a damaged page is no reason to leave out the others
        return "", "it could not be read"
    return (f"{words}\n", "") if words else ("", "no text on it")
