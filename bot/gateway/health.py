"""How each connection is doing, as its channel last said."""

from __future__ import annotations

import structlog

from bot.channel import Health

log = structlog.get_logger(__name__)


class HealthBoard:
    """The latest word of each connection, for `/status` and /readyz."""

    def __init__(self) -> None:
        self._latest: dict[tuple[str, str], tuple[Health, str]] = {}

    def report(self, channel: str, account: str, health: Health, detail: str) -> None:
        """Keep it, and log when it changed."""
        before = self._latest.get((channel, account))
        self._latest[channel, account] = (health, detail)
        if before is None or before[0] is not health:
            log.info(
                "channel.health",
                channel=channel,
                account=account,
                health=health.value,
                detail=detail,
            )

    def all(self) -> list[tuple[str, str, Health, str]]:
        """Channel, account, health and detail of each connection, in order of name."""
        return [(*key, *value) for key, value in sorted(self._latest.items())]
