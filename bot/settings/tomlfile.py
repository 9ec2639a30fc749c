"""The configuration file: found, read, and refused with line and reason when it is no TOML.

Of what can be read it knows on which line each option stands.
"""

from __future__ import annotations

import re
import stat
import tomllib
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from bot.errors import ConfigError
from bot.settings.fields import Key

MAX_BYTES = 1_000_000
_MAX_DOTS = 1_000  # in one line; tomllib's time grows with the square of a dotted key's length

FILE_NAME = "confidant.toml"

_POSITION = re.compile(r" ?\(at (?:line (\d+), column (\d+)|end of document)\)$")
# What tomllib says, in words for someone who edits a file.
_PLAIN = {
    "Cannot overwrite": "this option is set twice",
    "Duplicate inline table key": "this option is set twice",
    "Cannot declare": "this table stands twice in the file",
    "Invalid value": "this value is not written as TOML wants it; text needs quotes",
}


class TomlFile:
    """A file that was read and parsed; lines are found only when something asks for one."""

    def __init__(self, path: Path, cwd: Path) -> None:
        self.path = path
        self.shown = shown(path, cwd)
        self._text = read_text(path, self.shown)
        self.data = _parse(self._text, self.shown)

    @cached_property
    def _lines(self) -> dict[Key, int]:
        return positions(self._text)

    def has(self, key: Key) -> bool:
        """Whether a place stands in the file."""
        return key in self._lines

    def line(self, key: Key) -> int:
        """The line of a place in the file, or of the table around it; 0 is nowhere."""
        prefixes = (key[:length] for length in range(len(key), 0, -1))
        return next((self._lines[each] for each in prefixes if each in self._lines), 0)

    def origin(self, key: Key) -> str:
        """`config/confidant.toml:12` for a place in the file, or for the table around it."""
        line = self.line(key)
        return f"{self.shown}:{line}" if line else self.shown

    def readable_by_others(self) -> bool:
        """Whether other users of this machine may read the file."""
        return bool(self.path.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH))


def find(config_file: Path | None, environ: Mapping[str, str], cwd: Path) -> Path | None:
    """The file to read: the one named, or else the first that exists where one is looked for.

    Raises:
        ConfigError: the file that was named does not exist.
    """
    if config_file is not None:
        path = cwd / config_file
        if not _exists(path):
            raise ConfigError(f"{shown(path, cwd)}: there is no such file")
        return path
    home = environ.get("HOME") or environ.get("USERPROFILE")
    folders = [cwd, cwd / "config", *([Path(home) / ".confidant"] if home else [])]
    return next((path for folder in folders if _exists(path := folder / FILE_NAME)), None)


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # a folder on the way that may not be entered: reading it will say so
        return True


def shown(path: Path, cwd: Path) -> str:
    """A path as messages name it: relative to the working directory where it lies below it."""
    return str(path.relative_to(cwd)) if path.is_relative_to(cwd) else str(path)


def read_text(path: Path, name: str) -> str:
    """The text of a small UTF-8 file.

    Raises:
        ConfigError: it cannot be read, is too large, or is not UTF-8 text.
    """
    raw = b""
    try:
        if not path.is_file():
            raise ConfigError(f"{name}: this is not a file")
        if path.stat().st_size > MAX_BYTES:
            raise ConfigError(f"{name}: the file is larger than 1 MB; is it the right one?")
        raw = path.read_bytes()
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{name}:{line}: the file is not UTF-8 text; save it as UTF-8") from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError(f"{name}: the file cannot be read: {reason}") from error


def _parse(text: str, name: str) -> dict[str, Any]:
    for number, line in enumerate(text.split("\n"), 1):
        if line.count(".") > _MAX_DOTS:
            raise ConfigError(f"{name}:{number}: this line has too many dots to be an option")
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{name}:{_reason(text, str(error))}") from error
    except RecursionError as error:
        raise ConfigError(f"{name}: the file is nested too deeply") from error
    except ValueError as error:  # int() refuses numbers of more than 4300 digits
        raise ConfigError(f"{name}: there is a number that is too long") from error


def _reason(text: str, message: str) -> str:
    """Line, column and reason of a syntax error."""
    found = _POSITION.search(message)
    said = _POSITION.sub("", message)
    if found and found[1]:
        place = f"{found[1]}:{found[2]}"
    else:
        place, said = f"{text.count(chr(10)) + 1}", f"{said} at the end of the file"
    plain = (words for start, words in _PLAIN.items() if said.startswith(start))
    return f"{place}: {next(plain, f'not valid TOML: {said[:1].lower()}{said[1:]}')}"


# --- lines ---------------------------------------------------------------------------------------
# `tomllib` tells the values only. The text is known to be valid TOML, so this reads just enough of
# the grammar to follow keys: headers, dotted and quoted keys, arrays of tables, inline tables and
# every kind of string.

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
