"""A connection to one MCP server, through the official SDK."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import signal
import sys
import urllib.request
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Self, cast

import anyio
import httpx2
import mcp_types as types
import structlog
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client import ClientSession, IncomingMessage, Transport
from mcp.client.stdio import get_default_environment
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter
from pydantic import ValidationError
from yarl import URL

from bot.agent.tools.mcp.servers import UNUSABLE, Offer, reduced
from bot.channel import reveal
from bot.config import McpConfig
from bot.errors import ToolError
from bot.net.proxy import choose

MAX_MESSAGES = 5_000  # within a window …
MAX_BYTES = 40_000_000  # … and of all of them
WINDOW = 10.0  # seconds


class Traffic:
    """Counts what a server sends, and notes why nothing more comes."""

    def __init__(self) -> None:
        self.ended = asyncio.Event()
        self.reason = ""
        self.size = 0  # bytes, all in all
        self._began = 0.0
        self._messages = self._bytes = 0  # since then

    def end(self, reason: str) -> None:
        """Say that the connection is of no use any more; the first reason counts."""
        self.reason = self.reason or reason
        self.ended.set()

    def is_flood(self, size: int, messages: int = 1) -> bool:
        """Count what came; True, and the end, when it is more than a window may hold."""
        now = asyncio.get_running_loop().time()
        if now - self._began > WINDOW:
            self._began, self._messages, self._bytes = now, 0, 0
        self.size += size
        self._messages += messages
        self._bytes += size
        if self._messages > MAX_MESSAGES or self._bytes > MAX_BYTES:
            most = f"{MAX_MESSAGES} messages or {MAX_BYTES} bytes in {WINDOW:g} s"
            self.end(f"it sent more than {most}")
        return self.ended.is_set()


# The SDK reads a message's parts on the event loop: about 0.1 s for the worst of this size.
MAX_LINE = 2_000_000  # bytes of one message
LARGE = 64_000  # bytes of a message that is not parsed on the event loop
GRACE = 2.0  # seconds to end by itself, and once more after it was asked to

Received = SessionMessage | Exception
Streams = tuple[MemoryObjectReceiveStream[Received], MemoryObjectSendStream[SessionMessage]]


@asynccontextmanager
async def stdio(
    command: str, arguments: Sequence[str], environment: Mapping[str, str], traffic: Traffic
) -> AsyncGenerator[Streams]:
    """Start a server; its `traffic` ends once it says nothing any more. At the end it is stopped.

    It gets a few variables of ours, such as PATH, and what `environment` says: no key of the bot's.

    Raises:
        OSError: it cannot be started.
    """
    process = await asyncio.create_subprocess_exec(
        command,
        *arguments,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={**get_default_environment(), **environment},
        start_new_session=os.name == "posix",
        limit=MAX_LINE,
    )
    arrived, incoming = anyio.create_memory_object_stream[Received](0)
    outgoing, to_send = anyio.create_memory_object_stream[SessionMessage](0)
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(_read, process, arrived, traffic)
            group.start_soon(_write, process, to_send)
            try:
                yield incoming, outgoing
            finally:
                with anyio.CancelScope(shield=True):
                    await _stop(process)
                group.cancel_scope.cancel()
    finally:
        with anyio.CancelScope(shield=True):
            await _drain(process)
        for stream in (arrived, incoming, outgoing, to_send):
            stream.close()


async def _read(
    process: asyncio.subprocess.Process,
    arrived: MemoryObjectSendStream[Received],
    traffic: Traffic,
) -> None:
    try:
        with contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            async with arrived:
                while process.stdout is not None and (line := await process.stdout.readline()):
                    if traffic.is_flood(len(line)):
                        return
                    if line.strip():
                        await arrived.send(await _parsed(line))
    except ValueError:  # there is no use in the rest of such a line
        traffic.end(f"it sent a message of more than {MAX_LINE} bytes")
    finally:
        traffic.ended.set()


async def _parsed(line: bytes) -> Received:
    try:
        if len(line) > LARGE:
            message = await asyncio.to_thread(jsonrpc_message_adapter.validate_json, line)
        else:
            message = jsonrpc_message_adapter.validate_json(line)
    except ValueError:
        return ValueError("no message of the protocol")  # its own words may be anybody's
    return SessionMessage(message)


async def _write(
    process: asyncio.subprocess.Process, to_send: MemoryObjectReceiveStream[SessionMessage]
) -> None:
    with contextlib.suppress(OSError, anyio.ClosedResourceError):
        async for item in to_send:
            if process.stdin is not None:
                data = item.message.model_dump_json(by_alias=True, exclude_unset=True)
                process.stdin.write(f"{data}\n".encode())
                await process.stdin.drain()


async def _drain(process: asyncio.subprocess.Process) -> None:
    """Read what is left of an ended server's output: the pipe is open until its end was seen."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(GRACE):
            while process.stdout is not None and await process.stdout.read(LARGE):
                pass


