"""Updates as Telegram sends them → `Inbound` values: pure, and total over any JSON.

It reads the raw mapping: building the SDK's objects costs four times as much and one field of a
surprising type would cost the message.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal, cast

from bot.channel import Inbound, Media, ReplyTo

CHANNEL = "telegram"
ALLOWED_UPDATES = ("message", "edited_message")
MAX_NAME = 128  # characters of a display name that are kept
MAX_REPLY_TEXT = 1000  # characters of an answered message that are kept
_LATEST_DATE = 1 << 40  # seconds; beyond it the value is not a date

Reason = Literal["malformed", "unsupported", "group", "from_bot", "service"]
Json = dict[str, Any]

_MEDIA: tuple[tuple[str, Literal["voice", "audio", "video", "document", "sticker"]], ...] = (
    ("voice", "voice"),
    ("audio", "audio"),
    ("video", "video"),
    ("video_note", "video"),
    ("animation", "video"),
    ("document", "document"),
    ("sticker", "sticker"),
)
_COMMAND_MENTION = re.compile(r"(/[A-Za-z0-9_]{1,64})@([A-Za-z0-9_]{1,64})(?!\S)")
_SURROGATE = re.compile("[\ud800-\udfff]")
_BLANK = re.compile(r"[\s\x00-\x1f\x7f\u200b\u200e\u200f\u202a-\u202e\u2066-\u2069]+")


@dataclass(frozen=True, slots=True)
class Identity:
    """The bot an account talks as; the username may not be known yet."""

    id: int
    username: str = ""


@dataclass(frozen=True, slots=True)
class Ignored:
    """An update that is no message for the engine, and why."""

    reason: Reason
    chat: str = ""


def update_id(update: object) -> int | None:
    """The number of an update, or None when it has none."""
    return _int(cast("Json", update), "update_id") if isinstance(update, dict) else None


def normalise(update: object, account: str, me: Identity) -> Inbound | Ignored:
    """Turn one update into an `Inbound`, or say why there is none."""
    if not isinstance(update, dict):
        return Ignored("malformed")
    node = cast("Json", update)
    for kind in ALLOWED_UPDATES:
        if kind in node:
            message = _node(node, kind)
            return _message(message, account, me) if message else Ignored("malformed")
    return Ignored("unsupported")


def _message(message: Json, account: str, me: Identity) -> Inbound | Ignored:
    chat, sender = _node(message, "chat") or {}, _node(message, "from") or {}
    chat_id, sender_id = _int(chat, "id"), _int(sender, "id")
    if chat_id is None:
        return Ignored("malformed")
    if _text(chat, "type") != "private":
        return Ignored("group", str(chat_id))
    number, edited = _int(message, "message_id"), _int(message, "edit_date")
    sent_at = _int(message, "date") if edited is None else edited
    if sender_id is None or number is None or sent_at is None or not 0 <= sent_at < _LATEST_DATE:
        return Ignored("malformed", str(chat_id))
    if sender_id == me.id or sender.get("is_bot") is True:
        return Ignored("from_bot", str(chat_id))
    media = _media(message)
    text = _content(message)
    if text is None and not media:
        return Ignored("service", str(chat_id))
    return Inbound(
        channel=CHANNEL,
        account=account,
        chat=str(chat_id),
        chat_type="direct",
        sender=str(sender_id),
        sender_name=_name(sender),
        message_id=str(number) if edited is None else f"{number}:e{edited}",
        edit_of="" if edited is None else str(number),
        text=_forwarded(message) + _own_command(text or "", me),
        media=media,
        reply_to=_reply(message, me),
        thread=_thread(message),
        locale=_text(sender, "language_code"),
        sent_at=sent_at * 1000,
    )


# --- parts of a message --------------------------------------------------------------------------


def _content(message: Json) -> str | None:
    """The words of a message, or a line that stands for what it shows; None if there is neither."""
    for key in ("text", "caption"):
        if isinstance(message.get(key), str):
            return _text(message, key)
    for key, describe in _DESCRIBED.items():
        node = _node(message, key)
        if node is not None:
            return f"[{describe(node)}]"
    return None


def _venue(node: Json) -> str:
    name, street = _label(_text(node, "title")), _label(_text(node, "address"))
    return f"venue: {name}, {street} ({_place(_node(node, 'location') or {})})"


def _location(node: Json) -> str:
    return f"location: {_place(node)}"


def _contact(node: Json) -> str:
    return f"contact: {_name(node)}, {_label(_text(node, 'phone_number'))}"


def _poll(node: Json) -> str:
    options = " / ".join(_label(_text(option, "text")) for option in _nodes(node, "options"))
    return f"poll: {_label(_text(node, 'question'), 300)} — {options}"


def _dice(node: Json) -> str:
    return f"dice {_label(_text(node, 'emoji'))}: {_int(node, 'value') or 0}"


def _checklist(node: Json) -> str:
    tasks = " / ".join(_label(_text(task, "text")) for task in _nodes(node, "tasks"))
    return f"checklist: {_label(_text(node, 'title'))} — {tasks}"


def _story(node: Json) -> str:
    return f"story from {_name(_node(node, 'chat') or {})}"


# A venue also carries a location, so the order matters.
_DESCRIBED = {
    "venue": _venue,
    "location": _location,
    "contact": _contact,
    "poll": _poll,
    "dice": _dice,
    "checklist": _checklist,
    "story": _story,
}


def _place(node: Json) -> str:
    return f"{_number(node, 'latitude')}, {_number(node, 'longitude')}"


def _media(message: Json) -> tuple[Media, ...]:
    photos = _nodes(message, "photo")
    if photos:
        best = photos[-1]  # Telegram lists sizes from small to large
        return (
            Media(
                "photo",
                mime="image/jpeg",
                size=_int(best, "file_size") or 0,
                ref=_text(best, "file_id"),
            ),
        )
    for key, kind in _MEDIA:
        node = _node(message, key)
        if node is not None:
            name = "emoji" if kind == "sticker" else "file_name"
            media = Media(
                kind,
                name=_label(_text(node, name) or _text(node, "title")),
                mime=_text(node, "mime_type"),
                size=_int(node, "file_size") or 0,
                ref=_text(node, "file_id"),
            )
            return (media,)  # an animation repeats itself as a document
    return ()


def _reply(message: Json, me: Identity) -> ReplyTo | None:
    quote = _text(_node(message, "quote") or {}, "text")[:MAX_REPLY_TEXT]
    answered = _node(message, "reply_to_message")
    if answered is not None:
        if "forum_topic_created" in answered:
            return None  # every first-level message of a topic points at the topic's start
        sender = _node(answered, "from") or _node(answered, "sender_chat") or {}
        return ReplyTo(
            message_id=str(_int(answered, "message_id") or ""),
            sender_name=_name(sender),
            text=(_content(answered) or "")[:MAX_REPLY_TEXT],
            quote=quote,
            from_bot=_int(sender, "id") == me.id,
        )
    elsewhere = _node(message, "external_reply")
    if elsewhere is None:
        return None
    return ReplyTo(
        message_id=str(_int(elsewhere, "message_id") or ""),
        sender_name=_origin(_node(elsewhere, "origin") or {}),
        quote=quote,
    )


def _forwarded(message: Json) -> str:
    origin = _node(message, "forward_origin")
    return "" if origin is None else f"[forwarded from {_origin(origin) or '?'}]\n"


def _origin(origin: Json) -> str:
    hidden = _label(_text(origin, "sender_user_name"))
    return hidden or _name(
        _node(origin, "sender_user") or _node(origin, "sender_chat") or _node(origin, "chat") or {}
    )


def _thread(message: Json) -> str:
    thread = _int(message, "message_thread_id")
    return str(thread) if thread is not None and message.get("is_topic_message") is True else ""


def _own_command(text: str, me: Identity) -> str:
    """`/cmd@thisbot` without the mention; another bot's stays."""
    if not text.startswith("/") or not me.username:
        return text
    found = _COMMAND_MENTION.match(text)
    if found is None or found[2].lower() != me.username.lower():
        return text
    return found[1] + text[found.end() :]


