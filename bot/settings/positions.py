"""On which line of a TOML file each key stands; `tomllib` tells the values only.

The text is known to be valid TOML, so this reads just enough of the grammar to follow keys:
headers, dotted and quoted keys, arrays of tables, inline tables and every kind of string.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator

from bot.settings.fields import Key

_PIECE = re.compile(
    r"""
    [ \t]+ | \#[^\n]*                       # nothing
    | (?P<piece>
        \"{3}(?:[^"\\]+|\\.|"{1,2}(?!"))*"{3,5}
        | '{3}(?:[^']+|'{1,2}(?!'))*'{3,5}
        | "(?:[^"\\\n]|\\.)*"
        | '[^'\n]*'
        | [\[\]{}=.,\n]
        | [^\s"'\#\[\]{}=.,]+               # bare keys; numbers and dates, or parts of them
    )
    """,
    re.DOTALL | re.VERBOSE,
)
_ENDS = frozenset(",]}\n")  # of a value


def positions(text: str) -> dict[Key, int]:
    """The line (from 1) of every key and list item of a valid TOML document."""
    document = _Document(text)
    try:
        document.read()
    except RecursionError:  # nested about as deep as the parser itself can go
        return {}
    return document.lines


def _pieces(text: str) -> Iterator[tuple[str, int]]:
    line = 1
    for found in _PIECE.finditer(text):
        if piece := found["piece"]:
            yield piece, line
            line += piece.count("\n")


class _Document:
    def __init__(self, text: str) -> None:
        self.lines: dict[Key, int] = {}
        self._pieces = _pieces(text)
        self._newest: dict[Key, int] = {}  # arrays of tables: index of the newest table

    def read(self) -> None:
        table: Key = ()
        for piece, line in self._pieces:
            if piece == "[":
                table = self._header(line)
            elif piece not in "]\n":  # the second bracket that closes a header, or nothing
                self._pair(table, piece, line)

    def _next(self) -> str:
        return next(self._pieces, ("\n", 0))[0]

    def _header(self, line: int) -> Key:
        """The place a header means: below an array of tables, its newest table."""
        first = self._next()
        array = first == "["
        *above, name = self._names(self._next() if array else first, "]")
        key: Key = ()
        for each in above:
            key = self._in_newest((*key, each))
            self.lines.setdefault(key, line)
        key = (*key, name)
        if array:
            self.lines.setdefault(key, line)
            self._newest[key] = self._newest.get(key, -1) + 1
        key = self._in_newest(key)
        self.lines[key] = line
        return key

    def _in_newest(self, key: Key) -> Key:
        return (*key, self._newest[key]) if key in self._newest else key

    def _names(self, piece: str, end: str) -> Iterator[str]:
        while piece != end:
            if piece[0] in "\"'":
                yield str(tomllib.loads(f"key = {piece}")["key"])
            elif piece != ".":
                yield piece
            piece = self._next()

    def _pair(self, table: Key, first: str, line: int) -> str:
        key = table
        for name in self._names(first, "="):
            key = (*key, name)
            self.lines.setdefault(key, line)
        return self._value(key, self._next())

    def _value(self, key: Key, piece: str) -> str:
        """Pass over a value; what ends it is passed over too, and returned."""
        while piece not in _ENDS:
            if piece == "[":
                self._items(key)
            elif piece == "{":
                self._inline(key)
            piece = self._next()
        return piece

    def _items(self, key: Key) -> None:
        index = 0
        for piece, line in self._pieces:
            end = piece
            if piece not in _ENDS:
                self.lines[*key, index] = line
                end = self._value((*key, index), piece)
                index += 1
            if end == "]":
                return

    def _inline(self, key: Key) -> None:
        for piece, line in self._pieces:
            end = piece if piece in _ENDS else self._pair(key, piece, line)
            if end == "}":
                return
