"""A message with placeholders, as Talk sends it → text a person can read, and its files: pure."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass

import structlog
from cachetools import LRUCache

from adapters.nextcloud_talk.api import TalkApi, data_of
from bot.channel import Foreign, ForeignKind, Media
from bot.channel.kit.client import Unreachable
from bot.channel.kit.json_access import (
    MAX_LABEL,
    Json,
    child,
    identifier,
    label,
    mapping,
    media_kind,
    number,
    text,
)

MAX_FILES = 20  # of one message
MAX_LINK = 2000  # characters
MAX_QUESTION = 300  # characters of a poll's
_OBJECT = "object"  # what Talk calls the one thing that was shared
_PLACE = re.compile(r"geo:(?P<latitude>-?[0-9.]{1,24}),(?P<longitude>-?[0-9.]{1,24})")
_PLACEHOLDER = re.compile(r"\{([A-Za-z0-9-]{1,64})\}")
_MENTIONED = ("user", "guest", "call", "user-group", "circle", "email", "federated_user", "bot")
_FOREIGN: dict[str, ForeignKind] = {"geo-location": "place", "talk-poll": "poll"}
_KINDS = {
    "geo-location": "location",
    "talk-poll": "poll",
    "deck-card": "card",
    "deck-board": "board",
    "calendar-event": "event",
    "addressbook-contact": "contact",
}


def render(message: str, parameters: Json) -> str:
    """A message as a person reads it: each placeholder is what its parameter stands for.

    A message that is nothing but a file has no words. What a person typed in braces stays.
    """
    if "{" not in message:
        return message
    if _is_only_a_file(message, parameters):
        return ""
    # One pass: what a parameter brings is never looked into again.
    return _PLACEHOLDER.sub(lambda found: _shown(found, parameters), message)


def parts(message: str, parameters: Json) -> tuple[str, tuple[Foreign, ...]]:
    """A typed text with only the kind of each card in it, and the cards themselves.

    A message that is nothing but a card has no words.
    """
    if "{" not in message or _is_only_a_file(message, parameters):
        return render(message, parameters), ()
    cards: list[Foreign] = []

    def typed(found: re.Match[str]) -> str:
        parameter = child(parameters, found[1])
        shown, kind = _shown(found, parameters), text(parameter, "type")
        if not shown.startswith("[") or found[1].startswith("mention-"):
            return shown
        is_known: ForeignKind = _FOREIGN.get(kind, "card")
        cards.append(Foreign(is_known, shown[1:-1]))
        return f"[{_KINDS.get(kind, 'file' if kind == 'file' else 'card')}]"

    words = _PLACEHOLDER.sub(typed, message)
    is_only_a_card = len(cards) == 1 and _PLACEHOLDER.fullmatch(message.strip()) is not None
    return ("" if is_only_a_card else words), tuple(cards)


def files(parameters: Json) -> tuple[Media, ...]:
    """The files of a message, in the order Talk names them."""
    found: list[Media] = []
    for name in parameters:
        parameter = child(parameters, name)
        if text(parameter, "type") == "file" and len(found) < MAX_FILES:
            found.append(_file(parameter))
    return tuple(found)


def is_shared_object(content: Json) -> bool:
    """True when a note is nothing but a card, a poll, a place or the like that somebody shared."""
    found = child(child(content, "parameters"), _OBJECT)
    return text(content, "message").strip() == f"{{{_OBJECT}}}" and bool(_name(found))


def file_ref(ref: str) -> tuple[str, str]:
    """The id of a file on its server and its link, from a `Media.ref`."""
    number_, _, link = ref.partition(" ")
    return number_, link


def _is_only_a_file(message: str, parameters: Json) -> bool:
    found = _PLACEHOLDER.fullmatch(message.strip())
    return found is not None and text(child(parameters, found[1]), "type") == "file"


def _shown(found: re.Match[str], parameters: Json) -> str:
    parameter = child(parameters, found[1])
    kind = text(parameter, "type")
    name = _name(parameter)
    if not name:
        return found[0]
    if found[1].startswith("mention-"):
        return f"@{name}"
    if kind in _MENTIONED and found[1] != _OBJECT:
        return name
    if kind == "geo-location":
        name = f"{name}, {_degrees(parameter, 'latitude')}, {_degrees(parameter, 'longitude')}"
    elif kind == "deck-card" and (board := label(text(parameter, "boardname"))):
        name = f"{name} ({board})"
    kind = _KINDS.get(kind, label(kind, 40))
    return f"[{kind}: {name}]" if kind else f"[{name}]"


def _name(parameter: Json) -> str:
    limit = MAX_QUESTION if text(parameter, "type") == "talk-poll" else MAX_LABEL
    return label(text(parameter, "name"), limit) or label(text(parameter, "id"))


def _degrees(parameter: Json, key: str) -> str:
    value: object = parameter.get(key)
    if isinstance(value, int | float):
        return str(value)
    place = _PLACE.match(text(parameter, "id"))
    return label(text(parameter, key), 24) or (place[key] if place is not None else "?")


def _file(parameter: Json) -> Media:
    mime = label(text(parameter, "mimetype"))
    link = text(parameter, "link")
    if not link.startswith(("https://", "http://")) or len(link) > MAX_LINK or " " in link:
        link = ""
    return Media(
        media_kind(mime),
        name=label(text(parameter, "name")),
        mime=mime,
        size=number(parameter, "size"),
        ref=f"{identifier(parameter, 'id')} {link}".rstrip(),
    )


# What kind of chat a room is: asked of its server, and remembered for a while.

PATIENCE = 1.5  # seconds for an answer; Talk itself waits 5 for ours
KEPT = 600.0  # seconds an answer counts
RETRY = 30.0  # seconds until a room is asked for again that could not be looked up
MOST = 10_000  # rooms

ONE_TO_ONE, FORMER_ONE_TO_ONE, NOTE_TO_SELF = 1, 5, 6
DIRECT = (ONE_TO_ONE, FORMER_ONE_TO_ONE, NOTE_TO_SELF)

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class _Room:
    kind: int  # Talk's own number, 0 when it is not known
    until: float


class Rooms:
    """The rooms of one server, as one API user sees them; without one, all are groups."""

    def __init__(
        self,
        account: str,
        api: TalkApi,
        api_user: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._account = account
        self._api = api
        self._api_user = api_user
        self._clock = clock
        self._rooms: LRUCache[str, _Room] = LRUCache(MOST)

    def __len__(self) -> int:
        return len(self._rooms)

    async def is_direct(self, token: str, sender: str) -> bool:
        """True if nobody but this person and the bot's account reads along; False when unknown."""
        kind = await self._kind(token)
        if kind == ONE_TO_ONE:
            # What that account's own user writes there, another person reads.
            return sender != self._api_user
        return kind in DIRECT

    def keep(self, token: str, kind: int) -> None:
        """Remember what kind a room is, as Talk's own number."""
        self._rooms[token] = _Room(kind, self._clock() + KEPT)

    def forget(self, token: str) -> None:
        """Ask again next time."""
        self._rooms.pop(token, None)

    async def _kind(self, token: str) -> int:
        if not self._api.has_login:
            return 0
        known, now = self._rooms.get(token), self._clock()
        if known is not None and known.until > now:
            return known.kind
        kind = await self._ask(token)
        if kind:
            found = _Room(kind, now + KEPT)
        else:
            # What was known stays true: Talk does not turn a direct chat into a group.
            found = _Room(known.kind if known is not None else 0, now + RETRY)
        self._rooms[token] = found
        return found.kind

    async def _ask(self, token: str) -> int:
        try:
            answer = await self._api.room(token, PATIENCE)
        except Unreachable as error:
            self._unknown(error.reason)
            return 0
        if answer.status != 200:
            self._unknown(f"HTTP {answer.status}")
            return 0
        return number(mapping(data_of(answer)), "type")

    def _unknown(self, reason: str) -> None:
        _log.info("nextcloud_talk.room.unknown", account=self._account, reason=reason)
