"""The time zone the program lives in."""

from __future__ import annotations

from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import structlog
import tzlocal

from bot.config import Config

log = structlog.get_logger(__name__)


def local_zone(config: Config) -> ZoneInfo:
    """The configured time zone, or this machine's own."""
    if config.agent.timezone:
        return ZoneInfo(config.agent.timezone)
    try:
        return tzlocal.get_localzone()
    except (ZoneInfoNotFoundError, ValueError):
        log.warning("clock.no_zone", used="UTC")
        return ZoneInfo("UTC")
