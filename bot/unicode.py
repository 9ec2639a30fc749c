"""Text that is safe to store, compare and show, whatever a platform or a model sent. Pure."""

from __future__ import annotations

import codecs
import re
import unicodedata
from typing import Final, Literal

_JOINER = "\u034f"  # combining grapheme joiner: marks are not sorted across it, and nobody sees it
# Every combining mark is in these runs, also what becomes one (halfwidth voiced sound marks).
_MARKS = re.compile(r"(?:[^\w\s\x00-\x7f]|[\uff9e\uff9f]){30}")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def well_formed(text: str) -> str:
    """The text with halves of UTF-16 pairs joined, and those without their other half replaced.

    JSON may spell such halves, and a stream may be cut between two of them.
    """
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def normal_form(form: Literal["NFD", "NFKC"], text: str) -> str:
    """The text in a normal form, in time that grows with its length.

    The standard's sorting of combining marks takes the square of how many there are in a row, so
    runs of them are sorted 30 at a time, as its Stream-Safe Text Format (UAX #15) has it.
    """
    if text.isascii():
        return text
    safe = _MARKS.sub(rf"\g<0>{_JOINER}", text)
    found = unicodedata.normalize(form, safe)
    return found if safe == text else found.replace(_JOINER, "")


def one_line(text: str, most: int) -> str:
    """The text in a line, cut after so many characters and marked as cut."""
    flat = " ".join(text.split())
    return flat if len(flat) <= most else f"{flat[:most]}…"


def harmless(text: str) -> str:
    """Somebody's words without what commands a terminal or turns the text around them.

    Newlines and tabs stay.
    """
    return _CONTROL.sub("", text)


# --- the words of bytes that do not say how they are written --------------------------------------

BYTE_ORDER_MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
# Common Chinese characters are two bytes above 0xA0; letters with an accent stand between others.
_PAIRS = re.compile(rb"(?:[\xa1-\xfe]{2})+")
_HIGH = re.compile(rb"[\x80-\xff]+")
_IN_WORD = re.compile(rb"(?<=[A-Za-z])[\x80-\xff]+(?=[a-z])")
_PAIRED = 0.8  # of the bytes that are no ASCII


def decoded(data: bytes, charset: str = "") -> str:
    """The words of a text.

    Its first bytes may say how it is written, or `charset`, which may be anything; else it is
    UTF-8, Chinese (GB 18030) or Western.
    """
    for mark, name in BYTE_ORDER_MARKS:
        if data.startswith(mark):
            return data.decode(name, "replace").replace("\0", "")
    for name in (charset, "utf-8"):
        try:
            return data.decode(name).replace("\0", "")
        except (LookupError, ValueError):
            continue
    return data.decode(_guessed(data), "replace").replace("\0", "")


def _guessed(data: bytes) -> str:
    """An encoding that is not UTF-8, by how the bytes stand side by side."""
    runs = _HIGH.findall(data)
    size = sum(map(len, runs))
    paired = sum(map(len, _PAIRS.findall(data)))
    # "Gr\xfc\xdfe" has a pair too, but within a word.
    if paired >= _PAIRED * size and 2 * len(_IN_WORD.findall(data)) < len(runs):
        return "gb18030"
    # One wrong byte in a text that is UTF-8 otherwise must not spoil the rest of it.
    broken = data.decode("utf-8", "replace").count("\ufffd")
    return "utf-8" if broken * 10 < size else "cp1252"