async def _stop(process: asyncio.subprocess.Process) -> None:
    """End a server and whatever it started: it is asked first, and then no more."""
    if process.stdin is not None:
        process.stdin.close()
    for ask in (signal.SIGTERM, None):
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), GRACE)
        _signal(process, ask)
        if process.returncode is not None:
            return
    await process.wait()


def _signal(process: asyncio.subprocess.Process, ask: signal.Signals | None) -> None:
    """Let its whole group end; also when it has ended itself, for what it left behind."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if sys.platform == "win32":
            process.kill()
        else:
            os.killpg(
                process.pid,
                signal.SIGKILL if ask is None or process.returncode is not None else ask,
            )


CONNECT_TIMEOUT = 30.0  # seconds until a server has answered the first time
HTTP_TIMEOUT = 30.0  # seconds for each step but reading …
SILENCE = 300.0  # … which may take as long as this, or as a call
MAX_PAGES = 200  # of one list …
MAX_OFFERS = 10_000  # … tools …
MAX_LIST = 8_000_000  # … and bytes
MAX_SAID = 1_000  # characters of an error that a server tells
_LOST = (anyio.BrokenResourceError, anyio.ClosedResourceError, httpx2.HTTPError, OSError)

log = structlog.get_logger(__name__)

# The SDK quotes in its log what servers send.
for _name in ("mcp", "httpx2"):
    logging.getLogger(_name).setLevel(logging.CRITICAL + 1)


class McpConnection:
    """Open for the length of an `async with`, by one task.

    `changed` is set when the server has another list. `traffic` says when it is of no use any more.
    """

    def __init__(self, name: str, config: McpConfig) -> None:
        self.traffic = Traffic()
        self.changed = asyncio.Event()
        self._name = name
        self._config = config
        self._stack = AsyncExitStack()
        self._session: ClientSession | None = None

    async def __aenter__(self) -> Self:
        """Connect.

        Raises:
            Exception: whatever the SDK or the system has against it.
        """
        async with AsyncExitStack() as stack, asyncio.timeout(CONNECT_TIMEOUT):
            transport = await self._transport(stack)
            dispatcher = _Dispatcher(*await stack.enter_async_context(transport))
            session = _Session(dispatcher=dispatcher, message_handler=self._heard)
            await stack.enter_async_context(session)
            await _greet(session)
            self._session = session
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_exc: object) -> None:
        self._session = None
        await self._stack.aclose()

    async def offers(self) -> list[Offer]:
        """The tools the server offers now, as far as a list is read.

        Raises:
            Exception: it does not say.
        """
        found: list[Offer] = []
        cursors: set[str | None] = {None}
        cursor: str | None = None
        before = self.traffic.size
        async with asyncio.timeout(CONNECT_TIMEOUT):
            while True:
                page, cursor = await self._page(cursor)
                found += page
                if not cursor:
                    return found
                is_long = len(found) >= MAX_OFFERS or self.traffic.size - before > MAX_LIST
                if is_long or cursor in cursors or len(cursors) >= MAX_PAGES:
                    log.warning("mcp.list_cut", server=self._name, tools=len(found))
                    return found
                cursors.add(cursor)

    async def _page(self, cursor: str | None) -> tuple[list[Offer], str | None]:
        """A part of the list, and where the next one begins."""
        asked = types.PaginatedRequestParams(cursor=cursor)
        page = await self._open().list_tools(params=asked)
        return [_offer(tool) for tool in page.tools], page.next_cursor

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> str:
        """Call a tool by its name there; what it answers, as words.

        Raises:
            ToolError: the server says that it failed, or it was lost in mid-call.
        """
        try:
            result = await self._open().call_tool(tool, dict(arguments))
        except MCPError as error:
            if error.code == types.CONNECTION_CLOSED:
                raise self._lost() from None
            if self._config.url and error.code == types.INVALID_REQUEST:  # it was started anew
                self.traffic.end("it was started anew")
            said = error.message[:MAX_SAID]
            raise ToolError(f"the tool server {self._name} refuses: {said}") from None
        except _LOST:
            raise self._lost() from None
        except (ValidationError, RuntimeError):
            raise ToolError(f"the tool server {self._name} answered, but with no result") from None
        words = "\n".join(
            each.text for each in result.content if isinstance(each, types.TextContent)
        )
        if result.is_error:
            raise ToolError(f"the tool server {self._name} says: {words[:MAX_SAID]}")
        return words

    def _lost(self) -> ToolError:
        self.traffic.end("it was lost in the middle of a call")
        return ToolError(
            f"the tool server {self._name} was lost in the middle of this: whether it was done is "
            "not known. It is being started again; look what came of it before you call it again."
        )

    def _open(self) -> ClientSession:
        if self._session is None:
            raise anyio.ClosedResourceError
        return self._session

    async def _transport(self, stack: AsyncExitStack) -> Transport:
        config = self._config
        if config.command:
            environment = {name: reveal(value) for name, value in config.env.items()}
            return stdio(config.command, config.args, environment, self.traffic)
        headers = {name: reveal(value) for name, value in config.headers.items()}
        timeout = httpx2.Timeout(HTTP_TIMEOUT, read=max(SILENCE, config.timeout))
        http = httpx2.AsyncClient(
            headers=headers,
            timeout=timeout,
            event_hooks={"response": [self._bound]},
            proxy=_proxy(config.url),
            trust_env=False,
        )
        return streamable_http_client(config.url, http_client=await stack.enter_async_context(http))

    async def _bound(self, response: httpx2.Response) -> None:
        """Let no body be read without end; the SDK bounds each event of a stream of events."""
        is_stream = response.headers.get("content-type", "").startswith("text/event-stream")
        if isinstance(response.stream, httpx2.AsyncByteStream):
            most = math.inf if is_stream else MAX_LINE
            response.stream = _Bounded(response.stream, self.traffic, most)

    async def _heard(self, message: IncomingMessage) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            self.changed.set()


def _proxy(url: str) -> str | None:
    """The environment's proxy for a server; the SDK's own reading of it spares no local one."""
    found = choose(URL(url), "", urllib.request.getproxies())
    return found.with_login if found is not None else None


class _Session(ClientSession):
    """The SDK's session, without checking results against the schema that the server gave.

    The SDK does so on the event loop, where one regular expression may take forever; a model reads
    the results, and needs no schema.
    """

    async def validate_tool_result(self, name: str, result: types.CallToolResult) -> None:
        """Accept every result."""


async def _greet(session: ClientSession) -> None:
    """Agree on a version: by the handshake, after which a server tells of changes by itself.

    One that knows the newest version alone has none, and is asked what it speaks instead.

    Raises:
        MCPError: it refuses both.
    """
    try:
        await session.initialize()
    except MCPError as refused:
        if refused.code == types.CONNECTION_CLOSED:
            raise
        try:
            await session.discover()
        except (MCPError, ValidationError, RuntimeError):
            raise refused from None


class _Bounded(httpx2.AsyncByteStream):
    """A body that counts as traffic, and is an error once there is too much of it."""

    def __init__(self, stream: httpx2.AsyncByteStream, traffic: Traffic, most: float) -> None:
        self._stream = stream
        self._traffic = traffic
        self._most = most

    async def __aiter__(self) -> AsyncGenerator[bytes]:
        size = 0
        async for chunk in self._stream:
            size += len(chunk)
            ends = chunk.count(b"\n\n") + chunk.count(b"\r\n\r\n")
            if self._traffic.is_flood(len(chunk), ends):
                raise httpx2.ReadError("the server sends too much")
            if size > self._most:
                raise httpx2.ReadError("the answer is too long")
            yield chunk

    async def aclose(self) -> None:
        """See `httpx2.AsyncByteStream`."""
        await self._stream.aclose()


class _Dispatcher(JSONRPCDispatcher[Any]):
    """The SDK's, which hands on of an answer only what is used of it.

    The SDK checks every part of it on the event loop, which takes a second and more for some.
    """

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, *args: Any, **kwargs: Any
    ) -> dict[str, Any]:
        """See `JSONRPCDispatcher`."""
        raw = await super().send_raw_request(method, params, *args, **kwargs)
        return await asyncio.to_thread(reduced, method, raw)


def _offer(tool: types.Tool) -> Offer:
    hints = tool.annotations
    schema = None if tool.input_schema == UNUSABLE else tool.input_schema
    changes = hints is None or hints.read_only_hint is not True
    return Offer(tool.name, tool.description or "", schema, changes)


def why(error: BaseException, config: McpConfig) -> str:
    """The reason a connection failed, in a sentence that holds no secret."""
    if isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        return why(group.exceptions[0], config)
    place = config.command or "the url"
    reason = f"it failed ({type(error).__name__})"
    match error:
        case FileNotFoundError():
            reason = f"the program {place} is not there; is it installed, and in PATH?"
        case PermissionError():
            reason = f"the program {place} may not be run by this user"
        case TimeoutError():
            reason = f"{place} did not answer within {CONNECT_TIMEOUT:g} s"
        case httpx2.HTTPStatusError():
            reason = f"the url answers with HTTP {error.response.status_code}"
        case httpx2.HTTPError():
            reason = "the url cannot be reached"
        case MCPError() if error.code == types.CONNECTION_CLOSED:
            reason = f"{place} ended, or does not speak the protocol; try it in a terminal"
        case MCPError():
            reason = f"{place} refuses (code {error.code})"
        case _:
            pass
    return reason
