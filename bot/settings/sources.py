"""Sources of the configuration: a TOML file, the environment, `.env` and secret files."""

from __future__ import annotations

import io
import json
import re
import secrets
import stat
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, cast

from dotenv.parser import Binding, parse_stream

from bot.errors import ConfigError
from bot.settings.checks import Problem, not_a, word
from bot.settings.fields import Key, Shape, child
from bot.storage import files

# The configuration file: found, read, and refused with line and reason when it is no TOML.
#
# Of what can be read it knows on which line each option stands.

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
        """True if a place stands in the file."""
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
        """True if other users of this machine may read the file."""
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
        \"{3}(?:[^"\\]++|\\.|"{1,2}(?!"))*"{3,5}
        | '{3}(?:[^']++|'{1,2}(?!'))*'{3,5}
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


# What environment variables, `.env` files and secrets in files of their own say.

FILE_PREFIX = "file:"
_MAX_SECRET_BYTES = 64 * 1024  # a key or token is far shorter; this is some other file
_BOOLEANS = {
    **dict[str, bool].fromkeys(("true", "1", "yes", "on"), True),
    **dict[str, bool].fromkeys(("false", "0", "no", "off"), False),
}


@dataclass(frozen=True, slots=True)
class Variable:
    """One variable; `origin` is how messages name it: `NAME`, or `.env:3: NAME`."""

    name: str
    value: str
    origin: str


def from_environ(environ: Mapping[str, str]) -> list[Variable]:
    """The variables of a process."""
    return [Variable(name, value, word(name)) for name, value in environ.items()]


def from_dotenv(text: str, name: str) -> tuple[list[Variable], list[Problem]]:
    """The variables of a `.env` file of that name; one that comes twice keeps its last value."""
    found: dict[str, Variable] = {}
    problems: list[Problem] = []
    for binding in parse_stream(io.StringIO(text)):
        raw = binding.original.string
        line = binding.original.line + raw[: len(raw) - len(raw.lstrip())].count("\n")
        if binding.error:
            problems.append(Problem((), "this is not a NAME=value line", f"{name}:{line}"))
        elif binding.key is not None and binding.value is not None:
            origin = f"{name}:{line}: {word(binding.key)}"
            found[binding.key] = Variable(binding.key, binding.value, origin)
    return list(found.values()), problems


def decode(text: str, shape: Shape) -> object:
    """The value a variable's text stands for, of the kind its option takes.

    Lists are JSON or comma-separated, tables JSON.

    Raises:
        ValueError: with a sentence that says what it is not.
    """
    text = text.strip()
    items = child(shape, 0) if shape.kind == "list" else None
    if items is not None and not text.startswith("["):
        if items.kind in {"table", "map", "list"}:
            raise ValueError('this must be a JSON list such as [{"action": "allow"}]')
        return [decode(each, items) for each in text.split(",") if each.strip()]
    if shape.kind in {"list", "table", "map"}:
        value = _from_json(text, list if shape.kind == "list" else dict)
        if items is not None and items.kind == "text":
            # ["telegram:42", 42]: an id that happens to be a number was still meant as an id.
            ids = cast("list[object]", value)
            return [str(each) if type(each) is int else each for each in ids]
        return value
    try:
        if shape.kind == "bool":
            return _BOOLEANS[text.lower()]
        if shape.kind in {"int", "float"}:
            return int(text) if shape.kind == "int" else float(text)
    except (KeyError, ValueError):
        raise ValueError(not_a(shape, text)) from None
    return text


def _from_json(text: str, wanted: type) -> object:
    described = 'a list such as ["a", "b"]' if wanted is list else 'a table such as {"name": …}'
    try:
        value: object = json.loads(text)
    except RecursionError:
        raise ValueError("this is nested too deeply") from None
    except ValueError:
        raise ValueError(f"this is not valid JSON for {described}") from None
    if not isinstance(value, wanted):
        raise ValueError(f"this must be {described}")  # noqa: TRY004 - a sentence for a person
    return value


