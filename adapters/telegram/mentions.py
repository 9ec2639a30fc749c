"""Who is spoken to: mentions of this bot, and commands that name one. Pure."""

from __future__ import annotations

import re

from bot.channel.kit.json_access import Json, child, children, integer, storable, text

MAX_ENTITIES = 100  # of one message; Telegram's own limit

_COMMAND = re.compile(r"(/[A-Za-z0-9_]{1,64})@([A-Za-z0-9_]{1,64})(?!\S)")
_AFTER_ADDRESS = " \t\r\n,:;"  # between "@bot" at the beginning and what is said to it


def addressee(words: str) -> str:
    """The bot a command at the beginning names, in lower case; empty when it names none."""
    found = _COMMAND.match(words) if words.startswith("/") else None
    return found[2].lower() if found is not None else ""


def own_command(words: str, username: str) -> str:
    """`/cmd@thisbot` without the mention; another bot's stays."""
    found = _COMMAND.match(words) if words.startswith("/") and username else None
    if found is None or found[2].lower() != username.lower():
        return words
    return found[1] + words[found.end() :]


def addressed(message: Json, me: int, username: str) -> tuple[bool, str | None]:
    """Whether a message's words mention this bot, and its words without those mentions.

    Only Telegram's own entities count: "@name" of exactly this bot, or a link to its id. Words
    that are nothing but the mention stay. The words are None when there are no mentions.
    """
    key = "text" if isinstance(message.get("text"), str) else "caption"
    if not isinstance(message.get(key), str):
        return False, None
    entities = children(message, f"{'caption_' if key == 'caption' else ''}entities", MAX_ENTITIES)
    if not any(text(entity, "type") in {"mention", "text_mention"} for entity in entities):
        return False, None
    # Entities count in UTF-16 units. What cannot be stored has to go only after that.
    raw = str(message[key]).encode("utf-16-le", "surrogatepass")
    spans = sorted(span for e in entities if (span := _own(e, raw, me, username)) is not None)
    if not spans:
        return False, None
    parts, at = list[str](), 0
    for start, stop in spans:
        if start >= at:
            parts.append(_decoded(raw[at:start]))
            at = stop
    parts.append(_decoded(raw[at:]))
    return True, _without_gaps(parts) or None


def _own(entity: Json, raw: bytes, me: int, username: str) -> tuple[int, int] | None:
    """Where in `raw` an entity mentions this bot, in bytes; None when it does not."""
    offset, length = integer(entity, "offset"), integer(entity, "length")
    if offset is None or length is None or offset < 0 or length <= 0:
        return None
    start, stop = 2 * offset, min(2 * (offset + length), len(raw))
    if start >= stop:
        return None
    match text(entity, "type"):
        case "mention" if username and length == len(username) + 1:
            name = _decoded(raw[start:stop]).lower()
            return (start, stop) if name == f"@{username.lower()}" else None
        case "text_mention":
            who = integer(child(entity, "user"), "id")
            return (start, stop) if who == me else None
        case _:
            return None


def _without_gaps(parts: list[str]) -> str:
    """What stood around mentions, put together; whoever is spoken to first leaves no comma."""
    words = parts[0]
    for part in parts[1:]:
        if not words.strip():
            words = part.lstrip(_AFTER_ADDRESS)
        else:
            words += part.lstrip(" ") if words[-1].isspace() else part
    return words.rstrip()


def _decoded(raw: bytes) -> str:
    return storable(raw.decode("utf-16-le", "surrogatepass"))
