"""The Telegram channel: every account of the section behind one `Channel`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

import aiohttp
import structlog
from telegram.error import TelegramError

from adapters.telegram import TelegramConfig
from adapters.telegram.account import Account
from adapters.telegram.api import new_session
from adapters.telegram.inbound import CHANNEL
from adapters.telegram.markup import LIMIT
from adapters.telegram.pace import Pace
from adapters.telegram.polling import PollingAccount
from bot.channel import Address, Capabilities, Command, Engine, Health, Outbound, reveal
from bot.errors import SendRefused, SendTransient

if TYPE_CHECKING:
    from adapters.telegram.webhook import WebhookServer

_log = structlog.get_logger()


class Telegram:
    """Direct chats in Telegram, with one or more bots."""

    name = CHANNEL
    capabilities = Capabilities(
        max_length=LIMIT, length_unit="utf16", typing=True, command_menu=True
    )

    def __init__(self, config: TelegramConfig, pace: Pace | None = None) -> None:
        self._config = config
        self._pace = pace or Pace()
        self._accounts: dict[str, Account] = {}
        self._menus: dict[str, Sequence[Command]] = {}
        self._session: aiohttp.ClientSession | None = None
        self._webhooks: WebhookServer | None = None

    async def start(self, engine: Engine) -> None:
        """Begin to receive with every account that has a token."""
        self._session = new_session()
        tokens = self._config.tokens()
        for name in self._config.accounts.keys() - tokens.keys():
            _log.error("telegram.token.missing", account=name)
            engine.report(CHANNEL, name, Health.DOWN, "This account has no token.")
        for name, token in tokens.items():
            self._accounts[name] = self._account(name, reveal(token), engine)
        self._serve()
        for account in self._accounts.values():
            account.publish(self._menus)
            account.start()

    async def send(self, outbound: Outbound) -> str:
        """Send one piece of text; see `Channel.send`."""
        account = self._accounts.get(outbound.address.account)
        if account is None:
            if self._session is None:
                raise SendTransient("Telegram is not connected")
            raise SendRefused("this Telegram account is not configured")
        return await account.sender.send(outbound)

    async def typing(self, address: Address) -> None:
        """Show "typing…" in a chat, if that works."""
        account = self._accounts.get(address.account)
        if account is None:
            return
        try:
            await account.sender.typing(address.chat, address.thread)
        except TelegramError as error:
            _log.debug("telegram.typing.failed", error=type(error).__name__)

    async def publish_commands(self, menus: dict[str, Sequence[Command]]) -> None:
        """Register the commands with every bot; one that is not connected does it then."""
        self._menus = menus
        for account in self._accounts.values():
            account.publish(menus)

    async def stop(self) -> None:
        """Stop receiving, wait for what is being stored, close the connections."""
        if self._webhooks is not None:
            await self._webhooks.stop()
        await asyncio.gather(*(account.stop() for account in self._accounts.values()))
        if self._session is not None:
            await self._session.close()

    def _account(self, name: str, token: str, engine: Engine) -> Account:
        section = self._config.account(name)
        if not isinstance(section, TelegramConfig) or self._session is None:
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
        )

    def _serve(self) -> None:
        """Start the webhook server, if an account wants one."""
        if all(account.config.mode == "polling" for account in self._accounts.values()):
            return
        from adapters.telegram.webhook import (  # noqa: PLC0415  # aiohttp.web takes 0.2 s
            WebhookAccount,
            WebhookServer,
        )

        served = {n: a for n, a in self._accounts.items() if isinstance(a, WebhookAccount)}
        host, port = self._config.webhook_host, self._config.webhook_port
        self._webhooks = WebhookServer(served, host, port, self._pace)
        self._webhooks.start()
