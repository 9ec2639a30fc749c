"""What shows that a reply is being written, and that it ends with its turn."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bot.channel import Address
from bot.coordination import Alone
from bot.delivery.live import LiveSigns
from bot.gateway import turns
from bot.gateway.turns import ReplyPreview
from bot.storage.sqlite import SqliteDatabase
from bot.testing import InMemoryChannel
from tests.support import until


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[SqliteDatabase]:
    opened = await SqliteDatabase.open(tmp_path / "confidant.db")
    yield opened
    await opened.close()


async def test_typing_ends_although_its_lane_is_cancelled_while_it_ends(
    database: SqliteDatabase, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(turns, "TYPING_DELAY", 0)
    channel = InMemoryChannel()
    live = LiveSigns(database, {"memory": channel}, Alone(database))

    async def lane() -> None:
        preview = ReplyPreview(channel, live, Address("memory", "default", "ada"), "1")
        async with preview:
            await until(lambda: bool(channel.typed))
            preview.show("hello")
            task = asyncio.current_task()
            assert task is not None
            asyncio.get_running_loop().call_soon(task.cancel)

    before = asyncio.all_tasks()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.create_task(lane())
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == before
