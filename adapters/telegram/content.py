"""The content of a message: its words, its media, and the message it answers. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Literal

from bot.channel import MAX_REPLY_TEXT, Foreign, ForeignKind, Media, ReplyTo
from bot.channel.kit.json_access import Json, child, children, integer, label, storable, text

MAX_OPTIONS = 30  # of a poll or a checklist
MAX_REF = 512  # characters of a file's handle; Telegram's have about 100
MAX_MIME = 128
MAX_ADDRESS = 2048  # characters of an address behind a word

# What Telegram says about a chat rather than somebody in it; the fields of such messages.
SERVICE = frozenset(
    {
        *("new_chat_members", "left_chat_member", "new_chat_title", "new_chat_photo"),
        *("delete_chat_photo", "group_chat_created", "supergroup_chat_created", "pinned_message"),
        *("channel_chat_created", "message_auto_delete_timer_changed", "chat_background_set"),
        *("migrate_to_chat_id", "migrate_from_chat_id", "chat_owner_changed", "chat_owner_left"),
        *("forum_topic_created", "forum_topic_edited", "forum_topic_closed"),
        *("forum_topic_reopened", "general_forum_topic_hidden", "general_forum_topic_unhidden"),
        *("video_chat_scheduled", "video_chat_started", "video_chat_ended", "boost_added"),
        *("video_chat_participants_invited", "proximity_alert_triggered", "write_access_allowed"),
        *("successful_payment", "refunded_payment", "users_shared", "chat_shared", "web_app_data"),
        *("connected_website", "passport_data", "giveaway_created", "giveaway_completed"),
        *("checklist_tasks_added", "checklist_tasks_done", "poll_option_added"),
        *("poll_option_deleted", "direct_message_price_changed", "paid_message_price_changed"),
        *("gift", "unique_gift", "gift_upgrade_sent", "managed_bot_created"),
        *("suggested_post_approved", "suggested_post_declined", "suggested_post_paid"),
        *("suggested_post_refunded", "suggested_post_approval_failed"),
    }
)

_MEDIA: tuple[tuple[str, Literal["voice", "audio", "video", "document", "sticker"]], ...] = (
    ("voice", "voice"),
    ("audio", "audio"),
    ("video", "video"),
    ("video_note", "video"),
    ("animation", "video"),
    ("document", "document"),
    ("sticker", "sticker"),
)


def words_of(message: Json) -> str:
    """The words of a message, with the address behind each linked one; or empty."""
    key = _key(message)
    is_plain = "entities" not in message and "caption_entities" not in message
    links = [] if is_plain else _links(message, key)
    if not links:
        return text(message, key)
    raw = str(message[key]).encode("utf-16-le", "surrogatepass")
    return _linked(raw, 0, len(raw), links)


def said_in(message: Json, sender: int) -> tuple[str, tuple[Foreign, ...]]:
    """The words that the sender wrote, and those they passed on.

    All of it is passed on when it was forwarded from somebody else, or made by an inline bot.
    """
    words, shown = words_of(message), _shown(message)
    if "forward_origin" in message:
        origin = child(message, "forward_origin")
        if integer(child(origin, "sender_user"), "id") != sender:
            return "", (Foreign("forwarded", _lines(words, shown), _origin(origin) or "?"),)
    if "via_bot" in message:
        helper = name_of(child(message, "via_bot"))
        return "", (Foreign("card", f"{helper}: {words}"), *shown) if words else shown
    return words, shown


def _shown(message: Json) -> tuple[Foreign, ...]:
    """The parts of a message that are neither text nor files."""
    for key, (kind, describe) in _DESCRIBED.items():
        if key in message and (found := child(message, key)):
            return (Foreign(kind, describe(found)),)
    return ()


def _lines(words: str, shown: tuple[Foreign, ...]) -> str:
    return "\n".join(part for part in (words, *map(str, shown)) if part)


def media_of(message: Json) -> tuple[Media, ...]:
    """The files of a message, described, each with the handle to fetch it by."""
    photos = children(message, "photo", 100)
    if photos:
        best = photos[-1]  # Telegram lists sizes from small to large
        return (Media("photo", mime="image/jpeg", size=_size(best), ref=_ref(best)),)
    for key, kind in _MEDIA:
        if key in message and (found := child(message, key)):
            name = "emoji" if kind == "sticker" else "file_name"
            media = Media(
                kind,
                name=label(text(found, name) or text(found, "title")),
                mime=label(text(found, "mime_type"), MAX_MIME),
                size=_size(found),
                ref=_ref(found),
            )
            return (media,)  # an animation repeats itself as a document
    return ()


def reply_of(message: Json, me: int) -> ReplyTo | None:
    """The message this one answers; `me` is the bot's id."""
    quote = text(child(message, "quote"), "text")[:MAX_REPLY_TEXT]
    answered = child(message, "reply_to_message")
    if answered:
        if "forum_topic_created" in answered:
            return None  # every first-level message of a topic points at the topic's start
        sender = child(answered, "from")
        return ReplyTo(
            message_id=str(integer(answered, "message_id") or ""),
            sender_name=name_of(child(answered, "sender_chat") or sender),
            text=_lines(words_of(answered), _shown(answered))[:MAX_REPLY_TEXT],
            quote=quote,
            from_bot=integer(sender, "id") == me,
            media=media_of(answered),
        )
    elsewhere = child(message, "external_reply")
    if not elsewhere:
        return None
    return ReplyTo(
        message_id=str(integer(elsewhere, "message_id") or ""),
        sender_name=_origin(child(elsewhere, "origin")),
        text=_lines("", _shown(elsewhere)),
        quote=quote,
        media=media_of(elsewhere),
    )


