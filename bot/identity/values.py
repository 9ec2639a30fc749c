"""What is known of people and places, as values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from bot.channel import Address, Inbound

MANY = "*"  # in the place of a session's sender: several people wrote in what is a direct chat

Activation = Literal["", "mention", "always"]
"""When the bot answers in a room; empty asks the configuration."""

Seat = tuple[str, str]
"""Who somebody is on a platform: the channel, and their id there."""

Spot = tuple[str, str, str]
"""A chat of a channel's account: (channel, account, chat)."""


@dataclass(frozen=True, slots=True)
class Facts:
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
    def of(cls, inbound: Inbound) -> Facts:
        """The facts of a message."""
        return cls(
            inbound.channel,
            inbound.account,
            inbound.chat,
            inbound.chat_type,
            inbound.sender,
            inbound.thread,
            inbound.parent,
            inbound.server,
            inbound.locale,
        )

    @property
    def address(self) -> Address:
        """Where an answer goes."""
        return Address(self.channel, self.account, self.chat, self.thread)

    @property
    def seat(self) -> Seat:
        """The seat it was said from."""
        return (self.channel, self.sender)

    @property
    def spot(self) -> Spot:
        """The chat it was said in."""
        return (self.channel, self.account, self.chat)


@dataclass(frozen=True, slots=True)
class Place:
    """Whose conversation it is and where it takes place; what a session key stands for.

    `person` is the canonical identity in a direct chat ("ada", "telegram:42"), empty in rooms.
    """

    key: str
    person: str
    channel: str
    account: str
    chat: str
    thread: str
    chat_type: str


@dataclass(frozen=True, slots=True)
class Link:
    """A seat that counts as another one, and where it wrote from when it was joined."""

    seat: Seat
    root: Seat
    address: Address
    language: str
