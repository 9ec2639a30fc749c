"""Messages as Discord sends them → `Inbound` values: pure, and total over any JSON.

It reads the raw mapping: what the SDK makes of it costs more, needs its cache, and one field of a
surprising type would cost the message.
"""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import dataclass
from typing import Final, Literal

from adapters.discord.api import identity, ids_in, moment, sent_at
from adapters.discord.places import Place, Room
from bot.channel import MAX_REPLY_TEXT, Address, Foreign, Inbound, Media, Reaction, ReplyTo
from bot.channel.kit.json_access import (
    Json,
    child,
    children,
    integer,
    is_blank,
    label,
    mapping,
    media_kind,
    text,
)

CHANNEL = "discord"
CREATED: Final = "MESSAGE_CREATE"
UPDATED: Final = "MESSAGE_UPDATE"
EVENTS: Final = (CREATED, UPDATED)
UNREACTED: Final = "MESSAGE_REACTION_REMOVE"
REACTIONS: Final = ("MESSAGE_REACTION_ADD", UNREACTED)

MAX_MEDIA = 20  # of one message; Discord allows 10
MAX_REF = 2000  # characters of a file's address
MAX_EMBED = 6000  # characters of one embed; Discord's own bound
MAX_FIELDS = 25  # of one embed; Discord's own bound
MAX_COMPONENTS = 40  # of one message; Discord's own bound
DELETED_USER = "456226577798135808"  # stands for everybody who deleted their account

Reason = Literal[
    "malformed", "own", "from_bot", "webhook", "deleted_author", "service", "unchanged", "empty"
]

_BUTTON, _TEXT, _GALLERY = 2, 10, 12  # kinds of components that say something
_SAID = frozenset({0, 19})  # kinds of messages that people write: plain ones and replies
_FORWARD = 1
_VOICE = 1 << 13  # flag of a voice message
_STICKERS = {1: "image/png", 2: "image/apng", 3: "application/json", 4: "image/gif"}
_MARKS = re.compile(
    r"<(?:@!?(?P<user>\d{1,20})|@&(?P<role>\d{1,20})|#(?P<channel>\d{1,20})"
    r"|(?P<emoji>a?:\w{1,64}:)\d{1,20}|/(?P<command>[^:<>\n]{1,100}):\d{1,20}"
    r"|t:(?P<time>-?\d{1,13})(?::[a-zA-Z])?)>"
)


@dataclass(frozen=True, slots=True)
class Identity:
    """The bot an account talks as."""

    id: str
    name: str = ""


@dataclass(frozen=True, slots=True)
class Ignored:
    """A message that is none for the engine, and why."""

    reason: Reason


def edited_at(message: Json) -> int | None:
    """The time of the last edit, in ms since the epoch; None if the message was never edited."""
    return moment(text(message, "edited_timestamp"))


def normalise(
    kind: str, data: object, account: str, me: Identity, room: Room, *, start: Json | None = None
) -> Inbound | Ignored:
    """Turn one created or updated message into an `Inbound`, or say why there is none.

    A message that answers none refers to the `start` of its thread, where that is given.

    Each text of a message has an id of its own. A created one that was edited before it was read
    has that of its edit, so that what is read of it later is known to be a copy.
    """
    message = mapping(data)
    number, chat = identity(message, "id"), identity(message, "channel_id")
    author = child(message, "author")
    sender = identity(author, "id")
    if not number or not chat or not sender:
        return Ignored("malformed")
    unwanted = _unwanted(message, author, me)
    if unwanted:
        return Ignored(unwanted)
    edited = edited_at(message)
    if kind == UPDATED and (edited is None or "content" not in message):
        return Ignored("unchanged")  # a link preview, a pin
    media = _media(message)
    words, foreign = _plain(message, me, room), _foreign(message, me, room)
    answered = _reply(message, me, room) or _start(start or {}, number, me, room)
    is_named = _mentions(message, me, room)
    # Who answers a photo with the bot's name alone asks about the photo.
    is_pointed = is_named and answered is not None and bool(answered.text or answered.media)
    if is_blank(words) and not media and not foreign and not is_pointed:
        return Ignored("empty")
    return Inbound(
        channel=CHANNEL,
        account=account,
        chat=chat,
        chat_type=room.place.kind,
        sender=sender,
        sender_name=name_of(author, child(message, "member")),
        message_id=number if edited is None else f"{number}:e{edited}",
        edit_of=number if kind == UPDATED else "",
        text="" if (foreign or is_pointed) and is_blank(words) else words,
        foreign=foreign,
        media=media,
        reply_to=answered,
        mentions_bot=is_named or (answered is not None and answered.from_bot),
        sent_at=edited if edited is not None and kind == UPDATED else sent_at(number),
        parent=room.place.parent,
        server=room.place.server,
        title=room.channels.get(chat, "") if room.place.kind == "thread" else "",
    )


