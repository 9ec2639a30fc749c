"""What the doctor's checks find, as a person reads it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from bot.channel import Finding
from bot.cli.common import opened_database
from bot.clock import Clock, system_clock
from bot.config import Config
from bot.doctor import Setup
from bot.views.outcomes import Told, told


def setup_of(config: Config, clock: Clock = system_clock) -> Setup:
    """A configuration without channels, as the doctor looks at it."""
    return Setup(config, {}, clock, partial(opened_database, config))


async def looked(
    check: Callable[[Setup], Awaitable[Sequence[Finding]]],
    config: Config,
    clock: Clock = system_clock,
) -> list[Told]:
    """What a check says of a configuration, in English."""
    return [told(each, "en") for each in await check(setup_of(config, clock))]
