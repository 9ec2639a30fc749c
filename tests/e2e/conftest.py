"""A real server with the real page, an engine small enough to steer, and one Chromium."""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web
from playwright.async_api import Browser, async_playwright, expect
from prometheus_client import CollectorRegistry

from adapters.web.channel import ADDRESS, Web
from bot.channel import Address, Command, Health, HistoryItem, Inbound, Media, ModelChoice, Outbound
from bot.channel.http import shared
from bot.config import DashboardConfig
from bot.dashboard import DashboardServer, Readiness
from bot.dashboard.pages import WayPages
from bot.errors import OutOfSight, StorageError
from bot.testing import TWO_MODELS
from tests.fakes.browsers import BrowsersInMemory
from tests.support import PATIENCE, post, settings_of

expect.set_options(timeout=PATIENCE * 1000)  # ms; however busy the machine is

BOT = "Pip & <i>Co</i>"  # what the bot is called
COMMANDS = {
    "en": (
        Command("new", "Start a new conversation", "[model]"),
        Command("reset", "Start over, with the same model"),
        Command("undo", "Go back to the previous conversation"),
        Command("stop", "Stop the running reply"),
        Command("status", "How things are going"),
        Command("model", "Show or change the model", "[name]"),
        Command("whoami", "Who you are to the bot"),
        Command("help", "What you can do here"),
    ),
    "zh": (
        Command("new", "开始新对话", "[model]"),
        Command("undo", "回到上一段对话"),
        Command("stop", "停止正在进行的回复"),
        Command("help", "查看可以做什么"),
    ),
}


@dataclass
class EchoEngine:
    """Answers every message once, whatever `replies` says to it, and remembers the conversation."""

    replies: dict[str, str] = field(default_factory=dict)
    lines: list[HistoryItem] = field(default_factory=list)
    attempts: list[str] = field(default_factory=list)  # ids, every time one was offered
    inbounds: list[Inbound] = field(default_factory=list)
    failures: int = 0
    gate: asyncio.Event | None = None  # holds replies back in the middle of their draft
    hold: asyncio.Event | None = None  # holds `receive` back before it stores
    choice: ModelChoice = TWO_MODELS
    reached: list[tuple[Address, str]] = field(default_factory=list)
    web: Web | None = None
    kept: dict[str, tuple[Media, bytes]] = field(default_factory=dict)  # files, by ref
    room: int = 20_000_000  # bytes of one
    _turns: set[asyncio.Task[None]] = field(default_factory=set)

    async def receive(self, inbound: Inbound) -> None:
        self.attempts.append(inbound.message_id)
        if self.hold is not None:
            await self.hold.wait()
        if self.failures > 0:
            self.failures -= 1
            raise StorageError
        if any(line.id == inbound.message_id for line in self.lines):
            return
        ids = [line.id for line in self.lines]
        if inbound.replaces:
            if inbound.replaces not in ids:
                raise OutOfSight
            del self.lines[ids.index(inbound.replaces) :]
        self.inbounds.append(inbound)
        refs = tuple(media.ref for media in inbound.media)
        self.lines.append(
            HistoryItem(inbound.message_id, "user", inbound.text, inbound.sent_at, files=refs)
        )
        turn = asyncio.create_task(self._answer(inbound))
        self._turns.add(turn)
        turn.add_done_callback(self._turns.discard)

    async def _answer(self, inbound: Inbound) -> None:
        assert self.web is not None
        reply = self.replies.get(inbound.text, f"You said: {inbound.text}")
        await self.web.typing(inbound.address)
        half = len(reply) // 2
        await self.web.draft(inbound.address, "turn", reply[:half])
        if self.gate is not None:
            await self.gate.wait()
        await self.web.draft(inbound.address, "turn", reply)
        await self.say(reply, f"re-{inbound.message_id}")

    async def say(self, text: str, message_id: str, **extra: Any) -> None:
        """Send something unasked."""
        assert self.web is not None
        at = time.time_ns() // 1_000_000
        outbound = Outbound(message_id, ADDRESS, text, at=at, **extra)
        failed = outbound.failed
        self.lines.append(HistoryItem(message_id, "bot", text, at, failed=failed))
        await post(self.web, outbound)

    async def history(
        self, _address: object, limit: int, before: str = ""
    ) -> Sequence[HistoryItem]:
        places = [line.place for line in self.lines]
        end = places.index(before) if before else len(self.lines)
        return self.lines[max(0, end - limit) : end]

    async def put_file(self, _address: object, media: Media, _part: int, data: bytes) -> bool:
        _, held = self.kept.get(media.ref, (media, b""))
        self.kept[media.ref] = media, held + data
        return len(held + data) <= self.room

    async def files(self, _address: object) -> dict[str, Media]:
        return {ref: media for ref, (media, _) in self.kept.items()}

    async def file(self, _address: object, ref: str) -> bytes | None:
        return self.kept[ref][1] if ref in self.kept else None

    async def drop_file(self, _address: object, ref: str) -> None:
        self.kept.pop(ref, None)

    async def models(self, _address: object, _sender: str) -> ModelChoice:
        return self.choice

    def commands(self, locale: str) -> Sequence[Command]:
        return COMMANDS["zh" if locale.startswith("zh") else "en"]

    async def broadcast(self, channel: str, body: str, *, stored: bool = True) -> None:
        """There is no other node."""

    def reach(self, address: Address, words: str) -> None:
        self.reached.append((address, words))

    def report(self, channel: str, account: str, health: Health, detail: str = "") -> None:
        pass


