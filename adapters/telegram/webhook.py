"""Webhooks: Telegram calls us, and 200 means stored."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Mapping

import structlog
from aiohttp import web

from adapters.telegram import webhook_url
from adapters.telegram.account import Account
from adapters.telegram.api import parse_json
from adapters.telegram.inbound import ALLOWED_UPDATES
from adapters.telegram.pace import Pace
from adapters.waits import Backoff, pause
from bot.channel import Engine, Health, reveal
from bot.channel.http import HttpServer, Limits, Refusals
from bot.errors import StorageError

MAX_BODY = 1 << 20  # bytes of one update
SECRET_HEADER = "X-Telegram-Bot-Api-Secret-Token"  # noqa: S105  # the header's name
BODY_TIMEOUT = 10.0  # seconds for the body of a call

_log = structlog.get_logger()


class WebhookAccount(Account):
    """A bot whose messages Telegram brings."""

    ready = False  # whether the bot knows who it is, so updates can be read
    listening: asyncio.Event  # the server's

    async def prepare(self) -> None:
        """Tell Telegram where to bring updates, once somebody is there to take them."""
        await self.listening.wait()
        await self.bot.set_webhook(
            webhook_url(self.config, self.name),
            allowed_updates=ALLOWED_UPDATES,
            secret_token=reveal(self.config.webhook_secret),
        )

    async def receive_updates(self) -> None:
        """Let updates in until the channel stops."""
        self.ready = True
        self.backoff.reset()
        self.report(Health.UP)
        await self.stopping.wait()

    def knows(self, secret: str) -> bool:
        """True when a call with this secret is Telegram's."""
        given = secret.encode("utf-8", "surrogateescape")
        return hmac.compare_digest(given, reveal(self.config.webhook_secret).encode())

    async def answer(self, request: web.Request) -> web.Response:
        """Store the update of one call; anything but 200 makes Telegram bring it again."""
        if not self.ready or self.stopping.is_set():
            return web.Response(status=503)
        body = await request.read()
        try:
            update = parse_json(body)
        except ValueError:
            update = None  # Telegram would bring the same bytes for ever: count it, let it go
        try:
            await self.intake.offer(update)
        except StorageError as error:
            _log.error("telegram.store.failed", account=self.name, error=type(error).__name__)
            self.report(
                Health.DEGRADED, "New messages cannot be stored; Telegram will bring them again."
            )
            return web.Response(status=500)
        self.report(Health.UP)
        return web.Response()


class WebhookServer:
    """The one HTTP server all webhook accounts share."""

    def __init__(
        self,
        accounts: Mapping[str, WebhookAccount],
        engine: Engine,
        host: str,
        port: int,
        pace: Pace,
    ) -> None:
        self._accounts = accounts
        self._host = host
        self._port = port
        self._pace = pace
        self._stopping = asyncio.Event()
        self._listening = asyncio.Event()
        for account in accounts.values():
            account.listening = self._listening
        self._refusals = Refusals(
            "telegram.webhook.rejected", lambda reason: engine.dropped("telegram", reason)
        )
        app = web.Application(client_max_size=MAX_BODY)
        app.router.add_post("/telegram/{account}", self._answer)
        self._server = HttpServer(app, Limits(body=BODY_TIMEOUT), self._refusals.add)
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin listening in a task of its own, as soon as the port is free."""
        self._task = asyncio.get_running_loop().create_task(self._listen())

    async def stop(self) -> None:
        """Stop listening after the calls that are being stored."""
        self._stopping.set()
        if self._task is not None:
            await self._task
        await self._server.stop()

    async def _listen(self) -> None:
        backoff = Backoff(self._pace.first, self._pace.longest)
        while True:
            try:
                await self._server.start(self._host, self._port)
            except OSError as error:
                delay = backoff.next()
                _log.error("telegram.webhook.port", port=self._port, error=type(error).__name__)
                for account in self._accounts.values():
                    account.report(
                        Health.DOWN, f"Port {self._port} of {self._host} cannot be opened."
                    )
                if await pause(delay, self._stopping):
                    return
            else:
                self._listening.set()
                return

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        account = self._accounts.get(request.match_info["account"])
        if account is None:
            self._refusals.add("no_such_account")
            return web.Response(status=404)
        if not account.knows(request.headers.get(SECRET_HEADER, "")):
            self._refusals.add("bad_secret")
            return web.Response(status=403)
        return await account.answer(request)
