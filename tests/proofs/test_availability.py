"""One hostile person, ten kinds of flood: whoever else writes or opens the page hardly notices.

Waiting is measured in what the program does meanwhile, in seconds of a processor: that is what
stands before somebody's answer, however busy others keep the machine.
"""

from __future__ import annotations

import math
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

pytestmark = pytest.mark.slow

ADA = 1
ELSEWHERE = "127.9.0.2"  # another address, in another network, than the flood comes from
OWNERS = "correct-horse-battery-staple"
ASKED = 20  # times under each flood
LONGEST = 0.5  # second of a processor, until 95 in 100 answers
NOTES, NOTE = 5, 200_000  # files of notes, and their characters


@dataclass(frozen=True, slots=True)
class Others:
    """Ada, who writes in Telegram, and the owner, who opens the page."""

    telegram: FakeTelegram
    browser: aiohttp.ClientSession
    page: str
    program: psutil.Process

    async def waits(self, name: str, times: int) -> tuple[list[float], list[float]]:
        """How much was done before each answer to Ada and before each page, in seconds."""
        written, opened = list[float](), list[float]()
        for number in range(times):
            written.append(await self._worked(self._write(f"{name}{number}")))
            opened.append(await self._worked(self._open()))
        return written, opened

    async def _worked(self, wait: Awaitable[None]) -> float:
        before = self.program.cpu_times()
        await wait
        after = self.program.cpu_times()
        return after.user + after.system - before.user - before.system

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


def p95(waits: Sequence[float]) -> float:
    return sorted(waits)[math.ceil(0.95 * len(waits)) - 1]


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
        program = await Program.launch(tmp_path / "data", settings(targets, talk))
        try:
            await program.start()
            page = f"http://127.0.0.1:{targets.page}/"
            others = Others(fake, browser, page, psutil.Process(program.pid))
            await others._write("hello")
            await others.log_in()
            calm = await others.waits("calm", ASKED)
            told = [f"{'no flood':>14}: {p95(calm[0]):.3f} s, page {p95(calm[1]):.3f} s"]
            longest = list[float]()
            for flood in FLOODS:
                name = flood.__name__
                async with under(flood, targets):
                    written, opened = await others.waits(name, ASKED)
                told.append(f"{name:>14}: {p95(written):.3f} s, page {p95(opened):.3f} s")
                longest.append(max(p95(written), p95(opened)))
            await program.stop()
            await program.close()
        finally:
            program.abandon()
    with capsys.disabled():
        print("\nThe program's work before an answer to others, 95 in 100:", *told, sep="\n")
    assert max(longest) < LONGEST