def reaction_of(kind: str, data: Json, account: str, me: Identity, place: Place) -> Reaction | None:
    """The reaction an event tells of; None for those of bots, and those to others' messages.

    Discord does not tell whose message it was when a reaction is taken away.
    """
    number, sender = identity(data, "message_id"), identity(data, "user_id")
    member, author = child(data, "member"), identity(data, "message_author_id")
    is_bots = sender == me.id or child(member, "user").get("bot") is True
    if not number or not sender or is_bots or author not in {"", me.id}:
        return None
    emoji = child(data, "emoji")
    name = label(text(emoji, "name"))
    return Reaction(
        Address(CHANNEL, account, identity(data, "channel_id")),
        place.kind,
        sender,
        number,
        f":{name}:" if name and identity(emoji, "id") else name,
        sender_name=name_of(child(member, "user"), member),
        parent=place.parent,
        server=place.server,
        from_bot=author == me.id,
        is_removed=kind == UNREACTED,
    )


def name_of(user: Json, member: Json) -> str:
    """The name that people see: in this server, the display name, or the user name."""
    return (
        label(text(member, "nick"))
        or label(text(user, "global_name"))
        or label(text(user, "username"))
    )


def _unwanted(message: Json, author: Json, me: Identity) -> Reason | None:
    sender = identity(author, "id")
    if sender == me.id:
        return "own"
    if message.get("webhook_id"):
        return "webhook"
    if author.get("bot") is True or author.get("system") is True:
        return "from_bot"
    if sender == DELETED_USER:
        return "deleted_author"
    return None if (integer(message, "type") or 0) in _SAID else "service"


# --- parts of a message --------------------------------------------------------------------------


def _content(message: Json, me: Identity, room: Room) -> str:
    """A message as a person reads it."""
    said = _plain(message, me, room)
    lines = [] if is_blank(said) else [said]
    return "\n".join([*lines, *map(str, _foreign(message, me, room))])


def _foreign(message: Json, me: Identity, room: Room) -> tuple[Foreign, ...]:
    """The parts of a message that its sender did not write: forwards, a poll, previews."""
    found: list[Foreign] = []
    for snapshot in _snapshots(message):
        words = _plain(snapshot, me, room)
        lines = [*([] if is_blank(words) else [words]), *map(str, _described(snapshot, words))]
        found.append(Foreign("forwarded", "\n".join(lines)))
    return (*found, *_described(message, _plain(message, me, room)))


def _described(message: Json, said: str) -> list[Foreign]:
    """A poll, components, and embeds; of a message with words without the previews of its links."""
    found: list[Foreign] = []
    poll = child(message, "poll")
    if poll:
        found.append(Foreign("poll", _poll(poll)))
    found += [
        Foreign("preview", f"embed: {shown}")
        for embed in children(message, "embeds", MAX_MEDIA)
        if (is_blank(said) or text(embed, "type") == "rich") and (shown := _embed(embed))
    ]
    shown = "\n".join(_components(message))[:MAX_EMBED]
    if shown:
        found.append(Foreign("card", shown))
    return found


