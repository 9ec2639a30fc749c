"""The Telegram channel: every account of the section behind one `Channel`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

import aiohttp
import structlog
from telegram.constants import ReactionEmoji
from telegram.error import TelegramError

from adapters.telegram import TelegramConfig
from adapters.telegram.account import Account, Pace, PollingAccount
from adapters.telegram.api import new_session
from adapters.telegram.inbound import CHANNEL
from adapters.telegram.render import LIMIT, messages
from bot.channel import (
    Address,
    Capabilities,
    Channel,
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

if TYPE_CHECKING:
    from adapters.telegram.webhook import TelegramWebhook

# What may stand below a message; some of these signs people also write with a selector.
_SELECTOR = "\ufe0f"
_REACTIONS = {emoji.value.replace(_SELECTOR, ""): emoji.value for emoji in ReactionEmoji}

_log = structlog.get_logger()


class Telegram(Channel):
    """Direct chats, groups and channels in Telegram, with one or more bots."""

    name = CHANNEL
    capabilities = Capabilities(
        max_length=LIMIT,
        length_unit="utf16",
        typing=True,
        command_menu=True,
        buttons=True,
        attachments=True,
        voice=True,
        drafts=True,
        files=True,
        reactions=True,
    )

    def __init__(self, config: TelegramConfig, pace: Pace | None = None) -> None:
        self._config = config
        self._pace = pace or Pace()
        self._accounts: Accounts[Account] = Accounts(CHANNEL, "Telegram")
        self._menus: dict[str, Sequence[Command]] = {}
        self._session: aiohttp.ClientSession | None = None
        self._listening = asyncio.Event()
        self._webhooks: TelegramWebhook | None = None

    async def start(self, engine: Engine) -> None:
        """Begin to receive with every account that has a token."""
        self._session = new_session(reveal(self._config.proxy))
        tokens = self._config.tokens()
        missing = self._config.accounts.keys() - tokens.keys()
        self._accounts.lack(engine, missing, "This account has no token.")
        for name, token in tokens.items():
            self._accounts[name] = self._account(name, reveal(token), engine)
        self._serve()
        for account in self._accounts.values():
            await account.drafts.recall()
            account.publish(self._menus)
            account.start()

    def render(self, outbound: Outbound) -> Sequence[Piece]:
        """A text with Telegram's entities, and its files; see `Channel.render`."""
        return messages(outbound)

    async def send(self, piece: Piece) -> str:
        """Send one message; see `Channel.send`."""
        return await self._accounts.named(piece.address).sender.send(piece)

    async def typing(self, address: Address) -> None:
        """Show "typing…" in a chat, if that works."""
        account = self._accounts.get(address.account)
        if account is None:
            return
        try:
            await account.sender.typing(address.chat, address.thread)
        except TelegramError as error:
            _log.debug("telegram.typing.failed", error=type(error).__name__)

    async def draft(self, address: Address, draft_id: str, text: str) -> None:
        """Show a reply that is being written, and wait until it shows; see `Channel.draft`."""
        account = self._accounts.get(address.account)
        if account is not None and not account.supervisor.stopping.is_set():
            await account.drafts.show(address, draft_id, text)
            await account.drafts.shown(address)

    async def react(self, address: Address, message_id: str, emoji: str) -> None:
        """Put one of the signs Telegram allows below a message, if that works."""
        account = self._accounts.get(address.account)
        number = message_id.partition(":")[0]
        sign = _REACTIONS.get(emoji.replace(_SELECTOR, ""), "")
        if account is None or not number.isdecimal() or (emoji and not sign):
            return
        try:
            await account.sender.react(address.chat, number, sign)
        except TelegramError as error:
            _log.debug("telegram.reaction.failed", error=type(error).__name__)

    async def fetch(self, address: Address, media: Media, most: int) -> bytes:
        """The bytes of what came with a message; see `Channel.fetch`."""
        return await self._accounts.named(address).fetcher.fetch(media, most)

    async def is_admin(self, address: Address, sender: str) -> bool:
        """Whether a person is an admin of a group; see `Channel.is_admin`."""
        account = self._accounts.get(address.account)
        return account is not None and await account.members.is_admin(address, sender)

    async def heard(self, body: str) -> None:
        """A node was brought something for this account that is not whole; see `Channel.heard`."""
        account = self._accounts.get(body)
        if account is not None:
            account.supervisor.spawn(account.resume())

    async def publish_commands(self, menus: dict[str, Sequence[Command]]) -> None:
        """Register the commands with every bot; one that is not connected does it then."""
        self._menus = menus
        for account in self._accounts.values():
            account.publish(menus)

    async def examine(self) -> Sequence[Finding]:
        """What is right and wrong with every bot: its token, its privacy in groups, its menu."""
        from adapters.telegram.doctor import examine  # noqa: PLC0415  # only `doctor` needs it

        return await examine(self._config, self._menus)

    async def register(self) -> None:
        """Register webhooks and commands with every bot; see `Channel.register`."""
        from adapters.telegram.doctor import register  # noqa: PLC0415  # only `doctor` needs it

        await register(self._config, self._menus)

    def invitation(self, account: str) -> str:
        """The address of its chat; see `Channel.invitation`."""
        found = self._accounts.get(account)
        name = found.updates.me.username if found is not None else ""
        return f"https://t.me/{name}" if name else ""

    async def tried(self, option: str) -> Trial:
        """What Telegram says of a secret; see `Channel.tried`."""
        from adapters.telegram.doctor import tried  # noqa: PLC0415  # only a trial needs it

        return await tried(self._config, option)

    async def stop(self) -> None:
        """Stop receiving, wait for what is being stored, close the connections."""
        if self._webhooks is not None:
            await self._webhooks.stop()
        await asyncio.gather(*(account.stop() for account in self._accounts.take()))
        if self._session is not None:
            await self._session.close()

    def _account(self, name: str, token: str, engine: Engine) -> Account:
        section = self._config.account(name)
        if self._session is None:
            raise TypeError("accounts exist only once the channel starts")
        kind = PollingAccount
        if section.mode == "webhook":
            from adapters.telegram.webhook import WebhookAccount  # noqa: PLC0415  # see _serve

            kind = WebhookAccount
        return kind(
            name=name,
            config=section,
            token=token,
            engine=engine,
            session=self._session,
            pace=self._pace,
            listening=self._listening,
        )

    def _serve(self) -> None:
        """Start the webhook server, if an account wants one."""
        if all(account.config.mode == "polling" for account in self._accounts.values()):
            return
        from adapters.telegram.webhook import TelegramWebhook, WebhookAccount  # noqa: PLC0415  # aiohttp.web takes 0.2 s

        served = {n: a for n, a in self._accounts.items() if isinstance(a, WebhookAccount)}
        host, port = self._config.webhook_host, self._config.webhook_port
        self._webhooks = TelegramWebhook(served, host, port, self._listening)
        self._webhooks.start()
