"""Two whole programs with their pages on one PostgreSQL, in one process, each with its files."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from adapters.web import plugin as web
from adapters.web.channel import Web
from bot import settings
from bot.app import App, Parts
from bot.channel import ChannelPlugin
from bot.clock import system_clock
from bot.push.pusher import PUBLIC, Endpoints
from bot.testing import InMemoryChannel, ScriptedModel
from tests.fakes.page_people import TOKEN, Browser, browser
from tests.fakes.pair import GONE_AFTER
from tests.fakes.push_service import PushService
from tests.support import Engine, FakeClock, OpenConfig, until

FILE = """
[agent]
timezone = "UTC"
[storage]
backup_hours = 0
{storage}
[memory]
watch = false
[memory.embedder]
provider = "none"
[context]
enable_memory_flush = false
[dashboard]
port = 0
[channels.memory]
dm_policy = "pairing"
allow_from = ["zoe"]
group_policy = "open"
"""


def on_postgres(url: str) -> str:
    """The configuration of a node."""
    return FILE.format(storage=f'url = "{url}"\nnode_timeout = {GONE_AFTER}')


@dataclass
class Pages:
    """A browser that is open at both nodes, as behind a proxy: `here` at the one, `there` not."""

    here: Browser
    there: Browser


@dataclass
class PageNodes:
    """The nodes, with the same model behind them, and the service that notes go to."""

    one: Engine
    other: Engine
    model: ScriptedModel
    service: PushService

    @asynccontextmanager
    async def browser(self) -> AsyncGenerator[Pages]:
        jar = aiohttp.CookieJar(unsafe=True)
        async with browser(self.one, jar=jar) as here, browser(self.other, jar=jar) as there:
            yield Pages(here, there)

    def sent_to(self, chat: str) -> list[str]:
        """What somebody was sent in the channel in memory; one node has its account."""
        return [*self.one.sent_to(chat), *self.other.sent_to(chat)]

    async def ask(self, text: str, sender: str) -> str:
        """Write in the channel in memory at the one node; the next text for them."""
        before = len(self.sent_to(sender))
        await self.one.say(text, sender=sender)
        return await self.told(sender, before)

    async def told(self, sender: str, before: int) -> str:
        await until(lambda: len(self.sent_to(sender)) > before)
        return self.sent_to(sender)[before]


@asynccontextmanager
async def page_nodes(url: str, folder: Path, service: PushService) -> AsyncGenerator[PageNodes]:
    """Start them and stop them at the end."""
    model = ScriptedModel()
    nodes: list[Engine] = []
    async with AsyncExitStack() as both:
        for name in ("one", "other"):
            text, endpoints = on_postgres(url), service.endpoints
            node = await both.enter_async_context(page_node(folder / name, text, model, endpoints))
            nodes.append(node)
        one, other = nodes
        yield PageNodes(one, other, model, service)


@asynccontextmanager
async def page_from_files(folder: Path) -> AsyncGenerator[Engine]:
    """The same program alone, with a folder for its database."""
    async with page_node(folder, FILE.format(storage=""), ScriptedModel(), PUBLIC) as engine:
        yield engine


@asynccontextmanager
async def page_node(
    folder: Path, text: str, model: ScriptedModel, endpoints: Endpoints, token: str = TOKEN
) -> AsyncGenerator[Engine]:
    """One program with its page, configured by this text."""
    (folder / "data").mkdir(parents=True)
    (folder / "confidant.toml").write_text(text)
    (folder / "data" / ".env").write_text(f"CONFIDANT_DASHBOARD__TOKEN={token}\n")
    memory = InMemoryChannel()
    plugins = {
        "memory": ChannelPlugin("memory", OpenConfig, lambda _config: InMemoryChannel()),
        "web": web,
    }
    environ = {"HOME": str(folder), "CONFIDANT_STORAGE__DIR": str(folder / "data")}
    loaded = settings.load(None, environ, folder, plugins)
    parts = Parts(
        clock=system_clock,
        remote=model,
        channels={"memory": memory, "web": Web()},
        loaded=loaded,
        push_endpoints=endpoints,
    )
    async with App(loaded.config, plugins, parts) as app:
        yield Engine(app, memory, model, FakeClock(), folder)
