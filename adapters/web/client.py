"""The terminal at a running bot: `attach` joins its web chat instead of opening a second engine."""

from __future__ import annotations

import asyncio
import json
from typing import Any, cast
from urllib.parse import urlsplit

import aiohttp

from adapters.screen import below
from adapters.web import protocol
from bot.channel import Address, Channel, Engine, Health, Inbound, Outbound, Piece
from bot.channel.kit.supervisor import Backoff
from bot.errors import ChannelError, StorageError

ADDRESS = Address("web", "default", "owner")
ACK_SECONDS = 20.0
FIRST_DELAY = 0.5  # seconds before a lost connection is tried again …
LONGEST_DELAY = 15.0  # … and the longest such wait
TRANSIENT = frozenset({"storage", "unexpected"})  # errors after which the same line is tried again
REFUSALS = {
    401: "The bot does not accept this token. Set CONFIDANT_DASHBOARD__TOKEN to the right one.",
    403: "The bot refused this connection: it does not answer to this address.",
    404: "The bot runs without its web chat. Set [channels.web] enabled = true.",
    429: "Too many wrong tokens. Wait a minute, then try again.",
}
MAX_FRAME = 64 * 1024 * 1024  # bytes; a history holds many messages


async def attach(url: str, token: str, terminal: Channel, *, locale: str = "") -> None:
    """Chat from a terminal with the bot whose page is at `url`, until the input ends.

    A lost connection comes back by itself, and what was not confirmed is sent again.

    Raises:
        ChannelError: the bot cannot be reached at all, or does not accept the token.
    """
    remote = RemoteEngine(url, token, terminal, locale)
    link = asyncio.create_task(remote.run())
    opened = asyncio.create_task(remote.opened.wait())
    tasks: list[asyncio.Task[Any]] = [link, opened]
    try:
        await asyncio.wait({link, opened}, return_when=asyncio.FIRST_COMPLETED)
        if not link.done():
            await terminal.start(cast("Engine", remote))  # it says what was typed, and no more
            finished = asyncio.create_task(terminal.finished())
            tasks.append(finished)
            await asyncio.wait({link, finished}, return_when=asyncio.FIRST_COMPLETED)
        if link.done():
            link.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await terminal.stop()


class RemoteEngine:
    """The engine of another process, as far as its web chat reaches."""

    def __init__(self, url: str, token: str, terminal: Channel, locale: str) -> None:
        parts = urlsplit(url)
        self._base = f"{parts.scheme}://{parts.netloc}"
        # The server refuses WebSockets that do not say they come from its own page.
        self._headers = {"Origin": self._base}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"
        self._terminal = terminal
        self._locale = locale
        self._socket: aiohttp.ClientWebSocketResponse | None = None
        self._acks: dict[str, asyncio.Future[str]] = {}
        self._seen: set[str] | None = None  # ids of lines shown; None before the first history
        self.opened = asyncio.Event()

    async def receive(self, inbound: Inbound) -> None:
        """Send it, and return once the bot has stored it.

        Raises:
            StorageError: the bot could not store it.
        """
        while True:
            await self.opened.wait()
            answer = asyncio.get_running_loop().create_future()
            self._acks[inbound.message_id] = answer
            frame = {
                "type": "send",
                "id": inbound.message_id,
                "text": inbound.text,
                "locale": inbound.locale,
            }
            try:
                async with asyncio.timeout(ACK_SECONDS):
                    if self._socket is not None:
                        await self._socket.send_json(frame)
                    problem = await answer
            except (TimeoutError, ConnectionError):
                continue  # the connection broke: the same id again, the bot drops a second copy
            finally:
                self._acks.pop(inbound.message_id, None)
            if problem:
                raise StorageError(problem)
            return

    def report(self, channel: str, account: str, health: Health, detail: str = "") -> None:
        """The bot itself knows how it is."""

    async def run(self) -> None:
        """Keep the connection, until cancelled.

        Raises:
            ChannelError: the first connection failed, or the bot refused this one.
        """
        backoff = Backoff(FIRST_DELAY, LONGEST_DELAY)
        async with aiohttp.ClientSession(headers=self._headers) as session:
            while True:
                try:
                    async with session.ws_connect(
                        f"{self._base}/chat/ws", heartbeat=25, max_msg_size=MAX_FRAME
                    ) as socket:
                        await self._talk(socket)
                    backoff.reset()
                except aiohttp.WSServerHandshakeError as error:
                    if error.status in REFUSALS or (self._seen is None and error.status != 503):
                        other = f"The bot's web chat answered with HTTP status {error.status}."
                        raise ChannelError(REFUSALS.get(error.status, other)) from error
                except (aiohttp.ClientError, OSError) as error:
                    if self._seen is None:
                        host = urlsplit(self._base).netloc
                        raise ChannelError(f"Nothing answers at {host}: {error}") from error
                finally:
                    self._lost()
                await asyncio.sleep(backoff.next())

    async def _talk(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        await socket.send_json(
            {
                "type": "hello",
                "version": protocol.VERSION,
                "locale": self._locale,
                "format": "text",
            }
        )
        async for message in socket:
            if message.type is not aiohttp.WSMsgType.TEXT:
                break
            frame = cast("dict[str, Any]", json.loads(cast("str", message.data)))
            await self._take(frame)
            if frame["type"] == "history":
                self._socket = socket
                self.opened.set()

    async def _take(self, frame: dict[str, Any]) -> None:
        match frame["type"]:
            case "history":
                await self._catch_up(frame["items"])
            case "message":
                await self._show(frame)
                if self._socket is not None and frame["role"] == "bot":
                    await self._socket.send_json({"type": "seen", "id": frame["id"]})
            case "draft":
                await self._terminal.draft(ADDRESS, frame["id"], frame["text"])
            case "typing":
                await self._terminal.typing(ADDRESS)
            case "ack":
                self._answer(frame["id"], "")
            case "error" if frame["key"] in TRANSIENT:
                self._answer(frame["id"], frame["text"])
            case "error" if frame["id"]:
                await self._print(Outbound("", ADDRESS, frame["text"]))
                self._answer(frame["id"], "")
            case "error" if frame["key"] == "version":
                raise ChannelError("This program and the running bot are of different versions.")
            case _:
                pass

    async def _catch_up(self, items: list[dict[str, Any]]) -> None:
        """Show what was said while the connection was lost; before the first one, nothing."""
        if self._seen is None:
            self._seen = {item["id"] for item in items}
        for item in items:
            await self._show(item)

    async def _show(self, item: dict[str, Any]) -> None:
        seen = self._seen if self._seen is not None else set[str]()
        if item["role"] == "bot" and item["id"] not in seen:
            more = below(
                ((button["label"], button["command"]) for button in item.get("buttons", ())),
                ((file["name"], file["size"]) for file in item.get("attachments", ())),
            )
            text = item["text"] + more
            await self._print(Outbound(item["id"], ADDRESS, text, at=item["at"]))
        seen.add(item["id"])

    async def _print(self, outbound: Outbound) -> None:
        await self._terminal.send(Piece(outbound, outbound.text))

    def _answer(self, message_id: str, problem: str) -> None:
        answer = self._acks.get(message_id)
        if answer is not None and not answer.done():
            answer.set_result(problem)

    def _lost(self) -> None:
        self.opened.clear()
        self._socket = None
        for answer in self._acks.values():
            if not answer.done():
                answer.set_exception(ConnectionError())
