"""The words of bytes that do not say how they are written. Pure."""

from __future__ import annotations

import codecs
import re

_MARKED = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
# Common Chinese characters are two bytes above 0xA0; letters with an accent stand between others.
_PAIRS = re.compile(rb"(?:[\xa1-\xfe]{2})+")
_HIGH = re.compile(rb"[\x80-\xff]+")
_CHARSET = re.compile(
    rb"""(?:charset|encoding)\s*=\s*["']?\s*([a-z0-9_.:-]{1,40})""", re.IGNORECASE
)
_PAIRED = 0.8  # of the bytes that are no ASCII


def decoded(data: bytes, charset: str = "") -> str:
    """The words of a text.

    Its first bytes may say how it is written, or `charset`, which may be anything; else it is
    UTF-8, Chinese (GB 18030) or Western.
    """
    for mark, name in _MARKED:
        if data.startswith(mark):
            return data.decode(name, "replace").replace("\0", "")
    for name in (charset, "utf-8"):
        try:
            return data.decode(name).replace("\0", "")
        except (LookupError, ValueError):
            continue
    return data.decode(_guessed(data), "replace").replace("\0", "")


def charset_of(data: bytes, content_type: str) -> str:
    """How a text says that it is written: beside it, or in its head as HTML and XML do."""
    found = _CHARSET.search(content_type.encode()) or _CHARSET.search(data[:1024])
    return found[1].decode() if found is not None else ""


def is_binary(data: bytes) -> bool:
    """True when these bytes are no text of any kind."""
    if data.startswith(tuple(mark for mark, _ in _MARKED)):
        return False
    return b"\0" in data[:8192]


def _guessed(data: bytes) -> str:
    """An encoding that is not UTF-8, by how the bytes stand side by side."""
    size = sum(map(len, _HIGH.findall(data)))
    paired = sum(map(len, _PAIRS.findall(data)))
    if paired >= _PAIRED * size:
        return "gb18030"
    # One wrong byte in a text that is UTF-8 otherwise must not spoil the rest of it.
    broken = data.decode("utf-8", "replace").count("�")
    return "utf-8" if broken * 10 < size else "cp1252"
