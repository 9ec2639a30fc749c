"""A connection to one MCP server, through the official SDK."""

from __future__ import annotations

import asyncio
import contextlib
import logging
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
import orjson
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

from bot.agent.tools.mcp.listing import Offer, offers_in
from bot.channel import reveal
from bot.config import McpConfig
from bot.errors import ToolError
from bot.net.proxy import choose

MAX_MESSAGES = 5_000  # within a window
WINDOW = 10.0  # seconds


class Flood:
    """Counts messages; more than a window may hold are a flood."""

    def __init__(self) -> None:
        self._began = 0.0
        self._count = 0

    def is_over(self, now: float) -> bool:
        """Count one more, at a time in seconds; True when it is one too many."""
        if now - self._began > WINDOW:
            self._began, self._count = now, 0
        self._count += 1
        return self._count > MAX_MESSAGES


MAX_LINE = 8_000_000  # bytes of one message
LARGE = 64_000  # bytes of a message that is not parsed on the event loop
GRACE = 2.0  # seconds to end by itself, and once more after it was asked to

Received = SessionMessage | Exception
Streams = tuple[MemoryObjectReceiveStream[Received], MemoryObjectSendStream[SessionMessage]]


@asynccontextmanager
async def stdio(
    command: str, arguments: Sequence[str], environment: Mapping[str, str], ended: asyncio.Event
) -> AsyncGenerator[Streams]:
    """Start a server; `ended` is set once it says nothing any more. At the end it is stopped.

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
            group.start_soon(_read, process, arrived, ended)
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
    ended: asyncio.Event,
) -> None:
    flood = Flood()
    try:
        with contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, ValueError):
            async with arrived:
                # A line beyond the limit is a ValueError: there is no use in the rest.
                while process.stdout is not None and (line := await process.stdout.readline()):
                    if flood.is_over(asyncio.get_running_loop().time()):
                        return
                    if line.strip():
                        await arrived.send(await _parsed(line))
    finally:
        ended.set()


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
MAX_PAGES = 200  # of one list
MAX_RESULT = 1_000_000  # characters; what is beyond is not kept either
MAX_SAID = 1_000  # characters of an error that a server tells
_LOST = (anyio.BrokenResourceError, anyio.ClosedResourceError, httpx2.HTTPError, OSError)

# The SDK quotes in its log what servers send.
for _name in ("mcp", "httpx2"):
    logging.getLogger(_name).setLevel(logging.CRITICAL + 1)


class Connection:
    """Open for the length of an `async with`, by one task.

    `ended` is set once it is of no use any more, `changed` when the server has another list.
    """

    def __init__(self, name: str, config: McpConfig) -> None:
        self.ended = asyncio.Event()
        self.changed = asyncio.Event()
        self._name = name
        self._config = config
        self._stack = AsyncExitStack()
        self._session: ClientSession | None = None
        self._dispatcher: JSONRPCDispatcher[Any] | None = None

    async def __aenter__(self) -> Self:
        """Connect.

        Raises:
            Exception: whatever the SDK or the system has against it.
        """
        async with AsyncExitStack() as stack, asyncio.timeout(CONNECT_TIMEOUT):
            transport = await self._transport(stack)
            dispatcher = JSONRPCDispatcher(*await stack.enter_async_context(transport))
            session = _Session(dispatcher=dispatcher, message_handler=self._heard)
            await stack.enter_async_context(session)
            await _greet(session)
            self._session, self._dispatcher = session, dispatcher
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_exc: object) -> None:
        self._session = self._dispatcher = None
        await self._stack.aclose()

    async def offers(self) -> list[Offer]:
        """What the server offers now.

        Raises:
            Exception: it does not say.
        """
        found: list[Offer] = []
        cursor: str | None = None
        async with asyncio.timeout(CONNECT_TIMEOUT):
            for _ in range(MAX_PAGES):
                page, cursor = await self._page(cursor)
                found += page
                if not cursor:
                    break
        return found

    async def _page(self, cursor: str | None) -> tuple[list[Offer], str | None]:
        """A part of the list, and where the next one begins.

        The SDK refuses a list with one schema that is none; then it is read as it came.
        """
        asked = types.PaginatedRequestParams(cursor=cursor)
        try:
            page = await self._open().list_tools(params=asked)
        except ValidationError:
            if self._dispatcher is None:
                raise
            params = {"cursor": cursor} if cursor else None
            raw = await self._dispatcher.send_raw_request("tools/list", params)
            after = raw.get("nextCursor")
            return offers_in(raw.get("tools")), after if isinstance(after, str) else None
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
                self.ended.set()
            said = error.message[:MAX_SAID]
            raise ToolError(f"the tool server {self._name} refuses: {said}") from None
        except _LOST:
            raise self._lost() from None
        except (ValidationError, RuntimeError):
            raise ToolError(f"the tool server {self._name} answered, but with no result") from None
        words = words_of(result)[:MAX_RESULT]
        if result.is_error:
            raise ToolError(f"the tool server {self._name} says: {words[:MAX_SAID]}")
        return words

    def _lost(self) -> ToolError:
        self.ended.set()
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
            return stdio(config.command, config.args, environment, self.ended)
        headers = {name: reveal(value) for name, value in config.headers.items()}
        timeout = httpx2.Timeout(HTTP_TIMEOUT, read=max(SILENCE, config.timeout))
        http = httpx2.AsyncClient(
            headers=headers,
            timeout=timeout,
            event_hooks={"response": [_bound]},
            proxy=_proxy(config.url),
            trust_env=False,
        )
        return streamable_http_client(config.url, http_client=await stack.enter_async_context(http))

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


async def _bound(response: httpx2.Response) -> None:
    """Let no body be read without end; the SDK bounds only the events of a stream."""
    is_json = response.headers.get("content-type", "").startswith("application/json")
    if is_json and isinstance(response.stream, httpx2.AsyncByteStream):
        response.stream = _Bounded(response.stream)


class _Bounded(httpx2.AsyncByteStream):
    """A body that is an error once it is too long."""

    def __init__(self, stream: httpx2.AsyncByteStream) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncGenerator[bytes]:
        size = 0
        async for chunk in self._stream:
            size += len(chunk)
            if size > MAX_LINE:
                raise httpx2.ReadError("the answer is too long")
            yield chunk

    async def aclose(self) -> None:
        """See `httpx2.AsyncByteStream`."""
        await self._stream.aclose()


def _offer(tool: types.Tool) -> Offer:
    hints = tool.annotations
    return Offer(
        tool.name,
        tool.description or "",
        tool.input_schema,
        changes=hints is None or hints.read_only_hint is not True,
    )


def words_of(result: types.CallToolResult) -> str:
    """What a tool answered, as words: of pictures and the like, that they came."""
    parts = [_words(block) for block in result.content]
    if not parts and result.structured_content is not None:
        parts = [orjson.dumps(result.structured_content).decode()]
    return "\n".join(parts)


def _words(block: types.ContentBlock) -> str:
    match block:
        case types.TextContent():
            return block.text
        case types.ImageContent() | types.AudioContent():
            return f"[{block.type}, {block.mime_type}: not shown]"
        case types.ResourceLink():
            return f"[{block.name}: {block.uri}]"
        case types.EmbeddedResource():
            held = block.resource
            return (
                held.text if isinstance(held, types.TextResourceContents) else "[a file: not shown]"
            )


def why(error: BaseException, config: McpConfig) -> str:
    """What stands in the way of a connection, in a sentence that holds no secret."""
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
