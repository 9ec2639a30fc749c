"""The tools of the web that a configuration asks for."""

from __future__ import annotations

from collections.abc import Iterator

import structlog

from bot.agent.tools import Tool
from bot.agent.tools.web import ddgs
from bot.agent.tools.web.search import SearchService, WebSearch
from bot.agent.tools.web.services import Brave, SearXNG, Tavily
from bot.channel import reveal
from bot.config import WebConfig

log = structlog.get_logger(__name__)


def tools_of(config: WebConfig) -> Iterator[Tool]:
    """The tools, not in use yet."""
    service = service_of(config)
    if service is not None:
        if isinstance(service, ddgs.Ddgs) and not ddgs.is_installed():
            log.warning("web.search.missing", install=ddgs.EXTRA)
        yield WebSearch(service)


def service_of(config: WebConfig) -> SearchService | None:
    """Who searches the web; None when nobody does."""
    match config.search:
        case "searxng":
            return SearXNG(config.search_url)
        case "brave":
            return Brave(reveal(config.search_key), config.search_url)
        case "tavily":
            return Tavily(reveal(config.search_key), config.search_url)
        case "ddgs":
            return ddgs.Ddgs()
        case "off":
            return None