def _origin(origin: Json) -> str:
    hidden = label(text(origin, "sender_user_name"))
    return hidden or name_of(
        child(origin, "sender_user") or child(origin, "sender_chat") or child(origin, "chat")
    )


def _size(found: Json) -> int:
    return max(0, integer(found, "file_size") or 0)


def _ref(found: Json) -> str:
    return text(found, "file_id")[:MAX_REF]


# --- what is not text ----------------------------------------------------------------------------


def _venue(found: Json) -> str:
    name, street = label(text(found, "title")), label(text(found, "address"))
    return f"venue: {name}, {street} ({_place(child(found, 'location'))})"


def _contact(found: Json) -> str:
    return f"contact: {name_of(found)}, {label(text(found, 'phone_number'))}"


def _poll(found: Json) -> str:
    votes = max(0, integer(found, "total_voter_count") or 0)
    options = children(found, "options", MAX_OPTIONS)
    listed = " / ".join(
        label(text(option, "text")) + (f" ({integer(option, 'voter_count') or 0})" if votes else "")
        for option in options
    )
    closed = " (closed)" if found.get("is_closed") is True else ""
    return f"poll{closed}: {label(text(found, 'question'), 300)} — {listed}"


def _dice(found: Json) -> str:
    return f"dice {label(text(found, 'emoji'))}: {integer(found, 'value') or 0}"


def _checklist(found: Json) -> str:
    tasks = children(found, "tasks", MAX_OPTIONS)
    listed = " / ".join(
        ("✓ " if integer(task, "completion_date") else "") + label(text(task, "text"))
        for task in tasks
    )
    return f"checklist: {label(text(found, 'title'))} — {listed}"


# A venue also carries a location, so the order matters.
_DESCRIBED: dict[str, tuple[ForeignKind, Callable[[Json], str]]] = {
    "venue": ("place", _venue),
    "location": ("place", lambda found: f"location: {_place(found)}"),
    "contact": ("card", _contact),
    "poll": ("poll", _poll),
    "dice": ("card", _dice),
    "checklist": ("card", _checklist),
    "story": ("card", lambda found: f"story from {name_of(child(found, 'chat'))}"),
    "game": ("card", lambda found: f"game: {label(text(found, 'title'))}"),
    "invoice": ("card", lambda found: f"invoice: {label(text(found, 'title'))}"),
    "paid_media": ("card", lambda _found: "paid media"),
}


def _place(found: Json) -> str:
    return f"{_number(found, 'latitude')}, {_number(found, 'longitude')}"


