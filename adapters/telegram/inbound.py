"""Updates as Telegram sends them → `Inbound` values: pure, and total over any JSON.

It reads the raw mapping: building the SDK's objects costs four times as much and one field of a
surprising type would cost the message.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from adapters.telegram.content import (
    SERVICE,
    addressed,
    addressee,
    media_of,
    name_of,
    own_command,
    reply_of,
    said_in,
    words_of,
)
from bot.channel import Address, ChatType, Foreign, Inbound, Media, Reaction
from bot.channel.kit.json_access import Json, child, children, integer, label, mapping, text

CHANNEL = "telegram"
MESSAGES = ("message", "edited_message", "channel_post", "edited_channel_post")
PRESS = "callback_query"
MEMBERSHIP = "my_chat_member"
REACTION = "message_reaction"  # Telegram sends none of a group unless the bot is an admin there
ALLOWED_UPDATES = (*MESSAGES, PRESS, MEMBERSHIP, REACTION)
MAX_REACTIONS = 8  # of one update; a person has three at most below a message
GENERAL_TOPIC = "1"  # a forum's topic that has no id of its own in messages
MAX_PRESS = 64  # bytes of what a button carries, a rule of Telegram's
MAX_QUERY = 128  # characters of a press's own id
MAX_LOCALE = 35  # characters of a language tag
_LATEST_DATE = 1 << 40  # seconds; beyond it the value is not a date

Reason = Literal[
    "malformed",  # not what Telegram sends
    "unsupported",  # a kind of update nobody asked for
    "reaction",  # nobody's, or the same as before
    "from_bot",
    "service",  # joins, pins, titles, video chats
    "empty",  # nothing of it can be shown
    "other_bot",  # a command that names another bot
    "live_location",  # one more step of a place that was told already
    "direct_messages",  # a channel's inbox, which bots answer by other means
    "forged",  # not what one of our buttons carries
    "stale",  # a press in a forum, too old for Telegram to know the topic
]

_KINDS: Final[dict[str, ChatType]] = {"private": "direct", "channel": "channel"}


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


@dataclass(frozen=True, slots=True)
class Moved:
    """A group became a supergroup: `chat` has the id `to` now."""

    chat: str
    to: str


@dataclass(frozen=True, slots=True)
class Membership:
    """The bot was added to a chat, taken out, or given other rights."""

    chat: str
    chat_type: ChatType
    status: str  # "member", "administrator", "restricted", "left", "kicked"


@dataclass(frozen=True, slots=True)
class Press:
    """A press on a button: what waits for an answer, and the message the button stands below."""

    query: str
    chat: str = ""
    message: int = 0  # 0 when Telegram does not say


@dataclass(frozen=True, slots=True)
class Reactions:
    """The change of somebody's reactions to one message."""

    chat: str
    changes: tuple[Reaction, ...]


Reading = Inbound | Moved | Membership | Reactions | Ignored


def pressable(command: str) -> bool:
    """True if a button can carry this command there and back."""
    size = len(command.encode("utf-8", "surrogatepass"))
    return command.startswith("/") and size <= MAX_PRESS and command.isprintable()


def update_id(update: object) -> int | None:
    """The number of an update, or None when it has none."""
    return integer(mapping(update), "update_id")


def press_of(update: object) -> Press | None:
    """The press an update tells of, whoever pressed whatever; None when it is something else."""
    query = child(mapping(update), PRESS)
    number = text(query, "id")
    if not number:
        return None
    message = child(query, "message")
    chat = integer(child(message, "chat"), "id")
    return Press(number, "" if chat is None else str(chat), integer(message, "message_id") or 0)


def album_of(update: object) -> str:
    """The album a message is a part of, or empty."""
    found = mapping(update)
    message = child(found, "message") or child(found, "channel_post")
    return text(message, "media_group_id")[:MAX_QUERY]


