"""Events as a homeserver sends them → `Inbound` values: pure, and total over any JSON."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Final, Literal
from urllib.parse import quote

import orjson

from bot.channel import (
    MAX_REPLY_TEXT,
    Address,
    ChatType,
    Foreign,
    Inbound,
    Media,
    Reaction,
    ReplyTo,
)
from bot.channel.kit.json_access import (
    Json,
    child,
    children,
    integer,
    is_blank,
    label,
    mapping,
    media_kind,
    parse_json,
    text,
    texts,
)

CHANNEL: Final = "matrix"
MESSAGE, ENCRYPTED, REACTION = "m.room.message", "m.room.encrypted", "m.reaction"
MAX_REF = 2000  # characters of what a file is fetched by
MAX_ANSWERS = 20  # of a poll, Matrix's own bound
_FILES = frozenset({"m.image", "m.audio", "m.video", "m.file"})
_POLLS = ("m.poll.start", "org.matrix.msc3381.poll.start", "m.poll")
_VOICE = ("m.voice", "org.matrix.msc3245.voice")
_MXC = re.compile(r"mxc://([^/\s]{1,255})/([\w-]{1,255})")
_PRIVATE = frozenset({"invite", "knock", "private"})  # rules of rooms that nobody joins unasked

Reason = Literal["own", "from_bot", "malformed", "unknown", "empty"]


@dataclass(frozen=True, slots=True)
class Identity:
    """The account a bot talks as."""

    id: str
    device: str = ""
    name: str = ""


@dataclass(slots=True)
class Room:
    """The state of a room; `people` are those in it or invited, once asked for."""

    encrypted: bool = False
    rule: str = ""
    is_open: bool = False  # whoever finds it may read it
    people: frozenset[str] | None = None

    def hear(self, event: Json) -> None:
        """Take one event of the state."""
        content = child(event, "content")
        match event.get("type"):
            case "m.room.encryption":
                self.encrypted = True  # once and for all
            case "m.room.join_rules":
                self.rule = text(content, "join_rule")
            case "m.room.history_visibility":
                self.is_open = text(content, "history_visibility") == "world_readable"
            case "m.room.member":
                self.people = None
            case _:
                pass

    def is_direct(self, me: str, sender: str) -> bool:
        """True if one person and the bot are alone there, and nobody comes in unasked."""
        return self.people == frozenset({me, sender}) and self.rule in _PRIVATE and not self.is_open


@dataclass(frozen=True, slots=True)
class Ignored:
    """An event that is no message for the engine, and why."""

    reason: Reason


def relation(event: Json) -> Json:
    """The relation of an event to others."""
    return child(child(event, "content"), "m.relates_to")


def edited(event: Json) -> str:
    """The id of the event that this one replaces, or empty."""
    found = relation(event)
    return text(found, "event_id") if found.get("rel_type") == "m.replace" else ""


def thread(event: Json) -> str:
    """The id of the event with which the thread of this one began, or empty."""
    found = relation(event)
    return text(found, "event_id") if found.get("rel_type") == "m.thread" else ""


def answered(event: Json) -> str:
    """The id of the event that this one answers, or empty."""
    found = relation(event)
    if found.get("rel_type") == "m.thread" and found.get("is_falling_back") is True:
        return ""  # for apps that know no threads
    return text(child(found, "m.in_reply_to"), "event_id")


def reaction_of(
    event: Json, me: Identity, place: Address, kind: ChatType, name: str
) -> Reaction | None:
    """The reaction an event is; None for the bot's own, and for what is none."""
    found, sender = relation(event), text(event, "sender")
    number, emoji = text(found, "event_id"), label(text(found, "key"))
    if found.get("rel_type") != "m.annotation" or not number or not emoji or sender in {"", me.id}:
        return None
    at = integer(event, "origin_server_ts") or 0
    return Reaction(place, kind, sender, number, emoji, at=at, sender_name=name)


def normalise(  # noqa: PLR0911  # each is another reason
    event: Json,
    me: Identity,
    inbound: Inbound,
    *,
    original: Json | None = None,
    before: Json | None = None,
    start: Json | None = None,
) -> Inbound | Ignored:
    """Fill in an `Inbound` with what a decrypted event says, or say why it is none.

    Args:
        event: as in the timeline.
        me: the bot.
        inbound: what is known of it already: where, by whom, when.
        original: what it replaces, if it does.
        before: what it answers, as far as it can be read.
        start: the beginning of its thread, as far as it can be read.
    """
    content, kind = child(event, "content"), event.get("type")
    if inbound.sender == me.id:
        return Ignored("own")
    if not inbound.sender or not inbound.message_id:
        return Ignored("malformed")
    if kind not in {MESSAGE, "m.sticker", *_POLLS}:
        return Ignored("unknown")
    if text(content, "msgtype") == "m.notice":
        return Ignored("from_bot")  # or two of them talk for ever
    if edited(event):
        if text(original or {}, "sender") != inbound.sender:
            return Ignored("malformed")
        content = child(content, "m.new_content")
    link = answered(original or event)
    reply = _reply(link, before or {}, me) if link else _start(start or {}, inbound, me)
    is_named = _mentions(content, me)
    words, media, foreign = _said(kind, content)
    words = _unquoted(words) if link else words
    words = _unnamed(words, me) if is_named else words
    # Who answers a photo with the bot's name alone asks about the photo.
    is_pointed = is_named and reply is not None and bool(reply.text or reply.media)
    if is_blank(words) and not media and not foreign and not is_pointed:
        return Ignored("empty")
    return replace(
        inbound,
        text="" if is_blank(words) else words,
        media=media,
        foreign=foreign,
        reply_to=reply,
        mentions_bot=is_named or (reply is not None and reply.from_bot),
        edit_of=edited(event),
    )