def name_of(who: Json) -> str:
    """The display name of a person or chat, on one line; a deleted account has none."""
    full = f"{text(who, 'first_name')} {text(who, 'last_name')}"
    return label(full) or label(text(who, "title")) or label(text(who, "username"))


def _number(parent: Json, key: str) -> float:
    value: object = parent.get(key)
    return value if isinstance(value, float) else integer(parent, key) or 0


# Who is spoken to: mentions of this bot, and commands that name one. Pure.

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
    """True if a message mentions this bot, and its words without those mentions.

    Only Telegram's own entities count: "@name" of exactly this bot, or a link to its id. Words
    that are nothing but the mention stay. The words are None when there are no mentions.
    """
    key = _key(message)
    if not isinstance(message.get(key), str):
        return False, None
    entities = _entities(message, key)
    if not any(text(entity, "type") in {"mention", "text_mention"} for entity in entities):
        return False, None
    # Entities count in UTF-16 units. What cannot be stored has to go only after that.
    raw = str(message[key]).encode("utf-16-le", "surrogatepass")
    spans = sorted(span for e in entities if (span := _own(e, raw, me, username)) is not None)
    if not spans:
        return False, None
    parts, at, links = list[str](), 0, _links(message, key)
    for start, stop in spans:
        if start >= at:
            parts.append(_linked(raw, at, start, links))
            at = stop
    parts.append(_linked(raw, at, len(raw), links))
    return True, _without_gaps(parts) or None


def _key(message: Json) -> str:
    """The key under which the words of a message stand."""
    return "text" if isinstance(message.get("text"), str) else "caption"


def _entities(message: Json, key: str) -> list[Json]:
    return children(message, "caption_entities" if key == "caption" else "entities", MAX_ENTITIES)


def _span(entity: Json, size: int) -> tuple[int, int] | None:
    """The span of an entity in words of so many bytes in UTF-16."""
    offset, length = integer(entity, "offset"), integer(entity, "length")
    if offset is None or length is None or offset < 0 or length <= 0:
        return None
    start, stop = 2 * offset, min(2 * (offset + length), size)
    return (start, stop) if start < stop else None


def _links(message: Json, key: str) -> list[tuple[int, int, str]]:
    """The spans of linked words, with the address of each."""
    found = [
        (*span, label(text(entity, "url"), MAX_ADDRESS))
        for entity in _entities(message, key)
        if text(entity, "type") == "text_link"
        and isinstance(message.get(key), str)
        and (span := _span(entity, 4 * len(str(message[key])))) is not None
    ]
    return sorted(found)


def _linked(raw: bytes, begin: int, end: int, links: list[tuple[int, int, str]]) -> str:
    """A part of a message's words, each linked word with its address."""
    parts, at = list[str](), begin
    for start, last, address in links:
        stop = min(last, end)
        if start < at or start >= stop or not address:
            continue
        shown = _decoded(raw[start:stop])
        parts.append(_decoded(raw[at:start]))
        parts.append(shown if shown == address else f"[{shown}]({address})")
        at = stop
    return "".join((*parts, _decoded(raw[at:end])))


def _own(entity: Json, raw: bytes, me: int, username: str) -> tuple[int, int] | None:
    """The span in `raw`, in bytes, where an entity mentions this bot; None if it does not."""
    span = _span(entity, len(raw))
    if span is None:
        return None
    start, stop = span
    match text(entity, "type"):
        case "mention" if username and stop - start == 2 * (len(username) + 1):
            name = _decoded(raw[start:stop]).lower()
            return (start, stop) if name == f"@{username.lower()}" else None
        case "text_mention":
            who = integer(child(entity, "user"), "id")
            return (start, stop) if who == me else None
        case _:
            return None


def _without_gaps(parts: list[str]) -> str:
    """The text around mentions, joined; a name that came first leaves no comma."""
    words = parts[0]
    for part in parts[1:]:
        if not words.strip():
            words = part.lstrip(_AFTER_ADDRESS)
        else:
            words += part.lstrip(" ") if words[-1].isspace() else part
    return words.rstrip()


def _decoded(raw: bytes) -> str:
    return storable(raw.decode("utf-16-le", "surrogatepass"))
