"""Slack's events → `Inbound` values: pure, and total over any JSON."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from bot.channel import MAX_REPLY_TEXT, Address, Foreign, Inbound, Media, Reaction, ReplyTo
from bot.channel.kit import json_access
from bot.channel.kit.json_access import Json, child, children, is_blank, label, text

MAX_PARTS = 20  # files, attachments and names of one message
MAX_REF = 2000  # characters of a file's address

Reason = Literal[
    "malformed", "own", "from_bot", "service", "deleted", "unchanged", "empty", "reaction"
]
Names = Mapping[str, str]  # of people and channels, by id

_SAID = frozenset({"", "file_share", "thread_broadcast", "me_message"})  # what people write
REACTED, UNREACTED = "reaction_added", "reaction_removed"
_STAMP = re.compile(r"([0-9]{1,11})\.([0-9]{6})")
_MARK = re.compile(
    r"<(?:(?P<kind>[@#!])(?P<id>[^<>|]{1,200})|(?P<link>[^<>|\s]{1,2000}))"
    r"(?:\|(?P<label>[^<>]{0,1000}))?>"
)


@dataclass(frozen=True, slots=True)
class Identity:
    """The bot that an account talks as, and the workspace it is in."""

    id: str = ""
    name: str = ""
    team: str = ""


def number_in(message_id: str) -> int:
    """The time in a message id such as "1610241741.000200:e…", in μs since the epoch; or 0."""
    found = _STAMP.match(message_id)
    return int(found[1] + found[2]) if found else 0


def named_in(message: Json) -> list[str]:
    """The ids of people and channels that a message names."""
    found = (mark["id"] for mark in _MARK.finditer(text(message, "text")) if mark["kind"])
    return [each for each in dict.fromkeys(found) if each.isalnum()][:MAX_PARTS]


def written(event: Json) -> tuple[Json, int]:
    """The message in an event, and when it was edited (μs since the epoch) if this is the edit."""
    if text(event, "subtype") != "message_changed":
        return event, 0
    message, was = child(event, "message"), child(event, "previous_message")
    same = bool(was) and text(was, "text") == text(message, "text")
    return message, 0 if same else number_in(text(child(message, "edited"), "ts"))


def unwanted(event: Json, me: Identity) -> Reason | None:
    """Why an event is nothing that a person said to be read, or None."""
    message, edited = written(event)
    kind, sender = text(message, "subtype"), text(message, "user")
    if kind in {"message_deleted", "tombstone"}:
        return "deleted"
    if sender and sender == me.id:
        return "own"
    if message.get("bot_id") or sender == "USLACKBOT" or kind == "bot_message":
        return "from_bot"
    if kind not in _SAID:
        return "service"
    if message is not event and not edited:
        return "unchanged"  # the preview of a link, a reply in its thread
    return None if sender and number_in(text(message, "ts")) else "malformed"


def thread_of(message: Json) -> str:
    """The thread that a message was written in; empty for the message with which it began."""
    thread = text(message, "thread_ts")
    return thread if number_in(thread) and thread != text(message, "ts") else ""


def mentions(event: Json, me: Identity) -> bool:
    """True if the bot is mentioned, or its message answered in a thread."""
    message, _ = written(event)
    is_named = any(f"<@{me.id}{end}" in text(message, "text") for end in ">|")
    is_named = is_named or text(event, "type") == "app_mention"
    return bool(me.id) and (is_named or text(message, "parent_user_id") == me.id)


def normalise(
    event: Json, base: Inbound, me: Identity, names: Names, root: Json
) -> Inbound | Reason:
    """The message in an event that is not `unwanted`, or why there is none.

    Args:
        event: as Slack brings it.
        base: what is known of its sender and place.
        me: the bot.
        names: of those it names.
        root: the message with which its thread began, where that is news.
    """
    message, edited = written(event)
    stamp, words = text(message, "ts"), plain(text(message, "text"), me, names)
    media, foreign = _media(message), _foreign(message, me, names)
    start, is_named = _start(root, me, names), mentions(event, me)
    # Who answers a photo with the bot's name alone asks about the photo.
    if is_blank(words) and not media and not foreign and not (is_named and start):
        return "empty"
    return replace(
        base,
        message_id=f"{stamp}:e{edited}" if edited else stamp,
        edit_of=stamp if edited else "",
        text=words,
        sent_at=(edited or number_in(stamp)) // 1000,
        thread=thread_of(message),
        foreign=foreign,
        media=media,
        reply_to=start,
        mentions_bot=is_named,
    )


def reaction_of(event: Json, base: Inbound, me: Identity) -> Reaction | None:
    """The reaction an event tells of, with the name of its emoji; None for those to others' words.

    Slack does not tell in which thread the message is.
    """
    author, stamp = text(event, "item_user"), text(child(event, "item"), "ts")
    name = label(text(event, "reaction").partition("::")[0])  # without its skin tone
    if base.sender in {"", me.id} or author not in {"", me.id} or not number_in(stamp) or not name:
        return None
    return Reaction(
        Address(base.channel, base.account, base.chat),
        base.chat_type,
        base.sender,
        stamp,
        f":{name}:",
        at=base.sent_at,
        sender_name=base.sender_name,
        server=base.server,
        from_bot=author == me.id,
        is_removed=text(event, "type") == UNREACTED,
    )


def command(payload: Json, base: Inbound, private: frozenset[str]) -> Inbound | Reason:
    """The text typed after the app's one slash command; a `private` one is answered in private."""
    trigger, words = text(payload, "trigger_id"), text(payload, "text").strip().lstrip("/ ")
    if not base.sender or not trigger:
        return "malformed"
    words = words or "help"
    alone = base.chat_type != "direct" and words.split()[0].lower() in private
    number = f"private-{base.sender}-{trigger}" if alone else f"command-{trigger}"
    return replace(base, message_id=number, text=f"/{words}", mentions_bot=True)


