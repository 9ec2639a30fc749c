"""A server that is a program of ours: JSON-RPC over its standard input and output, within bounds.

The SDK's own transport reads a line however long it gets, and shows what the server writes to
standard error. Here a line that is too long, or too many of them, end the connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client.stdio import get_default_environment
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from bot.agent.tools.mcp.flood import Flood

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
