"""Talk's events → `Inbound` values: pure, and total over any JSON.

Talk writes ActivityStreams: Create is a message, Activity something Talk itself says, Join and
Leave are this bot's own coming and going, Like and Undo are reactions. It tells neither the time
of a message nor whether a chat is direct.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from adapters.nextcloud_talk.rich import files, is_shared_object, parts, render
from bot.channel import MAX_REPLY_TEXT, Address, Inbound, Reaction, ReplyTo
from bot.channel.kit.json_access import (
    Json,
    child,
    identifier,
    is_blank,
    label,
    mapping,
    number,
    parse_json,
    text,
)

CHANNEL = "nextcloud_talk"
MAX_SENDER = 256  # characters of an actor's id

Reason = Literal["malformed", "unsupported", "from_bot", "deleted", "service", "blank", "reaction"]

_ROOM = re.compile(r"[A-Za-z0-9]{1,64}")
_OWN_TYPE = "users/"
_BOT_TYPE = "bots/"
# Bots, people in other networks who all have the bridge's one id, and people who are gone.
_NOBODY = (_BOT_TYPE, "bridged/", "deleted_users")
_MODERATORS = (1, 2, 6)  # owner, moderator, guest with a moderator's rights
# What Talk calls a message that is a file or an object, in one version or another.
_MESSAGE_NAMES = ("", "message", "file_shared", "object_shared")
_CJK = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"  # written without spaces


@dataclass(frozen=True, slots=True)
class Identity:
    """The bot an account talks as: its name, and where it sits.

    `actor` is the bot's id as Talk told it, or empty; `also` are ids that can be nobody else's.
    `place` is put before the ids of another server's people and rooms: the same id may be
    somebody else there.
    """

    account: str
    name: str
    actor: str = ""
    place: str = ""
    also: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Ignored:
    """A call that is no message for the engine, and why."""

    reason: Reason


@dataclass(frozen=True, slots=True)
class Membership:
    """The bot was added to a room, or removed; `actor` is the bot's own id."""

    joined: bool
    room: str
    actor: str


@dataclass(frozen=True, slots=True)
class Reacted:
    """A reaction, and the words of the message it is below: all that tells whose that is."""

    reaction: Reaction
    words: str


Reading = Inbound | Membership | Reacted | Ignored


def normalise(payload: object, me: Identity, now: int) -> Reading:
    """Turn one payload into an `Inbound`, or say what it is instead.

    `now` (ms since the epoch) is the time of the message. The chat is a group: only its server
    knows better.
    """
    activity = mapping(payload)
    kind = text(activity, "type")
    if kind in {"Create", "Activity"}:
        return _message(activity, me, now, said=kind == "Create")
    if kind in {"Join", "Leave"}:
        room = _room(child(activity, "object"))
        if not room:
            return Ignored("malformed")
        actor = text(child(activity, "actor"), "id")[:MAX_SENDER]
        return Membership(joined=kind == "Join", room=room, actor=actor)
    if kind in {"Like", "Undo"}:
        return _reaction(activity, me, now, is_removed=kind == "Undo")
    return Ignored("unsupported" if kind else "malformed")


def actor_of(webhook_url: str) -> str:
    """The id Talk gives a bot that was installed with this address; empty without one."""
    digest = hashlib.sha1(webhook_url.encode(), usedforsecurity=False).hexdigest()
    return f"{_BOT_TYPE}bot-{digest}" if webhook_url else ""


def moderates(payload: object) -> bool | None:
    """True when the payload says that its actor looks after the room; None when it does not tell.

    Talk tells it with what people write, not with what they share.
    """
    actor = child(mapping(payload), "actor")
    if "talkParticipantType" not in actor:
        return None
    return number(actor, "talkParticipantType") in _MODERATORS


def chat_id(me: Identity, room: str) -> str:
    """A room's token as a chat id."""
    return f"{me.place}/{room}" if me.place else room


def room_token(chat: str) -> str:
    """The token of a chat id."""
    return chat.rpartition("/")[2]


