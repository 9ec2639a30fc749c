"""`/mcp`: memory as tools for other agents, through the official SDK's server.

Each connection has the key of a program, and sees what its person sees. What a program writes is
noted as that program's, never as the person's own words.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, MutableMapping
from typing import TYPE_CHECKING, Any, Final

import structlog
from aiohttp import web

from bot import __version__
from bot.agent.tools import ToolContext
from bot.agent.tools.memory import MAX_TEXT
from bot.agent.tools.toolbox import Toolbox
from bot.dashboard.pages import Pages, Visit, route
from bot.memory import note_store
from bot.memory.notes import Notes
from bot.messages import ToolResult, ToolUse
from bot.shares import TALKS, Pool
from bot.storage import Database

if TYPE_CHECKING:
    import mcp_types as types
    from mcp.server.context import ServerRequestContext
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

PATH: Final = "/mcp"
WRITE: Final = "memory_write"
TOOLS: Final = ("memory_search", "memory_get", WRITE, "transcript_search")
WRITES: Final = "Keep one self-contained statement in today's note, marked as this program's."
NO_TOOL: Final = f"there is no tool by that name; the tools are: {', '.join(TOOLS)}."
WRITE_SCHEMA: Final = {
    "type": "object",
    "properties": {"text": {"type": "string", "minLength": 1, "maxLength": MAX_TEXT}},
    "required": ["text"],
}
FORGOTTEN: Final = "something was forgotten meanwhile; ask again"

Message = MutableMapping[str, Any]

log = structlog.stdlib.get_logger(__name__)


class McpPages(Pages):
    """The server, made when the first program calls."""

    def __init__(self, toolbox: Toolbox, notes: Notes, database: Database) -> None:
        self._toolbox = toolbox
        self._notes = notes
        self._database = database
        self._pool = Pool(TALKS)
        self._manager: asyncio.Future[StreamableHTTPSessionManager] | None = None
        self._running: asyncio.Task[None] | None = None
        self._ends = asyncio.Event()

    async def stop(self) -> None:
        """End the server, if there is one."""
        self._ends.set()
        if self._running is not None:
            await self._running

    # --- HTTP -------------------------------------------------------------------------------------

    @route("DELETE", PATH, shared=True)
    @route("GET", PATH, shared=True)
    @route("POST", PATH, shared=True)
    async def _serve(self, visit: Visit) -> web.StreamResponse:
        request = visit.request
        async with self._pool.place(visit.visitor.name):
            manager = await self._server()
            body, response = await request.read(), None
            scope = {
                "type": "http",
                "asgi": {"version": "3.0"},
                "http_version": "1.1",
                "method": request.method,
                "scheme": request.scheme,
                "path": PATH,
                "raw_path": PATH.encode(),
                "root_path": "",
                "query_string": request.query_string.encode(),
                "headers": [(name.lower(), value) for name, value in request.raw_headers],
                "visit": visit,
            }
            is_read = asyncio.Event()

            async def receive() -> Message:
                if is_read.is_set():  # whoever asked is there until they are answered
                    await asyncio.get_running_loop().create_future()
                is_read.set()
                return {"type": "http.request", "body": body, "more_body": False}

            async def send(message: Message) -> None:
                nonlocal response
                if message["type"] == "http.response.start":
                    response = web.Response(status=message["status"])
                    for name, value in message["headers"]:
                        response.headers[name.decode()] = value.decode()
                elif response is not None:
                    held = response.body if isinstance(response.body, bytes) else b""
                    response.body = held + message.get("body", b"")

            await manager.handle_request(scope, receive, send)
            return response or web.Response(status=500)

    async def _server(self) -> StreamableHTTPSessionManager:
        if self._manager is None:
            self._manager = asyncio.get_running_loop().create_future()
            self._running = asyncio.create_task(self._run(self._manager))
        return await asyncio.shield(self._manager)

    async def _run(self, made: asyncio.Future[StreamableHTTPSessionManager]) -> None:
        try:
            server, manager_of = await asyncio.to_thread(_sdk)
            app = server(
                "confidant",
                version=__version__,
                on_list_tools=self._list,
                on_call_tool=self._call,
            )
            manager = manager_of(app, json_response=True, stateless=True)
            async with manager.run():
                made.set_result(manager)
                await self._ends.wait()
        except Exception as error:
            log.exception("page.mcp_failed")
            self._manager = None  # the next call tries again
            if not made.done():
                made.set_exception(error)

    # --- tools ------------------------------------------------------------------------------------

    async def _list(
        self, context: ServerRequestContext[Any, Any], _asked: object
    ) -> types.ListToolsResult:
        import mcp_types as types  # noqa: PLC0415 - loaded with the server

        conversation = _visit_of(context).conversation
        found = self._toolbox.offered((conversation.rights,), conversation.view)
        return types.ListToolsResult(
            tools=[
                types.Tool(
                    name=spec.name,
                    description=WRITES if spec.name == WRITE else spec.description,
                    input_schema=WRITE_SCHEMA if spec.name == WRITE else dict(spec.schema),
                )
                for spec in found.specs
                if spec.name in TOOLS
            ]
        )

    async def _call(
        self, context: ServerRequestContext[Any, Any], asked: types.CallToolRequestParams
    ) -> types.CallToolResult:
        import mcp_types as types  # noqa: PLC0415 - loaded with the server

        found = await self._use(_visit_of(context), asked.name, dict(asked.arguments or {}))
        told = types.TextContent(type="text", text=found.text)
        return types.CallToolResult(content=[told], is_error=found.is_error)

    async def _use(self, visit: Visit, name: str, given: dict[str, Any]) -> ToolResult:
        visitor, conversation = visit.visitor, visit.conversation
        if name not in TOOLS:
            return ToolResult("", NO_TOOL, is_error=True)
        if name == WRITE:
            text = given.get("text")
            words = f"{visitor.program}: {text}" if isinstance(text, str) and text.strip() else ""
            given = {"text": words, "untrusted": True}
        async with self._notes.watching(conversation.view) as watch:
            context = ToolContext(
                conversation.view,
                f"{visitor.name}/{visitor.key}",
                visit.at(visit.now),
                watch=watch,
                rights=(conversation.rights,),
            )
            result = await self._toolbox.run(ToolUse("mcp", name, given), context)
            if await self._database.read(lambda tx: note_store.heard_forgetting(tx, watch)):
                return ToolResult("", FORGOTTEN, is_error=True)
        return result


def _visit_of(context: ServerRequestContext[Any, Any]) -> Visit:
    asked: Any = context.request  # as the SDK wraps it
    return asked.scope["visit"]


def _sdk() -> tuple[Callable[..., Any], Callable[..., StreamableHTTPSessionManager]]:
    """The SDK's server; loading it takes half a second."""
    from mcp.server.lowlevel import Server  # noqa: PLC0415 - only where a program calls
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager  # noqa: PLC0415 - see above

    return Server, StreamableHTTPSessionManager
