"""Markdown → the messages Telegram shows: pure.

A document becomes one text and the marks on it, which are ranges of its characters. The text is cut
last: a mark that a cut goes through ends in one message and goes on in the next.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, takewhile
from typing import TYPE_CHECKING

import structlog

from bot.channel import Attachment, Outbound, Piece
from bot.channel.kit.json_access import Json
from bot.channel.kit.text import has_ink, numbered, parser, spans, table, units

if TYPE_CHECKING:
    from markdown_it.token import Token

LIMIT = 4096  # UTF-16 units of one message
MAX_CAPTION = 1024  # UTF-16 units below a picture or a file
MAX_ENTITIES = 100  # of one message; Telegram shows no more
MAX_FILE = 50_000_000  # bytes

# Text in which Markdown changes nothing has none of these: marks, block starts, odd white space.
_MARKED = re.compile(
    r"[\\`*_~\[<&|\r\0\t]"
    r"|^[#>+=:-]|^\d{1,9}[.)]|^ "
    r"| $|\n\n\n",
    re.MULTILINE,
)
_SURROGATE = re.compile("[\ud800-\udfff]")

_RULE = "─" * 10
_BULLET = "• "
_INDENT = "  "
_LANGUAGE = re.compile(r"[A-Za-z0-9_+#.-]{1,32}")
_LINKED = ("http://", "https://", "tg://", "mailto:")
_KINDS = {"heading": "bold", "strong": "bold", "em": "italic", "s": "strikethrough"}
_VALUES = {"text_link": "url", "pre": "language"}
_LISTS = frozenset({"bullet_list", "ordered_list"})
_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Words:
    """The text of one message, and the entities that format it."""

    text: str
    entities: tuple[Json, ...] = ()


def messages(outbound: Outbound) -> list[Piece]:
    """The messages a text and its files become.

    Words that fit below the first file stand there; longer ones come before it.

    Raises:
        SendRefused: there is nothing to show.
    """
    made = [Piece(outbound, words.text, words.entities) for words in formatted(outbound.text)]
    files = [(file,) for file in outbound.attachments if _fits(file)]
    if files and made and units(made[-1].text) <= MAX_CAPTION:
        made[-1] = replace(made[-1], attachments=files.pop(0))
    return numbered([*made, *(Piece(outbound, "", attachments=file) for file in files)])


def _fits(file: Attachment) -> bool:
    if 0 < len(file.data) <= MAX_FILE:
        return True
    _log.warning("telegram.file.left_out", mime=file.mime, size=len(file.data))
    return False


def formatted(markdown: str, limit: int = LIMIT) -> list[Words]:
    """The messages of at most `limit` UTF-16 units that Markdown becomes; none if nothing shows."""
    text, marks = parse(markdown)
    found: list[Words] = []
    here: list[Mark] = []
    at = 0
    blocks = [(mark.start, mark.stop) for mark in marks if mark.tag.kind == "pre"]
    for start, stop in spans(text, limit, blocks):
        first, at = at, bisect_left(marks, stop, at, key=lambda mark: mark.start)
        here = [mark for mark in (*here, *marks[first:at]) if mark.stop > start]
        found.append(_words_of(text[start:stop], start, here))
    return found


def _words_of(text: str, start: int, marks: Sequence[Mark]) -> Words:
    """A message of the part of a text that begins at `start`, and of the marks on that part."""
    if not marks:
        return Words(text)
    offsets = [0, *accumulate(1 + (char > "\uffff") for char in text)]
    entities: list[Json] = []
    for mark in marks[:MAX_ENTITIES]:
        offset = offsets[max(0, mark.start - start)]
        length = offsets[min(len(text), mark.stop - start)] - offset
        entity: Json = {"type": mark.tag.kind, "offset": offset, "length": length}
        if mark.tag.value:
            entity[_VALUES[mark.tag.kind]] = mark.tag.value
        entities.append(entity)
    return Words(text, tuple(entities))


# --- the document --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Tag:
    """A type of entity with the one attribute it may have; `serial` keeps neighbours apart."""

    kind: str
    value: str = ""  # the address of a link, or the language of a code block
    serial: int = 0


@dataclass(slots=True)
class Mark:
    """A tag and the characters that stand in it."""

    tag: Tag
    start: int
    stop: int


def parse(markdown: str) -> tuple[str, list[Mark]]:
    """The visible text of Markdown, and the marks on it in order, outer ones first."""
    text = markdown.strip()
    if not text.isascii():
        text = _SURROGATE.sub("\ufffd", text)  # half a character cannot be sent
    if not _MARKED.search(text):
        return text, []
    writer = _Writer()
    for token in parser(keeps_maths=True).parse(text):
        writer.add(token)
    shown = "".join(writer.parts)
    # Of an empty quote or fence nothing shows: what it is written as is better than no message.
    return (shown, writer.marks) if has_ink(shown) else (text, [])


@dataclass(slots=True)
class _Writer:
    """Collects text and marks of one document, token by token."""

    parts: list[str] = field(default_factory=list[str])
    marks: list[Mark] = field(default_factory=list[Mark])
    _length: int = 0  # characters so far
    _around: list[Mark] = field(default_factory=list[Mark])  # those the last part stands in
    _tags: list[Tag] = field(default_factory=list[Tag])
    # The next number of each open list, None for bullets.
    _lists: list[int | None] = field(default_factory=list[int | None])
    _bullet: str = ""  # what begins the next text of a list item
    _gap: int = 0  # line breaks owed before the next text
    _quotes: int = 0  # so far
    _before_link: int = 0  # how many characters there were when the last link began
    _rows: list[list[str]] = field(default_factory=list[list[str]])  # of a table that is open

    def add(self, token: Token) -> None:
        """Take the next token."""
        if token.nesting > 0:
            self._open(token)
        elif token.nesting < 0:
            self._close(token)
        else:
            self._leaf(token)

    def _open(self, token: Token) -> None:
        kind = token.type.removesuffix("_open")
        if kind in _KINDS:
            self._tags.append(Tag(_KINDS[kind]))
        elif kind == "link":
            self._before_link = self._length
            self._tags.append(Tag("text_link", str(token.attrs.get("href", ""))))
        elif kind == "blockquote":
            self._quotes += 1  # one does not run together with the one before it
            self._tags.append(Tag("blockquote", serial=self._quotes))
        elif kind in _LISTS:
            start = int(token.attrs.get("start", 1))
            self._lists.append(start if kind == "ordered_list" else None)
            if len(self._lists) > 1:
                self._gap = min(self._gap, 1)
        elif kind == "list_item":
            number = self._lists[-1]
            self._bullet += _INDENT * (len(self._lists) - 1)
            self._bullet += _BULLET if number is None else f"{number}. "
            self._lists[-1] = None if number is None else number + 1
        elif kind == "tr":
            self._rows.append([])

    def _close(self, token: Token) -> None:
        kind = token.type.removesuffix("_close")
        gap = 0
        if kind in _LISTS:
            self._lists.pop()
            gap = 1 if self._lists else 2
        elif kind == "list_item":
            self._write("")  # the bullet, when the item has nothing else
            gap = 1
        elif kind == "link" and self._length == self._before_link:
            self._write(self._tags[-1].value)  # a link without words shows its address
        elif kind == "paragraph":
            gap = 1 if token.hidden else 2  # hidden: the item of a tight list
        elif kind in {"heading", "blockquote"}:
            gap = 2
        elif kind == "table":
            lines, self._rows = table(self._rows)[: 1 if len(self._rows) == 1 else None], []
            self._write("\n".join(lines), Tag("pre"))
            gap = 2
        if kind in _KINDS or kind in {"link", "blockquote"}:
            self._tags.pop()
        self._gap = max(self._gap, gap)

    def _leaf(self, token: Token) -> None:
        match token.type:
            case "inline" if self._rows:
                self._rows[-1].append(_words(token.children or []))
            case "inline":
                for child in token.children or []:
                    self.add(child)
            case "fence" | "code_block":
                language = _LANGUAGE.match(token.info.strip())
                tag = Tag("pre", language[0] if language else "")
                self._write(token.content.removesuffix("\n"), tag)
                self._gap = 2
            case "hr":
                self._write(_RULE)
                self._gap = 2
            case "code_inline":
                self._write(token.content, Tag("code"))
            case "image":
                source = str(token.attrs.get("src", ""))
                self._write(_words(token.children or []) or source, Tag("text_link", source))
            case "softbreak" | "hardbreak":
                self._write("\n" + _INDENT * len(self._lists))
            case _:
                self._write(token.content)

    def _write(self, text: str, inner: Tag | None = None) -> None:
        """Add text, after the line breaks and the bullet that are due."""
        if not text and not self._bullet:
            return
        tags = _nested([*self._tags, inner] if inner else self._tags)
        quotes = tuple(tag for tag in tags if tag.kind == "blockquote")
        if self._gap and self.parts:
            # Breaks belong to what surrounds both neighbours, such as one quote.
            code = inner is not None and inner.kind == "pre"
            indent = "" if self._bullet or code else _INDENT * len(self._lists)
            self._put("\n" * self._gap + indent, quotes[: self._shared(quotes)])
        if self._bullet:
            self._put(self._bullet, quotes)
        if text:
            self._put(text, tags)
        self._gap, self._bullet = 0, ""

    def _put(self, text: str, tags: tuple[Tag, ...]) -> None:
        """Add text that stands in these tags, outermost first."""
        del self._around[self._shared(tags) :]
        begun = [Mark(tag, self._length, 0) for tag in tags[len(self._around) :]]
        self.marks += begun
        self._around += begun
        self.parts.append(text)
        self._length += len(text)
        for mark in self._around:
            mark.stop = self._length

    def _shared(self, tags: tuple[Tag, ...]) -> int:
        """The number of these tags that the last part stands in, from the outside."""
        pairs = zip(self._around, tags, strict=False)
        return sum(1 for _ in takewhile(lambda pair: pair[0].tag == pair[1], pairs))


def _nested(tags: Sequence[Tag]) -> tuple[Tag, ...]:
    """The tags in the way Telegram lets them stand in each other.

    One quote, one link and no tag twice; code has no tag around it but a quote, and a link says
    more than the look of code.
    """
    kept: list[Tag] = []
    for tag in tags:
        known = tag.kind != "text_link" or tag.value.lower().startswith(_LINKED)
        if known and all(tag.kind != one.kind for one in kept):
            kept.append(tag)
    if kept and kept[-1].kind in {"pre", "code"}:
        code = kept.pop()
        if any(tag.kind == "text_link" for tag in kept):
            return tuple(tag for tag in kept if tag.kind in {"text_link", "blockquote"})
        return (*(tag for tag in kept if tag.kind == "blockquote"), code)
    return tuple(kept)


def _words(tokens: Sequence[Token]) -> str:
    """The text of inline tokens without any formatting."""
    parts: list[str] = []
    for token in tokens:
        if token.type in {"softbreak", "hardbreak"}:
            parts.append(" ")
        elif token.type == "image":
            parts.append(_words(token.children or []))
        else:
            parts.append(token.content)
    return "".join(parts)
