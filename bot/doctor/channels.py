"""The channels that are set up, each of which looks at itself."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from bot.channel import Channel, ChannelPlugin, CommandMenu, Doctor, Finding
from bot.commands.menu import menus
from bot.doctor.setup import Setup
from bot.errors import ConfidantError

SECONDS: Final = 30.0  # that a channel may take


def named(wanted: str, plugins: Mapping[str, ChannelPlugin]) -> str:
    """The channel that is meant.

    Raises:
        ConfidantError: none or several could be.
    """
    name = wanted.lower().replace("-", "_")
    found = [name] if name in plugins else [each for each in plugins if each.startswith(name)]
    if len(found) != 1:
        raise ConfidantError(f'There is no channel "{wanted}": there are {", ".join(plugins)}.')
    return found[0]


def set_up(setup: Setup) -> list[str]:
    """The channels that run and can be checked."""
    return [
        name
        for name in setup.plugins
        if not _off(setup, name) and isinstance(made(setup, name), Doctor)
    ]


async def examine(setup: Setup, name: str) -> Sequence[Finding]:
    """What a channel finds out about itself, or why it does not run."""
    if off := _off(setup, name):
        return [Finding.of("error", off, name=name)]
    return await examined(made(setup, name))


async def examined(channel: Channel) -> Sequence[Finding]:
    """What a channel that was not started finds out about itself."""
    if not isinstance(channel, Doctor):
        return [Finding.of("ok", "channel.nothing")]
    if isinstance(channel, CommandMenu):
        await channel.publish_commands(menus())  # what the platform's menu is compared with
    try:
        async with asyncio.timeout(SECONDS):
            return await channel.examine()
    except TimeoutError:
        return [Finding.of("error", "channel.slow", seconds=int(SECONDS))]


def _off(setup: Setup, name: str) -> str:
    """Why a channel does not run, as a key; empty when it does."""
    section = setup.config.channels.get(name)
    if not section.enabled:
        return "channel.off"
    return "" if setup.plugins[name].ready(section) else "channel.not_set_up"


def made(setup: Setup, name: str) -> Channel:
    """A channel as it is configured, not started."""
    return setup.plugins[name].create(setup.config.channels.get(name))
