"""The objects of a JSON list, one after another, however long the list is.

At most one is held in memory. One that cannot be read is reported, and reading goes on behind it;
ijson ends at the first byte that is no JSON, and holds a text of any length.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterable, Iterator
from typing import cast

MAX_ELEMENT = 32_000_000  # characters of one conversation
DAMAGED = "it is damaged, cut off or longer than 32 MB"
_MAX_TRIES = 100  # failures to find the next one in what could not be read
_BETWEEN = re.compile(r"[\s,\]}]*")
# Where a conversation may begin in what could not be read.
_BEGINNING = re.compile(r"[,\[]\s*(?=\{\s*\"(?:title|uuid|id|conversation_id)\"\s*:)")
_LONGEST_BEGINNING = 100


class NoList(ValueError):
    """It is no list at all."""


def elements(
    chunks: Iterable[bytes], mark: str, limit: int = MAX_ELEMENT
) -> Iterator[dict[str, object] | str]:
    """The objects of a list that comes in pieces, and `DAMAGED` for each that cannot be read.

    Behind one that cannot be read only those count that have the name `mark`: nothing says what
    else begins there.

    Raises:
        NoList: it is no list.
    """
    decode = codecs.getincrementaldecoder("utf-8-sig")("replace").decode
    pieces = filter(None, map(decode, chunks))
    text = next((found for piece in pieces if (found := piece.lstrip())), "")
    if not text.startswith("["):
        raise NoList
    read = json.JSONDecoder().raw_decode
    at, is_lost, tries = 1, False, 0
    while tries < _MAX_TRIES:
        found = _BETWEEN.match(text, at)
        at = found.end() if found is not None else at
        try:
            value, end = cast("tuple[object, int]", read(text, at))
        except (ValueError, RecursionError):
            held = text[at:]
            # Twice as much each time: what is read again stays within what there is.
            if more := _some(pieces, min(len(held) or 1, limit - len(held))):
                text, at = held + more, 0
                continue
            tries += 1
            text, at = _next(held[1:], pieces), 0
            if held and not is_lost:
                yield DAMAGED
            is_lost = True
            if not text:
                return
        else:
            at = end
            if isinstance(value, dict) and (mark in value or not is_lost):
                is_lost = False
                yield cast("dict[str, object]", value)
            elif not is_lost:
                yield DAMAGED


def _some(pieces: Iterator[str], least: int) -> str:
    """The next pieces, of so many characters or more if there are; none when `least` is not > 0."""
    taken: list[str] = []
    while least > 0 and (piece := next(pieces, "")):
        taken.append(piece)
        least -= len(piece)
    return "".join(taken)


def _next(text: str, pieces: Iterator[str]) -> str:
    """The text from where the next conversation may begin; empty when there is none."""
    while (found := _BEGINNING.search(text)) is None:
        more = next(pieces, "")
        if not more:
            return ""
        text = text[-_LONGEST_BEGINNING:] + more
    return text[found.end() :]
