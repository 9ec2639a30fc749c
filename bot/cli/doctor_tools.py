"""What `confidant doctor` says of tools: whether each MCP server and plug-in can be used."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from bot.agent.tools.mcp.listing import MAX_TOOLS, Listing, listing_of
from bot.agent.tools.plugins import installed
from bot.channel import Finding
from bot.config import Config, McpConfig


def tool_findings(config: Config) -> Sequence[Finding]:
    """Each server, connected to and asked for its list; and packages that cannot be loaded."""
    _, problems = installed()
    fix = "See docs/writing-a-tool.md. The bot goes on without it."
    found = [Finding("error", f"{package}: {problem}", fix) for package, problem in problems]
    for name, server in sorted(config.tools.mcp.items()):
        found += asyncio.run(_examine(name, server))
    return found


async def _examine(name: str, server: McpConfig) -> Sequence[Finding]:
    from bot.agent.tools.mcp import connection  # noqa: PLC0415 - it imports the SDK

    try:
        async with connection.Connection(name, server) as opened:
            offers = await opened.offers()
    except Exception as error:  # noqa: BLE001 - whatever it is, it is told
        fix = f"See [tools.mcp.{name}]. The bot goes on without it, and tries it again."
        return [Finding("error", f"{name}: {connection.why(error, server)}", fix)]
    return [*_told(name, listing_of(name, server.tools, offers))]


def _told(name: str, listing: Listing) -> Sequence[Finding]:
    asking = sum(spec.changes for _, spec in listing.tools)
    count = len(listing.tools)
    said = f"{name}: {count} tools; the person is asked before {asking} of them"
    found = [Finding("ok", said)]
    if listing.unusable:
        names = ", ".join(listing.unusable[:5])
        more = ", …" if len(listing.unusable) > 5 else ""
        said = f"{name}: left out, as their schema is none: {names}{more}"
        found.append(Finding("warning", said))
    if listing.left:
        fix = f'Choose with tools = ["…"] in [tools.mcp.{name}].'
        said = f"{name}: {listing.left} tools are left out, as at most {MAX_TOOLS} are taken"
        found.append(Finding("warning", said, fix))
    return found
