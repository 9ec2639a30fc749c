"""What the engine asks of a channel, and what a channel may ask of the engine."""

# ruff: noqa: B027 - what a channel does not define does nothing

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, Self

from bot.channel.values import (
    DEFAULT_ACCOUNT,
    Activity,
    Address,
    Capabilities,
    Command,
    Health,
    HistoryItem,
    Inbound,
    Media,
    ModelChoice,
    Outbound,
    Piece,
    Reaction,
)
from bot.errors import ChannelError, SendRefused

NO_TERMINAL = "The channel is no terminal."


class Engine(Protocol):
    """The engine, as channels see it."""

    async def receive(self, inbound: Inbound) -> None:
        """Store a message; when this returns it is on disk and may be acknowledged.

        Raises:
            OutOfSight: the message that it `replaces` is not in the conversation any more.
            StorageError: it could not be stored: do not acknowledge, offer it again later.
        """
        ...

    async def switch(self, address: Address, message_id: str) -> bool:
        """Go on from another of the `HistoryItem.versions`; False while an answer is awaited.

        Raises:
            OutOfSight: there is no such version in the conversation that goes on there.
            StorageError: it could not be stored.
        """
        ...

    async def reacted(self, reaction: Reaction) -> None:
        """Note a reaction to one of the bot's messages; the next turn there is shown it.

        It starts no turn and is held in memory only. The thread may be left out of its address:
        the engine knows where the message went. Never raises.
        """
        ...

    async def history(
        self, address: Address, limit: int, before: str = ""
    ) -> Sequence[HistoryItem]:
        """The newest lines of the conversation that goes on there, about `limit`, oldest first.

        With `before`, the `HistoryItem.place` of a line, those that stand before it: none where
        the conversation begins, and none before a place that is not there.
        """
        ...

    async def withdraw(self, address: Address, message_id: str) -> bool:
        """Have a message of a direct chat not be answered; False when that has begun, or is done.

        Taking it back again changes nothing.

        Raises:
            StorageError: it could not be stored.
        """
        ...

    async def last_seen(self, channel: str, account: str) -> Mapping[str, str]:
        """The newest stored message id of each chat, to catch up after a downtime."""
        ...

    async def chat_moved(self, address: Address, chat: str) -> None:
        """A chat has another id now; its conversation goes on. Saying it again changes nothing.

        Raises:
            StorageError: it could not be stored; say it again later.
        """
        ...

    async def keep(self, channel: str, account: str, name: str, text: str) -> None:
        """Keep a small text of the channel's own on disk, until an empty one takes its place.

        Raises:
            StorageError: it could not be stored.
        """
        ...

    async def kept(self, channel: str, account: str) -> Mapping[str, str]:
        """The stored texts of an account, by name; an earlier run may have left them.

        Raises:
            StorageError: it cannot be read.
        """
        ...

    def commands(self, locale: str) -> Sequence[Command]:
        """The commands a person can type, described in their language."""
        ...

    async def models(self, address: Address, sender: str) -> ModelChoice:
        """Which model answers a person in a direct chat, and which ones `/model` would take there.

        Raises:
            StorageError: it cannot be read.
        """
        ...

    def report(self, channel: str, account: str, health: Health, detail: str = "") -> None:
        """Say how a connection is doing; `detail` is one plain sentence without secrets."""
        ...

    def dropped(self, channel: str, reason: str) -> None:
        """Count an update that is nothing for the engine; `reason` is one word.

        It becomes the name of a metric: a word of the channel's own, never one somebody wrote.
        """
        ...

    def owning(self, channel: str, account: str) -> AbstractAsyncContextManager[asyncio.Event]:
        """Be the only program that listens for an account, where many nodes run.

        Entering waits for as long as another node does. The event is set when it is lost: what
        listens must end then, and enter again.
        """
        ...

    async def broadcast(self, channel: str, body: str, *, stored: bool = True) -> None:
        """Have this channel's `heard` called with `body` on every node, this one first.

        What other nodes miss is not repeated. On its way to them `body` lies in the database for
        minutes; if it is not `stored` it does not, and more than some 7 000 bytes reach none of
        them. Never raises.
        """
        ...

    def reach(self, address: Address, words: str) -> None:
        """Tell a person who is away, as they asked for, that this was written to them.

        For a channel of our own, which has nobody else to do that. Returns at once, never raises.
        """
        ...

    async def put_file(self, address: Address, media: Media, part: int, data: bytes) -> bool:
        """Keep one part of a file, by its `ref`, on disk; False when there is no room for it.

        For a channel without a platform that keeps files. It is whole once its parts come to its
        `size`; the same part again changes nothing. It belongs to its address alone, and is gone
        once its message is answered, or after a day.

        Raises:
            StorageError: it could not be stored.
        """
        ...

    async def files(self, address: Address) -> Mapping[str, Media]:
        """The complete files of an address, by ref.

        Raises:
            StorageError: it cannot be read.
        """
        ...

    async def file(self, address: Address, ref: str) -> bytes | None:
        """The bytes of a file; None when it is not there.

        Raises:
            StorageError: it cannot be read.
        """
        ...

    async def drop_file(self, address: Address, ref: str) -> None:
        """Keep a file no longer.

        Raises:
            StorageError: it could not be stored.
        """
        ...


