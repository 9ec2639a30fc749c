"""What `confidant doctor` says of the tools that ask the web."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from bot.channel import Finding
from bot.config import Config

if TYPE_CHECKING:
    from bot.agent.tools.web.search import SearchService

PROBE = "weather"  # what every search service finds something for


def web_findings(config: Config) -> Sequence[Finding]:
    """Whether the web can be read and searched; nothing where it is not to be."""
    web = config.tools.web
    if web.search == "off" and not web.fetch:
        return []
    from bot.agent.tools.web import setup  # noqa: PLC0415 - only where it is configured

    found: list[Finding] = []
    if web.fetch:
        hosts = sorted({host for host, _ in setup.guard_of(web).internal})
        own = f", and of this network {', '.join(hosts)}" if hosts else ""
        found.append(Finding("ok", f"web_fetch reads public addresses{own}"))
    service = setup.service_of(web)
    return [*found, _searching(service)] if service is not None else found


def _searching(service: SearchService) -> Finding:
    """Whether a search service answers."""
    from bot.agent.tools.web import ddgs, search  # noqa: PLC0415 - only where it is configured

    if isinstance(service, ddgs.Ddgs) and not ddgs.is_installed():
        fix = f"Install it: pip install '{ddgs.EXTRA}'"
        return Finding("error", "web_search: the package ddgs is not here", fix)
    try:
        hits = asyncio.run(service.search(PROBE, 1))
    except search.SearchFailed as error:
        return Finding("error", f"web_search: {error}", "See docs/tools.md and [tools.web].")
    if not hits:
        return Finding("warning", f'web_search: {service.name} finds nothing for "{PROBE}"')
    return Finding("ok", f"web_search: {service.name} answers")
