"""The Discord channel: every account of the section behind one `Channel`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from adapters.discord import DiscordConfig
from adapters.discord.account import Account, Pace
from adapters.discord.doctor import examine, register, tried
from adapters.discord.ids import is_id, number_in
from adapters.discord.inbound import CHANNEL
from adapters.discord.render import LIMIT
from adapters.discord.send import messages
from bot.channel import (
    Address,
    Capabilities,
    Command,
    Engine,
    Finding,
    Media,
    Outbound,
    Piece,
    Trial,
    reveal,
)
from bot.channel.kit.supervisor import Accounts


class Discord:
    """Direct messages and servers in Discord, with one or more bots."""

    name = CHANNEL
    capabilities = Capabilities(
        max_length=LIMIT,
        length_unit="utf16",
        typing=True,
        drafts=True,
        command_menu=True,
        buttons=True,
        attachments=True,
        voice=True,
        files=True,
        reactions=True,
    )

    def __init__(self, config: DiscordConfig, pace: Pace | None = None) -> None:
        self._config = config
        self._pace = pace or Pace()
        self._accounts: Accounts[Account] = Accounts(CHANNEL, "Discord")
        self._menus: dict[str, Sequence[Command]] = {}

    async def start(self, engine: Engine) -> None:
        """Begin to receive with every account that has a token."""
        tokens = self._config.tokens()
        missing = self._config.accounts.keys() - tokens.keys()
        self._accounts.lack(engine, missing, "This account has no token.")
        for name, token in tokens.items():
            section = self._config.account(name)
            if not isinstance(section, DiscordConfig):
                raise TypeError("an account of Discord is one section of Discord's")
            self._accounts[name] = Account(
                name=name,
                config=section,
                token=reveal(token).strip(),
                engine=engine,
                pace=self._pace,
            )
        for account in self._accounts.values():
            account.publish(self._menus)
            account.start()

    def render(self, outbound: Outbound) -> Sequence[Piece]:
        """A text in Discord's Markdown, and its files; see `Channel.render`."""
        return messages(outbound)

    async def send(self, piece: Piece) -> str:
        """Send one message; see `Channel.send`."""
        return await self._accounts.named(piece.address).sender.send(piece)

    async def typing(self, address: Address) -> None:
        """Show "is typing…" in a chat, if that works."""
        account = self._accounts.get(address.account)
        if account is not None and is_id(address.chat):
            await account.sender.typing(address.chat)

    async def draft(self, address: Address, draft_id: str, text: str) -> None:
        """Show a reply while it is being written; an empty text takes it away."""
        account = self._accounts.get(address.account)
        if account is not None and is_id(address.chat) and not account.supervisor.stopping.is_set():
            await account.drafts.show(address.chat, draft_id, text)
            await account.drafts.shown(address.chat)

    async def react(self, address: Address, message_id: str, emoji: str) -> None:
        """Put a sign below a message, if that works."""
        account = self._accounts.get(address.account)
        number = number_in(message_id) if message_id[:1].isdecimal() else ""
        if account is not None and number and is_id(address.chat):
            await account.sender.react(address.chat, number, emoji)

    async def fetch(self, address: Address, media: Media, most: int) -> bytes:
        """The bytes of what came with a message; see `Files.fetch`."""
        return await self._accounts.named(address).shelf.fetch(media, most)

    async def is_admin(self, address: Address, sender: str) -> bool:
        """Whether a person may manage the server a room belongs to."""
        account = self._accounts.get(address.account)
        if account is None or not is_id(address.chat) or not is_id(sender):
            return False
        return await account.is_admin(address, sender)

    async def publish_commands(self, menus: dict[str, Sequence[Command]]) -> None:
        """Register the commands with every bot; one that is not connected does it then."""
        self._menus = menus
        for account in self._accounts.values():
            account.publish(menus)

    async def examine(self) -> Sequence[Finding]:
        """What is right and wrong with every bot; see `Doctor.examine`."""
        return await examine(self._config, self._menus)

    async def register(self) -> None:
        """Register the commands with every bot; see `Registers`."""
        await register(self._config, self._menus)

    async def tried(self, option: str) -> Trial:
        """What Discord says of a secret; see `TriesSecrets`."""
        return await tried(self._config, option)

    async def stop(self) -> None:
        """Stop receiving, wait for what is being stored, close the connections."""
        await asyncio.gather(*(account.stop() for account in self._accounts.take()))
