"""The tools of the web that a configuration asks for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AsyncExitStack

import structlog

from bot.agent.tools import Tool
from bot.agent.tools.web import ddgs
from bot.agent.tools.web.browser import Browser
from bot.agent.tools.web.fetch import Reader, WebFetch
from bot.agent.tools.web.search import Brave, SearchService, SearXNG, Tavily, WebSearch
from bot.channel import reveal
from bot.config import WebConfig
from bot.errors import ConfigError
from bot.net.addresses import Guard

log = structlog.get_logger(__name__)


def tools_of(config: WebConfig, reader: Reader, stack: AsyncExitStack) -> Iterator[Tool]:
    """The tools; `stack` closes what they need.

    Raises:
        ConfigError: an internal host is none.
    """
    if config.fetch:
        browser = Browser(guard_of(config), proxy=reveal(config.proxy))
        stack.callback(browser.close)
        yield WebFetch(browser, reader)
    service = service_of(config)
    if service is not None:
        if isinstance(service, ddgs.Ddgs) and not ddgs.is_installed():
            log.warning("web.search.missing", install=ddgs.EXTRA)
        yield WebSearch(service)


def guard_of(config: WebConfig) -> Guard:
    """Which addresses may be opened.

    Raises:
        ConfigError: an internal host is none.
    """
    try:
        return Guard.of(config.internal_hosts)
    except ValueError as error:
        raise ConfigError(f"[tools.web] internal_hosts: {error}") from None


def service_of(config: WebConfig) -> SearchService | None:
    """Who searches the web; None when nobody does."""
    proxy = reveal(config.proxy)
    match config.search:
        case "searxng":
            return SearXNG(config.search_url, proxy=proxy)
        case "brave":
            return Brave(reveal(config.search_key), config.search_url, proxy=proxy)
        case "tavily":
            return Tavily(reveal(config.search_key), config.search_url, proxy=proxy)
        case "ddgs":
            return ddgs.Ddgs(proxy=proxy)
        case "off":
            return None
