"""Estimating tokens without a tokenizer. Pure.

A token is about four characters of an alphabetic script and about one character of a CJK one;
four characters a token for everything would count Chinese at a quarter of what it costs.
"""

from __future__ import annotations

CHARACTERS_PER_TOKEN = 4
_FIRST_CJK = "\u2e80"


def estimate(text: str) -> int:
    """About how many tokens a text is; never less than one for a text that is not empty."""
    if not text:
        return 0
    if text.isascii():
        return len(text) // CHARACTERS_PER_TOKEN + 1
    wide = sum(character >= _FIRST_CJK for character in text)
    return wide + (len(text) - wide) // CHARACTERS_PER_TOKEN + 1
