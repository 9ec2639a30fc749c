"""A TCP proxy between a program and its server that can cut, freeze, delay, and lose an answer.

It runs in a thread with a loop of its own, so it serves also while the test's loop is blocked, and
everything here may be called from any thread.
"""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Final, Self, TypeVar
from urllib.parse import urlsplit, urlunsplit

CHUNK = 65_536  # bytes

T = TypeVar("T")


# PostgreSQL's message that gives a statement a name, as psycopg names them.
_PARSE: Final = re.compile(rb"P.{4}(_pg3_\d+)\0([^\0]+)\0", re.DOTALL)


class _Link:
    """One connection through the proxy."""

    def __init__(self, client: asyncio.StreamWriter, server: asyncio.StreamWriter) -> None:
        self.client = client
        self.server = server
        self.is_mute = False  # whatever the server still says is lost
        self.is_held = False  # nothing passes, and the server's side stays when the client goes
        self._plans: dict[bytes, bytes] = {}  # statements that a PostgreSQL was given, by name

    def said(self, chunk: bytes) -> bytes:
        """What a client says, with the statements that it only names."""
        self._plans.update(_PARSE.findall(chunk))
        named = [sql for name, sql in self._plans.items() if b"\0%b\0" % name in chunk]
        return b"\0".join((chunk, *named))

    def abort(self) -> None:
        for writer in (self.client, self.server):
            writer.transport.abort()


class TcpProxy:
    """Listens on 127.0.0.1 while it is entered, and passes everything on to `host`:`port`.

    Attributes:
        port: where it listens.
        delay: seconds that everything takes longer, each way.
        lost: how many answers it has lost.
        held: how many connections it holds back for what was said on them.
    """

    def __init__(self, host: str, port: int) -> None:
        self.port = 0
        self.delay = 0.0
        self.lost = 0
        self.held = 0
        self._target = (host, port)
        self._links: set[_Link] = set()
        self._pumps: set[asyncio.Task[None]] = set()
        self._is_cut = False
        self._losing: tuple[bytes, bool] | None = None
        self._cuts = False
        self._holding = b""
        self._refusals = threading.Semaphore(0)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="tcp-proxy")
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._server: asyncio.Server | None = None

    @classmethod
    def before(cls, url: str) -> TcpProxy:
        """A proxy before the server of a URL."""
        parts = urlsplit(url)
        assert parts.hostname is not None
        assert parts.port is not None
        return cls(parts.hostname, parts.port)

    def __enter__(self) -> Self:
        self._thread.start()
        self._run(self._listen())
        return self

    def __exit__(self, *_: object) -> None:
        self._run(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def url(self, url: str) -> str:
        """A URL of the server as it is reached through the proxy."""
        parts = urlsplit(url)
        user, at, _ = parts.netloc.rpartition("@")
        return urlunsplit(parts._replace(netloc=f"{user}{at}127.0.0.1:{self.port}"))

    @property
    def open(self) -> int:
        """How many connections there are."""
        return len(self._links)

    # --- what it does to them ---------------------------------------------------------------------

    def drop(self) -> None:
        """End every connection at once; new ones are taken."""
        self._call(self._abort)

    def cut(self) -> None:
        """End every connection at once, and take none until `mend`."""

        def cut() -> None:
            self._is_cut = True
            self._abort()

        self._call(cut)

    def freeze(self) -> None:
        """Pass nothing on until `mend`; the connections stay, and nobody is told."""
        self._call(self._flowing.clear)

    def mend(self) -> None:
        """Take connections again, and pass on what was held back."""

        def mend() -> None:
            self._is_cut = False
            self._flowing.set()

        self._call(mend)

    def lose_answer(self, to: bytes, *, done: bool, cut: bool = False) -> None:
        """Once: end the connection on which a client says this, before it is answered.

        With `done` the server has heard and answered it; without it never heard of it. With `cut`
        no connection is taken after that, until `mend`.
        """
        self._losing = (to, done)
        self._cuts = cut

    def hold_back(self, what: bytes) -> None:
        """Once: keep what a client says from the server, and leave both connected."""
        self._holding = what

    def forget_held(self) -> None:
        """End the client's side of what was held back; the server's stays, and hears nothing."""

        def forget() -> None:
            for link in self._links:
                if link.is_held:
                    link.client.transport.abort()

        self._call(forget)

    def refused(self, count: int) -> None:
        """Return once so many connections were refused, while it is cut."""
        for _ in range(count):
            assert self._refusals.acquire(timeout=60)

    # --- its own loop -----------------------------------------------------------------------------

    def _call(self, what: Callable[[], object]) -> None:
        async def run() -> None:
            what()

        self._run(run())

    def _run(self, what: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(what, self._loop).result(10)

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _close(self) -> None:
        if self._server is not None:
            self._server.close()
        for pump in self._pumps:
            pump.cancel()
        await asyncio.gather(*self._pumps, return_exceptions=True)
        self._abort()
        await asyncio.sleep(0)  # the transports close now

    def _abort(self) -> None:
        for link in self._links:
            link.abort()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_cut:
            writer.transport.abort()
            self._refusals.release()
            return
        task = asyncio.current_task()
        assert task is not None
        self._pumps.add(task)
        try:
            await self._serve(reader, writer)
        finally:
            writer.transport.abort()
            self._pumps.discard(task)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._flowing.wait()
        try:
            theirs, server = await asyncio.open_connection(*self._target)
        except OSError:  # it is not there: the client's connection ends
            return
        link = _Link(writer, server)
        self._links.add(link)
        try:
            if self._is_cut:
                return
            there, back = self._pump(link, reader, server), self._pump(link, theirs, writer)
            await asyncio.gather(there, back)
        finally:
            link.abort()
            self._links.discard(link)

    def _lose(self) -> None:
        self.lost += 1
        self._is_cut = self._is_cut or self._cuts

    async def _pump(
        self, link: _Link, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        is_client = writer is link.server
        tail = b""
        with suppress(OSError):
            while chunk := await reader.read(CHUNK):
                if self.delay:
                    await asyncio.sleep(self.delay)
                await self._flowing.wait()
                if link.is_mute and not is_client:
                    self._lose()
                    break
                said = link.said(chunk) if is_client else b""
                losing = self._losing if is_client else None
                if losing is not None and _says(losing[0], tail, said):
                    self._losing = None
                    link.is_mute = True
                    if not losing[1]:
                        self._lose()
                        break
                if is_client and self._holding and _says(self._holding, tail, said):
                    self._holding = b""
                    link.is_held = True
                    self.held += 1
                    await asyncio.get_running_loop().create_future()  # until this is closed
                tail = (tail + chunk)[-100:]
                writer.write(chunk)
                await writer.drain()
        link.abort()


def _says(what: bytes, before: bytes, chunk: bytes) -> bool:
    """True when something ends in this chunk."""
    return what in before[1 - len(what) :] + chunk
