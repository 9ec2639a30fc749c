"""The event loop is never held up: whoever waits for a reply holds up nobody else."""

from __future__ import annotations

import asyncio
import logging
import re

import pytest

from tests.support import running

CHATS = 50
MESSAGES = 4  # of each
BOUND = 0.25  # seconds; a healthy engine stays below a tenth of it


async def test_two_hundred_messages_of_fifty_chats_never_block_the_loop(tmp_path, caplog):
    loop = asyncio.get_running_loop()
    lags: list[float] = []

    async def beat() -> None:
        while True:
            before = loop.time()
            await asyncio.sleep(0.005)
            lags.append(loop.time() - before - 0.005)

    async with running(tmp_path) as engine:
        heart = asyncio.create_task(beat())
        people = [f"p{n}" for n in range(CHATS)]
        for number in range(MESSAGES):
            text = f"message {number} " + "with some words to it, " * 20
            await asyncio.gather(*(engine.say(text, sender=person) for person in people))
        await engine.channel.wait_sent(CHATS * MESSAGES)
        heart.cancel()
    assert lags
    assert max(lags) < BOUND


@pytest.mark.slow
async def test_no_step_of_ours_is_slow_by_asyncios_own_measure(tmp_path, caplog):
    loop = asyncio.get_running_loop()
    loop.slow_callback_duration = BOUND
    loop.set_debug(True)
    try:
        with caplog.at_level(logging.WARNING, logger="asyncio"):
            async with running(tmp_path) as engine:
                for number in range(MESSAGES):
                    says = [engine.say(f"m{number}", sender=f"p{n}") for n in range(CHATS)]
                    await asyncio.gather(*says)
                await engine.channel.wait_sent(CHATS * MESSAGES)
    finally:
        loop.set_debug(False)
    slow = [r.getMessage() for r in caplog.records if re.search(r"took \d", r.getMessage())]
    assert slow == []
