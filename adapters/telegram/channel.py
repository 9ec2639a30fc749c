"""The Telegram channel: every account of the section behind one `Channel`."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import aiohttp

from adapters.telegram import TelegramConfig
from adapters.telegram.account import Account, Pace, PollingAccount
from adapters.telegram.api import new_session
from adapters.telegram.inbound import CHANNEL
from adapters.telegram.render import LIMIT, messages
from bot.channel import (
    Capabilities,
    Engine,
    Finding,
    Outbound,
    Piece,
    Trial,
    reveal,
)
from bot.channel.kit.accounts import AccountChannel

if TYPE_CHECKING:
    from adapters.telegram.webhook import TelegramWebhook


class Telegram(AccountChannel[Account]):
    """Direct chats, groups and channels in Telegram, with one or more bots."""

    name, title = CHANNEL, "Telegram"
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
        super().__init__()
        self._config, self._pace = config, pace or Pace()
        self._session: aiohttp.ClientSession | None = None
        self._listening = asyncio.Event()
        self._webhooks: TelegramWebhook | None = None

    async def start(self, engine: Engine) -> None:
        """Begin to receive with every account that has a token."""
        self._session = session = new_session(reveal(self._config.proxy))
        tokens = self._config.tokens()
        missing = self._config.accounts.keys() - tokens.keys()
        self.lack(engine, missing, "This account has no token.")
        made = {name: self._account(name, token, engine, session) for name, token in tokens.items()}
        self._serve(made)
        await self.start_all(made)

    def render(self, outbound: Outbound) -> Sequence[Piece]:
        """A text with Telegram's entities, and its files; see `Channel.render`."""
        return messages(outbound)

    async def heard(self, body: str) -> None:
        """A node was brought something for this account that is not whole; see `Channel.heard`."""
        account = self._accounts.get(body)
        if account is not None:
            account.supervisor.spawn(account.resume())

    async def examine(self) -> Sequence[Finding]:
        """What is right and wrong with every bot: its token, its privacy in groups, its menu."""
        from adapters.telegram.doctor import examine  # noqa: PLC0415  # only `doctor` needs it

        return await examine(self._config, self._menus)

    async def register(self) -> None:
        """Register webhooks and commands with every bot; see `Channel.register`."""
        from adapters.telegram.doctor import register  # noqa: PLC0415  # only `doctor` needs it

        await register(self._config, self._menus)

    async def tried(self, option: str) -> Trial:
        """What Telegram says of a secret; see `Channel.tried`."""
        from adapters.telegram.doctor import tried  # noqa: PLC0415  # only a trial needs it

        return await tried(self._config, option)

    async def stop(self) -> None:
        """Stop receiving, wait for what is being stored, close the connections."""
        if self._webhooks is not None:
            await self._webhooks.stop()
        await super().stop()
        if self._session is not None:
            await self._session.close()

    def _account(
        self, name: str, token: str, engine: Engine, session: aiohttp.ClientSession
    ) -> Account:
        section, kind = self._config.account(name), PollingAccount
        if section.mode == "webhook":
            from adapters.telegram.webhook import WebhookAccount  # noqa: PLC0415  # see _serve

            kind = WebhookAccount
        return kind(
            name=name,
            config=section,
            token=token,
            engine=engine,
            session=session,
            pace=self._pace,
            listening=self._listening,
        )

    def _serve(self, accounts: Mapping[str, Account]) -> None:
        """Start the webhook server, if an account wants one."""
        if all(account.config.mode == "polling" for account in accounts.values()):
            return
        from adapters.telegram.webhook import TelegramWebhook, WebhookAccount  # noqa: PLC0415  # aiohttp.web takes 0.2 s

        served = {n: a for n, a in accounts.items() if isinstance(a, WebhookAccount)}
        host, port = self._config.webhook_host, self._config.webhook_port
        self._webhooks = TelegramWebhook(served, host, port, self._listening)
        self._webhooks.start()
