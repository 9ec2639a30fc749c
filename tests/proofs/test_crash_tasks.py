"""Kill the program around a task that comes again: each time is told once, or known as failed.

Three moments are aimed at: in the middle of a task, after what it came to was stored and before it
was sent, and any other. A task that was under way is not begun anew, as its tools may have done
something: after three such times in a row it is paused, and its person told.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from bot.clock import DAY_MS, system_clock
from bot.sessions.repeats import MAX_FAILURES
from tests.fakes.telegram import FakeTelegram
from tests.fakes.telegram_parts import Fault
from tests.proofs.crash import ANSWERED, SEED, Program
from tests.proofs.crash_platforms import OverTelegram, stopped
from tests.proofs.rounds import lengths

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

CHAT = 1
KINDS = ("in the middle", "before it is sent", "at any moment", "not at all")
RULES = [{"action": "allow", "tools": ["*"], "ask": False}]


class Days:
    """A task for eleven o'clock, on the clock of a program for which it is always noon."""

    def __init__(self, folder: Path, fake: FakeTelegram, program: Program) -> None:
        self.fake = fake
        self.program = program
        self.today = datetime.now(UTC).date()
        self.killed: dict[int, str] = {}  # when, by the day's name
        self.came: dict[int, str] = {}  # what each day's time came to
        self._folder = folder
        noon = datetime.combine(self.today, datetime.min.time(), UTC) + timedelta(hours=12)
        self._ahead = round(noon.timestamp() * 1000) - system_clock()
        self._set()

    def _set(self) -> None:
        new = self._folder / "clock.new"
        new.write_text(str(self._ahead))
        new.replace(self._folder / "clock")

    @property
    def day(self) -> int:
        """What the day's order is called."""
        return int(f"{self.today:%Y%m%d}")

    def begin_another(self) -> None:
        self._ahead += DAY_MS
        self.today += timedelta(days=1)
        self._set()

    def baked(self) -> Counter[int]:
        """How often each day's order was."""
        file = self._folder / "oven"
        lines = file.read_text().splitlines() if file.exists() else []
        return Counter(json.loads(line)["order"] for line in lines)

    def told(self, day: int) -> int:
        return self.fake.texts(CHAT).count(f"🔁 Order {day}: baked")

    def refused(self) -> int:
        """How often the platform did not take what a task came to."""
        calls = self.fake.called("sendMessage")
        return sum("🔁" in str(call.params) for call in calls) - sum(
            text.startswith("🔁") for text in self.fake.texts(CHAT)
        )

    async def outcome(self) -> str:
        """What the person is told of this day's time, asked until it is over: sent or failed."""
        async with asyncio.timeout(ANSWERED):
            while True:
                before = len(self._listed())
                self.fake.push_text(CHAT, "/reminders 1")
                await self.fake.wait_for(lambda n=before: len(self._listed()) > n, ANSWERED)
                if found := re.search(f"{self.today} .*: (sent|failed)", self._listed()[-1]):
                    return found[1]

    def _listed(self) -> list[str]:
        return [text for text in self.fake.texts(CHAT) if text.startswith("1. (task)")]

    async def until(self, ready: Callable[[], bool]) -> None:
        async with asyncio.timeout(ANSWERED):
            while not ready():  # noqa: ASYNC110 - what another process does has no event here
                await asyncio.sleep(0.002)

    async def kill(self) -> None:
        await self.program.kill()
        await self.program.start()

    async def live_through(self, kind: str, chance: random.Random) -> None:
        """Let the task come once, with a kill of a kind, until it is known what it came to."""
        self.killed[self.day] = kind
        if kind == "in the middle":
            await self.until(lambda: self.baked()[self.day] > 0)
            await self.kill()
        elif kind == "before it is sent":
            self.fake.fail_next("sendMessage", Fault(502, "Bad Gateway", match="🔁"), 100_000)
            known = self.refused()
            await self.fake.wait_for(lambda: self.refused() > known, ANSWERED)
            await self.program.kill()
            self.fake.recover("sendMessage")
            await self.program.start()
        elif kind == "at any moment":
            await asyncio.sleep(chance.uniform(0, 0.3))
            await self.kill()

        self.came[self.day] = await self.outcome()
        if self.came[self.day] == "sent":
            await self.fake.wait_for(lambda: self.told(self.day) > 0, ANSWERED)


@asynccontextmanager
async def a_task(folder: Path) -> AsyncIterator[Days]:
    """A program that was asked to do something every day."""
    async with FakeTelegram() as fake:
        settings = {
            **OverTelegram(fake).settings(),
            "OVEN": str(folder / "oven"),
            "CLOCK": str(folder / "clock"),
            "CONFIDANT_AGENT__TIMEZONE": "UTC",
            "CONFIDANT_SESSION__OWNER": f"telegram:{CHAT}",
            "CONFIDANT_TOOLS__RULES": json.dumps(RULES),
        }
        async with Program.launched(folder / "data", settings) as program:
            days = Days(folder, fake, program)
            await program.start()
            fake.push_text(CHAT, "/task every day at 11:00 tally")
            await fake.wait_for(lambda: len(fake.texts(CHAT)) == 1, ANSWERED)
            yield days
            await stopped(fake, CHAT, program)


@lengths("times", None, 16, 8)
async def test_kills_around_a_task_leave_each_time_told_once_or_known_as_failed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], times: int
):
    chance = random.Random(SEED)  # noqa: S311 - chance, not a secret
    async with a_task(tmp_path) as days:
        for number in range(times):
            days.begin_another()
            await days.live_through(KINDS[number % len(KINDS)], chance)
    assert len(days.came) == times
    for day, came in days.came.items():
        told, kind = days.told(day), days.killed[day]
        assert days.baked()[day] <= 1, "it was carried out twice"
        if kind in {"before it is sent", "not at all"}:
            assert (came, told) == ("sent", 1)
        elif came == "sent":
            assert told in {1, 2}  # a send in flight at the kill may come again
        else:
            assert told == 0
    sent = list(days.came.values()).count("sent")
    with capsys.disabled():
        kills = sum(kind != "not at all" for kind in days.killed.values())
        print(
            f"\n{len(days.came)} times over {kills} kills: {sent} told, {len(days.came) - sent} "
            "known as failed, 0 lost, 0 carried out twice"
        )


@pytest.mark.proof
async def test_a_task_that_is_killed_each_time_is_paused_and_its_person_told_once(tmp_path: Path):
    chance = random.Random(SEED)  # noqa: S311 - chance, not a secret
    async with a_task(tmp_path) as days:
        in_a_row = 0
        while in_a_row < MAX_FAILURES:  # a kill may come too late
            days.begin_another()
            await days.live_through("in the middle", chance)
            in_a_row = in_a_row + 1 if days.came[days.day] == "failed" else 0

        def paused() -> list[str]:
            return [text for text in days.fake.texts(CHAT) if "so I paused it" in text]

        await days.fake.wait_for(lambda: bool(paused()), ANSWERED)
        days.begin_another()
    assert len(paused()) == 1
    assert days.baked()[days.day] == 0
