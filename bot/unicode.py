"""Text that UTF-8 can hold, whatever a platform or a model sent. Pure."""

from __future__ import annotations


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