def _said(kind: object, content: Json) -> tuple[str, tuple[Media, ...], tuple[Foreign, ...]]:
    """The words, files and other parts of a message."""
    words, name, sort = text(content, "body"), text(content, "filename"), text(content, "msgtype")
    if kind in _POLLS:
        found = next(filter(None, (child(content, each) for each in _POLLS)), Json())
        return "", (), (Foreign("poll", _poll(found)),)
    if sort == "m.location":
        return "", (), (Foreign("place", f"place: {label(words, 300)}"),)
    if kind != "m.sticker" and sort not in _FILES:
        return words, (), ()
    media = _file(content, "sticker" if kind == "m.sticker" else sort)
    has_caption = bool(name) and name != words
    return (words if has_caption else ""), (media,), ()


def _file(content: Json, kind: str) -> Media:
    """A file; `ref` is its address, or that with its key."""
    info, locked = child(content, "info"), child(content, "file")
    mime = label(text(info, "mimetype")).partition(";")[0].strip().lower()
    size = integer(info, "size") or 0
    key: Json = {"url": text(locked, "url"), "iv": text(locked, "iv")}
    key["key"] = {"k": text(child(locked, "key"), "k")}
    key["hashes"] = {"sha256": text(child(locked, "hashes"), "sha256")}
    ref = orjson.dumps(key).decode() if locked else text(content, "url")
    sorts = {"m.image": "photo", "m.audio": "audio", "m.video": "video", "sticker": "sticker"}
    is_voice = kind == "m.audio" and any(isinstance(content.get(each), dict) for each in _VOICE)
    return Media(
        "voice" if is_voice else sorts.get(kind) or media_kind(mime),  # pyright: ignore[reportArgumentType]
        name=label(text(content, "filename") or text(content, "body")),
        mime=mime,
        size=size if 0 <= size < 1 << 53 else 0,
        ref=ref if len(ref) <= MAX_REF else "",
    )


def location(ref: str) -> tuple[str, str, Json]:
    """The server, the id and the keys of a file, by `Media.ref`; empty of another one."""
    try:
        locked = mapping(parse_json(ref)) if ref.startswith("{") else {}
    except ValueError:
        locked = {}
    place = _MXC.fullmatch(text(locked, "url") or ref)
    return (place[1], place[2], locked) if place else ("", "", {})


def _poll(poll: Json) -> str:
    answers = children(poll, "answers", MAX_ANSWERS)
    return f"poll: {_extensible(child(poll, 'question'))} — {' / '.join(map(_extensible, answers))}"


def _extensible(part: Json) -> str:
    first = next(iter(children(part, "m.text", 1)), Json())
    words = text(part, "org.matrix.msc1767.text") or text(part, "body") or text(first, "body")
    return label(words, 300)


def _reply(number: str, before: Json, me: Identity) -> ReplyTo:
    words, media, foreign = _said(before.get("type"), child(before, "content"))
    words = _unquoted(words) if answered(before) else words
    sender = text(before, "sender")
    return ReplyTo(
        message_id=number,
        sender_name=label(sender),
        text="\n".join(filter(None, (words, *map(str, foreign))))[:MAX_REPLY_TEXT],
        from_bot=sender == me.id,
        media=media,
    )


def _start(start: Json, inbound: Inbound, me: Identity) -> ReplyTo | None:
    """The message with which a thread began; one of the bot's own is no news."""
    if not start or text(start, "sender") == me.id:
        return None
    found = _reply(inbound.thread, start, me)
    return replace(found, is_start=True)


def _mentions(content: Json, me: Identity) -> bool:
    """True if the bot is mentioned; apps that do not say whom they mention make a link."""
    if "m.mentions" in content:
        return me.id in texts(child(content, "m.mentions"), "user_ids")
    links = text(content, "formatted_body")
    pills = (f"https://matrix.to/#/{each}" for each in (me.id, quote(me.id), quote(me.id, safe="")))
    return any(f'"{pill}"' in links for pill in pills) or me.id in text(content, "body")


def _unquoted(words: str) -> str:
    """A reply without the quote that older apps put before it."""
    lines = words.split("\n")
    quoted = next((at for at, line in enumerate(lines) if not line.startswith("> ")), len(lines))
    is_quote = 0 < quoted < len(lines) and not lines[quoted].strip()
    return "\n".join(lines[quoted + 1 :]) if is_quote else words


def _unnamed(words: str, me: Identity) -> str:
    """A text to the bot, without its name before or behind it."""
    for name in (me.id, me.name, me.id[1:].partition(":")[0]):
        for called in (name, f"@{name}"):
            if name and words.startswith(called) and not words[len(called) :][:1].isalnum():
                return words[len(called) :].lstrip(":, ")
            if name and words.endswith(f" {called}"):
                return words[: -len(called)].rstrip()
    return words
