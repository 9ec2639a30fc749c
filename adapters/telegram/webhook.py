"""Webhooks: Telegram calls us, and 200 means stored."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Mapping

import structlog
from aiohttp import web

from adapters.telegram.account import Account, set_webhook
from bot.channel import Health, reveal
from bot.channel.kit.json_access import parse_json
from bot.channel.kit.webhook import BODY_TIMEOUT, WebhookServer
from bot.errors import StorageError

SECRET_HEADER = "X-Telegram-Bot-Api-Secret-Token"  # noqa: S105  # the header's name

LOOK = 30.0  # seconds between looks for what other nodes left and nobody told of

_log = structlog.get_logger()


class WebhookAccount(Account):
    """A bot whose messages Telegram brings."""

    ready = False  # whether the bot knows who it is, so updates can be read

    async def run(self) -> None:
        """Take calls on every node."""
        await self.supervisor.supervise(self.serve, self.failed)

    async def prepare(self) -> None:
        """Wait until there is somebody to take what Telegram brings."""
        await self.listening.wait()

    async def receive_updates(self) -> None:
        """Let updates in until the channel stops."""
        await self.supervisor.alone(self._register, self._admit)

    async def _register(self) -> None:
        """Tell Telegram where to bring updates, which one node does for all."""
        await set_webhook(self.bot, self.config, self.name)
        self.updates.holds = True
        try:
            await self.begin_receiving()
            self._admit()
            while True:
                await self.supervisor.pause(LOOK)
                await self.resume()
        finally:
            await self.updates.leave()

    async def resume(self) -> None:
        """Go on with what other nodes were brought and could not store whole.

        Raises:
            Stopped: the account stops before it can be read.
        """
        if self.updates.holds:
            await self.supervisor.insist("resume.failed", self.updates.resume)

    def _admit(self) -> None:
        self.ready = True
        self.backoff.reset()
        self.supervisor.well("receiving")

    def knows(self, secret: str) -> bool:
        """True when a call with this secret is Telegram's."""
        given = secret.encode("utf-8", "surrogateescape")
        return hmac.compare_digest(given, reveal(self.config.webhook_secret).encode())

    async def answer(self, request: web.Request) -> web.Response:
        """Store the update of one call; anything but 200 makes Telegram bring it again."""
        if not self.ready or self.supervisor.stopping.is_set():
            return web.Response(status=503)
        body = await request.read()
        try:
            update = parse_json(body)
        except ValueError:
            update = None  # Telegram would bring the same bytes for ever: count it, let it go
        try:
            await self.updates.offer(update)
        except StorageError as error:
            _log.error("telegram.store.failed", account=self.name, error=type(error).__name__)
            detail = "New messages cannot be stored; Telegram will bring them again."
            self.supervisor.trouble("storing", Health.DEGRADED, detail)
            return web.Response(status=500)
        self.supervisor.well("storing")
        return web.Response()


class TelegramWebhook(WebhookServer):
    """The webhook of all accounts that have one."""

    def __init__(
        self, accounts: Mapping[str, WebhookAccount], host: str, port: int, listening: asyncio.Event
    ) -> None:
        self._accounts = accounts
        supervisors = [account.supervisor for account in accounts.values()]
        super().__init__(
            supervisors,
            host,
            port,
            {"/telegram/{account}": self._answer},
            body_timeout=BODY_TIMEOUT,
            listening=listening,
        )

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        account = self._accounts.get(request.match_info["account"])
        if account is None:
            self.refusals.add("no_such_account")
            return web.Response(status=404)
        if not account.knows(request.headers.get(SECRET_HEADER, "")):
            self.refusals.add("bad_secret")
            return web.Response(status=403)
        return await account.answer(request)
