"""Text as platforms take it: its length, where to cut it, whether anything of it shows. Pure."""

from __future__ import annotations

import functools
import re
import unicodedata
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from bot.channel import Attachment, Channel, LengthUnit, Outbound, Piece
from bot.errors import SendRefused

if TYPE_CHECKING:
    from markdown_it.token import Token

    from bot.channel.kit.markdown import Markdown

MAX_COLUMN = 40  # cells of a table wider than this do not widen their column

_FENCE = re.compile(r"^ {0,3}(`{3,}+|~{3,}+)(.*)$")
_INLINE = re.compile(r"\\.|(`{1,4}|\*{1,3}|_{1,3}|~~|\|\|)", re.DOTALL)
_UNSAFE = re.compile(r"[^\w.()+-]")
_MAX_INLINE = 8  # characters of marks that are closed and opened again
_MAX_PARAGRAPH = 16_000  # characters behind a cut in which what closes a mark is looked for
_MAX_INFO = 16  # of a fence's language when it is opened again
_MAX_CLUSTER = 32  # code points looked back over for the beginning of one visible character


@dataclass(frozen=True, slots=True)
class _Fence:
    """An open code fence: how to open it again, and what closes it."""

    opening: str
    closing: str


# --- how long ------------------------------------------------------------------------------------


def length(text: str, unit: LengthUnit) -> int:
    """The length of a text for a platform: in characters, or in UTF-16 code units."""
    return units(text) if unit == "utf16" else len(text)


def units(text: str) -> int:
    """The length of a text in UTF-16 code units."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def first_units(text: str, count: int) -> str:
    """The beginning of a text, at most so many UTF-16 units, and no half of a character."""
    if count <= 0:
        return ""
    return text[: _whole_character(text, 0, _reach(text, 0, count, "utf16"))]


def file_name(file: Attachment, limit: int = 100) -> str:
    """A file's name as it may stand in a header or a path, with the end of a long one."""
    return _UNSAFE.sub("_", file.name)[-limit:] or "file"


def written_in(text: str) -> str:
    """The language of a line that goes with a text: "zh", else "en"."""
    return "zh" if re.search("[\u4e00-\u9fff]", text) else "en"


def width(text: str) -> int:
    """The columns of a text in a monospaced font; East Asian wide characters take two."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(char) else 1 + (unicodedata.east_asian_width(char) in "WF")
        for char in text
    )


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows as aligned lines of a monospaced font, with a rule under the first."""
    widths = [0] * max((len(row) for row in rows), default=0)
    for row in rows:
        for index, cell in enumerate(row):
            widths[index] = max(widths[index], min(width(cell), MAX_COLUMN))
    lines = [
        " | ".join(
            cell + " " * (column - width(cell)) for cell, column in zip(row, widths, strict=False)
        ).rstrip()
        for row in rows
    ]
    lines.insert(1, "-+-".join("-" * column for column in widths))
    return lines


# --- where to cut --------------------------------------------------------------------------------


def split(text: str, limit: int, unit: LengthUnit = "chars") -> list[str]:
    """A Markdown text in pieces no longer than `limit`, in order; none when it is only white space.

    A piece ends at a blank line, else a line end, else a space, else anywhere but inside a
    character. A code fence, and what is bold, struck out, hidden or code within a paragraph, that
    must be cut is closed at the end of its piece and opened again in the next. `limit` is at least
    64, so that a fence's own lines fit beside some of what it holds.
    """
    rest = text.strip("\n")
    found: list[str] = []
    fence: _Fence | None = None
    inline = ""  # marks that are to be opened again
    while rest.strip():
        opening = f"{fence.opening}\n" if fence else inline
        room = limit - length(opening, unit)
        if length(rest, unit) <= room:
            found.append(opening + rest)
            break
        marks = max(len(fence.closing) if fence else 0, _longest_fence(rest, room))
        has_inline = fence is None and bool(inline or _INLINE.search(rest[:room]))
        closing_room = max(marks + 1 if marks else 0, _MAX_INLINE if has_inline else 0)
        window = _reach(rest, 0, max(room - closing_room, 8), unit)
        cut = _best_cut(rest, window, fence, room)
        head = rest[:cut]
        fence = _fence_after(head, fence)
        body = head.rstrip("\n") if fence is None else head.removesuffix("\n")
        torn = "" if fence else _torn(opening + head, rest[cut : cut + _MAX_PARAGRAPH])
        closing = f"\n{fence.closing}" if fence else _mirrored(torn)
        body, inline = (body.rstrip() if torn else body), torn
        if body.strip():
            found.append(opening + body + closing)
        rest = rest[cut:]
        rest = rest.lstrip("\n") if fence is None else rest.removeprefix("\n")
    return found