def normalise(update: object, account: str, me: Identity, now: int = 0) -> Reading:
    """Turn one update into an `Inbound`, or say what else it is.

    `now` (ms since the epoch) is the time of a press: Telegram tells none.
    """
    found = mapping(update)
    for kind in MESSAGES:
        if kind in found:
            return _message(child(found, kind), account, me, is_edit=kind.startswith("edited"))
    if PRESS in found:
        return _press(child(found, PRESS), account, me, now)
    if MEMBERSHIP in found:
        return _membership(child(found, MEMBERSHIP))
    if REACTION in found:
        return _reactions(child(found, REACTION), account, me)
    if "message_reaction_count" in found:
        return Ignored("reaction")
    return Ignored("unsupported" if isinstance(update, dict) else "malformed")


def _press(query: Json, account: str, me: Identity, now: int) -> Reading:
    """A person's press, as if they had typed it.

    The message below which the button stands may be too old for Telegram to tell more of it than
    its number and its chat.
    """
    message, sender = child(query, "message"), child(query, "from")
    chat = child(message, "chat")
    number, chat_id, sender_id = text(query, "id"), integer(chat, "id"), integer(sender, "id")
    if chat_id is None or sender_id is None or not 0 < len(number) <= MAX_QUERY:
        return Ignored("malformed")
    if chat.get("is_direct_messages") is True:
        return Ignored("direct_messages", str(chat_id))
    if sender_id == me.id or sender.get("is_bot") is True:
        return Ignored("from_bot", str(chat_id))
    command = text(query, "data")
    if not pressable(command):
        # A client can send anything for a button; this bot's buttons carry commands only.
        return Ignored("forged", str(chat_id))
    kind, thread = _kind(chat), _thread(message, chat)
    if thread == GENERAL_TOPIC and not message.get("date"):
        return Ignored("stale", str(chat_id))
    return Inbound(
        channel=CHANNEL,
        account=account,
        chat=str(chat_id),
        chat_type=kind,
        sender=str(sender_id),
        sender_name=name_of(sender),
        message_id=f"press-{number}",
        text=command,
        thread=thread,
        locale=text(sender, "language_code")[:MAX_LOCALE],
        mentions_bot=kind != "direct",  # it is this bot's button
        sent_at=now,
    )


def _reactions(change: Json, account: str, me: Identity) -> Reading:
    """The reactions that somebody added and took away; the topic is not given."""
    chat, sender = child(change, "chat"), child(change, "user") or child(change, "actor_chat")
    here, number, who = integer(chat, "id"), integer(change, "message_id"), integer(sender, "id")
    if here is None or number is None or who is None:
        return Ignored("malformed")
    if who == me.id or sender.get("is_bot") is True:
        return Ignored("from_bot", str(here))
    before, after = (
        [
            text(each, "emoji")[:MAX_PRESS] or "a custom emoji"
            for each in children(change, name)[:MAX_REACTIONS]
        ]
        for name in ("old_reaction", "new_reaction")
    )
    changes = [(emoji, True) for emoji in before if emoji not in after]
    changes += [(emoji, False) for emoji in after if emoji not in before]
    if not changes:
        return Ignored("reaction", str(here))
    return Reactions(
        str(here),
        tuple(
            Reaction(
                Address(CHANNEL, account, str(here)),
                _kind(chat),
                str(who),
                str(number),
                emoji,
                at=(integer(change, "date") or 0) * 1000,
                sender_name=name_of(sender),
                is_removed=is_removed,
            )
            for emoji, is_removed in changes
        ),
    )


def _membership(change: Json) -> Reading:
    chat = child(change, "chat")
    chat_id, status = integer(chat, "id"), text(child(change, "new_chat_member"), "status")
    if chat_id is None or not status:
        return Ignored("malformed")
    return Membership(str(chat_id), _kind(chat), label(status, 32))


