"""What one person's abuse costs another: `make bench ARGS=fairness`, or `python -m bench fairness`.

For each of twelve kinds of abuse the program is started on an empty folder. Somebody else's wait is
measured while it is calm and while the abuse goes on, and meanwhile how long `/healthz` takes.
Names after it choose kinds: `python -m bench fairness commands pages`.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import aiohttp
from aiohttp import web

from bench.abuse import ADA, KINDS, LONGEST, PASSWORD, Part, Scene, an_answer, subscribe
from bench.bots import running
from tests.fakes.page_people import Browser
from tests.fakes.ports import free_port
from tests.fakes.push_service import PushBrowser
from tests.fakes.sites import serving
from tests.fakes.telegram import FakeTelegram
from tests.proofs.floods import MALLORY, MORE_ROOMS, ROOM, Targets

GOAL, GOAL_HEALTH = 1.0, 0.3  # seconds more than in calm, and until /healthz is answered
CALM, ASKED = 3, 5  # times each wait is measured
WARM, ROW = 1.5, 8.0  # seconds before the first wait, and of all of them
OWNERS = "correct-horse-battery-staple"
ELSEWHERE = "127.9.0.2"  # where the others come from; the abuse comes from 127.0.0.1 and its like
SLOW = 25.0  # seconds until a slow site says anything


@asynccontextmanager
async def browser_from(page: int, address: str) -> AsyncGenerator[Browser]:
    """A browser at another address."""
    url = f"http://127.0.0.1:{page}"
    headers = {"Origin": url, "Accept": "text/html", "Accept-Language": "en"}
    connector = aiohttp.TCPConnector(local_addr=(address, 0), force_close=True, limit=0)
    jar = aiohttp.CookieJar(unsafe=True)
    async with aiohttp.ClientSession(
        url, connector=connector, cookie_jar=jar, headers=headers
    ) as client:
        yield Browser(client, url)


@contextmanager
def health(page: int, found: list[float]) -> Generator[None]:
    """Ask `/healthz` again and again, from elsewhere and over new connections."""
    stop = threading.Event()

    def ask() -> None:
        while not stop.wait(0.1):
            began = time.monotonic()
            client = http.client.HTTPConnection(
                "127.0.0.1", page, timeout=LONGEST, source_address=(ELSEWHERE, 0)
            )
            try:
                client.request("GET", "/healthz")
                client.getresponse().read()
                found.append(time.monotonic() - began)
            except (OSError, http.client.HTTPException):
                found.append(LONGEST)
            finally:
                client.close()

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def settings(scene_folder: Path, telegram: FakeTelegram, page: int, sites: str) -> dict[str, str]:
    """The environment of the program."""
    channel, site = "CONFIDANT_CHANNELS__TELEGRAM__", sites.removeprefix("http://")
    return {
        "CONFIDANT_DASHBOARD__PORT": str(page),
        "CONFIDANT_DASHBOARD__TOKEN": OWNERS,
        "CONFIDANT_MEMORY__EMBEDDER__PROVIDER": "none",
        "CONFIDANT_SESSION__RESET__MODE": "none",
        "CONFIDANT_STORAGE__BACKUP_HOURS": "0",
        "CONFIDANT_STORAGE__DIR": str(scene_folder),
        "CONFIDANT_LOG__LEVEL": "warning",
        "CONFIDANT_TOOLS__RULES": '[{"action": "allow", "tools": ["web_*"], "ask": false}]',
        "CONFIDANT_TOOLS__WEB__FETCH": "true",
        "CONFIDANT_TOOLS__WEB__INTERNAL_HOSTS": f'["{site}"]',
        f"{channel}API_ROOT": telegram.url,
        f"{channel}TOKEN": telegram.token,
        f"{channel}DM_POLICY": "pairing",
        f"{channel}ALLOW_FROM": f"{ADA},{MALLORY}",
        f"{channel}GROUP_POLICY": "open",
        "FAIR_PUSH": site,
    }


@asynccontextmanager
async def staged(folder: Path) -> AsyncGenerator[Scene]:
    """The program with its people, on an empty folder."""
    pushed: set[str] = set()

    async def site(request: web.Request) -> web.Response:
        if request.path.startswith("/push"):
            pushed.add(f"{len(pushed)}")
            return web.Response(status=201)
        if request.path.startswith("/slow"):
            await asyncio.sleep(SLOW)
        if request.path == "/robots.txt":
            return web.Response(status=404)
        return web.Response(text="The harbour is calm.")

    app = web.Application()
    app.router.add_route("*", "/{rest:.*}", site)
    page = free_port()
    async with (
        FakeTelegram(record_calls=False) as telegram,
        serving(app) as sites,
        running(
            (sys.executable, "-m", "bench.fair_program"),
            folder,
            settings(folder / "data", telegram, page, sites),
        ),
        browser_from(page, ELSEWHERE) as owner,
        browser_from(page, ELSEWHERE) as ada,
        browser_from(page, "127.0.0.1") as eve,
    ):
        for room in (ROOM, *MORE_ROOMS):
            telegram.room(room)
        targets = Targets(telegram, page, 0, 0)
        scene = Scene(telegram, targets, sites, owner, ada, eve, pushed)
        await an_answer(scene)
        await owner.post("/login", token=OWNERS)
        for name, browser in (("ada", ada), ("eve", eve)):
            await browser.post("/enter", key=await owner.link(name))
        await ada.post("/account/password", old="", new=PASSWORD)
        await subscribe(ada, PushBrowser(f"{sites}/push/ada"))
        yield scene


# --- measured -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Row:
    """Seconds: the wait when calm and the longest one under abuse, and the longest of /healthz."""

    kind: str
    calm: float
    longest: float
    health: float
    stored: float  # MB on disk afterwards

    @property
    def more(self) -> float:
        """Seconds the other one waits more than when calm."""
        return max(0.0, self.longest - self.calm)

    @property
    def is_fair(self) -> bool:
        """True when the goals are met."""
        return self.more <= GOAL and self.health <= GOAL_HEALTH


async def waits(scene: Scene, part: Part, times: int) -> list[float]:
    """How long each of so many waits was, or fewer where they are long."""
    found, began = list[float](), time.monotonic()
    while len(found) < times and time.monotonic() - began < ROW:
        asked = time.monotonic()
        try:
            async with asyncio.timeout(LONGEST):
                await part(scene)
            found.append(time.monotonic() - asked)
        except (TimeoutError, aiohttp.ClientError):
            found.append(LONGEST)
    return found


def size_of(folder: Path) -> int:
    """The bytes in a folder."""
    return sum(each.stat().st_size for each in folder.rglob("*") if each.is_file())


async def measure(kind: str, asked: int) -> Row:
    """One row of the table."""
    abuse, other = KINDS[kind]
    with tempfile.TemporaryDirectory() as name:
        async with staged(Path(name)) as scene:
            calm = statistics.median(await waits(scene, other, CALM))
            abusing = asyncio.ensure_future(abuse(scene))
            checked = list[float]()
            try:
                with health(scene.targets.page, checked):
                    await asyncio.wait([abusing], timeout=WARM)
                    found = await waits(scene, other, asked)
                if abusing.done():
                    abusing.result()
            finally:
                abusing.cancel()
                with suppress(asyncio.CancelledError):
                    await abusing
            stored = await asyncio.to_thread(size_of, Path(name))
    return Row(kind, calm, max(found), max(checked, default=0.0), stored / 1e6)


def report(rows: Sequence[Row]) -> str:
    """The table."""
    lines = [
        "| abuse by one person | others wait more, s | when calm, s | /healthz, s | stored, MB |",
        "|---|---|---|---|---|",
    ]
    lines += [
        f"| {row.kind} | {row.more:.2f}{'' if row.more <= GOAL else ' ✗'} | {row.calm:.2f} "
        f"| {row.health:.2f}{'' if row.health <= GOAL_HEALTH else ' ✗'} | {row.stored:.0f} |"
        for row in rows
    ]
    return "\n".join([*lines, f"| goal | ≤ {GOAL:g} | | ≤ {GOAL_HEALTH:g} | |"])


def main(arguments: Sequence[str]) -> int:
    """Measure and print; 1 when a goal was missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=", ".join(KINDS))
    parser.add_argument("--quick", action="store_true", help="one wait of each")
    asked = parser.parse_args(arguments)
    if unknown := set(asked.kinds) - KINDS.keys():
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    kinds = asked.kinds or KINDS
    rows = [asyncio.run(measure(kind, 1 if asked.quick else ASKED)) for kind in kinds]
    print(report(rows))
    return 0 if all(row.is_fair for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