def _name(node: Json) -> str:
    """The display name of a person or chat, on one line."""
    full = f"{_text(node, 'first_name')} {_text(node, 'last_name')}"
    return _label(full) or _label(_text(node, "title")) or _label(_text(node, "username"))


def _label(text: str, limit: int = MAX_NAME) -> str:
    """Somebody else's words as part of one of our lines: no line breaks, no brackets."""
    return _BLANK.sub(" ", text[: 4 * limit]).replace("[", "(").replace("]", ")").strip()[:limit]


# --- reading JSON of any shape -------------------------------------------------------------------


def _node(node: Json, key: str) -> Json | None:
    value: object = node.get(key)
    return cast("Json", value) if isinstance(value, dict) else None


def _nodes(node: Json, key: str) -> list[Json]:
    value: object = node.get(key)
    if not isinstance(value, list):
        return []
    return [cast("Json", item) for item in cast("list[object]", value) if isinstance(item, dict)]


def _int(node: Json, key: str) -> int | None:
    value: object = node.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _number(node: Json, key: str) -> float:
    value: object = node.get(key)
    return value if isinstance(value, int | float) else 0.0


def _text(node: Json, key: str) -> str:
    """A string that any database takes: no null characters, no lone surrogates."""
    value: object = node.get(key)
    if not isinstance(value, str):
        return ""
    if not value.isascii():
        value = _SURROGATE.sub("\ufffd", value)
    return value.replace("\0", "\ufffd") if "\0" in value else value
