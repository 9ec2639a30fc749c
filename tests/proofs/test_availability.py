"""One hostile person, ten kinds of flood: whoever else writes or opens the page hardly notices.

Judged is what the program does meanwhile, in seconds of a processor: that is what stands before
somebody's answer, however busy others keep the machine. How long it took by the clock is told.
"""

from __future__ import annotations

import math
import time
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass

import aiohttp
import psutil
import pytest

from bot.identity.view import folder_name
from tests.fakes.nextcloud import SECRET, FakeBot, FakeNextcloud
from tests.fakes.ports import free_port
from tests.fakes.telegram import TOKEN, FakeTelegram
from tests.proofs.crash import Program
from tests.proofs.floods import FLOODS, MALLORY, MORE_ROOMS, ROOM, Targets, under
from tests.proofs.rounds import rounds

pytestmark = pytest.mark.proof

ADA = 1
ELSEWHERE = "127.9.0.2"  # another address, in another network, than the flood comes from
OWNERS = "correct-horse-battery-staple"
ASKED = min(rounds(20, few=10), 20)  # times under each flood
LONGEST = 2.5  # seconds of a processor, until 95 in 100 answers, on a machine that does more
NOTES, NOTE = 5, 200_000  # files of notes, and their characters


@dataclass(frozen=True, slots=True)
class Wait:
    """What the program did until an answer came, and how long that took, in seconds."""

    work: float
    clock: float


@dataclass(frozen=True, slots=True)
class Others:
    """Ada, who writes in Telegram, and the owner, who opens the page."""

    telegram: FakeTelegram
    browser: aiohttp.ClientSession
    page: str
    program: psutil.Process

    async def waits(self, name: str, times: int) -> tuple[list[Wait], list[Wait]]:
        """For each answer to Ada, and for each page."""
        written, opened = list[Wait](), list[Wait]()
        for number in range(times):
            written.append(await self._timed(self._write(f"{name}{number}")))
            opened.append(await self._timed(self._open()))
        return written, opened

    async def _timed(self, answer: Awaitable[None]) -> Wait:
        began, before = time.perf_counter(), self.program.cpu_times()
        await answer
        after = self.program.cpu_times()
        work = after.user + after.system - before.user - before.system
        return Wait(work, time.perf_counter() - began)

    async def _write(self, word: str) -> None:
        self.telegram.push_text(ADA, word)
        wanted = f"You said: {word}"
        await self.telegram.wait_for(lambda: wanted in self.telegram.texts(ADA), 60)

    async def _open(self) -> None:
        async with self.browser.get(self.page) as answer:
            assert answer.status == 200
            assert "Confidant" in await answer.text()

    async def log_in(self) -> None:
        origin = {"Origin": self.page.rstrip("/")}
        async with self.browser.post(f"{self.page}login", data={"token": OWNERS}, headers=origin):
            pass


def p95(waits: Sequence[Wait]) -> Wait:
    """95 in 100 are no longer, of work and by the clock."""
    last = math.ceil(0.95 * len(waits)) - 1
    works, clocks = sorted(each.work for each in waits), sorted(each.clock for each in waits)
    return Wait(works[last], clocks[last])


def told(name: str, written: Wait, opened: Wait) -> str:
    shown = (f"{each.work:.2f} s of work, {each.clock:.2f} s" for each in (written, opened))
    return f"{name:>14}: {', page '.join(shown)}"


def settings(targets: Targets, talk: FakeNextcloud) -> dict[str, str]:
    telegram, nextcloud = "CONFIDANT_CHANNELS__TELEGRAM__", "CONFIDANT_CHANNELS__NEXTCLOUD_TALK__"
    hook = f"{telegram}ACCOUNTS__HOOK__"
    return {
        "CONFIDANT_DASHBOARD__PORT": str(targets.page),
        "CONFIDANT_DASHBOARD__TOKEN": OWNERS,
        "CONFIDANT_MEMORY__EMBEDDER__PROVIDER": "none",
        f"{telegram}API_ROOT": targets.telegram.url,
        f"{telegram}TOKEN": targets.telegram.token,
        f"{telegram}DM_POLICY": "pairing",
        f"{telegram}ALLOW_FROM": f"{ADA},{MALLORY}",
        f"{telegram}GROUP_POLICY": "open",
        f"{telegram}WEBHOOK_PORT": str(targets.telegram_webhook),
        f"{hook}TOKEN": TWO_BOTS[1],
        f"{hook}MODE": "webhook",
        f"{hook}WEBHOOK_URL": f"http://127.0.0.1:{targets.telegram_webhook}",
        f"{hook}WEBHOOK_SECRET": "a-secret-of-the-webhook",
        f"{nextcloud}BASE_URL": talk.url,
        f"{nextcloud}BOT_SECRET": SECRET,
        f"{nextcloud}WEBHOOK_PORT": str(targets.talk_webhook),
    }


TWO_BOTS = (TOKEN, "987654321:AAFakeTokenForTestsOnly_abc0123456789")


@pytest.mark.timeout(300)
async def test_no_flood_of_one_person_makes_another_wait(tmp_path, capsys):
    hers = tmp_path / "data/workspace/people" / folder_name(f"telegram:{MALLORY}") / "memory"
    hers.mkdir(parents=True)
    for number in range(NOTES):
        (hers / f"topic{number}.md").write_text(f"- word{number} " * (NOTE // 9), "utf-8")
    async with (
        FakeTelegram(*TWO_BOTS, record_calls=False) as fake,
        FakeNextcloud() as talk,
        aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(local_addr=(ELSEWHERE, 0), force_close=True),
            cookie_jar=aiohttp.CookieJar(unsafe=True),
        ) as browser,
    ):
        for room in (ROOM, *MORE_ROOMS):
            fake.room(room)
        targets = Targets(fake, *(free_port() for _ in range(3)))
        talk.bots = [FakeBot(SECRET, f"http://127.0.0.1:{targets.talk_webhook}/nextcloud-talk")]
        async with Program.launched(tmp_path / "data", settings(targets, talk)) as program:
            await program.start()
            page = f"http://127.0.0.1:{targets.page}/"
            others = Others(fake, browser, page, psutil.Process(program.pid))
            await others._write("hello")
            await others.log_in()
            calm = [p95(each) for each in await others.waits("calm", ASKED)]
            lines = [told("no flood", *calm)]
            longest = list[float]()
            for flood in FLOODS:
                name = flood.__name__
                async with under(flood, targets):
                    found = [p95(each) for each in await others.waits(name, ASKED)]
                lines.append(told(name, *found))
                longest += [each.work for each in found]
    with capsys.disabled():
        print("\nBefore an answer to others, 95 in 100:", *lines, sep="\n")
    assert max(longest) < LONGEST