def press(payload: Json, base: Inbound) -> Inbound | Reason:
    """A button that was pressed, as if its command had been typed; a message takes one press."""
    words = "".join(text(each, "value") for each in children(payload, "actions", 1))
    stamp = text(child(payload, "container"), "message_ts")
    if not base.sender or not number_in(stamp) or not words.startswith("/"):
        return "malformed"
    thread = thread_of({**child(payload, "message"), "ts": stamp})
    number = f"press-{stamp}"
    return replace(base, message_id=number, text=words, thread=thread, mentions_bot=True)


def private_to(message_id: str) -> str:
    """The person whom an answer to this message is for alone, or empty."""
    kind, _, rest = message_id.partition("-")
    return rest.partition("-")[0] if kind == "private" else ""


def name_of(person: Json) -> str:
    """The name that people see: the display name, or the full one."""
    profile = child(person, "profile")
    names = (text(profile, "display_name"), text(profile, "real_name"), text(person, "name"))
    return next((shown for name in names if (shown := label(name))), "")


def plain(said: str, me: Identity, names: Names) -> str:
    """Words as people read them: names in place of ids, and no mention of the bot around them."""
    own = f"<@{me.id}>"
    if me.id and own in said:
        parts = said.split(own)
        kept = [at for at, part in enumerate(parts) if part.strip()] or [0]
        said = own.join(parts[kept[0] : kept[-1] + 1]).strip()
    shown = _MARK.sub(lambda mark: _spelt(mark, {**names, me.id: me.name}), said)
    return shown.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")


def _spelt(mark: re.Match[str], names: Names) -> str:
    kind, number, said = mark["kind"], mark["id"] or "", label(mark["label"] or "", 1000)
    if kind == "!":  # @here, a group, a date
        return said or f"@{number.partition('^')[0]}"
    if kind:
        return f"{kind}{names.get(number) or said or ('someone' if kind == '@' else 'channel')}"
    link = mark["link"].removeprefix("mailto:")
    return said if said and link.endswith(said) else f"{said} ({link})" if said else link


def _start(root: Json, me: Identity, names: Names) -> ReplyTo | None:
    """The message with which a thread began; also the bot's own is news in the thread."""
    author = text(root, "user")
    said = [plain(text(root, "text"), me, names), *map(str, _foreign(root, me, names))]
    words = "\n".join(filter(None, said))[:MAX_REPLY_TEXT]
    own, name, media = author == me.id, names.get(author, ""), _media(root)
    return ReplyTo(text(root, "ts"), name, words, "", own, media, is_start=True) if root else None


def _foreign(message: Json, me: Identity, names: Names) -> tuple[Foreign, ...]:
    """Parts that the sender passed on: messages of others and, without words, link previews."""
    found: list[Foreign] = []
    for part in children(message, "attachments", MAX_PARTS):
        said = plain(text(part, "text") or text(part, "fallback"), me, names)[:MAX_REPLY_TEXT]
        if part.get("is_share") is True or part.get("is_msg_unfurl") is True:
            found.append(Foreign("forwarded", said, label(text(part, "author_name"))))
        elif is_blank(text(message, "text")):
            title = label(text(part, "title") or text(part, "from_url"), 300)
            found.append(Foreign("preview", ": ".join(filter(None, (title, said)))))
    return tuple(part for part in found if part.text)


def _media(message: Json) -> tuple[Media, ...]:
    parts = children(message, "attachments", MAX_PARTS)
    sources = (message, *(part for part in parts if part.get("is_share") is True))
    files = [file for source in sources for file in children(source, "files", MAX_PARTS)]
    return tuple(_file(file) for file in files[:MAX_PARTS] if text(file, "mode") != "tombstone")


def _file(file: Json) -> Media:
    mime = label(text(file, "mimetype")).lower()
    url = text(file, "url_private_download") or text(file, "url_private")
    is_voice, kind = text(file, "subtype") == "slack_audio", json_access.media_kind(mime)
    ref, size = url if len(url) <= MAX_REF else "", json_access.number(file, "size")
    return Media("voice" if is_voice else kind, label(text(file, "name")), mime, size, ref)
