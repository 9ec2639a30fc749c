"""The load: people who write to a bot over the fake Telegram, and what came back how soon.

Every message carries a mark and the fake model ends its reply with it, so that each message can be
proved to have been answered exactly once, in its own chat.
"""

from __future__ import annotations

import asyncio
import os
import re
import statistics
import time
from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from bench.bots import Bot, Running, running, settings
from bench.neighbours import Neighbours, neighbours
from bench.table import Measured, percentile
from tests.fakes.telegram import FakeTelegram

START_TIMEOUT = 60.0  # seconds
REPLY_TIMEOUT = 30.0  # seconds
BURST_TIMEOUT = 180.0  # seconds
SETTLE = 0.5  # seconds of silence after the last reply, in which a second copy would show
PAUSE = 0.02  # seconds between messages written one by one
FIRST_CHAT = 1000
_MARK = re.compile(r"q\d+x\d+")


class WrongAnswers(Exception):
    """Some message got no reply, or two, or one that belongs to another chat."""


@dataclass(frozen=True, slots=True)
class Size:
    """How much is asked of each program."""

    messages: int  # one by one, in one chat
    chats: int
    each: int  # messages of each chat in a burst
    bursts: int


class People:
    """Everyone who writes to one bot, and what they are owed."""

    def __init__(self, telegram: FakeTelegram) -> None:
        self._telegram = telegram
        self._owed: Counter[tuple[int, str]] = Counter()
        self._count = 0

    def write(self, chat: int) -> float:
        """Someone writes; the moment from which the bot can get it."""
        self._count += 1
        mark = f"q{chat}x{self._count}"
        self._owed[chat, mark] += 1
        self._telegram.push_text(chat, f"Can you tell me whether that works? ({mark})")
        return time.monotonic()

    async def answered(self, within: float) -> float:
        """Wait until everything is answered; the moment the last reply arrived.

        Raises:
            WrongAnswers: not everything was, in time.
        """
        try:
            await self._telegram.wait_sent(self._count, within)
        except TimeoutError:
            got = len(self._telegram.sent)
            raise WrongAnswers(f"{got} replies to {self._count} messages in {within:g} s") from None
        return self._telegram.sent[-1].at

    async def check(self) -> None:
        """Prove that every message was answered exactly once, where it was asked.

        Raises:
            WrongAnswers: one was not.
        """
        await asyncio.sleep(SETTLE)
        got: Counter[tuple[int, str]] = Counter()
        for sent in self._telegram.sent:
            marks = _MARK.findall(sent.text)
            got[sent.chat_id, marks[-1] if marks else sent.text] += 1
        if got != self._owed:
            missing, extra = self._owed - got, got - self._owed
            raise WrongAnswers(f"without a reply: {list(missing)[:5]}; too much: {list(extra)[:5]}")


async def measure(bot: Bot, model_url: str, model: Running, size: Size, folder: Path) -> Measured:
    """Start a bot in an empty folder, put the load on it, end it.

    Raises:
        WrongAnswers: it did not answer every message exactly once.
    """
    async with FakeTelegram(record_calls=False) as telegram, AsyncExitStack() as stack:
        people = People(telegram)
        environment = settings(folder, telegram.url, telegram.token, model_url)
        environment |= dict(bot.variables)
        beside = await stack.enter_async_context(neighbours()) if bot.neighbours else None
        environment |= beside.settings() if beside else {}
        async with running(bot.command, folder, environment) as program:
            try:
                await telegram.wait_called("getUpdates", within=START_TIMEOUT)
            except TimeoutError:
                raise WrongAnswers(f"no poll within {START_TIMEOUT:g} s") from None
            cold_start = time.monotonic() - program.started
            written = people.write(FIRST_CHAT)
            first_message = await people.answered(START_TIMEOUT) - written
            await _check(beside)
            latencies = await _one_by_one(people, size)
            bursts = await _bursts(people, program, model, size)
            await people.check()
            await _check(beside)
            return Measured(
                cold_start=cold_start,
                first_message=first_message,
                p50=percentile(latencies, 50) * 1000,
                p95=percentile(latencies, 95) * 1000,
                turns_per_second=statistics.median(burst.rate for burst in bursts),
                cpu=statistics.median(burst.cpu for burst in bursts),
                resident=program.resident(),
                telegram_busy=max(burst.telegram_busy for burst in bursts),
                model_busy=max(burst.model_busy for burst in bursts),
            )


async def _check(beside: Neighbours | None) -> None:
    """Prove that a bot is connected to all it was told to be connected to."""
    try:
        if beside is not None:
            await beside.connected()
    except TimeoutError:
        raise WrongAnswers("not connected to Discord and Nextcloud Talk") from None


@dataclass(frozen=True, slots=True)
class _Burst:
    rate: float  # turns a second
    cpu: float  # milliseconds of processor time a turn
    telegram_busy: float  # share of one processor the load generator took
    model_busy: float


async def _one_by_one(people: People, size: Size) -> list[float]:
    """Seconds from each message to its reply."""
    latencies: list[float] = []
    for _ in range(size.messages):
        await asyncio.sleep(PAUSE)
        written = people.write(FIRST_CHAT)
        latencies.append(await people.answered(REPLY_TIMEOUT) - written)
    return latencies


async def _bursts(people: People, program: Running, model: Running, size: Size) -> list[_Burst]:
    """Everyone writes at once, several times; the first time, when all are new, does not count."""
    bursts = [await _burst(people, program, model, size) for _ in range(size.bursts + 1)]
    return bursts[1:]


async def _burst(people: People, program: Running, model: Running, size: Size) -> _Burst:
    own = Running(os.getpid(), 0.0)
    before = (program.cpu(), own.cpu(), model.cpu())
    turns = size.chats * size.each
    started = time.monotonic()
    for _ in range(size.each):
        for chat in range(FIRST_CHAT, FIRST_CHAT + size.chats):
            people.write(chat)
    seconds = await people.answered(BURST_TIMEOUT) - started
    # What a reply leaves to be done (noting that it was sent) is part of its cost.
    await asyncio.sleep(SETTLE)
    cpu, telegram, answering = (
        now - then
        for now, then in zip((program.cpu(), own.cpu(), model.cpu()), before, strict=True)
    )
    return _Burst(turns / seconds, cpu * 1000 / turns, telegram / seconds, answering / seconds)
