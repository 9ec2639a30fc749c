"""The whole program as `confidant run` starts it, from files in a fresh folder."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from bot import settings
from bot.app import App, Parts
from bot.settings import Loaded

CHANNELS = ("discord", "matrix", "nextcloud_talk", "telegram", "web")


@dataclass
class Started:
    """It runs; `folder` is its storage folder, and `page` a browser without script."""

    app: App
    folder: Path
    url: str
    page: aiohttp.ClientSession

    @property
    def kept(self) -> str:
        """What the page wrote."""
        path = self.folder / ".env"
        return path.read_text("utf-8") if path.exists() else ""

    async def get(self, path: str) -> str:
        async with self.page.get(f"{self.url}{path}") as answer:
            assert answer.status == 200, answer.status
            return await answer.text()

    async def post(self, path: str, **fields: str) -> tuple[int, str]:
        """Send a form; what is shown in the end, and the status of that."""
        headers = {"Origin": self.url}
        async with self.page.post(f"{self.url}{path}", data=fields, headers=headers) as answer:
            return answer.status, await answer.text()

    async def ask(self, words: str, name: str = "m1") -> dict[str, Any]:
        """Say something in the chat; the frame of the reply."""
        async with self.page.ws_connect(f"{self.url}/chat/ws", headers={"Origin": self.url}) as ws:
            await ws.send_json({"type": "hello", "version": 1})
            await ws.send_json({"type": "send", "id": name, "text": words})
            while True:
                frame = await ws.receive_json(timeout=30)
                if frame["type"] == "message" and frame.get("role") != "user":
                    return frame


@asynccontextmanager
async def started(folder: Path, **variables: str) -> AsyncGenerator[Started]:
    """Start it with these variables of the environment; stop it at the end."""
    loaded = load(folder, **variables)
    parts = Parts(loaded=loaded)
    async with App(loaded.config, loaded.plugins, parts) as app:
        assert app.address is not None
        jar = aiohttp.CookieJar(unsafe=True)
        async with aiohttp.ClientSession(cookie_jar=jar, headers={"Accept": "text/html"}) as page:
            yield Started(app, folder / "data", app.address.url.rstrip("/"), page)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def unchanged(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Started]:
    """One for all tests of a module that change nothing."""
    async with started(tmp_path_factory.mktemp("unchanged")) as program:
        yield program


def load(folder: Path, **variables: str) -> Loaded:
    """The configuration that a start in that folder reads."""
    environ = {
        "HOME": str(folder),
        "CONFIDANT_STORAGE__DIR": str(folder / "data"),
        "CONFIDANT_DASHBOARD__PORT": "0",
        "CONFIDANT_MEMORY__EMBEDDER__PROVIDER": "none",
        **variables,
    }
    plugins = {n: p for n, p in settings.installed_channels().items() if n in CHANNELS}
    return settings.load(None, environ, folder, plugins)
