"""What a message shows: its words, its media, and what it answers. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from bot.channel import Foreign, ForeignKind, Media, ReplyTo
from bot.channel.kit.json_access import Json, child, children, integer, label, text

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
    return text(message, "text") or text(message, "caption")


def said_in(message: Json, sender: int) -> tuple[str, tuple[Foreign, ...]]:
    """What of a message its sender wrote, and what they passed on.

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
    """What a message shows that is no text and no file."""
    for key, (kind, describe) in _DESCRIBED.items():
        if key in message and (found := child(message, key)):
            return (Foreign(kind, describe(found)),)
    return ()


def _lines(words: str, shown: tuple[Foreign, ...]) -> str:
    return "\n".join(part for part in (words, *map(str, shown)) if part)


def media_of(message: Json) -> tuple[Media, ...]:
    """What came with a message, described, with the handle it can be fetched by."""
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
        )
    elsewhere = child(message, "external_reply")
    if not elsewhere:
        return None
    return ReplyTo(
        message_id=str(integer(elsewhere, "message_id") or ""),
        sender_name=_origin(child(elsewhere, "origin")),
        quote=quote,
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
    options = children(found, "options", MAX_OPTIONS)
    listed = " / ".join(label(text(option, "text")) for option in options)
    return f"poll: {label(text(found, 'question'), 300)} — {listed}"


def _dice(found: Json) -> str:
    return f"dice {label(text(found, 'emoji'))}: {integer(found, 'value') or 0}"


def _checklist(found: Json) -> str:
    tasks = children(found, "tasks", MAX_OPTIONS)
    listed = " / ".join(label(text(task, "text")) for task in tasks)
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
