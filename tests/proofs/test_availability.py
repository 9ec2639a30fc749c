"""One hostile person, ten kinds of flood: whoever else writes or opens the page hardly notices."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import aiohttp
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
LONGEST = 1.0  # second, of 95 in 100 answers, on a machine that does nothing else
SPIN = 0.2  # seconds of a processor, to see what else the machine does
NOTES, NOTE = 5, 200_000  # files of notes, and their characters


@dataclass(frozen=True, slots=True)
class Others:
    """Ada, who writes in Telegram, and the owner, who opens the page."""

    telegram: FakeTelegram
    browser: aiohttp.ClientSession
    page: str

    async def waits(self, name: str, times: int) -> tuple[list[float], list[float]]:
        """How long Ada waited for each answer and the owner for the page, in seconds."""
        written, opened = list[float](), list[float]()
        for number in range(times):
            written.append(await _timed(lambda n=number: self._write(f"{name}{n}")))
            opened.append(await _timed(self._open))
        return written, opened

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


async def _timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    await work()
    return time.perf_counter() - began


def slowness() -> float:
    """How many times longer than alone work takes now, because others use the machine too."""
    began, used = time.perf_counter(), time.thread_time()
    while time.thread_time() - used < SPIN:
        pass
    return (time.perf_counter() - began) / (time.thread_time() - used)


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
            others = Others(fake, browser, f"http://127.0.0.1:{targets.page}/")
            await others._write("hello")
            await others.log_in()
            calm = await others.waits("calm", ASKED)
            busy = slowness()
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
    busy = max(1.0, busy, slowness())
    with capsys.disabled():
        print("\nAn answer to another person, 95 in 100:", *told, sep="\n")
        print(f"on a machine on which everything takes {busy:.1f} times as long as alone")
    assert max(longest) < LONGEST * busy
