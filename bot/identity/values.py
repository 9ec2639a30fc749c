"""What is known of people and places, as frozen values: origins, links, and the books of both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from operator import attrgetter
from typing import Final, Literal
from zoneinfo import ZoneInfo

import orjson

from bot.channel import Address
from bot.storage.records import packed

MAX_CHOSEN = 20_000  # rooms with a choice of their own; an older one is as if it had not been made
MANY = "*"  # in the place of a session's sender: several people wrote in what is a direct chat

Activation = Literal["", "mention", "always"]
"""When the bot answers in a room; empty asks the configuration."""

Seat = tuple[str, str]
"""Who somebody is on a platform: the channel, and their id there."""

ChatRef = tuple[str, str, str]
"""A chat of a channel's account: (channel, account, chat)."""


@dataclass(frozen=True, slots=True)
class MessageOrigin:
    """Who said something and where, as the platform tells it: what a conversation is resolved from.

    They are on disk with each message that waits and with each session, so that whatever is done
    later, with or without a message at hand, is done by what counts then.
    """

    channel: str
    account: str
    chat: str
    chat_type: str
    sender: str
    thread: str = ""
    parent: str = ""
    server: str = ""
    locale: str = ""

    @classmethod
    def of(cls, said: object) -> MessageOrigin:
        """The origin of what has fields of the same names: a message, or a session."""
        return cls(*_ORIGIN_OF(said))

    @property
    def seat(self) -> Seat:
        """The seat it was said from."""
        return (self.channel, self.sender)

    @property
    def chat_ref(self) -> ChatRef:
        """The chat it was said in."""
        return (self.channel, self.account, self.chat)


_ORIGIN_OF = attrgetter(*(each.name for each in fields(MessageOrigin)))


def _unpacked(text: str) -> MessageOrigin | None:
    return MessageOrigin(**orjson.loads(text)) if text else None


def _packed(origin: MessageOrigin | None) -> str:
    return orjson.dumps(asdict(origin)).decode() if origin is not None else ""


ORIGIN: Final = packed("origin", _unpacked, _packed)
"""How tables keep one, or none: as JSON, in a column of this name."""


@dataclass(frozen=True, slots=True)
class Place:
    """Whose conversation it is and where it takes place; what a session key stands for.

    `person` is the canonical identity in a direct chat ("ada", "telegram:42"), empty in rooms;
    `sender` is who wrote there.
    """

    key: str
    person: str
    channel: str
    account: str
    chat: str
    thread: str
    chat_type: str
    sender: str = ""


@dataclass(frozen=True, slots=True)
class Link:
    """A seat that counts as another one, and where it wrote from when it was joined."""

    seat: Seat
    root: Seat
    address: Address
    language: str


@dataclass(frozen=True, slots=True)
class Books:
    """Loaded when the program starts; each change makes another value.

    `links` are the accounts joined with /link, `paired` who was let in by pairing (channel,
    account, sender), `blocked` who gets no answer, `chosen` when the bot answers in rooms, by
    session key, the newest last, `moved` the first id of every chat that has another one now,
    `zones` the time zones people chose, by canonical identity, and `told` those that their browsers
    are in.
    """

    links: tuple[Link, ...] = ()
    paired: frozenset[tuple[str, str, str]] = frozenset()
    blocked: frozenset[Seat] = frozenset()
    chosen: Mapping[str, Activation] = field(default_factory=dict[str, Activation])
    moved: Mapping[ChatRef, str] = field(default_factory=dict[ChatRef, str])
    zones: Mapping[str, ZoneInfo] = field(default_factory=dict[str, ZoneInfo])
    told: Mapping[str, ZoneInfo] = field(default_factory=dict[str, ZoneInfo])

    def activated(self, key: str, activation: Activation) -> Books:
        """With what was chosen for a room."""
        chosen = {name: kept for name, kept in self.chosen.items() if name != key}
        chosen[key] = activation
        for oldest in [*chosen][: max(len(chosen) - MAX_CHOSEN, 0)]:
            del chosen[oldest]
        return replace(self, chosen=chosen)

    def with_moved(self, chat_ref: ChatRef, first: str) -> Books:
        """With a chat that is the one that was called `first`."""
        moved = {known: home for known, home in self.moved.items() if known != chat_ref}
        if chat_ref[2] != first:
            moved[chat_ref] = first
        return replace(self, moved=moved)

    def first(self, chat_ref: ChatRef) -> str:
        """The id a chat had first: what its conversations and its memory are kept under."""
        return self.moved.get(chat_ref, chat_ref[2])

    def others(self, chat_ref: ChatRef) -> tuple[str, ...]:
        """The other ids that a chat, by its first one, has or had."""
        if not self.moved:  # in most places none ever does
            return ()
        return tuple(
            chat
            for (channel, account, chat), home in self.moved.items()
            if (channel, account, home) == chat_ref
        )
