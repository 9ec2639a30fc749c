"""The elements of a JSON list, one after another, however long the list is.

Only one element is held in memory, and not even that when it is too long. One that cannot be read
is told, and the rest is read on.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Literal, cast

import orjson

MAX_ELEMENT = 32_000_000  # bytes of one conversation
_MAX_TRIES = 100  # failures to find the next one in what could not be read

_TOP = re.compile(rb'["{}\[\],]')
_INNER = re.compile(rb'["{}\[\]]')
_QUOTED = re.compile(rb'["\\]')
_BLANK = b" \t\r\n\xef\xbb\xbf"
_QUOTE, _ESCAPE, _COMMA = b'"\\,'
_OPENING = b"{["
# Where a conversation may begin in what could not be read.
_BEGINNING = re.compile(r"[,\[]\s*(?=\{\s*\"(?:title|uuid|id|conversation_id)\"\s*:)")

Problem = Literal["", "long", "cut", "none", "rest"]


@dataclass(frozen=True, slots=True)
class Element:
    """An element of a list, or why there is none.

    `problem` is "long" for one that is too long, "cut" for one in the middle of which everything
    ends, "none" when it is no list at all, and "rest" for what stands behind the list.
    """

    data: bytes
    problem: Problem = ""


def elements(chunks: Iterable[bytes], limit: int = MAX_ELEMENT) -> Iterator[Element]:
    """Take a list apart that comes in pieces; nothing of it is checked but quotes and brackets."""
    pieces = iter(chunks)
    first = _first(pieces)
    if not first.startswith(b"["):
        yield Element(b"", "none")
        return
    scanner = _Scanner(limit)
    for piece in chain((first[1:],), pieces):
        yield from scanner.feed(piece)
        if scanner.is_over:
            yield from _behind(chain((scanner.rest,), pieces), limit)
            return
    yield Element(scanner.part.ended(b"").data, "cut")


class _Scanner:
    """Finds the commas and the end of a list; `rest` is what comes after it."""

    def __init__(self, limit: int) -> None:
        self.part = _Part(limit)
        self.is_over = False
        self.rest = b""
        self._depth = 1
        self._is_quoted = False
        self._is_escaped = False

    def feed(self, piece: bytes) -> Iterator[Element]:
        """Every element that ends in a piece."""
        start, at = 0, self._unquoted(piece, 0)
        while at is not None:
            found = (_TOP if self._depth == 1 else _INNER).search(piece, at)
            if found is None:
                break
            sign, at = piece[found.start()], found.end()
            if sign == _QUOTE:
                self._is_quoted = True
                at = self._unquoted(piece, at)
            elif sign in _OPENING:
                self._depth += 1
            elif self._depth > 1:
                self._depth -= 1
            else:  # a comma, or the end
                element = self.part.ended(piece[start : found.start()])
                start = at
                if element.data or element.problem:
                    yield element
                if sign != _COMMA:
                    self.is_over, self.rest = True, piece[at:]
                    return
        self.part.add(piece[start:])

    def _unquoted(self, piece: bytes, at: int) -> int | None:
        """Where the text ends that a place is in; None when it goes on in the next piece."""
        while self._is_quoted:
            if self._is_escaped:
                if at == len(piece):
                    return None
                at, self._is_escaped = at + 1, False
            found = _QUOTED.search(piece, at)
            if found is None:
                return None
            at = found.end()
            if piece[found.start()] == _QUOTE:
                self._is_quoted = False
            else:
                self._is_escaped = True
        return at


class _Part:
    """What is held of an element."""

    def __init__(self, limit: int) -> None:
        self._held = bytearray()
        self._limit = limit
        self._size = 0

    def add(self, data: bytes) -> None:
        self._size += len(data)
        if self._size <= self._limit:
            self._held += data
        else:
            self._held.clear()

    def ended(self, data: bytes) -> Element:
        self.add(data)
        found, size = bytes(self._held).strip(_BLANK), self._size
        self._held.clear()
        self._size = 0
        return Element(b"", "long") if size > self._limit else Element(found)


def _first(pieces: Iterator[bytes]) -> bytes:
    """The first piece in which there is anything, from there on."""
    for piece in pieces:
        if found := piece.lstrip(_BLANK):
            return found
    return b""


def _behind(pieces: Iterable[bytes], limit: int) -> Iterator[Element]:
    """What stands behind a list: a bracket too many ends it before it is over."""
    part = _Part(limit)
    for piece in pieces:
        part.add(piece)
    rest = part.ended(b"")
    if rest.data or rest.problem:
        yield Element(rest.data, rest.problem or "rest")


def objects(element: Element, is_one: str) -> tuple[list[dict[str, object]], bool]:
    """The objects of an element, and whether all of it could be read.

    Of one that cannot be read, the objects in it that have the name `is_one`: where a bracket or a
    quote is missing, what comes after it stands in the same element.
    """
    if element.problem in {"", "cut", "rest"}:
        try:
            value: object = orjson.loads(element.data)
        except orjson.JSONDecodeError:
            return _salvaged(element.data, is_one), False
        if isinstance(value, dict) and not element.problem:
            return [cast("dict[str, object]", value)], True
    return [], False


def _salvaged(data: bytes, is_one: str) -> list[dict[str, object]]:
    text = data.decode("utf-8", "replace")
    decoder = json.JSONDecoder()
    found: list[dict[str, object]] = []
    at = failed = 0
    while failed < _MAX_TRIES and (match := _BEGINNING.search(text, at)):
        at = match.end()
        try:
            value, end = cast("tuple[object, int]", decoder.raw_decode(text, at))
        except (ValueError, RecursionError):
            failed += 1
            continue
        at = end
        if isinstance(value, dict) and is_one in value:
            found.append(cast("dict[str, object]", value))
    return found
