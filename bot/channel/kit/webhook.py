"""The HTTP server of a channel's webhooks."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import structlog
from aiohttp import web
from aiohttp.typedefs import Handler

from bot.backoff import keep
from bot.channel import Health
from bot.channel.http import HttpServer, Limits, Refusals
from bot.channel.kit.supervisor import Supervisor

MAX_BODY = 1 << 20  # bytes of one call
BODY_TIMEOUT = 10.0  # seconds for the body of a call, where a platform says nothing of it
PORT_WAIT = 1.0  # seconds between two tries to get the port, most often from a run that just ends

_log = structlog.get_logger()


class WebhookServer:
    """The one server of all accounts of a channel; it waits for its port and counts refusals.

    Args:
        supervisors: those of the accounts, at least one; they hear whether it listens.
        host, port: where it listens.
        routes: what answers the calls of a path.
        body_timeout: seconds for the body of a call.
        listening: is set once it listens; some platforms bring a message only once, so that is
            tried at a steady pace.
    """

    def __init__(
        self,
        supervisors: Sequence[Supervisor],
        host: str,
        port: int,
        routes: Mapping[str, Handler],
        *,
        body_timeout: float,
        listening: asyncio.Event | None = None,
    ) -> None:
        self._supervisors = supervisors
        self._host, self._port = host, port
        self.listening = listening or asyncio.Event()
        first = supervisors[0]
        self._channel = first.channel
        self.refusals = Refusals(f"{self._channel}.webhook.rejected", first.drop)
        app = web.Application(client_max_size=MAX_BODY)
        for path, handler in routes.items():
            app.router.add_post(path, handler)
        self._server = HttpServer(app, Limits(body=body_timeout), self.refusals.add)
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin listening in a task of its own, as soon as the port is free."""
        self._task = keep(f"{self._channel}.webhook", self._listen)

    async def stop(self) -> None:
        """Stop listening after the calls that are being stored."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._server.stop()

    async def _listen(self) -> None:
        told = ""
        while True:
            try:
                await self._server.start(self._host, self._port)
            except OSError as error:
                name = type(error).__name__
                if name != told:
                    _log.error(f"{self._channel}.webhook.port", port=self._port, error=name)
                    told = name
                for each in self._supervisors:
                    detail = f"Port {self._port} of {self._host} cannot be opened."
                    each.trouble("listening", Health.DOWN, detail)
                await asyncio.sleep(min(PORT_WAIT, self._supervisors[0].first))
            else:
                for each in self._supervisors:
                    each.well("listening")
                self.listening.set()
                return
