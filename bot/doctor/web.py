"""The tools that ask the web."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bot.channel import Finding
from bot.doctor.setup import Setup

if TYPE_CHECKING:
    from bot.agent.tools.web.search import SearchService

PROBE = "weather"  # what every search service finds something for


async def check(setup: Setup) -> Sequence[Finding]:
    """Whether the web can be read and searched; nothing where it is not to be."""
    web = setup.config.tools.web
    if web.search == "off" and not web.fetch:
        return []
    from bot.agent.tools.web import setup as tools  # noqa: PLC0415 - only where it is configured

    found: list[Finding] = []
    if web.fetch:
        hosts = sorted({host for host, _ in tools.guard_of(web).internal})
        name = "web.fetches_own" if hosts else "web.fetches"
        found.append(Finding.of("ok", name, hosts=", ".join(hosts)))
    service = tools.service_of(web)
    return [*found, await _searching(service)] if service is not None else found


async def _searching(service: SearchService) -> Finding:
    """Whether a search service answers."""
    from bot.agent.tools.web import ddgs, search  # noqa: PLC0415 - only where it is configured

    if isinstance(service, ddgs.Ddgs) and not ddgs.is_installed():
        return Finding.of("error", "web.no_ddgs", package=ddgs.EXTRA)
    try:
        hits = await service.search(PROBE, 1)
    except search.SearchFailed as error:
        return Finding.of("error", "web.search_failed", why=str(error))
    if not hits:
        return Finding.of("warning", "web.finds_nothing", name=service.name, words=PROBE)
    return Finding.of("ok", "web.searches", name=service.name)