class NothingElse:
    """No browser is told of anything here, and there is no other conversation."""

    def routes(self) -> list[web.RouteDef]:
        return shared(
            [web.get("/api/push", self._devices), web.get("/api/conversations", self._none)]
        )

    async def _none(self, _request: web.Request) -> web.Response:
        return web.json_response({"pinned": [], "items": [], "older": ""})

    async def _devices(self, _request: web.Request) -> web.Response:
        return web.json_response({"key": "", "devices": []})


class Service:
    """The server and its engine; stopping and starting keeps the port and the conversation."""

    def __init__(self, token: str | None = None, **options: Any) -> None:
        self.engine = EchoEngine()
        self._options = {"token": token, **options}
        self.url = ""
        self._port = 0
        self._server: DashboardServer | None = None
        self._browsers = BrowsersInMemory()

    async def start(self) -> None:
        self.engine.web = Web()
        self._server = DashboardServer(
            DashboardConfig.model_validate({"port": self._port, **self._options}),
            readiness=_ready,
            registry=CollectorRegistry(),
            browsers=self._browsers,
            channels=[WayPages(settings_of(agent={"name": BOT})), NothingElse(), self.engine.web],
        )
        await self.engine.web.start(self.engine)
        listening = await self._server.start()
        self._port, self.url = listening.port, listening.url

    async def stop(self) -> None:
        if self._server is not None and self.engine.web is not None:
            await self.engine.web.stop()
            await self._server.stop()
            self._server = None


async def _ready() -> Readiness:
    return Readiness()


@asynccontextmanager
async def started(path: str, *more: str) -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=path,
            args=[
                "--no-sandbox",
                "--disable-background-networking",
                "--disable-component-update",
                "--disable-dev-shm-usage",
                "--no-first-run",
                # Two processes less to talk to take a tenth off the processor's time.
                "--in-process-gpu",
                "--enable-features=NetworkServiceInProcess2",
                *more,
            ],
        )
        yield browser
        await browser.close()


CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or "/usr/bin/chromium"


@pytest_asyncio.fixture(loop_scope="session", scope="session")
async def browser():
    """Chromium's headless shell where there is one: it takes a third of the processor's time.

    CHROMIUM_SHELL names it; empty, all tests use the whole browser.
    """
    shell = shutil.which(os.environ.get("CHROMIUM_SHELL", "chromium-headless-shell"))
    async with started(shell or CHROMIUM) as browser:
        yield browser


@pytest_asyncio.fixture(loop_scope="session", scope="session")
async def whole_browser():
    """The browser with all it has, such as notifications."""
    async with started(CHROMIUM) as browser:
        yield browser


@pytest.fixture
def token():
    """Parametrise to guard the page."""
    return


@pytest_asyncio.fixture(loop_scope="session")
async def service(token):
    service = Service(token)
    await service.start()
    yield service
    if service.engine.gate is not None:
        service.engine.gate.set()
    await service.stop()


@pytest.fixture
def context_options():
    """Parametrise to open the page with another size, language or colour scheme."""
    return {}


@pytest_asyncio.fixture(loop_scope="session")
async def context(browser, context_options):
    # What a worker fetches no test can watch or hold back; those that need one allow it.
    usual = {"locale": "en-GB", "service_workers": "block"}
    context = await browser.new_context(**{**usual, **context_options})
    yield context
    await context.close()


@pytest_asyncio.fixture(loop_scope="session")
async def page(context, service):
    """The page, open and connected; any error the browser tells fails the test."""
    page = await context.new_page()
    told: list[str] = []
    page.on("pageerror", lambda error: told.append(str(error)))
    page.on(
        "console",
        lambda message: (
            told.append(message.text)
            if message.type == "error" and "ERR_CONNECTION" not in message.text
            else None
        ),
    )
    await page.goto(service.url)
    await page.wait_for_selector("#state[data-state=open]")
    yield page
    assert told == []
