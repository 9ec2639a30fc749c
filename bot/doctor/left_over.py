"""Messages that got no answer, texts that could not be sent, tasks that were given up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from bot.channel import Finding
from bot.clock import to_the_minute
from bot.delivery import outbox
from bot.doctor.setup import Setup
from bot.errors import StorageNotMade
from bot.sessions import inbox, repeats
from bot.storage import Transaction

MAX_ASIDE: Final = 10  # messages shown each for itself


async def check(setup: Setup) -> Sequence[Finding]:
    """What was left over; nothing before the bot was started once."""
    if not setup.has_database:
        return []
    try:
        async with setup.opened() as database:
            return await database.read(_look)
    except StorageNotMade:  # said of the storage
        return []


def _look(tx: Transaction) -> Sequence[Finding]:
    aside = inbox.aside(tx, 0)
    found = [
        Finding.of(
            "warning",
            "messages.aside",
            at=to_the_minute(each.at, None),
            channel=each.channel,
            error=each.error,
        )
        for each in aside[-MAX_ASIDE:]
    ]
    if len(aside) > MAX_ASIDE:
        found.insert(0, Finding.of("warning", "messages.many_aside", count=len(aside)))
    found += [
        Finding.of(
            "warning", f"messages.{'unsent' if again else 'refused'}", channel=channel, count=count
        )
        for channel, again, count in outbox.parked_by_channel(tx)
    ]
    if paused := len(repeats.paused(tx)):
        found.append(Finding.of("warning", "messages.paused", count=paused))
    return found or [Finding.of("ok", "messages.all_answered")]
