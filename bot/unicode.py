"""Text that UTF-8 can hold, whatever a platform or a model sent. Pure."""

from __future__ import annotations

import re

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


def one_line(text: str, most: int) -> str:
    """The text in a line, cut after so many characters and marked as cut."""
    flat = " ".join(text.split())
    return flat if len(flat) <= most else f"{flat[:most]}…"


def harmless(text: str) -> str:
    """Somebody's words without what commands a terminal or turns the text around them.

    Newlines and tabs stay.
    """
    return _CONTROL.sub("", text)