def _message(activity: Json, me: Identity, now: int, *, said: bool) -> Inbound | Ignored:
    actor, note = child(activity, "actor"), child(activity, "object")
    room, message_id = _room(child(activity, "target")), identifier(note, "id")
    author = text(actor, "id")
    if not room or not message_id or not author:
        return Ignored("malformed")
    if author.startswith(_NOBODY) or text(actor, "type") == "Application":
        return Ignored("deleted" if author.startswith("deleted_users") else "from_bot")
    sender, content = _sender(author, me), _content(note)
    if content is None or not sender:
        return Ignored("malformed")
    words, foreign = parts(text(content, "message"), child(content, "parameters"))
    media = files(child(content, "parameters"))
    shown = said or bool(media) or is_shared_object(content)
    is_service = text(note, "name") not in _MESSAGE_NAMES or not shown
    if is_service or (is_blank(words) and not media and not foreign):
        return Ignored("service" if is_service else "blank")
    answered = _reply(child(note, "inReplyTo"), me)
    is_named = bool(me.name) and _name_pattern(me.name).search(words) is not None
    thread = identifier(note, "threadId")
    return Inbound(
        channel=CHANNEL,
        account=me.account,
        chat=chat_id(me, room),
        chat_type="group",
        sender=sender,
        sender_name=label(text(actor, "name")),
        message_id=message_id,
        text=_own_command(words, me.name),
        foreign=foreign,
        media=media,
        reply_to=answered,
        thread="" if thread == message_id else thread,  # its first message is not in it yet
        mentions_bot=is_named or (answered is not None and answered.from_bot),
        sent_at=now,
    )


def _reaction(activity: Json, me: Identity, now: int, *, is_removed: bool) -> Reacted | Ignored:
    like = child(activity, "object") if is_removed else activity
    actor, note = child(activity, "actor"), child(like, "object")
    author, room = text(actor, "id"), _room(child(activity, "target"))
    sender, message_id, emoji = _sender(author, me), identifier(note, "id"), text(like, "content")
    if not room or not sender or not message_id or is_blank(emoji):
        return Ignored("reaction")
    if author.startswith(_NOBODY):
        return Ignored("from_bot")
    reaction = Reaction(
        Address(CHANNEL, me.account, chat_id(me, room), identifier(note, "threadId")),
        "group",
        sender,
        message_id,
        label(emoji),
        at=now,
        sender_name=label(text(actor, "name")),
        is_removed=is_removed,
    )
    content = _content(note) or {}
    return Reacted(reaction, text(content, "message"))


# --- parts of a message --------------------------------------------------------------------------


def _room(target: Json) -> str:
    token = text(target, "id")
    return token if _ROOM.fullmatch(token) else ""


def _sender(author: str, me: Identity) -> str:
    """The id of a person: "ada" for a user of this server, "guests/…" and so on for others."""
    kind, slash, name = author.partition("/")
    if not slash or not kind or is_blank(name) or len(author) > MAX_SENDER:
        return ""
    if author.startswith(_OWN_TYPE) and "/" not in name:
        author = name  # no type of actor can look like that, for it has a slash
    return f"{me.place}/{author}" if me.place else author


def _content(note: Json) -> Json | None:
    """The content of a note: a message and its parameters, which Talk writes as JSON again."""
    found = child(note, "content")
    if not found:
        try:
            found = mapping(parse_json(text(note, "content")))
        except ValueError:
            return None
    return found if isinstance(found.get("message"), str) else None


def _reply(answered: Json, me: Identity) -> ReplyTo | None:
    note, actor = child(answered, "object"), child(answered, "actor")
    message_id = identifier(note, "id")
    if not message_id:
        return None
    content = _content(note) or {}
    parameters = child(content, "parameters")
    words = render(text(content, "message"), parameters)
    return ReplyTo(
        message_id=message_id,
        sender_name=label(text(actor, "name")),
        text="" if is_blank(words) else words[:MAX_REPLY_TEXT],
        media=files(parameters),
        from_bot=_is_me(actor, me),
    )


def _is_me(actor: Json, me: Identity) -> bool:
    author = text(actor, "id")
    if author and (author == me.actor or author in me.also):
        return True
    # Before Talk told the id there is the name, to which it adds that this is a bot.
    shown = text(actor, "name").strip().casefold()
    is_unknown = not me.actor and author.startswith(_BOT_TYPE)
    return is_unknown and bool(me.name) and shown == f"{me.name} (Bot)".casefold()


def _own_command(words: str, name: str) -> str:
    """`@Confidant /new` without the name, so that it is a command."""
    if not name or "/" not in words:
        return words
    found = _name_pattern(name).match(words.lstrip())
    if found is None:
        return words
    rest = words.lstrip()[found.end() :].lstrip(" \t,:，：")
    return rest if rest.startswith("/") else words


@lru_cache(maxsize=64)
def _name_pattern(name: str) -> re.Pattern[str]:
    """A name as a word of its own, with or without an @ before it.

    Next to it no letter may stand, except of a script that is written without spaces.
    """
    letter = rf"[^\W{_CJK}]"
    before, after = rf"(?<!{letter})(?<![@./-])@?", rf"(?!{letter}|[.-]{letter})"
    return re.compile(before + re.escape(name) + after, re.IGNORECASE)