def _message(message: Json, account: str, me: Identity, *, is_edit: bool) -> Reading:
    chat = child(message, "chat")
    here, kind = integer(chat, "id"), _kind(chat)
    if here is None:
        return Ignored("malformed")
    to, was = integer(message, "migrate_to_chat_id"), integer(message, "migrate_from_chat_id")
    if to is not None and to != here:
        return Moved(str(here), str(to))
    if was is not None and was != here:
        return Moved(str(was), str(here))
    number, edited = integer(message, "message_id"), integer(message, "edit_date")
    sent_at = integer(message, "date") if edited is None else edited
    who = _sender(message, chat, kind)
    if who is None or number is None or sent_at is None or not 0 <= sent_at < _LATEST_DATE:
        return Ignored("malformed", str(here))
    words, foreign = said_in(message, who.id)
    media = media_of(message)
    reason = _unfit(message, chat, who, me, (words, foreign, media), is_edit=is_edit)
    if reason is not None:
        return Ignored(reason, str(here))
    reply = reply_of(message, me.id)
    is_for_us = False
    if kind != "direct" and message.get("is_automatic_forward") is not True:
        is_for_us, rest = addressed(message, me.id, me.username)
        is_for_us |= bool(me.username and addressee(words_of(message)))
        is_for_us |= reply is not None and reply.from_bot
        words = rest if words and rest is not None else words
    return Inbound(
        channel=CHANNEL,
        account=account,
        chat=str(here),
        chat_type=kind,
        sender=str(who.id),
        sender_name=who.name,
        message_id=str(number) if edited is None else f"{number}:e{edited}",
        edit_of="" if edited is None else str(number),
        text=own_command(words, me.username),
        foreign=foreign,
        media=media,
        reply_to=reply,
        mentions_bot=is_for_us,
        thread=_thread(message, chat),
        title=_topic(message),
        locale=text(child(message, "from"), "language_code")[:MAX_LOCALE],
        sent_at=sent_at * 1000,
    )


# --- parts of a message --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Sender:
    id: int
    name: str
    is_bot: bool = False


def _sender(message: Json, chat: Json, kind: ChatType) -> _Sender | None:
    """The sender: a person, or the chat in whose name it was said.

    Behind an anonymous admin, a channel's post and somebody who writes as their channel stands no
    person Telegram would tell: what it gives as "from" then is the same for everybody.
    """
    mask = child(message, "sender_chat") if kind != "direct" else {}
    mask = chat if not mask and kind == "channel" else mask
    shown = mask or child(message, "from")
    number = integer(shown, "id")
    if number is None:
        return None
    if not mask:
        return _Sender(number, name_of(shown), shown.get("is_bot") is True)
    name, signed = name_of(mask), label(text(message, "author_signature"))
    if kind != "channel" and number == integer(chat, "id"):
        return _Sender(number, f"{name} (anonymous admin{f', {signed}' if signed else ''})")
    return _Sender(number, f"{name} ({f'channel, {signed}' if signed else 'channel'})")


def _unfit(
    message: Json,
    chat: Json,
    who: _Sender,
    me: Identity,
    content: tuple[str, tuple[Foreign, ...], tuple[Media, ...]],
    *,
    is_edit: bool,
) -> Reason | None:
    """Why nobody is to answer this, or None."""
    reason: Reason | None = None
    if chat.get("is_direct_messages") is True:
        reason = "direct_messages"
    elif is_edit and isinstance(message.get("location"), dict):
        reason = "live_location"
    elif who.is_bot or who.id == me.id:
        reason = "from_bot"
    elif not any(content):
        reason = "service" if SERVICE & message.keys() else "empty"
    elif me.username and _kind(chat) != "direct":
        bot = addressee(words_of(message))
        reason = "other_bot" if bot not in {"", me.username.lower()} else None
    return reason


def _kind(chat: Json) -> ChatType:
    """Chats of a kind nobody knows count as groups: the least is shown there."""
    return _KINDS.get(text(chat, "type"), "group")


def _topic(message: Json) -> str:
    """The name of the topic; its first-level messages point at its start, which has it."""
    return label(text(child(child(message, "reply_to_message"), "forum_topic_created"), "name"))


def _thread(message: Json, chat: Json) -> str:
    """The topic; other threads of a group are only chains of replies."""
    thread = integer(message, "message_thread_id")
    if thread is not None and message.get("is_topic_message") is True:
        return str(thread)
    is_forum = chat.get("is_forum") is True and text(chat, "type") != "private"
    return GENERAL_TOPIC if is_forum else ""