def _poll(poll: Json) -> str:
    """A poll with its state: the votes for each answer, as far as there are any."""
    results = child(poll, "results")
    votes = {
        integer(count, "id"): integer(count, "count") or 0
        for count in children(results, "answer_counts", MAX_MEDIA)
    }
    answers = " / ".join(
        label(text(child(answer, "poll_media"), "text"))
        + (f" ({votes.get(integer(answer, 'answer_id'), 0)})" if any(votes.values()) else "")
        for answer in children(poll, "answers", MAX_MEDIA)
    )
    closed = " (closed)" if results.get("is_finalized") is True else ""
    return f"poll{closed}: {label(text(child(poll, 'question'), 'text'), 300)} — {answers}"


def _embed(embed: Json) -> str:
    """All that an embed says; Discord's own bound is 6 000 characters in 25 fields."""
    author, footer = text(child(embed, "author"), "name"), text(child(embed, "footer"), "text")
    head = (label(text(embed, "title"), 300), _paragraph(text(embed, "description")))
    fields = [
        f"{label(text(each, 'name'), 300)}: {_paragraph(text(each, 'value'))}"
        for each in children(embed, "fields", MAX_FIELDS)
    ]
    lines = (label(author, 300), " — ".join(part for part in head if part), *fields)
    shown = "\n".join(part for part in (*lines, label(footer, 300)) if part)
    return shown[:MAX_EMBED] or label(text(embed, "url"), 300)


def _components(message: Json) -> list[str]:
    """The texts and links of a message that is laid out by components, from the top."""
    found: list[str] = []
    waiting = children(message, "components", MAX_COMPONENTS)[::-1]
    for _ in range(MAX_COMPONENTS):  # of all levels together
        if not waiting:
            break
        part = waiting.pop()
        kind = integer(part, "type")
        if kind == _TEXT:
            found.append(_paragraph(text(part, "content")))
        elif kind == _BUTTON and text(part, "url"):
            found.append(f"{label(text(part, 'label'))}: {label(text(part, 'url'), 300)}")
        elif kind == _GALLERY:
            pictures = children(part, "items", MAX_MEDIA)
            alts = (label(text(each, "description"), 300) for each in pictures)
            found += [f"picture: {alt}" for alt in alts if alt]
        accessory = child(part, "accessory")
        inside = children(part, "components", MAX_COMPONENTS)
        waiting += [*([accessory] if accessory else []), *inside[::-1]]
    return [line for line in found if line]


def _paragraph(words: str) -> str:
    """Somebody else's words with their lines, and without brackets, which are ours."""
    return "\n".join(label(line, MAX_EMBED) for line in words.splitlines()).strip()


def _plain(message: Json, me: Identity, room: Room) -> str:
    """The content with names in place of ids, and without the bot's own mention around it."""
    content = text(message, "content")
    if "<" not in content:
        return content
    own = {me.id, *room.ours}
    begin, end = 0, len(content)
    for mark in _MARKS.finditer(content):
        if content[begin : mark.start()].strip() or _target(mark) not in own:
            break
        begin = mark.end()
    for mark in reversed(list(_MARKS.finditer(content, begin))):
        if content[mark.end() : end].strip() or _target(mark) not in own:
            break
        end = mark.start()
    names = {
        identity(user, "id"): name_of(user, child(user, "member"))
        for user in children(message, "mentions")
    }
    names[me.id] = me.name or "bot"
    kept = content[begin:end]
    stripped = kept if (begin, end) == (0, len(content)) else kept.strip()
    return _MARKS.sub(lambda mark: _spelt(mark, names, room), stripped)


def _target(mark: re.Match[str]) -> str:
    return mark["user"] or mark["role"] or ""


