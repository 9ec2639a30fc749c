"""What every channel owes the engine: the double and the real ones through the same tests."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import aiohttp
import pytest
from prometheus_client import CollectorRegistry

from adapters.console import Console
from adapters.web.channel import Web
from bot.channel import Address, Channel, CommandMenu, Drafts, Inbound, Outbound, Typing
from bot.config import DashboardConfig
from bot.dashboard import DashboardServer, Readiness
from bot.testing import InMemoryChannel, RecordingEngine
from tests.fakes.telegram import FakeTelegram
from tests.fakes.telegram_channel import running, settings
from tests.support import NOON


@dataclass
class Case:
    """A started channel, a person who writes to it, and what that person was shown."""

    channel: Channel
    engine: RecordingEngine
    address: Address
    write: Callable[[str], Awaitable[None]]
    shown: Callable[[int], Awaitable[list[str]]]


@asynccontextmanager
async def in_memory(tmp_path) -> AsyncIterator[Case]:
    channel, engine = InMemoryChannel(), RecordingEngine()
    await channel.start(engine)
    address = Address("memory", "default", "ada")

    async def write(text: str) -> None:
        number = str(engine.attempts + 1)
        await channel.push(Inbound("memory", "default", "ada", "direct", "ada", number, text, NOON))

    async def shown(count: int) -> list[str]:
        return [piece.text for piece in await channel.wait_sent(count)]

    yield Case(channel, engine, address, write, shown)
    await channel.stop()


@asynccontextmanager
async def telegram(tmp_path) -> AsyncIterator[Case]:
    engine = RecordingEngine()
    async with FakeTelegram() as fake, running(engine, settings(fake)) as channel:

        async def write(text: str) -> None:
            fake.push_text(7, text)

        async def shown(count: int) -> list[str]:
            return [sent.text for sent in await fake.wait_sent(count)]

        fake.push_text(7, "first")
        await engine.wait_until(lambda e: len(e.received) == 1)
        engine.received.clear()
        yield Case(channel, engine, Address("telegram", "default", "7"), write, shown)


@asynccontextmanager
async def web(tmp_path) -> AsyncIterator[Case]:
    async def ready() -> Readiness:
        return Readiness()

    channel, engine = Web(), RecordingEngine()
    server = DashboardServer(
        DashboardConfig(port=0), readiness=ready, registry=CollectorRegistry(), channels=[channel]
    )
    await channel.start(engine)
    url = (await server.start()).url
    async with (
        aiohttp.ClientSession() as client,
        client.ws_connect(f"{url}chat/ws", headers={"Origin": url.rstrip("/")}) as ws,
    ):
        await ws.send_str(json.dumps({"type": "hello", "version": 1}))
        frames: list[dict[str, str]] = []

        async def until(ready_: Callable[[], bool]) -> None:
            while not ready_():
                frames.append(json.loads(await ws.receive_str()))

        def said() -> list[str]:
            return [f["text"] for f in frames if f["type"] == "message" and f["role"] == "bot"]

        async def write(text: str) -> None:
            frame = {"type": "send", "id": text.replace(" ", "-"), "text": text, "locale": "en"}
            await ws.send_str(json.dumps(frame))

        async def shown(count: int) -> list[str]:
            await until(lambda: len(said()) >= count)
            return said()

        await until(lambda: any(frame["type"] == "history" for frame in frames))
        yield Case(channel, engine, Address("web", "default", "owner"), write, shown)
    await channel.stop()
    await server.stop()


class Keyboard(io.StringIO):
    """A pipe that somebody writes into later."""

    def __init__(self) -> None:
        super().__init__()
        self._lines: asyncio.Queue[str] = asyncio.Queue()
        self._loop = asyncio.get_running_loop()

    def type(self, line: str) -> None:
        self._lines.put_nowait(line)

    def readline(self, size: int = -1) -> str:
        return asyncio.run_coroutine_threadsafe(self._lines.get(), self._loop).result()


@asynccontextmanager
async def console(tmp_path) -> AsyncIterator[Case]:
    keyboard, screen = Keyboard(), io.StringIO()
    channel, engine = Console(keyboard, screen), RecordingEngine()
    await channel.start(engine)
    address = Address("console", "default", "owner")

    async def write(text: str) -> None:
        keyboard.type(f"{text}\n")
        await engine.wait_until(lambda e: bool(e.received) and e.received[-1].text == text)
        # Through a pipe one line waits for the reply to the one before.
        await channel.send(Outbound(f"re-{text}", address, f"re: {text}"))

    async def shown(count: int) -> list[str]:
        lines = screen.getvalue().splitlines()
        return [line for line in lines if line and not line.startswith("re: ")]

    yield Case(channel, engine, address, write, shown)
    keyboard.type("")
    await channel.finished()
    await channel.stop()


@pytest.fixture(params=[in_memory, telegram, web, console], ids=lambda make: make.__name__)
async def case(request, tmp_path) -> AsyncIterator[Case]:
    async with request.param(tmp_path) as case:
        yield case


async def test_what_a_person_writes_reaches_the_engine_once_and_in_order(case):
    for number in range(3):
        await case.write(f"message {number}")
    await case.engine.wait_until(lambda e: len(e.received) >= 3)
    received = case.engine.received
    assert [inbound.text for inbound in received] == ["message 0", "message 1", "message 2"]
    assert {inbound.address for inbound in received} == {case.address}
    assert len({inbound.message_id for inbound in received}) == 3
    assert {inbound.chat_type for inbound in received} == {"direct"}
    assert all(inbound.sender for inbound in received)


async def test_what_the_engine_sends_is_shown_in_order(case):
    for number in range(3):
        sent = await case.channel.send(Outbound(f"o{number}", case.address, f"reply {number}"))
        assert sent
    assert (await case.shown(3))[-3:] == ["reply 0", "reply 1", "reply 2"]


async def test_a_channel_has_the_abilities_it_declares_and_they_never_raise(case):
    able = case.channel.capabilities
    assert able.max_length >= 64
    for declared, ability in (
        (able.typing, Typing),
        (able.drafts, Drafts),
        (able.command_menu, CommandMenu),
    ):
        assert not declared or isinstance(case.channel, ability)
    if isinstance(case.channel, Typing):
        await case.channel.typing(case.address)
    if isinstance(case.channel, Drafts):
        await case.channel.draft(case.address, "d", "so far")
        await case.channel.draft(case.address, "d", "")


async def test_it_says_how_it_is_doing(case):
    assert case.engine.health
    assert {name for name, _ in case.engine.health} == {case.channel.name}


async def test_stopping_twice_is_harmless(case):
    await case.channel.stop()
    await case.channel.stop()
