"""An MCP server made with the official SDK: `python -m tests.fakes.mcp_kitchen [PORT [modern]]`.

On standard input and output, or over HTTP with a port; "modern" knows no handshake. The SDK reads
the annotations of functions, so they are no strings here.
"""

import os
import sys
import time
from pathlib import Path

import uvicorn
from mcp.server.mcpserver import Context, MCPServer
from mcp_types import METHOD_NOT_FOUND, ToolAnnotations
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

server = MCPServer("kitchen")
reading = ToolAnnotations(read_only_hint=True)


@server.tool(annotations=reading, structured_output=False)
def add(a: int, b: int) -> str:
    """Add two numbers."""
    return f"the sum is {a + b}"


@server.tool(annotations=ToolAnnotations(destructive_hint=False), structured_output=False)
def bake(degrees: int) -> str:
    """Heat the oven."""
    return f"the oven has {degrees} degrees"


@server.tool(annotations=reading, structured_output=False)
def repeat(words: str) -> str:
    """Say what it is told."""
    return words


@server.tool(annotations=reading, structured_output=False)
def fail() -> str:
    """Fail."""
    raise ValueError("no flour")


@server.tool(annotations=reading, structured_output=False)
def die(mark: str) -> str:
    """End in the middle of it."""
    Path(mark).write_text(str(os.getpid()))
    time.sleep(60)
    return "never"


@server.tool(annotations=reading, structured_output=False)
async def grow(context: Context) -> str:
    """Have one more tool."""
    server.add_tool(lambda: "new", name="fresh", description="New.", structured_output=False)
    await context.session.send_tool_list_changed()
    return "grown"


async def without_handshake(request: Request, call_next) -> Response:
    """Refuse the handshake, as a server does that has only the version without one."""
    asked = await request.json() if request.method == "POST" else {}
    if asked.get("method") == "initialize":
        error = {"code": METHOD_NOT_FOUND, "message": "no such method"}
        return JSONResponse({"jsonrpc": "2.0", "id": asked["id"], "error": error}, 404)
    return await call_next(request)


if __name__ == "__main__":
    if sys.argv[2:] == ["modern"]:
        app = server.streamable_http_app()
        app.add_middleware(BaseHTTPMiddleware, dispatch=without_handshake)
        uvicorn.run(app, port=int(sys.argv[1]), log_level="error")
    elif len(sys.argv) > 1:
        server.run("streamable-http", port=int(sys.argv[1]))
    else:
        server.run("stdio")
