"""On which line of a TOML file each key stands; `tomllib` tells the values only.

The text is known to be valid TOML, so this reads just enough of the grammar to follow keys:
headers, dotted and quoted keys, arrays of tables, inline tables and every kind of string.
"""

from __future__ import annotations

import re
import tomllib

from bot.settings.fields import Key

_BLANK = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_SPACE = re.compile(r"[ \t]*")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_PLAIN = re.compile(r"[^,\]}\n#]*")  # numbers, booleans, dates
_STRINGS = (
    re.compile(r'"""(?:[^"\\]+|\\.|"{1,2}(?!"))*"{3,5}', re.DOTALL),
    re.compile(r"'''(?:[^']+|'{1,2}(?!'))*'{3,5}"),
    re.compile(r'"(?:[^"\\\n]|\\.)*"'),
    re.compile(r"'[^'\n]*'"),
)


def positions(text: str) -> dict[Key, int]:
    """The line (from 1) of every key and list item of a valid TOML document."""
    scanner = _Scanner(text.replace("\r\n", "\n"))
    try:
        scanner.document()
    except RecursionError:  # nested about as deep as the parser itself can go
        return {}
    return scanner.lines


class _Scanner:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.lines: dict[Key, int] = {}
        self._line = 1
        self._counted = 0  # how far lines have been counted
        self._last_item: dict[Key, int] = {}  # arrays of tables: index of the newest table

    def document(self) -> None:
        table: Key = ()
        while True:
            self._skip(_BLANK)
            if self.at >= len(self.text):
                return
            if self.text[self.at] == "[":
                table = self._header()
            else:
                self._pair(table)

    def _header(self) -> Key:
        line = self._here()
        array = self.text.startswith("[[", self.at)
        self.at += 2 if array else 1
        names = self._key()
        self._skip(_SPACE)
        self.at += 2 if array else 1
        key = self._resolve(names[:-1])
        self._mark_parents(key, line)
        key = (*key, names[-1])
        if array:
            index = self._last_item.get(key, -1) + 1
            self._last_item[key] = index
            self.lines.setdefault(key, line)
            key = (*key, index)
        elif key in self._last_item:
            key = (*key, self._last_item[key])
        self.lines[key] = line
        return key

    def _resolve(self, names: tuple[str, ...]) -> Key:
        """The place a header means: below an array of tables, its newest table."""
        key: Key = ()
        for name in names:
            key = (*key, name)
            if key in self._last_item:
                key = (*key, self._last_item[key])
        return key

    def _mark_parents(self, key: Key, line: int) -> None:
        for length in range(1, len(key) + 1):
            self.lines.setdefault(key[:length], line)

    def _pair(self, table: Key) -> None:
        line = self._here()
        names = self._key()
        key: Key = (*table, *names)
        for length in range(len(table) + 1, len(key) + 1):
            self.lines.setdefault(key[:length], line)
        self._skip(_SPACE)
        self.at += 1  # the equals sign
        self._skip(_SPACE)
        self._value(key)

    def _key(self) -> tuple[str, ...]:
        names: list[str] = []
        while True:
            self._skip(_SPACE)
            if self.text[self.at] in "\"'":
                names.append(str(tomllib.loads(f"key = {self._string()}")["key"]))
            else:
                names.append(self._take(_BARE_KEY))
            self._skip(_SPACE)
            if not self.text.startswith(".", self.at):
                return tuple(names)
            self.at += 1

    def _value(self, key: Key) -> None:
        first = self.text[self.at]
        if first in "\"'":
            self._string()
        elif first == "[":
            self.at += 1
            self._items(key)
        elif first == "{":
            self.at += 1
            self._inline(key)
        else:
            self._take(_PLAIN)

    def _items(self, key: Key) -> None:
        index = 0
        while True:
            self._skip(_BLANK)
            if self.text[self.at] == "]":
                self.at += 1
                return
            if self.text[self.at] == ",":
                self.at += 1
                continue
            self.lines[*key, index] = self._here()
            self._value((*key, index))
            index += 1

    def _inline(self, key: Key) -> None:
        while True:
            self._skip(_BLANK)
            if self.text[self.at] == "}":
                self.at += 1
                return
            if self.text[self.at] == ",":
                self.at += 1
                continue
            self._pair(key)

    def _string(self) -> str:
        for pattern in _STRINGS:
            found = pattern.match(self.text, self.at)
            if found and not (found.end() - self.at == 2 and self._triple()):
                self.at = found.end()
                return found.group()
        raise AssertionError("the document was not valid TOML")

    def _triple(self) -> bool:
        return self.text[self.at : self.at + 3] in {'"""', "'''"}

    def _take(self, pattern: re.Pattern[str]) -> str:
        start = self.at
        self._skip(pattern)
        return self.text[start : self.at]

    def _skip(self, pattern: re.Pattern[str]) -> None:
        found = pattern.match(self.text, self.at)
        if found:
            self.at = found.end()

    def _here(self) -> int:
        self._line += self.text.count("\n", self._counted, self.at)
        self._counted = self.at
        return self._line
