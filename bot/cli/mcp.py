"""`confidant mcp`: lets another agent use the memory of a running bot."""

from __future__ import annotations

import os
from contextlib import AsyncExitStack
from typing import Any

import httpx2
from mcp.client import ClientSession
from mcp.client.streamable_http import streamable_http_client
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError

from bot import __version__
from bot.channel import reveal
from bot.cli.common import load, loop_runner
from bot.cli.main import ConfigOption
from bot.dashboard import Listening
from bot.errors import ChannelError, ConfigError
from bot.storage.files import served

KEY = "MCP_API_KEY"
SECONDS = 60.0  # that one call may take


def memory(config: ConfigOption = None) -> None:
    """Give another agent your memory over standard input and output (MCP); the bot must run.

    Set MCP_API_KEY to a key that you created on the page (Connected programs).
    """
    key = os.environ.get(KEY, "").strip()
    if not key:
        raise ConfigError(f"Set {KEY} to a key that you created on the page (Connected programs).")
    found = load(config, quiet=True).config
    page = None if reveal(found.storage.url) else served(found.storage.folder)
    url = page.url if page else Listening(found.dashboard.host, found.dashboard.port).url
    loop_runner()(_forward(f"{url}mcp", key))


async def _forward(url: str, key: str) -> None:
    headers = {"Authorization": f"Bearer {key}"}
    async with AsyncExitStack() as stack:
        http = httpx2.AsyncClient(headers=headers, timeout=SECONDS, trust_env=False)
        await stack.enter_async_context(http)
        try:
            answer = await http.post(url, json={}, headers={"Accept": "application/json"})
        except httpx2.HTTPError as error:
            raise ChannelError(f"Nothing answers at {url}: is the bot running?") from error
        if answer.status_code in {401, 403, 429}:
            raise ChannelError(f"The bot rejects the key in {KEY}. Create one on the page.")
        try:
            streams = await stack.enter_async_context(streamable_http_client(url, http_client=http))
            session = await stack.enter_async_context(ClientSession(*streams[:2]))
            await session.initialize()
        except MCPError as error:
            raise ChannelError(f"The bot at {url} does not answer as expected.") from error

        async def tools(_context: Any, _asked: Any) -> Any:
            return await session.list_tools()

        async def call(_context: Any, asked: Any) -> Any:
            return await session.call_tool(asked.name, asked.arguments)

        server = Server("confidant", version=__version__, on_list_tools=tools, on_call_tool=call)
        read, write = await stack.enter_async_context(stdio_server())
        await server.run(read, write, server.create_initialization_options())
