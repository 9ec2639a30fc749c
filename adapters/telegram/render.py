"""Markdown → the messages Telegram shows: pure.

A parsed document becomes runs, which are pieces of text and the tags they stand in. Runs are
what gets cut, so a tag or a code block that is cut is closed in one message and opened again in the
next.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import structlog

from bot.channel import Attachment, Outbound, Piece
from bot.channel.kit.pieces import numbered
from bot.channel.kit.text import has_ink, parser, spans, table, units
from bot.channel.kit.text import pieces as cut

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
_INLINE_TAGS = {"strong": "b", "em": "i", "s": "s"}
_LINE_BREAKS = frozenset({"softbreak", "hardbreak"})
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
    chunks = [pieces(chunk) for chunk in cut(outbound.text, LIMIT, "utf16")]
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


def pieces(markdown: str, limit: int = LIMIT) -> list[Words]:
    """The messages a Markdown text becomes, in order; none when it has nothing to show.

    Args:
        markdown: CommonMark with tables and strikethrough.
        limit: UTF-16 units one message may have once the tags are taken out.
    """
    runs = parse(markdown)
    flat = "".join(run.text for run in runs)
    places = spans(flat, limit)
    if len(places) == 1:
        return [_piece(runs, flat)]
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
    def opening(self) -> str:
        """The tag, or tags, as they begin."""
        if self.name == "a":
            return f'<a href="{escape(self.value)}">'
        if self.name == "pre" and self.value:
            return f'<pre><code class="language-{escape(self.value)}">'
        return f"<{self.name}>"

    @property
    def closing(self) -> str:
        """The tag, or tags, as they end."""
        return "</code></pre>" if self.name == "pre" and self.value else f"</{self.name}>"


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
        out.extend(tag.closing for tag in reversed(opened[kept:]))
        out.extend(tag.opening for tag in run.tags[kept:])
        out.append(escape(run.text))
        opened = run.tags
    out.extend(tag.closing for tag in reversed(opened))
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
    """The runs of a document, without the white space around it."""
    writer = _Writer()
    index = 0
    while index < len(tokens):
        token = tokens[index]
        if token.type == "table_open":
            end = next(i for i in range(index, len(tokens)) if tokens[i].type == "table_close")
            rows = _rows(tokens[index:end])
            lines = table(rows) if len(rows) > 1 else table(rows)[:1]
            writer.block("\n".join(lines), Tag("pre"))
            index = end
        elif token.type in _BLOCKS:
            _BLOCKS[token.type](writer, token)
        index += 1
    return _trimmed(writer.runs)


class _Writer:
    """Collects the runs of one document."""

    def __init__(self) -> None:
        self.runs: list[Run] = []
        self.tags: list[Tag] = []
        self.lists: list[int | None] = []  # the next number of each open list, None for bullets
        self.bullet = ""  # what begins the next text of a list item
        self._gap = 0  # line breaks owed before the next text
        self._serial = 0

    def owe(self, breaks: int) -> None:
        """Put at least so many line breaks before the next text."""
        self._gap = max(self._gap, breaks)

    def owe_at_most(self, breaks: int) -> None:
        """Put no more line breaks than that before the next text."""
        self._gap = min(self._gap, breaks)

    def block(self, text: str, inner: Tag | None = None) -> None:
        """Add a block of its own."""
        self.write(text, inner)
        self.owe(2)

    def write(self, text: str, inner: Tag | None = None) -> None:
        """Add text, after the line breaks and the bullet that are due."""
        if not text and not self.bullet:
            return
        tags = _nested([*self.tags, inner] if inner else self.tags)
        quotes = tuple(tag for tag in tags if tag.name == "blockquote")
        if self._gap and self.runs:
            # Breaks belong to what surrounds both neighbours, such as one quote.
            kept = quotes[: shared(self.runs[-1].tags, quotes)]
            code = inner is not None and inner.name == "pre"
            indent = "" if self.bullet or code else _INDENT * len(self.lists)
            self._append("\n" * self._gap + indent, kept)
        self._gap = 0
        self._append(self.bullet, quotes)
        self.bullet = ""
        self._append(text, tags)

    def open_quote(self) -> None:
        """Begin a quote that does not run together with the one before it."""
        self._serial += 1
        self.tags.append(Tag("blockquote", serial=self._serial))

    def close_tag(self, name: str) -> None:
        """End the innermost tag of this name."""
        for index in range(len(self.tags) - 1, -1, -1):
            if self.tags[index].name == name:
                del self.tags[index]
                return

    def _append(self, text: str, tags: tuple[Tag, ...]) -> None:
        if text:
            self.runs.append(Run(text, tags))


# --- blocks --------------------------------------------------------------------------------------


def _open_heading(writer: _Writer, _token: Token) -> None:
    writer.tags.append(Tag("b"))


def _close_heading(writer: _Writer, _token: Token) -> None:
    writer.close_tag("b")
    writer.owe(2)


def _close_paragraph(writer: _Writer, token: Token) -> None:
    writer.owe(1 if token.hidden else 2)  # hidden: the item of a tight list


def _code(writer: _Writer, token: Token) -> None:
    language = _LANGUAGE.match(token.info.strip())
    writer.block(token.content.removesuffix("\n"), Tag("pre", language[0] if language else ""))


def _rule(writer: _Writer, _token: Token) -> None:
    writer.block(_RULE)


def _open_quote(writer: _Writer, _token: Token) -> None:
    writer.open_quote()


def _close_quote(writer: _Writer, _token: Token) -> None:
    writer.close_tag("blockquote")
    writer.owe(2)


def _open_list(writer: _Writer, token: Token) -> None:
    ordered = token.type == "ordered_list_open"
    writer.lists.append(int(token.attrs.get("start", 1)) if ordered else None)
    if len(writer.lists) > 1:
        writer.owe_at_most(1)


def _close_list(writer: _Writer, _token: Token) -> None:
    writer.lists.pop()
    writer.owe(1 if writer.lists else 2)


def _open_item(writer: _Writer, _token: Token) -> None:
    number = writer.lists[-1]
    writer.bullet += _INDENT * (len(writer.lists) - 1)
    writer.bullet += _BULLET if number is None else f"{number}. "
    if number is not None:
        writer.lists[-1] = number + 1


def _close_item(writer: _Writer, _token: Token) -> None:
    writer.write("")  # the bullet, when the item has nothing else
    writer.owe(1)


def _inline(writer: _Writer, token: Token) -> None:
    links: list[tuple[Tag, int]] = []
    for child in token.children or []:
        name, _, edge = child.type.rpartition("_")
        if name == "link":
            _link(writer, child, links)
        elif name in _INLINE_TAGS:
            if edge == "open":
                writer.tags.append(Tag(_INLINE_TAGS[name]))
            else:
                writer.close_tag(_INLINE_TAGS[name])
        elif child.type == "code_inline":
            writer.write(child.content, Tag("code"))
        elif child.type == "image":
            source = str(child.attrs.get("src", ""))
            writer.write(_words(child.children or []) or source, Tag("a", source))
        elif child.type in _LINE_BREAKS:
            writer.write("\n" + _INDENT * len(writer.lists))
        else:
            writer.write(child.content)


def _link(writer: _Writer, token: Token, links: list[tuple[Tag, int]]) -> None:
    if token.type == "link_open":
        tag = Tag("a", str(token.attrs.get("href", "")))
        links.append((tag, len(writer.runs)))
        writer.tags.append(tag)
        return
    tag, before = links.pop()
    if len(writer.runs) == before:
        writer.write(tag.value)  # a link without words shows its address
    writer.close_tag("a")


_BLOCKS: dict[str, Callable[[_Writer, Token], None]] = {
    "inline": _inline,
    "heading_open": _open_heading,
    "heading_close": _close_heading,
    "paragraph_close": _close_paragraph,
    "fence": _code,
    "code_block": _code,
    "hr": _rule,
    "blockquote_open": _open_quote,
    "blockquote_close": _close_quote,
    "bullet_list_open": _open_list,
    "bullet_list_close": _close_list,
    "ordered_list_open": _open_list,
    "ordered_list_close": _close_list,
    "list_item_open": _open_item,
    "list_item_close": _close_item,
}


# --- helpers -------------------------------------------------------------------------------------


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
        if token.type in _LINE_BREAKS:
            parts.append(" ")
        elif token.type == "image":
            parts.append(_words(token.children or []))
        else:
            parts.append(token.content)
    return "".join(parts)


def _rows(tokens: Sequence[Token]) -> list[list[str]]:
    """The cells of a table's tokens, row by row."""
    rows: list[list[str]] = []
    for token in tokens:
        if token.type == "tr_open":
            rows.append([])
        elif token.type == "inline" and rows:
            rows[-1].append(_words(token.children or []))
    return rows


def _trimmed(runs: list[Run]) -> list[Run]:
    """The runs without the white space around them, which Telegram would take away too."""
    while runs and not runs[-1].text.strip():
        runs.pop()
    while runs and not runs[0].text.strip():
        runs.pop(0)
    if runs:
        runs[-1] = Run(runs[-1].text.rstrip(), runs[-1].tags)
        runs[0] = Run(runs[0].text.lstrip("\n"), runs[0].tags)
    return runs