def _torn(head: str, rest: str) -> str:
    """The marks that a cut within a paragraph leaves open, and that are closed behind it."""
    if head.endswith("\n\n") or rest.startswith("\n"):
        return ""
    paragraph, behind = head[head.rfind("\n\n") + 1 :], rest.partition("\n\n")[0]
    open_: list[str] = []
    for found in _INLINE.finditer(paragraph):
        mark = found[1]
        if mark is None or (open_ and open_[-1][0] == "`" and mark != open_[-1]):
            continue
        start, end = found.span()
        before, after = paragraph[start - 1 : start], paragraph[end : end + 1]
        if mark in open_:
            if not before.isspace() or mark[0] == "`":
                del open_[open_.index(mark) :]
        elif after.strip() and not (mark[0] == "_" and before.isalnum()):
            open_.append(mark)
    kept = "".join(mark for mark in open_ if re.search(rf"\S{re.escape(mark)}", behind))
    return kept if len(kept) <= _MAX_INLINE else ""


def _mirrored(marks: str) -> str:
    """The closing of some marks: `**` and then `~~` are closed the other way round."""
    return "".join(reversed([found[1] for found in _INLINE.finditer(marks)]))


def closed(markdown: str) -> str:
    """A Markdown text with its last code fence closed, so that what follows is no part of it."""
    fence = _fence_after(markdown, None)
    if fence is None:
        return markdown
    newline = "" if markdown.endswith("\n") else "\n"
    return f"{markdown}{newline}{fence.closing}"


def spans(text: str, limit: int, blocks: Sequence[tuple[int, int]] = ()) -> list[tuple[int, int]]:
    """Cut plain text into spans of at most `limit` UTF-16 units in which something shows.

    It cuts at a blank line, else a line end, else a space, else anywhere but inside a visible
    character, and before one of the `blocks` that fits half a span and would be cut otherwise.
    White space is dropped before a cut, and line ends and one space behind it.
    """
    found: list[tuple[int, int]] = []
    start, end = 0, len(text)
    while start < end:
        while text.startswith("\n", start):
            start += 1
        stop = _reach(text, start, limit, "utf16")
        if stop < end:
            stop = _break(text, start, stop, blocks)
        words = text[start:stop].rstrip()
        if has_ink(words):
            found.append((start, start + len(words)))
        start = stop + text.startswith(" ", stop)
    return found


def _reach(text: str, start: int, limit: int, unit: LengthUnit) -> int:
    """The end of the longest span from `start` within `limit`: at least one character."""
    stop = min(len(text), start + limit)
    over = length(text[start:stop], unit) - limit
    while over > 0:
        # A character is at most two units, so this many have to go at least.
        stop -= (over + 1) // 2
        over = length(text[start:stop], unit) - limit
    return max(stop, start + 1)


def _break(text: str, start: int, stop: int, blocks: Sequence[tuple[int, int]]) -> int:
    """A good place to cut at or before `stop`, but not in the first half: small messages tire."""
    half = start + (stop - start) // 2
    at = bisect_left(blocks, (stop, 0)) - 1
    if at >= 0:
        first, last = blocks[at]  # the last one that begins before the cut
        if first > half and stop < last <= first + half - start:
            return first - 1  # the break before it
    for mark in ("\n\n", "\n"):
        at = text.rfind(mark, half, stop + 1)
        if at > half:
            return at
    at = max(text.rfind(" ", half, stop + 1), text.rfind("\u3002", half, stop) + 1)
    return at if at > half else _whole_character(text, start, stop)


def _longest_fence(text: str, room: int) -> int:
    """The longest closing of any fence that begins in reach."""
    return min(
        max(
            (len(m[1]) for line in text[:room].split("\n") if (m := _FENCE.match(line))), default=0
        ),
        room // 4,
    )


def _best_cut(rest: str, window: int, fence: _Fence | None, room: int) -> int:
    """The place to cut, at most after `window` characters; always more than nothing."""
    head = rest[:window]
    if fence is None:
        start = _torn_block(rest, window, room)
        if start > 0:
            return start
        blank = head.rfind("\n\n")
        if blank > window // 2:
            return blank + 1
    line = head.rfind("\n")
    if line > window // 3:
        return line + 1
    space = max(head.rfind(" "), head.rfind("\t"), head.rfind("\u3002") + 1)
    if space > window // 3:
        return space + 1 if rest[space : space + 1].isspace() else space
    return _whole_character(rest, 0, window)


