"""Which conversation a message belongs to: session keys and identity links. Pure.

Keys are lower-case and made of parts joined by ":". Two different chats or people never get the
same key: a ":" inside an id is written "%3a", and an id that lower-casing would change keeps a
digest of its exact spelling.

A person is known by a seat: a channel and an id there. An account that was joined to another one
with /link counts as that one's seat wherever it is asked who somebody is; `as_seat` names it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

from bot.channel import DEFAULT_ACCOUNT
from bot.config import SessionConfig
from bot.identity.values import Facts, Place, Seat

AGENT = "main"
DIGEST = 32  # hexadecimal digits: 128 bits, so that nobody finds two ids with the same
SHORT_DIGEST = 12  # what keys were made with before
OWNER = "main"  # the canonical identity of whoever owns the main memory
# Channels that only reach the machine's owner: the page on loopback or behind its token, and the
# terminal.
OWNER_CHANNELS = frozenset({"web", "console"})

# The owner at this machine itself: what their other accounts are joined to.
OWNER_SEAT = ("web", "owner")


def named(seat: Seat) -> str:
    """A seat as the configuration writes it: "telegram:42"."""
    return f"{seat[0]}:{seat[1]}"


def place_of(config: SessionConfig, facts: Facts, as_seat: Seat | None = None) -> Place:
    """The conversation of a message, with its session key and person."""
    direct = facts.chat_type == "direct"
    return Place(
        key=session_key(config, facts, as_seat),
        person=person_of(config, *(as_seat or facts.seat)) if direct else "",
        channel=facts.channel,
        account=facts.account,
        chat=facts.chat,
        thread=facts.thread,
        chat_type=facts.chat_type,
    )


def session_key(config: SessionConfig, facts: Facts, as_seat: Seat | None = None) -> str:
    """The session key; see the table in docs/architecture.md."""
    base = f"agent:{AGENT}"
    channel = part(facts.channel)
    if facts.chat_type == "direct":
        key = _direct_key(config, facts, base, channel, as_seat or facts.seat)
        return f"{key}:thread:{part(facts.thread)}" if facts.thread else key
    # A chat of a kind nobody knows counts as a group: the least that can be shown there.
    kind = "channel" if facts.chat_type in {"channel", "thread"} else "group"
    # Two servers may give their rooms the same id.
    account = "" if facts.account == DEFAULT_ACCOUNT else f"{part(facts.account)}:"
    key = f"{base}:{channel}:{account}{kind}:{part(facts.chat)}"
    return f"{key}:topic:{part(facts.thread)}" if facts.thread else key


def _direct_key(config: SessionConfig, facts: Facts, base: str, channel: str, seat: Seat) -> str:
    if config.dm_scope == "main":
        return f"{base}:main"
    link = linked(config.identity_links, *seat)
    # A linked person's name is marked, so that nobody's id can spell it.
    peer = f"@{part(link)}" if link else part(seat[1])
    if config.dm_scope == "per-peer":
        # Ids of two platforms may be equal without being the same person.
        return f"{base}:dm:{peer}" if link else f"{base}:dm:{part(seat[0])}.{peer}"
    if not link and seat != facts.seat:
        peer = f"@@{part(named(seat))}"  # no linked name can spell that
    if config.dm_scope == "per-channel-peer":
        return f"{base}:{channel}:dm:{peer}"
    return f"{base}:{channel}:{part(facts.account)}:dm:{peer}"


def person_of(config: SessionConfig, channel: str, sender: str) -> str:
    """The canonical identity of a sender: the owner, a linked name, or "<channel>:<id>"."""
    if is_owner(config, channel, sender):
        return OWNER
    link = linked(config.identity_links, channel, sender)
    return identity_of(link) if link else f"{channel}:{sender}"


def identities_of(config: SessionConfig, channel: str, sender: str) -> tuple[str, ...]:
    """Every identity a sender's conversations may be kept under, the canonical one first.

    An identity link that was added later joins what was said before it.
    """
    link = linked(config.identity_links, channel, sender)
    places = config.identity_links[link] if link else (f"{channel}:{sender}",)
    names = (identity_of(link),) if link else ()
    return tuple(dict.fromkeys((person_of(config, channel, sender), *names, *places)))


def names_of(config: SessionConfig, person: str) -> tuple[str, ...]:
    """What the configuration may call a canonical identity: itself, linked names and places."""
    links = config.identity_links
    if person != OWNER:
        return (person, *links.get(person, ()))
    own = [*config.owner, *(f"{channel}:owner" for channel in sorted(OWNER_CHANNELS))]
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


def is_configured(config: SessionConfig, seat: Seat) -> bool:
    """Whether the configuration says who this is: an owner, or one of a linked person's places."""
    return is_owner(config, *seat) or bool(linked(config.identity_links, *seat))


def is_owner(config: SessionConfig, channel: str, sender: str) -> bool:
    """Whether a sender owns the main memory.

    That is the page and the terminal of this machine, whoever `[session] owner` names, and every
    other place an identity link joins to one of those.
    """
    if channel in OWNER_CHANNELS or _names(config.owner, channel, sender):
        return True
    link = linked(config.identity_links, channel, sender)
    if not link:
        return False
    places = config.identity_links[link]
    owners = {*config.owner, *(f"{c}:owner" for c in OWNER_CHANNELS)}
    return link in config.owner or any(place in owners for place in places)


def linked(links: Mapping[str, Sequence[str]], channel: str, sender: str) -> str:
    """The canonical name of a sender whom an identity link names, or empty."""
    for name, places in links.items():
        if _names(places, channel, sender):
            return name
    return ""


def _names(places: Sequence[str], channel: str, sender: str) -> bool:
    return f"{channel}:{sender}" in places


def part(id_: str, digest: int = DIGEST) -> str:
    """An id as one part of a key: lower-case, without ":", and still distinct from every other.

    What lower-casing changes gets a digest of so many hexadecimal digits.
    """
    safe = id_.replace("%", "%25").replace(":", "%3a").replace("@", "%40").replace("~", "%7e")
    lowered = safe.lower()
    if lowered == safe and lowered:
        return lowered
    return f"{lowered}~{hashlib.sha256(id_.encode()).hexdigest()[:digest]}"
