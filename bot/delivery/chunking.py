"""Cutting a reply into pieces a platform takes. Pure.

A piece ends at a blank line, else a line end, else a space, else anywhere but inside a character.
A code fence that must be cut is closed at the end of its piece and opened again in the next.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass

from bot.channel import LengthUnit

_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})(.*)$")
_MAX_INFO = 16  # of a fence's language when it is opened again
_MAX_CLUSTER = 32  # code points looked back over for the beginning of one visible character


@dataclass(frozen=True, slots=True)
class _Fence:
    """An open code fence: how to open it again, and what closes it."""

    opening: str
    closing: str


def length(text: str, unit: LengthUnit) -> int:
    """How long a text is for a platform: in characters, or in UTF-16 code units."""
    if unit == "chars" or text.isascii():
        return len(text)
    return len(text) + sum(character > "\uffff" for character in text)


def pieces(text: str, limit: int, unit: LengthUnit = "chars") -> list[str]:
    """The text in pieces no longer than `limit`, in order; none when it is only white space.

    `limit` is at least 64, so that a fence's own lines fit beside some of what it holds.
    """
    rest = text.strip("\n")
    found: list[str] = []
    fence: _Fence | None = None
    while rest.strip():
        opening = f"{fence.opening}\n" if fence else ""
        room = limit - length(opening, unit)
        if length(rest, unit) <= room:
            found.append(opening + rest)
            break
        marks = max(len(fence.closing) if fence else 0, _longest_fence(rest, room))
        closing_room = marks + 1 if marks else 0
        window = _fitting(rest, max(room - closing_room, 8), unit)
        cut = _best_cut(rest, window, fence, room)
        head = rest[:cut]
        fence = _fence_after(head, fence)
        body = head.rstrip("\n") if fence is None else head.removesuffix("\n")
        closing = f"\n{fence.closing}" if fence else ""
        if body.strip():
            found.append(opening + body + closing)
        rest = rest[cut:]
        rest = rest.lstrip("\n") if fence is None else rest.removeprefix("\n")
    return found


def _longest_fence(text: str, room: int) -> int:
    """How long the closing of any fence that begins in reach may be."""
    return min(
        max(
            (len(m[1]) for line in text[:room].split("\n") if (m := _FENCE.match(line))), default=0
        ),
        room // 4,
    )


def _fitting(text: str, room: int, unit: LengthUnit) -> int:
    """How many characters of the text fit."""
    if unit == "chars":
        return min(room, len(text))
    used = 0
    for index, character in enumerate(text):
        used += 2 if character > "\uffff" else 1
        if used > room:
            return index
    return len(text)


def _best_cut(rest: str, window: int, fence: _Fence | None, room: int) -> int:
    """Where to cut, at most after `window` characters; always more than nothing."""
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
    return _whole_character(rest, window)


def _torn_block(rest: str, window: int, room: int) -> int:
    """Where the block begins that a cut would tear although it fits a piece of its own; or 0."""
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


def _whole_character(text: str, cut: int) -> int:
    """The cut, moved back so that it does not fall inside one visible character."""
    for back in range(min(_MAX_CLUSTER, cut - 1)):
        if not _continues(text, cut - back):
            return cut - back
    return cut


def _continues(text: str, index: int) -> bool:
    """Whether the character at `index` belongs to the one before it."""
    if index >= len(text) or index == 0:
        return False
    here, before = text[index], text[index - 1]
    if "\u200d" in (here, before) or unicodedata.combining(here) or "\ufe00" <= here <= "\ufe0f":
        return True
    if "\U0001f3fb" <= here <= "\U0001f3ff":  # skin tones
        return True
    return _is_flag(here) and _is_flag(before)


def _is_flag(character: str) -> bool:
    return "\U0001f1e6" <= character <= "\U0001f1ff"


def _fence_after(text: str, fence: _Fence | None) -> _Fence | None:
    """Which fence is open after this text."""
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
