"""The terminal as a channel: lines in, Markdown out, on a screen or through a pipe.

`confidant chat` creates it; a service never reads its own standard input, so `enabled` is off.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import io
import os
import select
import sys
import threading
import time
import uuid
from collections.abc import Mapping
from typing import Literal, Protocol, TextIO

from pydantic import Field

from adapters.screen import PROMPT, WAITING, below, display_for, hint
from bot.channel import (
    DEFAULT_ACCOUNT,
    Address,
    Capabilities,
    ChannelPlugin,
    DirectChannelConfig,
    Health,
    Inbound,
    Piece,
)
from bot.channel.kit.text import TakesMarkdown
from bot.errors import SendTransient, StorageError

OWNER = "owner"
QUIET_SECONDS = 30.0  # without a sign of life a line counts as answered with silence
RETRY_SECONDS = 2.0  # between tries to store a line
LEAVING = frozenset({"/exit", "/quit", "/bye", "/退出"})  # end the chat, as the end of input does
POLL_SECONDS = 0.1  # how often the reader looks whether the prompt may be shown again


class ConsoleConfig(DirectChannelConfig):
    """`[channels.console]`: the terminal; whoever sits at it is the owner."""

    enabled: bool = Field(
        default=False, description="Stays off: `confidant chat` opens the terminal by itself."
    )
    dm_policy: Literal["pairing", "allowlist", "open", "disabled"] = Field(
        default="open", description="Whoever sits at the terminal may talk."
    )
    allow_from: tuple[str, ...] = Field(default=("*",), description='The only id here is "owner".')


class Listener(Protocol):
    """As much of an engine as a terminal needs; the one of another process has no more."""

    async def receive(self, inbound: Inbound) -> None:
        """Store a line; see `Engine.receive`."""
        ...

    def report(self, channel: str, account: str, health: Health, detail: str = "") -> None:
        """Say how the terminal is doing; see `Engine.report`."""
        ...


class Console(TakesMarkdown):
    """Reads lines in a thread of its own and shows replies as they come.

    On a screen replies grow live and `/stop` may be typed meanwhile. Through a pipe only whole
    replies are written, one line waits for the reply to the one before, and the end of the input
    waits for the last reply: `echo hi | confidant chat` prints it. It has many methods because it
    is a channel with abilities and a reading thread in one.
    """

    name = "console"

    def __init__(
        self,
        input: TextIO | None = None,  # noqa: A002 - the plainest word for it
        output: TextIO | None = None,
        *,
        locale: str = "",
    ) -> None:
        self._input = input or sys.stdin
        self._output = output or sys.stdout
        for stream in (self._input, self._output):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="replace")  # one odd byte must not end the chat
        self._typed = self._input.isatty()
        self._display = display_for(self._output)
        self._locale = locale
        self.capabilities = Capabilities(
            max_length=1_000_000, typing=True, drafts=self._output.isatty(), attachments=True
        )
        self._lines: asyncio.Queue[str | None] = asyncio.Queue()
        self._free = threading.Event()  # set while the prompt may be shown
        self._closed = threading.Event()
        self._at_prompt = False
        self._finished = asyncio.Event()
        self._news = asyncio.Event()  # a sign of life from the engine, or another line
        self._waiting_for = ""  # id of the line whose reply is awaited
        self._pump: asyncio.Task[None] | None = None

    async def start(self, engine: Listener) -> None:
        """Begin reading lines."""
        if self._typed:
            self._display.hint(hint(self._locale))
        self._free.set()
        self._pump = asyncio.create_task(self._send_lines(engine))
        loop = asyncio.get_running_loop()
        # A daemon: a read that never returns must not keep the process alive.
        threading.Thread(target=self._read, args=(loop,), name="console", daemon=True).start()
        engine.report(self.name, DEFAULT_ACCOUNT, Health.UP)

    async def attach(self, url: str, token: str) -> None:
        """Join the page of a bot that runs already, until the person leaves.

        Raises:
            ChannelError: it cannot be joined; the message says why.
        """
        from adapters.web.client import attach  # noqa: PLC0415 - only for this

        await attach(url, token, self, locale=self._locale)

    async def finished(self) -> None:
        """Wait until the input ended and every line was answered."""
        await self._finished.wait()

    async def send(self, piece: Piece) -> str:
        """Print it.

        Raises:
            SendTransient: the other end of the pipe is gone; it is kept for the next time.
        """
        try:
            self._display.draft("")
            self._display.show(piece.text + _below(piece), at_prompt=self._at_prompt)
        except OSError as error:
            self._finished.set()
            raise SendTransient("the terminal is gone") from error
        if piece.kind != "notice" and piece.reply_to in {"", self._waiting_for}:
            self._waiting_for = ""
        self._news.set()
        return piece.id

    async def typing(self, address: Address) -> None:
        """Show that a reply is being written."""
        self._news.set()
        self._draft(WAITING)

    async def draft(self, address: Address, draft_id: str, text: str) -> None:
        """Show a reply as it grows; only on a screen."""
        self._news.set()
        self._draft(text)

    async def stop(self) -> None:
        """Stop reading; a line that is being stored may finish."""
        self._closed.set()
        self._free.set()
        self._draft("")
        if self._pump is not None:
            self._pump.cancel()
            await asyncio.gather(self._pump, return_exceptions=True)
        self._finished.set()

    def _draft(self, text: str) -> None:
        with contextlib.suppress(OSError):
            if not self._at_prompt:
                self._display.draft(text)

    # --- the reading thread ---------------------------------------------------------------------

    def _read(self, loop: asyncio.AbstractEventLoop) -> None:
        while not self._closed.is_set():
            line = self._next_line()
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody listens any more
                loop.call_soon_threadsafe(self._take, line)
            if not line:
                return

    def _next_line(self) -> str:
        """The next line with its end, or "" at the end of the input."""
        try:
            if not self._typed:
                return self._input.readline()
            while not self._free.wait(POLL_SECONDS):
                if _readable(self._input):  # typed while a reply is written, such as /stop
                    return self._input.readline()
            return "" if self._closed.is_set() else self._ask()
        except (EOFError, OSError, ValueError):
            return ""

    def _ask(self) -> str:
        self._at_prompt = True
        try:
            if self._input is sys.stdin and self._output is sys.stdout:
                with contextlib.suppress(ImportError):
                    importlib.import_module("readline")  # gives input() editing and a history
                line = input(PROMPT) + "\n"
            else:
                self._output.write(PROMPT)
                self._output.flush()
                line = self._input.readline()
        finally:
            self._at_prompt = False
        if line.strip():
            self._free.clear()
        return line

    # --- lines to the engine --------------------------------------------------------------------

    def _take(self, line: str) -> None:
        self._lines.put_nowait(line or None)
        self._news.set()

    async def _send_lines(self, engine: Listener) -> None:
        while (line := await self._lines.get()) is not None:
            text = line.encode("utf-8", "replace").decode("utf-8").replace("\0", "").strip()
            if text.lower() in LEAVING:
                self._closed.set()  # the reader asks for nothing more
                break
            if text:
                await self._store(engine, text)
                await self._wait_for_reply()
        await self._wait_for_reply()
        self._finished.set()

    async def _store(self, engine: Listener, text: str) -> None:
        inbound = Inbound(
            channel=self.name,
            account=DEFAULT_ACCOUNT,
            chat=OWNER,
            chat_type="direct",
            sender=OWNER,
            message_id=uuid.uuid4().hex,
            text=text,
            sent_at=time.time_ns() // 1_000_000,
            locale=self._locale,
        )
        self._waiting_for = inbound.message_id
        while True:
            try:
                await engine.receive(inbound)
            except StorageError as error:
                self._display.show(
                    f"{str(error).rstrip('.')}. Trying again.", at_prompt=self._at_prompt
                )
                await asyncio.sleep(RETRY_SECONDS)
            else:
                return

    async def _wait_for_reply(self) -> None:
        """Return when the line is answered, or when a person typed on meanwhile."""
        while self._waiting_for:
            self._news.clear()
            if self._typed and not self._lines.empty():
                return
            try:
                async with asyncio.timeout(QUIET_SECONDS):
                    await self._news.wait()
            except TimeoutError:
                self._waiting_for = ""  # a silent turn is an answer too
        self._draft("")
        self._free.set()


def _below(piece: Piece) -> str:
    """The buttons as commands to type, and files by name: nothing can be pressed or seen here."""
    return below(
        ((button.label, button.command) for button in piece.buttons),
        ((file.name, len(file.data)) for file in piece.attachments),
    )


def locale_of(environment: Mapping[str, str]) -> str:
    """The language the terminal is set to, such as "zh-CN"; empty when it says none."""
    names = ("LC_ALL", "LC_MESSAGES", "LANG")
    first = next((value for name in names if (value := environment.get(name, ""))), "")
    language = first.split(".")[0].split("@")[0].replace("_", "-")
    return "" if language in {"C", "POSIX"} else language


def _readable(stream: TextIO) -> bool:
    try:
        return bool(select.select([stream], [], [], 0)[0])
    except (OSError, ValueError):  # nothing this system can look at
        return False


def _create(_config: ConsoleConfig) -> Console:
    return Console(locale=locale_of(os.environ))


plugin = ChannelPlugin(name="console", config=ConsoleConfig, create=_create)
