"""What `confidant doctor` says of tools: whether each MCP server and plug-in can be used."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from bot import i18n
from bot.agent.tools.mcp.listing import MAX_TOOLS, Listing, listing_of
from bot.agent.tools.plugins import installed
from bot.channel import Finding
from bot.config import Config, McpConfig


def tool_findings(config: Config) -> Sequence[Finding]:
    """Each server, connected to and asked for its list; and packages that cannot be loaded.

    Names are given away in the order in which the program does it: its own, packages, servers.
    """
    brought, problems = installed()
    fix = "See docs/writing-a-tool.md. The bot goes on without it."
    found = [Finding("error", f"{package}: {problem}", fix) for package, problem in problems]
    taken = _own_names(config)
    found += _left_out("packages", [tool.spec.name for tool in brought], taken)
    for name, server in sorted(config.tools.mcp.items()):
        listing = asyncio.run(_examine(name, server))
        if isinstance(listing, Finding):
            found.append(listing)
            continue
        found += _told(name, listing)
        found += _left_out(name, [spec.name for _, spec in listing.tools], taken)
    return found


def _own_names(config: Config) -> set[str]:
    """The names of the program's own tools, of those of the web as far as they are on."""
    own = {key.removeprefix("tool.") for key in i18n.catalog("en") if key.startswith("tool.")}
    web = {"web_fetch": config.tools.web.fetch, "web_search": config.tools.web.search != "off"}
    return {name for name in own if web.get(name, True)}


def _left_out(whose: str, names: Sequence[str], taken: set[str]) -> Sequence[Finding]:
    """What is told of tools that have the name of another one; the others' names are taken now."""
    lost = [name for name in names if name in taken]
    taken |= set(names)
    if not lost:
        return ()
    said = f"{whose}: left out, as other tools have their names: {', '.join(lost[:5])}"
    more = ", …" if len(lost) > 5 else ""
    return (Finding("warning", f"{said}{more}", "Call the server or package otherwise."),)


async def _examine(name: str, server: McpConfig) -> Listing | Finding:
    from bot.agent.tools.mcp import connection  # noqa: PLC0415 - it imports the SDK

    try:
        async with connection.Connection(name, server) as opened:
            offers = await opened.offers()
    except Exception as error:  # noqa: BLE001 - whatever it is, it is told
        fix = f"See [tools.mcp.{name}]. The bot goes on without it, and tries it again."
        return Finding("error", f"{name}: {connection.why(error, server)}", fix)
    return listing_of(name, server.tools, offers)


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
