"""aimock: a Messages API that nobody here wrote, as a process on a free port of this machine.

The npm package is installed once from `tests/aimock/package-lock.json`, with the Node.js that comes
with the type checker, so tests need nothing but the virtual environment.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from tests.fakes import mocks
from tests.fakes.npm import NODE, install

HOME = Path(__file__).resolve().parents[1] / "aimock"
FIXTURES = HOME / "fixtures"
CLI = HOME / "node_modules" / "@copilotkit" / "aimock" / "dist" / "cli.js"

READY_TIMEOUT = 30.0  # seconds


class AiMock:
    """A running mock: where it is, and what it was asked."""

    def __init__(self, base_url: str, http: aiohttp.ClientSession) -> None:
        self.base_url = base_url
        self._http = http

    async def journal(self) -> list[dict[str, Any]]:
        """Every request since the start or the last `forget`; bodies in aimock's own shape."""
        async with self._http.get(f"{self.base_url}/__aimock/journal") as response:
            response.raise_for_status()
            return await response.json()

    async def add(self, *fixtures: Mapping[str, Any]) -> None:
        """Add fixtures behind those there are; the first that matches answers."""
        url = f"{self.base_url}/__aimock/fixtures"
        async with self._http.post(url, json={"fixtures": fixtures}) as response:
            if response.status != 200:
                raise ValueError(await response.text())

    async def forget(self) -> None:
        """Empty the journal."""
        url = f"{self.base_url}/__aimock/reset/journal"
        async with self._http.post(url) as response:
            response.raise_for_status()


@asynccontextmanager
async def running(fixtures: Path = FIXTURES, *options: str) -> AsyncGenerator[AiMock]:
    """Start aimock with a file or folder of fixtures and end it afterwards."""
    await asyncio.to_thread(install, HOME)

    def command(port: int) -> Sequence[str | Path]:
        where = ("-p", str(port), "-h", "127.0.0.1", "-f", fixtures)
        return NODE, CLI, *where, "--log-level", "silent", *options

    async with (
        mocks.serving(command, "/health", READY_TIMEOUT) as address,
        aiohttp.ClientSession() as http,
    ):
        yield AiMock(address, http)
