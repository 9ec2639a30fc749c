"""What a message shows: its words, its media, and what it answers. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from bot.channel import Foreign, ForeignKind, Media, ReplyTo
from bot.channel.kit.shapes import Json, child, children, integer, label, node, text

MAX_REPLY_TEXT = 1000  # characters of an answered message that are kept
MAX_OPTIONS = 30  # of a poll or a checklist
MAX_REF = 512  # characters of a file's handle; Telegram's have about 100
MAX_MIME = 128

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
    """What is written in a message; empty when nothing is."""
    written = (key for key in ("text", "caption") if isinstance(message.get(key), str))
    return text(message, next(written, ""))


def foreign_of(message: Json, sender: int) -> tuple[Foreign, ...]:
    """What of a message its sender did not write.

    That is all of it when it was forwarded from somebody else, or made by an inline bot.
    """
    shown = _shown(message)
    origin, helper = node(message, "forward_origin"), node(message, "via_bot")
    if origin is not None and not _is_from(origin, sender):
        all_of_it = "\n".join(part for part in (words_of(message), *map(str, shown)) if part)
        return (Foreign("forwarded", all_of_it, _origin(origin) or "?"),)
    if helper is not None and words_of(message):
        return (Foreign("card", f"{name_of(helper)}: {words_of(message)}"), *shown)
    return shown


def is_own(message: Json, sender: int) -> bool:
    """Whether its sender wrote what is written in a message."""
    origin = node(message, "forward_origin")
    return node(message, "via_bot") is None and (origin is None or _is_from(origin, sender))


def _shown(message: Json) -> tuple[Foreign, ...]:
    """What a message shows that is no text and no file."""
    for key, (kind, describe) in _DESCRIBED.items():
        found = node(message, key)
        if found is not None:
            return (Foreign(kind, describe(found)),)
    return ()


def _is_from(origin: Json, sender: int) -> bool:
    return integer(child(origin, "sender_user"), "id") == sender


def media_of(message: Json) -> tuple[Media, ...]:
    """What came with a message, described, with the handle it can be fetched by."""
    photos = children(message, "photo", 100)
    if photos:
        best = photos[-1]  # Telegram lists sizes from small to large
        return (Media("photo", mime="image/jpeg", size=_size(best), ref=_ref(best)),)
    for key, kind in _MEDIA:
        found = node(message, key)
        if found is not None:
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
    answered = node(message, "reply_to_message")
    if answered is not None:
        if "forum_topic_created" in answered:
            return None  # every first-level message of a topic points at the topic's start
        sender = child(answered, "from")
        return ReplyTo(
            message_id=str(integer(answered, "message_id") or ""),
            sender_name=name_of(node(answered, "sender_chat") or sender),
            text="\n".join(
                part for part in (words_of(answered), *map(str, _shown(answered))) if part
            )[:MAX_REPLY_TEXT],
            quote=quote,
            from_bot=integer(sender, "id") == me,
        )
    elsewhere = node(message, "external_reply")
    if elsewhere is None:
        return None
    return ReplyTo(
        message_id=str(integer(elsewhere, "message_id") or ""),
        sender_name=_origin(child(elsewhere, "origin")),
        quote=quote,
    )


def _origin(origin: Json) -> str:
    hidden = label(text(origin, "sender_user_name"))
    return hidden or name_of(
        node(origin, "sender_user") or node(origin, "sender_chat") or child(origin, "chat")
    )


def _size(found: Json) -> int:
    return max(0, integer(found, "file_size") or 0)


def _ref(found: Json) -> str:
    return text(found, "file_id")[:MAX_REF]


# --- what is not text ----------------------------------------------------------------------------


def _venue(found: Json) -> str:
    name, street = label(text(found, "title")), label(text(found, "address"))
    return f"venue: {name}, {street} ({_place(child(found, 'location'))})"


def _location(found: Json) -> str:
    return f"location: {_place(found)}"


def _contact(found: Json) -> str:
    return f"contact: {name_of(found)}, {label(text(found, 'phone_number'))}"


def _poll(found: Json) -> str:
    options = children(found, "options", MAX_OPTIONS)
    listed = " / ".join(label(text(option, "text")) for option in options)
    return f"poll: {label(text(found, 'question'), 300)} — {listed}"


def _dice(found: Json) -> str:
    return f"dice {label(text(found, 'emoji'))}: {integer(found, 'value') or 0}"


def _checklist(found: Json) -> str:
    tasks = children(found, "tasks", MAX_OPTIONS)
    listed = " / ".join(label(text(task, "text")) for task in tasks)
    return f"checklist: {label(text(found, 'title'))} — {listed}"


def _story(found: Json) -> str:
    return f"story from {name_of(child(found, 'chat'))}"


def _game(found: Json) -> str:
    return f"game: {label(text(found, 'title'))}"


def _invoice(found: Json) -> str:
    return f"invoice: {label(text(found, 'title'))}"


def _paid_media(_found: Json) -> str:
    return "paid media"


# A venue also carries a location, so the order matters.
_DESCRIBED: dict[str, tuple[ForeignKind, Callable[[Json], str]]] = {
    "venue": ("place", _venue),
    "location": ("place", _location),
    "contact": ("card", _contact),
    "poll": ("poll", _poll),
    "dice": ("card", _dice),
    "checklist": ("card", _checklist),
    "story": ("card", _story),
    "game": ("card", _game),
    "invoice": ("card", _invoice),
    "paid_media": ("card", _paid_media),
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
