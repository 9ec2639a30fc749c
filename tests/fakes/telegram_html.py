"""Telegram's own rules for HTML: which tags there are, and what is an error.

After the parser in TDLib (MessageEntity.cpp, parse_html): same tags, same complaints.
"""

from __future__ import annotations

import html
import re

TAGS = frozenset(
    {"a", "b", "strong", "i", "em", "s", "strike", "del", "u", "ins"}
    | {"tg-spoiler", "tg-emoji", "span", "pre", "code", "blockquote"}
)
_ENTITY = re.compile(r"&(?:lt|gt|amp|quot|#\d+|#x[0-9a-fA-F]+);")
_TAG_NAME = re.compile(r"[^\s>/]*")
_ATTRIBUTE = re.compile(r"""\s*([a-zA-Z-]+)(?:\s*=\s*("[^"<>]*"|'[^'<>]*'|[^\s"'<>=]+))?""")
# What a message may not consist of alone.
_INVISIBLE = re.compile(r"[\s\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufeff\u00ad\x00-\x1f]*")


class ParseError(ValueError):
    """The text is not Telegram HTML."""


def units(text: str) -> int:
    """UTF-16 code units."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def is_blank(text: str) -> bool:
    """Whether a message of this text would show nothing."""
    return _INVISIBLE.fullmatch(text) is not None


def visible(source: str) -> str:
    """The text a person sees, with the tags taken out.

    Raises:
        ParseError: with Telegram's words for what is wrong.
    """
    out: list[str] = []
    stack: list[str] = []
    at = 0
    while at < len(source):
        char = source[at]
        if char == "&":
            found = _ENTITY.match(source, at)
            out.append(html.unescape(found[0]) if found else "&")
            at = found.end() if found else at + 1
        elif char != "<":
            stop = min(
                (i for i in (source.find("<", at), source.find("&", at)) if i >= 0),
                default=len(source),
            )
            out.append(source[at:stop])
            at = stop
        elif source.startswith("</", at):
            at = _end_tag(source, at, stack)
        else:
            at = _start_tag(source, at, stack)
    if stack:
        raise ParseError(f'Can\'t find end tag corresponding to start tag "{stack[-1]}"')
    return "".join(out)


def _offset(source: str, at: int) -> int:
    return len(source[:at].encode("utf-8", "surrogatepass"))


def _start_tag(source: str, at: int, stack: list[str]) -> int:
    name_match = _TAG_NAME.match(source, at + 1)
    name = name_match[0].lower() if name_match else ""
    where = _offset(source, at)
    if name not in TAGS:
        raise ParseError(f'Unsupported start tag "{name}" at byte offset {where}')
    cursor = at + 1 + len(name)
    attributes: dict[str, str] = {}
    while True:
        rest = re.compile(r"\s*>").match(source, cursor)
        if rest:
            cursor = rest.end()
            break
        found = _ATTRIBUTE.match(source, cursor)
        if not found or found.end() == cursor:
            raise ParseError(f'Unclosed start tag "{name}" at byte offset {where}')
        if found[2] is None and name != "blockquote":
            raise ParseError(
                f'Expected equal sign in declaration of an attribute of the tag "{name}" '
                f"at byte offset {where}"
            )
        attributes[found[1].lower()] = html.unescape((found[2] or "").strip("\"'"))
        cursor = found.end()
    if name == "span" and attributes.get("class") != "tg-spoiler":
        raise ParseError(f'Tag "span" must have class "tg-spoiler" at byte offset {where}')
    if name == "blockquote" and "blockquote" in stack:
        # The server drops the inner quote in silence; here it is a mistake worth hearing of.
        raise ParseError(f"Nested blockquote at byte offset {where}")
    stack.append(name)
    return cursor


def _end_tag(source: str, at: int, stack: list[str]) -> int:
    where = _offset(source, at)
    if not stack:
        raise ParseError(f"Unexpected end tag at byte offset {where}")
    close = source.find(">", at)
    if close < 0:
        raise ParseError(f"Unclosed end tag at byte offset {where}")
    name = source[at + 2 : close].strip().lower()
    opened = stack.pop()
    if name and name != opened:
        raise ParseError(
            f'Unmatched end tag at byte offset {where}, expected "</{opened}>", found "</{name}>"'
        )
    return close + 1
