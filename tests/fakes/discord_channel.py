"""The real Discord channel on the fake server, with short waits."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from adapters.discord import DiscordConfig
from adapters.discord.account import Account, Pace
from adapters.discord.channel import Discord
from bot.channel import Engine
from tests.fakes.discord import FakeDiscord

QUICK = Pace(
    first=0.01,
    longest=0.04,
    rejected=0.02,
    identify=0.0,
    settle=0.5,
    draft_first=0.0,
    draft=0.02,
    unanswered=60.0,
)


def settings(fake: FakeDiscord, **values: Any) -> DiscordConfig:
    """A configuration for the fake server's first bot."""
    return DiscordConfig.model_validate(
        {
            "token": fake.token,
            "api_root": fake.api_root,
            "gateway_url": fake.gateway_url,
            "guilds": {"500": {}},
            **values,
        }
    )


@asynccontextmanager
async def running(
    engine: Engine, config: DiscordConfig, pace: Pace = QUICK
) -> AsyncIterator[Discord]:
    """The channel, started; stopped at the end."""
    channel = Discord(config, pace)
    await channel.start(engine)
    try:
        yield channel
    finally:
        await channel.stop()


def account(channel: Discord, name: str = "default") -> Account:
    """One of its bots."""
    return channel._accounts[name]
