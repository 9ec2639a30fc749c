"""What counts tokens."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from bot.channel import Finding
from bot.context import tokens
from bot.doctor.setup import Setup


async def check(setup: Setup) -> Sequence[Finding]:
    """Whether tokens are counted or estimated."""
    choice = setup.config.context.tokenizer
    counter = await asyncio.to_thread(tokens.counter, choice)
    if counter.name != tokens.ESTIMATE:
        return [Finding.of("ok", "tokens.counted", name=counter.name)]
    if choice != "tiktoken":
        return [Finding.of("ok", "tokens.estimated")]
    return [Finding.of("error", "tokens.no_ranks")]
