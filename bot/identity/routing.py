"""Routing of a message to its conversation: session keys and identity links. Pure.

Keys are lower-case and made of parts joined by ":". Two different chats or people never get the
same key: a ":" inside an id is written "%3a", and an id that lower-casing would change keeps a
digest of its exact spelling.

A person is known by a seat: a channel and an id there. An account that was joined to another one
with /link counts as that one's seat wherever it is asked who somebody is.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from operator import attrgetter
from typing import Final, Literal
from zoneinfo import ZoneInfo

import orjson

from bot.channel import DEFAULT_ACCOUNT, Address
from bot.config import MAIN_AGENT, SessionConfig
from bot.storage.records import from_json, packed

# What is known of people and places, as frozen values: origins, links, and the books of both.

MAX_CHOSEN = 20_000  # rooms with a choice of their own; an older one is as if it had not been made
MANY = "*"  # in the place of a session's sender: several people wrote in what is a direct chat

Activation = Literal["", "mention", "always"]
"""The rule for answering in a room; empty means the configured one."""

Seat = tuple[str, str]
"""Somebody's account on a platform: the channel, and their id there."""

ChatRef = tuple[str, str, str]
"""A chat of a channel's account: (channel, account, chat)."""


@dataclass(frozen=True, slots=True)
class MessageOrigin:
    """The sender and place of a message, from which its conversation is resolved.

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
    return from_json(MessageOrigin, text) if text else None


def _packed(origin: MessageOrigin | None) -> str:
    return orjson.dumps(asdict(origin)).decode() if origin is not None else ""


ORIGIN: Final = packed("origin", _unpacked, _packed)
"""The form in which tables keep one, or none: as JSON, in a column of this name."""


@dataclass(frozen=True, slots=True)
class Place:
    """A person and a place: what a session key stands for.

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
    `admitted` the rooms that the owner let it answer in beside those of the configuration, `zones`
    the time zones people chose, by canonical identity, and `told` those that their browsers
    are in.
    """

    links: tuple[Link, ...] = ()
    paired: frozenset[tuple[str, str, str]] = frozenset()
    blocked: frozenset[Seat] = frozenset()
    chosen: Mapping[str, Activation] = field(default_factory=dict[str, Activation])
    moved: Mapping[ChatRef, str] = field(default_factory=dict[ChatRef, str])
    admitted: frozenset[ChatRef] = frozenset()
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


DIGEST = 32  # hexadecimal digits: 128 bits, so that nobody finds two ids with the same
OWNER = "main"  # the canonical identity of whoever owns the main memory
# The owner at this machine itself, in the page and in the terminal. What their other accounts are
# joined to is the first.
OWNER_SEAT: Seat = ("web", "owner")
OWNER_SEATS: tuple[Seat, ...] = (("console", "owner"), OWNER_SEAT)


@dataclass(frozen=True, slots=True)
class Person:
    """The person at a seat, by the configuration.

    `identity` is the canonical one: the owner's, a linked name, or "<channel>:<id>". `link` is the
    name of the identity link that names the seat, or empty. `identities` are all that their
    conversations may be kept under, the canonical one first: a link that was added later joins
    what was said before it.
    """

    seat: Seat
    identity: str
    link: str
    identities: tuple[str, ...]

    @property
    def is_owner(self) -> bool:
        """True for whoever owns the main memory."""
        return self.identity == OWNER

    @property
    def is_configured(self) -> bool:
        """True for an owner, and for one of a linked person's places."""
        return self.is_owner or bool(self.link)


def named(seat: Seat) -> str:
    """A seat as the configuration writes it: "telegram:42"."""
    return f"{seat[0]}:{seat[1]}"


