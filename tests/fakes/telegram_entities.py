"""Telegram's own rules for the entities of a text, and what is an error.

After TDLib (MessageEntity.cpp, fix_formatted_text) and the documentation of the Bot API, with the
same complaints. What Telegram mends in silence is an error here: more than 100 entities, and those
that may not stand in each other.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Sequence
from typing import Any

from telegram import Chat, Message, MessageEntity

MAX_ENTITIES = 100
LOOKS = frozenset({"bold", "italic", "underline", "strikethrough", "spoiler"})
QUOTES = frozenset({"blockquote", "expandable_blockquote"})
CODE = frozenset({"code", "pre"})
# What a message may not consist of alone.
_INVISIBLE = re.compile(r"[\s\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufeff\u00ad\x00-\x1f]*")


class EntityError(ValueError):
    """The entities are not of this text."""


def units(text: str) -> int:
    """UTF-16 code units."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def is_blank(text: str) -> bool:
    """Whether a message of this text would show nothing."""
    return _INVISIBLE.fullmatch(text) is not None


def check(text: str, entities: Sequence[dict[str, Any]]) -> None:
    """Complain about entities that Telegram does not take, or not as they are.

    Raises:
        EntityError: with Telegram's words, where it has any.
    """
    if len(entities) > MAX_ENTITIES:
        raise EntityError("too many entities")
    edges, at = {0}, 0
    for char in text:
        at += 1 + (char > "\uffff")
        edges.add(at)
    around: list[dict[str, Any]] = []
    for entity in sorted(entities, key=lambda each: (each["offset"], -each["length"])):
        kind, start, length = entity["type"], entity["offset"], entity["length"]
        if kind not in LOOKS | QUOTES | CODE | {"text_link"}:
            raise EntityError("can't parse MessageEntity: unsupported type specified")
        if kind == "text_link" and not entity.get("url"):
            raise EntityError("can't parse MessageEntity: can't find field \"url\"")
        if start < 0 or length <= 0:
            raise EntityError(f"receive an entity with incorrect offset {start} or length {length}")
        if start + length > at:
            raise EntityError(f"entity beginning at UTF-16 offset {start} ends after the text")
        if not {start, start + length} <= edges:
            raise EntityError("entity begins or ends in a middle of a UTF-16 symbol")
        while around and around[-1]["offset"] + around[-1]["length"] <= start:
            around.pop()
        for outer in around:
            if start + length > outer["offset"] + outer["length"]:
                raise EntityError(f"entity beginning at UTF-16 offset {start} overlaps another")
            _check_nested(outer["type"], kind)
        around.append(entity)


def _check_nested(outer: str, inner: str) -> None:
    kinds = {outer, inner}
    both_quote = kinds <= QUOTES
    code_in_looks = kinds & CODE and not kinds & QUOTES
    if outer == inner or both_quote or code_in_looks or (inner in QUOTES and outer not in LOOKS):
        raise EntityError(f"entity of type {inner} in one of type {outer}")


def trimmed(text: str, entities: Sequence[dict[str, Any]]) -> tuple[str, list[dict[str, Any]]]:
    """The text without the white space around it, of which an entity keeps what it begins with."""
    first = min((each["offset"] for each in entities), default=len(text))
    lead = min(len(text) - len(text.lstrip()), first)
    text = text.rstrip()
    last = units(text)
    moved = [
        each
        | {"offset": each["offset"] - lead}
        | {"length": min(each["offset"] + each["length"], last) - each["offset"]}
        for each in entities
        if each["offset"] < last
    ]
    return text[lead:], moved


def as_html(text: str, entities: Sequence[dict[str, Any]]) -> str:
    """A text with its entities as tags, as the SDK reads them."""
    check(text, entities)
    now, chat = dt.datetime.now(dt.UTC), Chat(1, "private")
    read = [MessageEntity(**each) for each in entities]
    return Message(1, now, chat, text=text, entities=read).text_html