def _torn_block(rest: str, window: int, room: int) -> int:
    """The start of a block that a cut would tear although it fits a piece of its own; or 0."""
    position, start, closing = 0, 0, ""
    for line in rest.split("\n"):
        end = position + len(line) + 1
        match = _FENCE.match(line)
        if closing:
            if match and match[1].startswith(closing) and not match[2].strip():
                if end > window:
                    return start if end - start <= room // 2 else 0
                closing = ""
        elif position >= window:
            return 0
        elif match and _opens(match):
            start, closing = position, match[1]
        position = end
    return 0


def _whole_character(text: str, start: int, stop: int) -> int:
    """The place, moved back so that it does not fall inside one visible character."""
    for at in range(stop, max(start, stop - _MAX_CLUSTER), -1):
        if not _continues(text, at):
            return at
    return stop


def _continues(text: str, at: int) -> bool:
    """True when the character there belongs to the one before it."""
    if at >= len(text) or text[at].isascii():
        return False
    here, before = text[at], text[at - 1]
    if "\u200d" in {here, before} or "\ufe00" <= here <= "\ufe0f" or unicodedata.combining(here):
        return True
    if "\U0001f3fb" <= here <= "\U0001f3ff":  # skin tones
        return True
    flags = 0  # a flag is two letters, so it depends on how many stand before
    while flags <= at and "\U0001f1e6" <= text[at - flags] <= "\U0001f1ff":
        flags += 1
    return flags > 0 and flags % 2 == 0


def _fence_after(text: str, fence: _Fence | None) -> _Fence | None:
    """The fence that is open after this text."""
    for line in text.split("\n"):
        match = _FENCE.match(line)
        if match is None:
            continue
        if fence is not None:
            if match[1].startswith(fence.closing) and not match[2].strip():
                fence = None
        elif _opens(match):
            marks = match[1][:_MAX_INFO]
            fence = _Fence(marks + match[2].strip()[:_MAX_INFO], marks)
    return fence


def _opens(match: re.Match[str]) -> bool:
    return not (match[1].startswith("`") and "`" in match[2])


# --- whether anything shows ----------------------------------------------------------------------

# A text whose first line begins with a letter or a digit shows at least that line.
_PLAIN = re.compile(r"\s*[^\W_]")
_MARKS = re.compile(r"[\\`*_~|<&\[!]")
_FIRST = re.compile(r"^([^\S\n]*+)([#>+=-])", re.MULTILINE)


def shows(markdown: str) -> bool:
    """True when something of a Markdown text is seen by whoever reads it rendered.

    "[docs]: https://…", ">", "#" and an empty fence are whole answers now and then; what they are
    written as is better than nothing.
    """
    return bool(_PLAIN.match(markdown)) or any(map(_is_seen, parser().parse(markdown)))


def seen(markdown: str) -> str:
    """A Markdown text of which something shows: as it is, or so that it shows as it is written."""
    return markdown if shows(markdown) or not has_ink(markdown) else literal(markdown)


def literal(markdown: str) -> str:
    """Markdown that shows a text as it is written."""
    return _FIRST.sub(r"\1\\\2", _MARKS.sub(r"\\\g<0>", markdown))


def _is_seen(token: Token) -> bool:
    if token.type in {"hr", "list_item_open"}:
        return True
    if token.children:
        return any(each.type == "image" or has_ink(each.content) for each in token.children)
    return token.type != "inline" and has_ink(token.content)


def has_ink(text: str) -> bool:
    """True when a text has a character that is seen."""
    return any(char.isprintable() and not char.isspace() for char in text)


@functools.cache
def parser(*, keeps_maths: bool = False) -> Markdown:
    """The parser of CommonMark with tables and strikethrough; made when it is first needed.

    With `keeps_maths` a formula is a token whose content is as it was written.
    """
    from bot.channel.kit.markdown import Markdown  # noqa: PLC0415  # most messages never need it

    return Markdown(maths=(lambda written, _: written) if keeps_maths else None)


class TakesMarkdown(Channel):
    """A channel that takes Markdown as it is: a base class that renders."""

    def render(self, outbound: Outbound) -> list[Piece]:
        """The text as it is, cut at `max_length`, its files with the last piece.

        Raises:
            SendRefused: there is nothing to show.
        """
        able = self.capabilities
        parts = split(outbound.text, able.max_length, able.length_unit)
        if outbound.attachments and not parts:
            parts = [""]
        files = [()] * (len(parts) - 1) + [outbound.attachments]
        return numbered(
            Piece(outbound, part, attachments=each)
            for part, each in zip(parts, files, strict=False)
        )


def numbered(parts: Iterable[Piece]) -> list[Piece]:
    """The pieces, each knowing which one it is.

    Raises:
        SendRefused: there is none.
    """
    found = list(parts)
    if not found:
        raise SendRefused("there is nothing to show in this message")
    if len(found) == 1:
        return found
    return [replace(part, index=index, count=len(found)) for index, part in enumerate(found)]