def secret_in(name: str, folder: Path) -> str:
    """The secret in a file, as container platforms hand them out; `folder` is for relative names.

    Raises:
        ValueError: with a sentence on why there is no secret to be had; never with its content.
    """
    path = folder / name
    try:
        if path.stat().st_size > _MAX_SECRET_BYTES:
            raise ValueError(f"the file {name} is too large to hold only a secret")
        secret = path.read_bytes().decode("utf-8-sig").strip()
    except UnicodeDecodeError:  # its message would repeat the content
        raise ValueError(f"the file {name} is not text") from None
    except OSError as error:
        raise ValueError(f"the file {name} cannot be read: {error.strerror}") from error
    if not secret:
        raise ValueError(f"the file {name} is empty")
    if "\0" in secret or "\n" in secret:
        raise ValueError(f"the file {name} holds more than one line of text")
    return secret


# A `.env` file changed line by line: what is set takes a line's place, all others stay.
#
# Nothing can be written that would become a line of its own: a value is one line of plain text,
# and what was made is read back before anything trusts it.

LONGEST_VALUE = 4_096  # characters; keys, addresses and lists of names are far shorter
_BARE = re.compile(r"[A-Za-z0-9_./:@,+*-]+")  # what needs no quotes, here and in a shell


def dotenv_values(text: str) -> dict[str, str]:
    """The variables of a `.env` file, by name; the last line of a name counts."""
    return {b.key: b.value for b in _bindings(text) if b.key is not None and b.value is not None}


def dotenv_line(name: str, value: str) -> str:
    """A line that sets a name.

    Raises:
        ValueError: the value is no single line of text that can be seen.
    """
    if len(value) > LONGEST_VALUE:
        raise ValueError(f"this is too long: {LONGEST_VALUE} characters are the most")
    if not value.isprintable():
        raise ValueError("this must be one line of text, without control characters")
    if _BARE.fullmatch(value):
        return f"{name}={value}\n"
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"{name}='{escaped}'\n"


def edited_dotenv(
    text: str, changes: Mapping[str, str | None], same: Callable[[str], object] = lambda name: name
) -> str:
    """The text with these names set, or without their lines where the value is None.

    Args:
        text: the file as it is.
        changes: new values by name.
        same: what a name stands for; lines of other names that stand for the same go as well.

    Raises:
        ValueError: a value cannot be written, or the file has lines that nobody can read.
    """
    lines = {name: dotenv_line(name, value) for name, value in changes.items() if value is not None}
    by_meaning = {same(name): name for name in changes}
    kept: list[str] = []
    wanted = {name: value for name, value in changes.items() if value is not None}
    for binding in _bindings(text):
        raw, key = binding.original.string, binding.key
        name = None if key is None or key in changes else by_meaning.get(same(key) or key)
        name = key if key in changes else name
        if name is not None:
            kept += raw[: len(raw) - len(raw.lstrip())], lines.pop(name, "")
            continue
        kept.append(raw)
        if key is not None and binding.value is not None:
            wanted[key] = binding.value
    whole = "".join(kept)
    if whole and not whole.endswith("\n") and lines:
        whole += "\n"
    whole += "".join(lines.values())
    if dotenv_values(whole) != wanted or any(b.error for b in _bindings(whole)):
        raise ValueError("the file has lines that are not NAME=value: fix them first")
    return whole


def write_dotenv(path: Path, text: str) -> None:
    """Put a private file in the place of another one, whole or not at all.

    Raises:
        ConfigError: it cannot be written; the message says why, and never what.
    """
    path = path.resolve()  # a link stays a link
    try:
        files.put(path, text.encode(), f".{path.name}.{secrets.token_hex(4)}")
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise ConfigError(f"{path} cannot be written: {reason}") from error


def _bindings(text: str) -> list[Binding]:
    return list(parse_stream(io.StringIO(text)))
