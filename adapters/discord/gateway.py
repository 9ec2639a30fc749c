"""The gateway connection: discord.py's websocket, its raw events, and its session to resume."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any, Self

import aiohttp
from discord.gateway import DiscordWebSocket, ReconnectWebSocket
from yarl import URL

from adapters.discord import PUBLIC_GATEWAY
from adapters.discord.api import Rest, discord
from bot.channel.kit.client import why
from bot.channel.kit.json_access import Json, mapping

CONNECT_TIMEOUT = 60.0  # seconds until a connection has said hello and was answered

# What is asked for; anything else never arrives.
INTENTS = discord.Intents(
    guilds=True,
    guild_messages=True,
    dm_messages=True,
    guild_reactions=True,
    dm_reactions=True,
    message_content=True,
)

Listener = Callable[[str, Json], None]


class Lost(Exception):
    """The connection ended and can be made again."""


class Invalidated(Lost):
    """Discord no longer knows the session (op 9): nothing failed, a new one is to begin."""


@dataclass(frozen=True, slots=True)
class _Session:
    id: str
    sequence: int | None
    gateway: URL


class _Client(discord.Client):
    """As much of a client as the websocket needs; events pass through unread."""

    def __init__(self, rest: Rest, events: Iterable[str], listen: Listener, wait: float) -> None:
        self._events = {name: partial(_hand_on, listen, name) for name in events}
        self._wait = wait
        self._next_at = 0.0  # event loop time from which a session may begin
        super().__init__(intents=INTENTS, max_messages=None)
        self.http = rest

    def _get_state(self, **options: Any) -> Any:
        state: Any = super()._get_state(**options)
        # Without the SDK's own readers nothing is cached, and one surprising field costs nothing.
        state.parsers = self._events
        return state

    def dispatch(self, event: str, /, *args: Any, **kwargs: Any) -> None:
        """Nobody listens to the SDK's own events."""

    async def before_identify_hook(self, shard_id: int | None, *, initial: bool = False) -> None:
        """Wait until a session may begin: only that often, however the last one ended."""
        loop = asyncio.get_running_loop()
        await asyncio.sleep(max(0.0, self._next_at - loop.time()))
        self._next_at = loop.time() + self._wait


def _hand_on(listen: Listener, name: str, data: object) -> None:
    listen(name, mapping(data))


class Connection:
    """One bot's connection; `serve` again resumes where the one before ended.

    Args:
        events: the events to hand on, by Discord's names.
        listen: gets each event's name and data, in order; it must not fail.
        wait: seconds from the beginning of one session to that of the next.
    """

    def __init__(
        self,
        rest: Rest,
        gateway_url: str,
        *,
        events: Iterable[str],
        listen: Listener,
        wait: float,
    ) -> None:
        self._url = URL(gateway_url)
        self._is_public = gateway_url.rstrip("/") == PUBLIC_GATEWAY.rstrip("/")
        self._client = _Client(rest, events, listen, wait)
        self._socket = _socket_class(self)
        self._session: _Session | None = None
        self.ws: DiscordWebSocket | None = None

    async def __aenter__(self) -> Self:
        await self._client.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._close()
        await self._client.__aexit__(kind, error, trace)

    async def serve(self) -> None:
        """Connect and hand events on until the connection ends.

        Raises:
            Lost: it ended in a way that happens every day.
            Invalidated: so it did, and what comes next is a new session.
            ConnectionClosed: Discord will not have this bot; its code says why.
        """
        session, self.ws = self._session, None
        resumes = session is not None
        keep = True
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT):
                ws = await self._connect(session)
            self._client.ws = ws
            while True:
                await ws.poll_event()
        except ReconnectWebSocket as ended:
            keep = ended.resume
            if not keep:
                raise Invalidated("the session is over") from None
            raise Lost("the gateway asked to connect again") from None
        except discord.ConnectionClosed as closed:
            keep = False
            if closed.code == 1000:
                raise Lost("the gateway said goodbye") from None
            raise
        except asyncio.CancelledError:
            keep = False  # the bot leaves
            raise
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            # What was resumed in vain may be why.
            keep = not (resumes and isinstance(error, TimeoutError))
            raise Lost(why(error)) from None
        finally:
            self._remember(keep=keep)
            await self._close()

    async def _connect(self, session: _Session | None) -> DiscordWebSocket:
        if session is None:
            return await self._socket.from_client(self._client, gateway=self._url)
        return await self._socket.from_client(
            self._client,
            gateway=session.gateway if self._is_public else self._url,
            session=session.id,
            sequence=session.sequence,
            resume=True,
        )

    def _remember(self, *, keep: bool) -> None:
        ws = self.ws
        if not keep:
            self._session = None
        elif ws is not None and ws.session_id:
            self._session = _Session(ws.session_id, ws.sequence, ws.gateway)

    async def _close(self) -> None:
        if self.ws is not None:
            await self.ws.close(1000 if self._session is None else 4000)
            self.ws = None


def _socket_class(connection: Connection) -> type[DiscordWebSocket]:
    """A websocket that the connection knows of from its first moment, so that it can be closed."""

    class Socket(DiscordWebSocket):
        def __init__(
            self, socket: aiohttp.ClientWebSocketResponse, *, loop: asyncio.AbstractEventLoop
        ) -> None:
            super().__init__(socket, loop=loop)
            connection.ws = self

    return Socket
