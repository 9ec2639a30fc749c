"""Two whole programs with their pages on one PostgreSQL, in one process, each with its files."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
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
from tests.support import Engine, FakeClock, OpenConfig, until

FILE = """
[agent]
timezone = "UTC"
[storage]
dir = "data"
url = "{url}"
node_timeout = {gone_after}
backup_hours = 0
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
"""


@dataclass
class Pages:
    """A browser that is open at both nodes, as behind a proxy: `here` at the one, `there` not."""

    here: Browser
    there: Browser


@dataclass
class PageNodes:
    """The nodes, with the same model behind them."""

    one: Engine
    other: Engine
    model: ScriptedModel
    stacks: dict[int, AsyncExitStack] = field(default_factory=dict)

    @asynccontextmanager
    async def browser(self) -> AsyncIterator[Pages]:
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

    async def stop(self, node: Engine) -> None:
        await self.stacks.pop(id(node)).aclose()


@asynccontextmanager
async def page_nodes(
    url: str, folder: Path, *, endpoints: Endpoints = PUBLIC, file: str = ""
) -> AsyncIterator[PageNodes]:
    """Start them and stop them at the end; `file` is more of their configuration."""
    model = ScriptedModel()
    stacks: dict[int, AsyncExitStack] = {}
    nodes: list[Engine] = []
    async with AsyncExitStack() as both:
        for name in ("one", "other"):
            stack = AsyncExitStack()
            both.push_async_callback(stack.aclose)
            text = FILE.format(url=url, gone_after=GONE_AFTER) + file
            node = await stack.enter_async_context(_node(folder / name, text, model, endpoints))
            stacks[id(node)] = stack
            nodes.append(node)
        yield PageNodes(*nodes, model, stacks)


@asynccontextmanager
async def _node(
    folder: Path, text: str, model: ScriptedModel, endpoints: Endpoints
) -> AsyncIterator[Engine]:
    (folder / "data").mkdir(parents=True)
    (folder / "confidant.toml").write_text(text)
    (folder / "data" / ".env").write_text(f"CONFIDANT_DASHBOARD__TOKEN={TOKEN}\n")
    memory = InMemoryChannel()
    plugins = {
        "memory": ChannelPlugin("memory", OpenConfig, lambda _config: InMemoryChannel()),
        "web": web,
    }
    loaded = settings.load(None, {"HOME": str(folder)}, folder, plugins)
    parts = Parts(
        clock=system_clock,
        remote=model,
        channels={"memory": memory, "web": Web()},
        loaded=loaded,
        push_endpoints=endpoints,
    )
    async with App(loaded.config, plugins, parts) as app:
        yield Engine(app, memory, model, FakeClock(), folder)