def person_of(config: SessionConfig, seat: Seat) -> Person:
    """The person at a seat.

    The owner writes from the page and the terminal of this machine, from what `[session] owner`
    names, and from every other place that an identity link joins to one of those.
    """
    name = named(seat)
    link = next((link for link, places in config.identity_links.items() if name in places), "")
    places = config.identity_links[link] if link else (name,)
    is_owner = seat in OWNER_SEATS or name in config.owner
    if link and not is_owner:
        owners = {*config.owner, *map(named, OWNER_SEATS)}
        is_owner = link in config.owner or not owners.isdisjoint(places)
    identity = OWNER if is_owner else identity_of(link) if link else name
    linked = (identity_of(link),) if link else ()
    return Person(seat, identity, link, tuple(dict.fromkeys((identity, *linked, *places))))


def agent_of(key: str) -> str:
    """The agent whose session a key is of."""
    first, _, rest = key.partition(":")
    return rest.partition(":")[0] if first == "agent" else MAIN_AGENT


def room_of(key: str) -> str:
    """The name of a room, by its session key: the same one whichever agent answers there."""
    return f"agent:{MAIN_AGENT}:{key.split(':', 2)[2]}"


def session_key(
    config: SessionConfig, origin: MessageOrigin, person: Person, agent: str = MAIN_AGENT
) -> str:
    """The session key of what a person said to an agent; see the table in docs/operating.md."""
    base = f"agent:{agent}"
    channel = part(origin.channel)
    if origin.chat_type != "direct":
        # A chat of a kind nobody knows counts as a group: the least that can be shown there.
        kind = "channel" if origin.chat_type in {"channel", "thread"} else "group"
        # Two servers may give their rooms the same id.
        account = "" if origin.account == DEFAULT_ACCOUNT else f"{part(origin.account)}:"
        key = f"{base}:{channel}:{account}{kind}:{part(origin.chat)}"
        return f"{key}:topic:{part(origin.thread)}" if origin.thread else key
    link, seat = person.link, person.seat
    # A linked person's name is marked, so that nobody's id can spell it.
    peer = f"@{part(link)}" if link else part(seat[1])
    if config.dm_scope == "main":
        key = f"{base}:main"
    elif config.dm_scope == "per-peer":
        # Ids of two platforms may be equal without being the same person.
        key = f"{base}:dm:{peer}" if link else f"{base}:dm:{part(seat[0])}.{peer}"
    else:
        if not link and seat != origin.seat:
            peer = f"@@{part(named(seat))}"  # no linked name can spell that
        is_by_account = config.dm_scope == "per-account-channel-peer"
        account = f"{part(origin.account)}:" if is_by_account else ""
        key = f"{base}:{channel}:{account}dm:{peer}"
    return f"{key}:thread:{part(origin.thread)}" if origin.thread else key


def names_of(config: SessionConfig, person: str) -> tuple[str, ...]:
    """The configured names of a canonical identity: itself, linked names and places."""
    links = config.identity_links
    if person != OWNER:
        return (person, *links.get(person, ()))
    own = [*config.owner, *map(named, OWNER_SEATS)]
    linked_names = [
        name for name, places in links.items() if name in own or any(p in own for p in places)
    ]
    joined = [place for name in linked_names for place in links[name]]
    return tuple(dict.fromkeys((person, *linked_names, *own, *joined)))


def channels_of(config: SessionConfig) -> dict[str, frozenset[str]]:
    """In which channels the configuration knows an account of somebody, by canonical identity."""
    people = {OWNER, *map(identity_of, config.identity_links)}
    return {
        person: frozenset(place.partition(":")[0] for place in names_of(config, person))
        for person in people
    }


def identity_of(link: str) -> str:
    """A linked name as an identity; somebody who is called like the owner's is not the owner."""
    return f"@{link}" if link == OWNER else link


def part(id_: str) -> str:
    """An id as one part of a key: lower-case, without ":", and still distinct from every other.

    What lower-casing changes gets a digest.
    """
    safe = id_.replace("%", "%25").replace(":", "%3a").replace("@", "%40").replace("~", "%7e")
    lowered = safe.lower()
    if lowered == safe and lowered:
        return lowered
    return f"{lowered}~{hashlib.sha256(id_.encode()).hexdigest()[:DIGEST]}"
