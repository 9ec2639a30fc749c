"""`/overview`: how it goes, in numbers that come from what is stored."""

from __future__ import annotations

import asyncio
from pathlib import Path

import aiohttp

from bot.dashboard.overview import DAYS
from bot.memory.growth import KEPT, MemoryGrowth
from bot.sessions import traffic
from bot.sessions.traffic import Traffic
from bot.storage.meta import MetaStore
from bot.storage.sqlite import SqliteDatabase
from tests.fakes.brain import query
from tests.support import PATIENCE, FakeClock, running

HOSTILE = "<img src=x onerror=alert(1)>"
NOTHING_WAITS = [
    f'<th scope="row">{what}</th><td>0</td>'
    for what in ("Messages without an answer", "Texts to be sent")
]


async def counted(client: aiohttp.ClientSession, url: str) -> str:
    """The page, once the last answer is noted as sent."""
    async with asyncio.timeout(PATIENCE):
        while True:
            async with client.get(url) as answer:
                shown = await answer.text()
            if all(each in shown for each in NOTHING_WAITS):
                return shown


async def test_it_counts_messages_by_channel_and_day_and_says_what_waits(tmp_path: Path):
    clock = FakeClock()
    session = {"reset": {"mode": "none"}}
    async with (
        running(tmp_path, clock=clock, session=session, serves=True) as engine,
        aiohttp.ClientSession() as client,
    ):
        assert engine.app.address is not None
        url = f"{engine.app.address.url}overview"
        async with client.get(url) as answer:
            empty = await answer.text()
        await engine.ask("my secret words")
        await engine.ask("hello", sender=HOSTILE)
        clock.advance(days=1)
        await engine.ask("hello again")
        shown = await counted(client, url)
        async with client.get(url) as second:
            again = await second.text()
        async with client.get(url, headers={"Accept-Language": "zh"}) as answer:
            chinese = await answer.text()
        clock.advance(days=DAYS + 1)
        async with client.get(url) as answer:
            later = await answer.text()
    assert "Messages by channel" not in empty
    assert '<th scope="row">Messages without an answer</th><td>0</td>' in empty
    assert "<title>2026-11-21\nmemory: 2</title>" in shown
    assert "<title>2026-11-22\nmemory: 1</title>" in shown
    assert shown == again
    assert "<h1>运行情况</h1>" in chinese
    assert "Messages by channel" not in later
    for page in (shown, chinese):
        assert "secret" not in page
        assert "<img" not in page


async def test_half_and_nine_of_ten_are_those_of_the_days_answers(tmp_path: Path):
    async with running(tmp_path) as engine:
        await engine.ask("hello")
    database = await SqliteDatabase.open(tmp_path / "confidant.db")
    try:
        for state, count in (("done", 10), ("refused", 5), ("aside", 1)):
            for number in range(count):
                row = (f"{state}{number}", state, 1_000, 1_000 + (number + 1) * 100)
                await database.write(
                    lambda tx, row=row: tx.execute(
                        "INSERT INTO inbox(channel, account, chat, thread, message_id, state, key, "
                        "body, received_at, done_at) VALUES ('t', '', '', '', ?, ?, '', '', ?, ?)",
                        row,
                    )
                )
        found = await database.read(lambda tx: traffic.traffic(tx, 1_000, 5_000))
        assert found == Traffic({"t": 11}, 500, 900)
        assert await database.read(lambda tx: traffic.traffic(tx, 0, 1_000)) == Traffic(
            {}, None, None
        )
        plan = query(
            tmp_path,
            "EXPLAIN QUERY PLAN SELECT channel, count(*) FROM inbox WHERE state <> 'waiting' "
            "AND done_at >= 1 AND done_at < 2 AND state IN ('done', 'aside') GROUP BY channel",
        )
        assert "inbox_done" in str(plan)
    finally:
        await database.close()


async def test_growth_keeps_one_line_a_day_and_not_for_ever(tmp_path: Path):
    clock = FakeClock()
    async with running(tmp_path, clock=clock) as engine:
        await engine.ask("hello")
    database = await SqliteDatabase.open(tmp_path / "confidant.db")

    class Status:
        files, chunks = 3, 12

    class Index:
        async def status(self) -> Status:
            return Status()

    class Memory:
        index = Index()

    try:
        growth = MemoryGrowth(Memory(), database, clock)  # type: ignore[arg-type]
        await growth.note()
        Status.chunks = 14
        await growth.note()
        assert await growth.days() == {"2026-11-21": (3, 14)}
        kept = MetaStore(database, clock)
        for number in range(KEPT):
            await kept.set(f"growth:2024-{number:04}", "1 1")
        clock.advance(days=1)
        await growth.note()
        days = await growth.days()
        assert len(days) == KEPT
        assert list(days)[-2:] == ["2026-11-21", "2026-11-22"]
    finally:
        await database.close()
