"""The one list of what is looked at, in the order in which it is told."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from bot.channel import Finding
from bot.doctor import (
    backups,
    channels,
    clock,
    left_over,
    limits,
    memory,
    models,
    page,
    speech,
    storage,
    tokens,
    tools,
    urgent,
    web,
)
from bot.doctor.setup import Setup
from bot.errors import ConfidantError


@dataclass(frozen=True, slots=True)
class Check:
    """Something that is looked at; `needs_database` where that has to be sound for it."""

    name: str
    look: Callable[[Setup], Awaitable[Sequence[Finding]]]
    needs_database: bool = False


@dataclass(frozen=True, slots=True)
class Found:
    """What a check or a channel found, by its name."""

    check: str
    findings: Sequence[Finding]


CHECKS: Final = (
    Check("storage", storage.check),
    Check("backups", backups.check, needs_database=True),
    Check("clock", clock.check, needs_database=True),
    Check("limits", limits.check),
    Check("page", page.check),
    Check("model", models.check),
    Check("memory", memory.check, needs_database=True),
    Check("tools", tools.check),
    Check("speech", speech.check),
    Check("tokens", tokens.check),
    Check("messages", left_over.check, needs_database=True),
    Check("connections", urgent.check, needs_database=True),
    Check("web", web.check),
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
    is_usable = True
    for check in CHECKS:
        if check.needs_database and not is_usable:
            continue
        findings = await _looked(check, setup)
        if check.look is storage.check:
            is_usable = not any(each.id in storage.BLOCKING for each in findings)
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
