"""The one list of what is looked at, in the order in which it is told."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from bot.channel import Finding
from bot.doctor import (
    backups,
    channels,
    left_over,
    limits,
    memory,
    network,
    services,
    storage,
    urgent,
)
from bot.doctor.setup import Setup
from bot.errors import ConfidantError


@dataclass(frozen=True, slots=True)
class Check:
    """Something that is looked at."""

    name: str
    look: Callable[[Setup], Awaitable[Sequence[Finding]]]


@dataclass(frozen=True, slots=True)
class Found:
    """What a check or a channel found, by its name."""

    check: str
    findings: Sequence[Finding]


CHECKS: Final = (
    Check("storage", storage.check),
    Check("backups", backups.check),
    Check("clock", network.check_clock),
    Check("limits", limits.check),
    Check("page", network.check_page),
    Check("model", services.check_models),
    Check("memory", memory.check),
    Check("tools", services.check_tools),
    Check("speech", services.check_speech),
    Check("tokens", services.check_tokens),
    Check("messages", left_over.check),
    Check("connections", urgent.check),
    Check("web", services.check_web),
)


async def examine(setup: Setup, channel: str = "") -> AsyncIterator[Found]:
    """Look at everything, or only at a channel, and say what each came to.

    Raises:
        ConfidantError: there is no such channel.
    """
    if channel:
        name = channels.named(channel, setup.plugins)
        yield Found(name, await channels.examine(setup, name))
        return
    for check in CHECKS:
        findings = await _looked(check, setup)
        if any(each.id in storage.BLOCKING for each in findings):
            setup = replace(setup, is_usable=False)
        yield Found(check.name, findings)
    names = channels.set_up(setup)
    if not names:
        yield Found("channels", [Finding.of("ok", "channel.none")])
    for name in names:
        yield Found(name, await channels.examine(setup, name))


async def _looked(check: Check, setup: Setup) -> Sequence[Finding]:
    try:
        return await check.look(setup)
    except ConfidantError as error:
        return [Finding.of("error", "doctor.failed", why=str(error))]
