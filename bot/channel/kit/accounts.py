"""A channel of several accounts: what the engine asks for goes to the account it is about."""

# ruff: noqa: B027 - what an account does not define does nothing

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from typing import Generic, TypeVar

import aiohttp
import structlog

from bot.channel import Address, Channel, Command, Engine, Health, Media, Piece
from bot.channel.kit.drafts import Drafts
from bot.channel.kit.supervisor import Stopped, Supervisor
from bot.errors import ChannelError, SendRefused, SendTransient

_log = structlog.get_logger()
T = TypeVar("T")


class Account(ABC):
    """One account at work. A platform that can do more than `run` and `send` says how.

    The methods may raise any `ChannelError`: where the engine must not hear of it, it is logged.

    Args:
        supervisor: that of the account.
        session: its own HTTP session, closed at the end.
    """

    drafts: Drafts[Address] | None = None

    def __init__(
        self, supervisor: Supervisor, session: aiohttp.ClientSession | None = None
    ) -> None:
        self.supervisor = supervisor
        self.name, self.engine = supervisor.account, supervisor.engine
        self._session = session

    @property
    def link(self) -> str:
        """The link by which people come to it, if it is known; see `Channel.invitation`."""
        return ""

    async def start(self) -> None:
        """Begin in a task of its own."""
        self.supervisor.trouble("receiving", Health.STARTING)
        self.supervisor.keep(f"{self.supervisor.channel}/{self.name}", self.run)

    async def stop(self) -> None:
        """Give up what waits, wait for what is being stored, release the connections."""
        self.supervisor.close()
        if self.drafts is not None:
            self.drafts.close()
        await self.supervisor.stop()
        if self._session is not None:
            await self._session.close()

    @abstractmethod
    async def run(self) -> None:
        """Receive until the account stops."""

    @abstractmethod
    async def send(self, piece: Piece) -> str:
        """Send one message; see `Channel.send`."""

    async def fetch(self, media: Media, most: int) -> bytes:
        """The bytes of a file; see `Channel.fetch`."""
        raise SendRefused("no files can be fetched here")

    async def typing(self, address: Address) -> None:
        """Show that a reply is being written."""

    async def react(self, address: Address, message_id: str, emoji: str) -> None:
        """Put a sign below a message, or take it away."""

    async def is_admin(self, address: Address, sender: str) -> bool:
        """True if a person may change a room; see `Channel.is_admin`."""
        return False

    def publish(self, menus: Mapping[str, Sequence[Command]]) -> None:
        """Register the commands as soon as there is a connection."""


A = TypeVar("A", bound=Account)


class AccountChannel(Channel, Generic[A]):
    """A channel whose accounts do the work; it has none before the start and after the stop.

    Attributes:
        title: what people call the platform.
    """

    title: str

    def __init__(self) -> None:
        self._accounts: dict[str, A] = {}
        self._menus: Mapping[str, Sequence[Command]] = {}

    async def start_all(self, accounts: Mapping[str, A]) -> None:
        """Let these accounts begin."""
        self._accounts = dict(accounts)
        for account in accounts.values():
            account.publish(self._menus)
            await account.start()

    def lack(self, engine: Engine, names: Iterable[str], detail: str) -> None:
        """Say that these accounts cannot run, and what they lack."""
        for name in sorted(names):
            _log.error(f"{self.name}.account.incomplete", account=name)
            engine.report(self.name, name, Health.DOWN, detail)

    def named(self, address: Address) -> A:
        """The account of an address.

        Raises:
            SendTransient: the channel does not run.
            SendRefused: there is no such account.
        """
        account = self._accounts.get(address.account)
        if account is not None:
            return account
        if not self._accounts:
            raise SendTransient(f"{self.title} is not connected")
        raise SendRefused(f"this {self.title} account is not configured")

    async def send(self, piece: Piece) -> str:
        """Send one message; see `Channel.send`."""
        return await self.named(piece.address).send(piece)

    async def fetch(self, address: Address, media: Media, most: int) -> bytes:
        """The bytes of a file that came with a message; see `Channel.fetch`."""
        account = self.named(address)
        if media.size > most:
            raise SendRefused("this file is too large")
        return await account.fetch(media, most)

    async def typing(self, address: Address) -> None:
        """Show that a reply is being written, if that works."""
        if (account := self._accounts.get(address.account)) is not None:
            await self._quietly(account.typing(address))

    async def draft(self, address: Address, draft_id: str, text: str) -> None:
        """Show a reply while it is being written; an empty text takes it away."""
        account = self._accounts.get(address.account)
        if account is None or account.drafts is None or account.supervisor.stopping.is_set():
            return
        await account.drafts.show(address, draft_id, text)
        await account.drafts.shown(address)

    async def react(self, address: Address, message_id: str, emoji: str) -> None:
        """Put a sign below a message, or take it away, if that works."""
        if (account := self._accounts.get(address.account)) is not None:
            await self._quietly(account.react(address, message_id, emoji))

    async def is_admin(self, address: Address, sender: str) -> bool:
        """True if a person may change how the bot behaves in a room; False when unknown."""
        account = self._accounts.get(address.account)
        return (
            account is not None and await self._quietly(account.is_admin(address, sender)) is True
        )

    async def publish_commands(self, menus: dict[str, Sequence[Command]]) -> None:
        """Register the commands with every account; one that is not connected does it then."""
        self._menus = menus
        for account in self._accounts.values():
            account.publish(menus)

    def invitation(self, account: str) -> str:
        """The link to an account's bot; see `Channel.invitation`."""
        found = self._accounts.get(account)
        return found.link if found is not None else ""

    async def stop(self) -> None:
        """Stop receiving, wait for what is being stored, close the connections."""
        accounts, self._accounts = self._accounts, {}
        await asyncio.gather(*(account.stop() for account in accounts.values()))

    async def _quietly(self, work: Awaitable[T]) -> T | None:
        try:
            return await work
        except (ChannelError, Stopped) as error:
            _log.info(f"{self.name}.call.failed", error=str(error))
            return None