Level = Literal["ok", "warning", "error"]
Repair = Literal["", "modes", "lock", "index", "restore", "move", "register"]


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that was found out about the set-up: what, how serious, and how to mend it.

    `text` and `fix` are plain words without secrets, in English. What belongs to the program itself
    is made with `of` instead, and its words come from the catalogues.

    Attributes:
        level: "error" means that it cannot work like this, "warning" that something does not.
        text: what it is; empty where the catalogues have it.
        fix: what to do, in one or two sentences or as a command.
        account: whose account of a channel it is about.
        id: what programs know it by, such as "storage.damaged"; its place in the catalogues.
        values: what is filled in there.
        repair: which repair of `confidant doctor --fix` mends it; empty for none.
    """

    level: Level
    text: str = ""
    fix: str = ""
    account: str = DEFAULT_ACCOUNT
    id: str = ""
    values: Mapping[str, str | int | float] = field(default_factory=dict[str, str | int | float])
    repair: Repair = ""

    @classmethod
    def of(
        cls,
        level: Level,
        id: str,  # noqa: A002 - the field's name
        account: str = DEFAULT_ACCOUNT,
        repair: Repair = "",
        **values: str | int | float,
    ) -> Self:
        """One that the catalogues have words for."""
        return cls(level, account=account, id=id, values=values, repair=repair)


@dataclass(frozen=True, slots=True)
class Trial:
    """The result of trying a secret before it is stored.

    Attributes:
        outcome: "known": the platform says whose it is. "signed": a server took a call signed with
            it. "server": the server is the right one; the secret itself could not be tried.
            "unsigned": the same, and where it could be tried it was not taken, which may have
            other reasons. "untried": there is nobody to ask about it.
            "refused": the platform does not take it. "malformed": it cannot be one.
            "unreachable", "slow", "busy", "moved" (it leads elsewhere), "strange" (what answers is
            something else), "closed" (maintenance) and "lacking" (it takes no bots): of what was
            asked, why it did not tell.
        name: what the platform calls the bot, such as "@heron_bot", or the server; one line.
    """

    outcome: Literal[
        "known", "signed", "server", "unsigned", "untried",
        "refused", "malformed", "unreachable", "slow", "busy", "moved", "strange", "closed",
        "lacking",
    ]  # fmt: skip
    name: str = ""

    @property
    def may_be_kept(self) -> bool:
        """True when nothing says that it is wrong."""
        return self.outcome in {"known", "signed", "server", "unsigned", "untried"}


class Channel(ABC):
    """A place where people talk to the bot.

    A channel defines `name`, `capabilities`, `start`, `render`, `send` and `stop`. Everything below
    `stop` is for platforms that can do more, and does nothing unless a channel has its own; what
    `Capabilities` has a field for is called only where that is declared.

    Attributes:
        name: the entry point's name, such as "telegram".
        capabilities: what this channel can do; fixed for its lifetime.
    """

    name: str
    capabilities: Capabilities

    @abstractmethod
    async def start(self, engine: Engine) -> None:
        """Begin receiving, in tasks of its own, and return without waiting for the network.

        A platform that is unreachable is retried inside and told through `Engine.report`.
        """

    @abstractmethod
    def render(self, outbound: Outbound) -> Sequence[Piece]:
        """The messages a text becomes here, in order.

        It is pure: after a restart it is asked again and goes on where it was. A long text is
        rendered in a thread.

        Raises:
            SendRefused: nothing of it can be shown.
        """

    @abstractmethod
    async def send(self, piece: Piece) -> str:
        """Send one piece, which is one message, and return the platform's message id.

        Raises:
            SendLater: wait this long, then offer the same piece again.
            SendTransient: it may work later.
            SendRefused: it never will.
            ChatMoved: the chat has another id now.
        """

    @abstractmethod
    async def stop(self) -> None:
        """Stop receiving, wait for what is being stored, release connections."""

    async def typing(self, address: Address) -> None:
        """Show for about five seconds that a reply is being written; never raises."""

    async def draft(self, address: Address, draft_id: str, text: str) -> None:
        """Show the reply so far; an empty text takes the draft away. Never raises.

        A reply that is written anew after a restart has the same `draft_id`.
        """

    async def activity(self, address: Address, activity: Activity) -> None:
        """Show whoever watches now what goes on beside replies; never raises."""

    async def fetch(self, address: Address, media: Media, most: int) -> bytes:
        """The bytes of a `Media`, if they are no more than `most`.

        Raises:
            SendLater: the platform asks to wait.
            SendTransient: it may work later.
            SendRefused: it never will; it is too large, gone, or not for us.
        """
        raise SendRefused("no files can be fetched here")

    async def react(self, address: Address, message_id: str, emoji: str) -> None:
        """Put a sign below a message; an empty one takes it away. Never raises."""

    async def publish_commands(self, menus: dict[str, Sequence[Command]]) -> None:
        """Register the commands, by language tag; the key "" is the default."""

    async def is_admin(self, address: Address, sender: str) -> bool:
        """True if a person may change how the bot behaves in this room; False when unknown."""
        return False

    async def examine(self) -> Sequence[Finding]:
        """Findings about the set-up, for `confidant doctor`; never raises.

        It is called on a channel that was not started, also while another process runs one, and
        changes nothing on the platform.
        """
        return ()

    async def register(self) -> None:
        """Tell the platform again where to call, and the commands of `publish_commands`.

        It is called on a channel that was not started, for `confidant doctor --fix`, where
        `examine` returned a finding whose `repair` is "register".

        Raises:
            ChannelError: the platform did not take it; the message says why, without secrets.
        """

    def invitation(self, account: str) -> str:
        """The link by which people come to an account's bot, or take it along to where they are.

        Empty where the platform has none, and until it said who the bot is.
        """
        return ""

    async def tried(self, option: str) -> Trial:
        """Try a secret of the section, such as that of "token", as far as the platform allows.

        It is called on a channel that was not started, changes nothing on the platform, and never
        raises.
        """
        return Trial("untried")

    async def heard(self, body: str) -> None:
        """Take what `Engine.broadcast` was called with on any node; never raises."""

    async def forgotten(self, is_about: Callable[[Address], bool]) -> None:
        """Show the history again where `is_about` an address: some was forgotten. Never raises."""

    def routes(self) -> Iterable[Any]:
        """Route definitions of aiohttp, mounted before the server starts (`Capabilities.pages`).

        They are for the owner alone, but for those that are `shared` (`bot.channel.http`).
        """
        return ()

    async def finished(self) -> None:
        """Wait until the person at this process's terminal left and was answered.

        Raises:
            ChannelError: it is no terminal.
        """
        raise ChannelError(NO_TERMINAL)

    async def attach(self, url: str, token: str) -> None:
        """Join the page of a bot that runs already, from a terminal, until the person leaves.

        Raises:
            ChannelError: it cannot be joined; the message says why.
        """
        raise ChannelError(NO_TERMINAL)
