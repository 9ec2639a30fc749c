"""Tools: whether each MCP server and plug-in can be used."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from bot import i18n
from bot.agent.tools.mcp.listing import MAX_TOOLS, Listing, listing_of
from bot.agent.tools.plugins import installed
from bot.channel import Finding
from bot.config import Config, McpConfig
from bot.doctor.setup import Setup

MOST_NAMED: Final = 5  # of a list of names


async def check(setup: Setup) -> Sequence[Finding]:
    """Each server, connected to and asked for its list; and packages that cannot be loaded.

    Names are given away in the order in which the program does it: its own, packages, servers.
    """
    config = setup.config
    brought, problems = installed()
    found = [
        Finding.of("error", "tools.broken", package=package, why=problem)
        for package, problem in problems
    ]
    taken = _own_names(config)
    found += _left_out("packages", [tool.spec.name for tool in brought], taken)
    for name, server in sorted(config.tools.mcp.items()):
        listing = await _examine(name, server)
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
    return (Finding.of("warning", "tools.same_names", whose=whose, names=_first(lost)),)


def _first(names: Sequence[str]) -> str:
    return ", ".join(names[:MOST_NAMED]) + (", …" if len(names) > MOST_NAMED else "")


async def _examine(name: str, server: McpConfig) -> Listing | Finding:
    from bot.agent.tools.mcp import connection  # noqa: PLC0415 - it imports the SDK

    try:
        async with connection.Connection(name, server) as opened:
            offers = await opened.offers()
    except Exception as error:  # noqa: BLE001 - whatever it is, it is told
        return Finding.of("error", "tools.server", name=name, why=connection.why(error, server))
    return listing_of(name, server.tools, offers)


def _told(name: str, listing: Listing) -> Sequence[Finding]:
    asking = sum(spec.changes for _, spec in listing.tools)
    count = len(listing.tools)
    found = [Finding.of("ok", "tools.offered", name=name, count=count, asking=asking)]
    if listing.unusable:
        names = _first(listing.unusable)
        found.append(Finding.of("warning", "tools.unusable", name=name, names=names))
    if listing.left:
        left, most = listing.left, MAX_TOOLS
        found.append(Finding.of("warning", "tools.too_many", name=name, count=left, most=most))
    return found
