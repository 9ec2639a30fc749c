"""The real Telegram channel on the fake server, with short waits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from adapters.telegram import TelegramConfig
from adapters.telegram.account import Pace
from adapters.telegram.channel import Telegram
from bot.channel import Engine, Health
from bot.testing import RecordingEngine
from tests.fakes.telegram import FakeTelegram

QUICK = Pace(
    first=0.01, longest=0.04, rejected=0.02, probe=1, look=0.05, draft_first=0.01, draft=0.01
)


class WatchingEngine(RecordingEngine):
    """A `RecordingEngine` whose health can be waited for, and which keeps every report."""

    def __init__(self) -> None:
        super().__init__()
        self.reports: list[tuple[str, Health, str]] = []
        self._reported = asyncio.Event()

    def report(self, channel: str, account: str, health: Health, detail: str = "") -> None:
        """Keep every report, in order."""
        super().report(channel, account, health, detail)
        self.reports.append((account, health, detail))
        self._reported.set()

    def said(self, health: Health, account: str = "default") -> list[str]:
        """The details of the reports of one state."""
        return [d for name, state, d in self.reports if (name, state) == (account, health)]

    async def wait_said(self, health: Health, account: str = "default") -> str:
        """The detail of the newest report of this state, once there is one."""
        async with asyncio.timeout(60):
            while not self.said(health, account):
                self._reported.clear()
                await self._reported.wait()
        return self.said(health, account)[-1]


def settings(fake: FakeTelegram, **values: Any) -> TelegramConfig:
    """A configuration for the fake server's first bot."""
    return TelegramConfig.model_validate(
        {"token": fake.token, "api_root": fake.url, "poll_timeout": 20, **values}
    )


@asynccontextmanager
async def running(engine: Engine, config: TelegramConfig) -> AsyncIterator[Telegram]:
    """The channel, started; stopped at the end."""
    channel = Telegram(config, QUICK)
    await channel.start(engine)
    try:
        yield channel
    finally:
        await channel.stop()