def _spelt(mark: re.Match[str], names: dict[str, str], room: Room) -> str:
    kind, value = mark.lastgroup or "", mark[mark.lastgroup or 0]
    if kind == "time":
        return _clock(int(value)) or mark[0]
    shown = {
        "user": f"@{names.get(value) or 'someone'}",
        "role": f"@{room.roles.get(value, 'role').removeprefix('@')}",
        "channel": f"#{room.channels.get(value) or 'channel'}",
        "emoji": value.removeprefix("a"),
        "command": f"/{value}",
    }
    return shown[kind]


def _clock(seconds: int) -> str:
    try:
        return f"{dt.datetime.fromtimestamp(seconds, dt.UTC):%Y-%m-%d %H:%M} UTC"
    except (OverflowError, OSError, ValueError):
        return ""


def _mentions(message: Json, me: Identity, room: Room) -> bool:
    """True if the bot or its own role is mentioned; a mention of everyone is none."""
    if any(identity(user, "id") == me.id for user in children(message, "mentions")):
        return True
    return bool(room.ours and room.ours.intersection(ids_in(message, "mention_roles")))


def _media(message: Json) -> tuple[Media, ...]:
    found: list[Media] = []
    for source in (message, *_snapshots(message)):
        is_voice = bool((integer(source, "flags") or 0) & _VOICE)
        found.extend(_file(item, is_voice=is_voice) for item in children(source, "attachments"))
        found.extend(_sticker(item) for item in children(source, "sticker_items"))
    return tuple(found[:MAX_MEDIA])


def _file(item: Json, *, is_voice: bool) -> Media:
    mime = label(text(item, "content_type")).partition(";")[0].strip().lower()
    kind = media_kind(mime)
    size, url = integer(item, "size") or 0, text(item, "url")
    return Media(
        "voice" if is_voice and kind == "audio" else kind,
        name=label(text(item, "filename")),
        mime=mime,
        size=size if 0 <= size < 1 << 53 else 0,
        ref=url if len(url) <= MAX_REF else "",
    )


def _sticker(item: Json) -> Media:
    number, kind = identity(item, "id"), integer(item, "format_type") or 0
    suffix = {3: "json", 4: "gif"}.get(kind, "png")
    host = "media.discordapp.net" if kind == 4 else "cdn.discordapp.com"
    return Media(
        "sticker",
        name=label(text(item, "name")),
        mime=_STICKERS.get(kind, ""),
        ref=f"https://{host}/stickers/{number}.{suffix}" if number else "",
    )


def _snapshots(message: Json) -> list[Json]:
    """The forwarded messages, as they were then."""
    if integer(child(message, "message_reference"), "type") != _FORWARD:
        return []
    return [child(item, "message") for item in children(message, "message_snapshots")]


def _start(start: Json, number: str, me: Identity, room: Room) -> ReplyTo | None:
    """The message with which a thread began; one of the bot's own is no news, and addresses it."""
    author = child(start, "author")
    first = identity(start, "id")
    if first in {"", number} or identity(author, "id") == me.id:
        return None
    return ReplyTo(
        message_id=first,
        sender_name=name_of(author, child(start, "member")),
        text=_content(start, me, room)[:MAX_REPLY_TEXT],
        media=_media(start),
        is_start=True,
    )


def _reply(message: Json, me: Identity, room: Room) -> ReplyTo | None:
    reference = child(message, "message_reference")
    number = identity(reference, "message_id")
    if not number or integer(reference, "type") == _FORWARD:
        return None
    answered = child(message, "referenced_message")
    if not answered:
        return ReplyTo(number)  # it is gone, or Discord did not look
    author = child(answered, "author")
    return ReplyTo(
        message_id=number,
        sender_name=name_of(author, child(answered, "member")),
        text=_content(answered, me, room)[:MAX_REPLY_TEXT],
        from_bot=bool(me.id) and identity(author, "id") == me.id,
        media=_media(answered),
    )
