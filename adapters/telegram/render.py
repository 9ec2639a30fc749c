"""Markdown → the messages Telegram shows: pure.

A parsed document becomes runs, which are pieces of text and the tags they stand in. Runs are
what gets cut, so a tag or a code block that is cut is closed in one message and opened again in the
next.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import structlog

from bot.channel import Attachment, Outbound, Piece
from bot.channel.kit.text import has_ink, numbered, parser, spans, split, table, units

if TYPE_CHECKING:
    from markdown_it.token import Token

LIMIT = 4096  # UTF-16 units of one message, counted after Telegram took the tags out
# Bytes of one request's text, tags included; Telegram's server refuses more than 2^15.
MAX_HTML_BYTES = 32_000
MAX_CAPTION = 1024  # UTF-16 units below a picture or a file
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
_TAGS = {"heading": "b", "strong": "b", "em": "i", "s": "s"}
_LISTS = frozenset({"bullet_list", "ordered_list"})
_log = structlog.get_logger()
_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;"})


@dataclass(frozen=True, slots=True)
class Words:
    """One message: as HTML, and the same words without any formatting."""

    html: str
    plain: str


def messages(outbound: Outbound) -> list[Piece]:
    """The messages a text and its files become.

    Words that fit below the first file stand there; longer ones come before it.

    Raises:
        SendRefused: there is nothing to show.
    """
    chunks = [formatted(chunk) for chunk in split(outbound.text, LIMIT, "utf16")]
    made = [Piece(outbound, words.html, words.plain) for chunk in chunks for words in chunk]
    files = [(file,) for file in outbound.attachments if _fits(file)]
    if files and chunks and len(chunks[-1]) == 1 and units(made[-1].plain) <= MAX_CAPTION:
        made[-1] = replace(made[-1], attachments=files.pop(0))
    return numbered([*made, *(Piece(outbound, "", attachments=file) for file in files)])


def _fits(file: Attachment) -> bool:
    if 0 < len(file.data) <= MAX_FILE:
        return True
    _log.warning("telegram.file.left_out", mime=file.mime, size=len(file.data))
    return False


def formatted(markdown: str, limit: int = LIMIT) -> list[Words]:
    """The messages a Markdown text becomes, in order; none when it has nothing to show.

    Args:
        markdown: CommonMark with tables and strikethrough.
        limit: UTF-16 units one message may have once the tags are taken out.
    """
    runs = parse(markdown)
    flat = "".join(run.text for run in runs)
    if units(flat) <= limit:
        return [_piece(runs, flat)] if flat.strip() else []
    places = spans(flat, limit)
    return [_piece(between(runs, *span), flat[slice(*span)]) for span in places]


def parse(markdown: str) -> list[Run]:
    """The runs of a Markdown text."""
    text = markdown.strip()
    if not text.isascii():
        text = _SURROGATE.sub("\ufffd", text)  # half a character cannot be sent
    if not _MARKED.search(text):
        return [Run(text)] if text else []
    runs = render(parser().parse(text))
    # Of an empty quote or fence nothing shows: what it is written as is better than no message.
    is_hidden = has_ink(text) and not any(has_ink(run.text) for run in runs)
    return [Run(text)] if is_hidden else runs


def _piece(runs: Sequence[Run], plain: str) -> Words:
    html = to_html(runs)
    # A character has at most four bytes, so most texts need no encoding to be known as short.
    if len(html) > MAX_HTML_BYTES // 4 and len(html.encode()) > MAX_HTML_BYTES:
        html = escape(plain)  # tags around every letter: the words matter more
    return Words(html, plain)


# --- runs ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Tag:
    """An HTML tag with the one attribute it may have; `serial` keeps neighbours apart."""

    name: str
    value: str = ""  # the href of a link, or the language of a code block
    serial: int = 0

    @property
    def html(self) -> tuple[str, str]:
        """The tag, or tags, as they begin and as they end."""
        if self.name == "a":
            return f'<a href="{escape(self.value)}">', "</a>"
        if self.name == "pre" and self.value:
            return f'<pre><code class="language-{escape(self.value)}">', "</code></pre>"
        return f"<{self.name}>", f"</{self.name}>"


@dataclass(frozen=True, slots=True)
class Run:
    """Text in one set of tags, outermost first."""

    text: str
    tags: tuple[Tag, ...] = ()


def escape(text: str) -> str:
    """Text as HTML that shows the same."""
    return text.translate(_ESCAPES)


def shared(left: Sequence[Tag], right: Sequence[Tag]) -> int:
    """How many tags two stacks have in common, from the outside."""
    count = 0
    for one, other in zip(left, right, strict=False):
        if one != other:
            break
        count += 1
    return count


def to_html(runs: Sequence[Run]) -> str:
    """Runs as Telegram HTML, every tag closed."""
    out: list[str] = []
    opened: tuple[Tag, ...] = ()
    for run in runs:
        kept = shared(opened, run.tags)
        out.extend(tag.html[1] for tag in reversed(opened[kept:]))
        out.extend(tag.html[0] for tag in run.tags[kept:])
        out.append(escape(run.text))
        opened = run.tags
    out.extend(tag.html[1] for tag in reversed(opened))
    return "".join(out)


def between(runs: Sequence[Run], start: int, stop: int) -> list[Run]:
    """The runs, or parts of them, that stand between two places of the whole text."""
    found: list[Run] = []
    at = 0
    for run in runs:
        text = run.text[max(0, start - at) : max(0, stop - at)]
        if text:
            found.append(Run(text, run.tags))
        at += len(run.text)
        if at >= stop:
            break
    return found


# --- the document --------------------------------------------------------------------------------


def render(tokens: Sequence[Token]) -> list[Run]:
    """The runs of a document, without the white space around it, which Telegram would take away."""
    writer = _Writer()
    for token in tokens:
        writer.add(token)
    runs = writer.runs
    while runs and not runs[-1].text.strip():
        runs.pop()
    while runs and not runs[0].text.strip():
        runs.pop(0)
    if runs:
        runs[-1] = Run(runs[-1].text.rstrip(), runs[-1].tags)
        runs[0] = Run(runs[0].text.lstrip("\n"), runs[0].tags)
    return runs


@dataclass(slots=True)
class _Writer:
    """Collects the runs of one document, token by token."""

    runs: list[Run] = field(default_factory=list[Run])
    _tags: list[Tag] = field(default_factory=list[Tag])
    # The next number of each open list, None for bullets.
    _lists: list[int | None] = field(default_factory=list[int | None])
    _bullet: str = ""  # what begins the next text of a list item
    _gap: int = 0  # line breaks owed before the next text
    _quotes: int = 0  # so far
    _before_link: int = 0  # how many runs there were when the last link began
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
        if kind in _TAGS:
            self._tags.append(Tag(_TAGS[kind]))
        elif kind == "link":
            self._before_link = len(self.runs)
            self._tags.append(Tag("a", str(token.attrs.get("href", ""))))
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
        elif kind == "link" and len(self.runs) == self._before_link:
            self._write(self._tags[-1].value)  # a link without words shows its address
        elif kind == "paragraph":
            gap = 1 if token.hidden else 2  # hidden: the item of a tight list
        elif kind in {"heading", "blockquote"}:
            gap = 2
        elif kind == "table":
            lines, self._rows = table(self._rows)[: 1 if len(self._rows) == 1 else None], []
            self._write("\n".join(lines), Tag("pre"))
            gap = 2
        if kind in _TAGS or kind in {"link", "blockquote"}:
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
                self._write(_words(token.children or []) or source, Tag("a", source))
            case "softbreak" | "hardbreak":
                self._write("\n" + _INDENT * len(self._lists))
            case _:
                self._write(token.content)

    def _write(self, text: str, inner: Tag | None = None) -> None:
        """Add text, after the line breaks and the bullet that are due."""
        if not text and not self._bullet:
            return
        tags = _nested([*self._tags, inner] if inner else self._tags)
        quotes = tuple(tag for tag in tags if tag.name == "blockquote")
        if self._gap and self.runs:
            # Breaks belong to what surrounds both neighbours, such as one quote.
            kept = quotes[: shared(self.runs[-1].tags, quotes)]
            code = inner is not None and inner.name == "pre"
            indent = "" if self._bullet or code else _INDENT * len(self._lists)
            self.runs.append(Run("\n" * self._gap + indent, kept))
        if self._bullet:
            self.runs.append(Run(self._bullet, quotes))
        if text:
            self.runs.append(Run(text, tags))
        self._gap, self._bullet = 0, ""


def _nested(tags: Sequence[Tag]) -> tuple[Tag, ...]:
    """The tags in the way Telegram lets them stand in each other.

    One quote, one link and no tag twice; code has no tag around it but a quote, and a link says
    more than the look of code.
    """
    kept: list[Tag] = []
    for tag in tags:
        known = tag.name != "a" or tag.value.lower().startswith(_LINKED)
        if known and all(tag.name != one.name for one in kept):
            kept.append(tag)
    if kept and kept[-1].name in {"pre", "code"}:
        code = kept.pop()
        if any(tag.name == "a" for tag in kept):
            return tuple(tag for tag in kept if tag.name in {"a", "blockquote"})
        return (*(tag for tag in kept if tag.name == "blockquote"), code)
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
