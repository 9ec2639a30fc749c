"""The whole engine while its disk is full, and once there is space again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from bot.app import App, Parts
from bot.errors import StorageError, StorageFull
from bot.testing import InMemoryChannel, ScriptedModel
from tests.faults import Disk, faulty_disk
from tests.support import Engine, FakeClock, make_config, until


@pytest.fixture(autouse=True)
def _soon(monkeypatch):
    monkeypatch.setattr("bot.storage.FIRST_RETRY", 0.002)
    monkeypatch.setattr("bot.storage.LAST_RETRY", 0.01)
    monkeypatch.setattr("bot.workers.RETRY_DELAY", 0.002)


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("bot.housekeeping.FRESH", 0.0)
    with faulty_disk(tmp_path) as found:
        yield found


@asynccontextmanager
async def served(folder: Path, model: ScriptedModel) -> AsyncIterator[Engine]:
    config, plugins = make_config(folder, dashboard={"port": 0})
    memory, clock = InMemoryChannel(), FakeClock()
    parts = Parts(clock=clock, remote=model, channels={"memory": memory})
    async with App(config, plugins, parts) as app:
        yield Engine(app, memory, model, clock, folder)


async def readiness(engine: Engine) -> tuple[int, dict[str, str]]:
    assert engine.app.address is not None
    engine.clock.advance(seconds=1)  # what is written to find out is the time
    url = engine.app.address.url.split("?")[0].rstrip("/")
    async with aiohttp.ClientSession() as session, session.get(f"{url}/readyz") as response:
        return response.status, (await response.json())["checks"]["storage"]


async def refused_again(disk: Disk) -> None:
    """Wait until something more was refused."""
    before = disk.refused
    await until(lambda: disk.refused > before)


async def test_a_message_is_not_acknowledged_while_full_and_is_answered_once_offered_again(
    tmp_path, disk
):
    async with served(tmp_path, ScriptedModel()) as engine:
        inbound = engine.message("hello")
        disk.full = True
        for _ in range(3):
            with pytest.raises(StorageFull):
                await engine.channel.push(inbound)
        disk.full = False
        await engine.channel.push(inbound)
        await engine.channel.wait_sent(1)
        await engine.channel.push(inbound)
        await engine.ask("bye")
        assert engine.sent_to("ada") == ["You said: hello", "You said: bye"]


async def test_a_turn_that_finished_while_full_is_answered_once_when_there_is_space(tmp_path, disk):
    model = ScriptedModel(gate=asyncio.Event())
    async with served(tmp_path, model) as engine:
        assert (await readiness(engine))[0] == 200
        await engine.say("slow")
        await model.started.wait()
        disk.full = True
        model.gate.set()
        await refused_again(disk)
        status, storage = await readiness(engine)
        assert (status, storage["state"]) == (503, "down")
        assert "disk is full" in storage["detail"]
        with pytest.raises(StorageError):
            await engine.say("meanwhile")
        assert engine.channel.sent == []
        disk.full = False
        await engine.channel.wait_sent(1)
        assert (await readiness(engine))[0] == 200
        await engine.ask("next")
        assert engine.sent_to("ada") == ["You said: slow", "You said: next"]
        assert len(model.requests) == 2


async def test_a_text_sent_while_full_is_not_sent_again(tmp_path, disk):
    async with served(tmp_path, ScriptedModel()) as engine:
        send = engine.channel.send

        async def fills_up(outbound):
            disk.full = True
            return await send(outbound)

        engine.channel.send = fills_up  # type: ignore[method-assign]
        await engine.say("hello")
        await engine.channel.wait_sent(1)
        await refused_again(disk)
        engine.channel.send = send  # type: ignore[method-assign]
        disk.full = False
        await engine.ask("next")
        assert engine.sent_to("ada") == ["You said: hello", "You said: next"]


async def test_a_command_given_before_the_disk_was_full_is_answered_once(tmp_path, disk):
    model = ScriptedModel(gate=asyncio.Event())
    names, asked = model.names, asyncio.Event()

    async def slow_names() -> tuple[str, ...]:
        asked.set()
        assert model.gate is not None
        await model.gate.wait()
        return await names()

    model.names = slow_names  # type: ignore[method-assign]
    async with served(tmp_path, model) as engine:
        command = asyncio.create_task(engine.say("/model"))
        await asked.wait()
        disk.full = True
        model.gate.set()
        await refused_again(disk)
        disk.full = False
        await command
        await engine.ask("next")
        assert len(engine.sent_to("ada")) == 2


async def test_stopping_while_full_ends_and_the_turn_is_done_again_after_the_restart(
    tmp_path, disk, monkeypatch
):
    monkeypatch.setattr("bot.app.STOP_GRACE", 0.05)
    model = ScriptedModel(gate=asyncio.Event())
    async with served(tmp_path, model) as engine:
        await engine.say("slow")
        await model.started.wait()
        disk.full = True
        model.gate.set()
        await refused_again(disk)
    disk.full = False
    async with served(tmp_path, ScriptedModel()) as engine:
        await engine.channel.wait_sent(1)
        await engine.ask("next")
        assert engine.sent_to("ada") == ["You said: slow", "You said: next"]
