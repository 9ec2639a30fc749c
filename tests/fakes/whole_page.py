"""The whole program with its page and a channel in memory, in this process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from adapters.web import plugin
from adapters.web.channel import Web
from bot.app import App, Parts
from bot.channel import Inbound
from bot.clock import system_clock
from bot.settings import config_model
from bot.testing import InMemoryChannel, ScriptedModel
from tests.support import FakeClock, make_config

HOSTILE = "<img src=x onerror=alert(1)>"


@dataclass
class WholePage:
    """The program that runs, and where it is."""

    app: App
    channel: InMemoryChannel
    folder: Path

    @property
    def url(self) -> str:
        assert self.app.address is not None
        return self.app.address.url

    async def write(self, text: str, *, sender: str) -> None:
        """Somebody writes in the channel in memory, and is answered."""
        before = len(self.channel.sent)
        await self.channel.push(
            Inbound(
                channel="memory",
                account="default",
                chat=sender,
                chat_type="direct",
                sender=sender,
                sender_name=sender,
                message_id=f"{sender}-{before}",
                text=text,
                sent_at=system_clock(),
                locale="en",
            )
        )
        await self.channel.wait_sent(before + 1)

    async def chat(self, text: str, *, token: str = "") -> None:
        """The owner writes in the page, and is answered."""
        headers = {"Origin": self.url.rstrip("/")}
        headers |= {"Authorization": f"Bearer {token}"} if token else {}
        async with (
            aiohttp.ClientSession() as client,
            client.ws_connect(f"{self.url}chat/ws", headers=headers) as ws,
        ):
            await ws.send_json({"type": "hello", "version": 1, "locale": "en"})
            while (await ws.receive_json())["type"] != "history":
                pass
            await ws.send_json({"type": "send", "id": f"w{hash(text)}", "text": text})
            while (await ws.receive_json())["type"] != "message":
                pass


@asynccontextmanager
async def whole_page(
    folder: Path,
    *,
    model: ScriptedModel | None = None,
    clock: FakeClock | None = None,
    **sections: Any,
) -> AsyncIterator[WholePage]:
    """Run it on a folder, to the end of an `async with`."""
    sections.setdefault("dashboard", {"port": 0})
    made, plugins = make_config(folder, **sections)
    plugins["web"] = plugin
    config = config_model(plugins).model_validate(made.model_dump(exclude_unset=True))
    channel = InMemoryChannel()
    parts = Parts(
        clock=clock or system_clock,
        remote=model or ScriptedModel(),
        channels={"web": Web(), "memory": channel},
    )
    async with App(config, plugins, parts) as app:
        yield WholePage(app, channel, folder)
