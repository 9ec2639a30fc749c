"""One open page: a bounded queue of frames and the task that writes them."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterable
from itertools import count

import structlog
from aiohttp import WSCloseCode, web

from adapters.web.protocol import Format, Hello

log = structlog.stdlib.get_logger(__name__)

MAX_WAITING = 256  # frames …
MAX_WAITING_CHARS = 4 * 1024 * 1024  # … or characters a page may lag behind
WRITE_SECONDS = 15.0  # how long one frame may take before the page counts as gone


class Socket:
    """Writes frames to one page, `person`'s, without ever making anyone else wait.

    A page that reads too slowly is disconnected: it comes back and gets the history.
    """

    def __init__(
        self, ws: web.WebSocketResponse, transport: asyncio.Transport | None, person: str
    ) -> None:
        self.person = person
        self.format: Format = "html"
        self.locale = ""
        self.zone = ""
        self.greeted = False
        self._ws = ws
        self._transport = transport
        self._waiting: OrderedDict[str, str] = OrderedDict()
        self._size = 0
        self._numbers = count()
        self._wake = asyncio.Event()
        self._close_code: int | None = None
        self._writer: asyncio.Task[None] | None = None

    def greet(self, hello: Hello) -> None:
        """Take part in what is broadcast from now on; nothing is written before `open`."""
        self.format, self.locale, self.zone = hello.format, hello.locale, hello.zone
        self.greeted = True

    def open(self, first: Iterable[str]) -> None:
        """Begin writing: these frames first, then whatever was queued meanwhile."""
        for frame in reversed(list(first)):
            key = self._key()
            self._waiting[key] = frame
            self._waiting.move_to_end(key, last=False)
        self._writer = asyncio.create_task(self._write())
        self._wake.set()

    def put(self, frame: str, *, draft: str = "") -> None:
        """Queue a frame; a newer state of a draft takes the place of one still waiting."""
        if self._close_code is not None:
            return
        key = f"draft {draft}" if draft else self._key()
        self._size += len(frame) - len(self._waiting.get(key, ""))
        self._waiting[key] = frame
        if len(self._waiting) > MAX_WAITING or self._size > MAX_WAITING_CHARS:
            log.warning("web.socket.slow", waiting=len(self._waiting))
            self.abort()
            return
        self._wake.set()

    def close(self, code: int = WSCloseCode.GOING_AWAY) -> None:
        """Close once everything queued is written."""
        if self._close_code is None:
            self._close_code = code
            self._wake.set()
        if self._writer is None:
            self._writer = asyncio.create_task(self._write())

    def abort(self) -> None:
        """Drop the connection at once; nothing is owed to a page that comes back to history."""
        self._close_code = WSCloseCode.TRY_AGAIN_LATER
        self._waiting.clear()
        self._wake.set()
        if self._transport is not None:
            self._transport.abort()

    async def finished(self) -> None:
        """Release the writer, after the reading side ended."""
        if self._writer is None:
            return
        if self._close_code is None:
            self._writer.cancel()
        # A writer that is closing is let through, so the other side learns why.
        await asyncio.wait([self._writer], timeout=WRITE_SECONDS)

    def _key(self) -> str:
        return str(next(self._numbers))

    async def _write(self) -> None:
        try:
            while self._waiting or self._close_code is None:
                if not self._waiting:
                    self._wake.clear()
                    await self._wake.wait()
                    continue
                _, frame = self._waiting.popitem(last=False)
                self._size = max(0, self._size - len(frame))
                async with asyncio.timeout(WRITE_SECONDS):
                    await self._ws.send_str(frame)
            await self._ws.close(code=self._close_code)
        except TimeoutError:
            log.warning("web.socket.stalled")
            self.abort()
        except (ConnectionError, RuntimeError):
            self.abort()  # the page went away in the middle
