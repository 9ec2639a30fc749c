"""aimock: a Messages API that nobody here wrote, as a process on a free port of this machine.

The npm package is installed once from `tests/aimock/package-lock.json`, with the Node.js that comes
with the type checker, so tests need nothing but the virtual environment.
"""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from tests.fakes.npm import NODE, install
from tests.fakes.ports import free_port

HOME = Path(__file__).resolve().parents[1] / "aimock"
FIXTURES = HOME / "fixtures"
CLI = HOME / "node_modules" / "@copilotkit" / "aimock" / "dist" / "cli.js"

READY_TIMEOUT = 30.0  # seconds
READY_INTERVAL = 0.02  # seconds
STOP_TIMEOUT = 5.0  # seconds
STARTS = 5  # tries: another process may take the free port first


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
    async with aiohttp.ClientSession() as http:
        for _ in range(STARTS):
            port = free_port()
            process = _start(port, fixtures, options)
            try:
                mock = AiMock(f"http://127.0.0.1:{port}", http)
                if await _ready(process, mock.base_url, http):
                    yield mock
                    return
            finally:
                await asyncio.to_thread(_stop, process)
        raise RuntimeError("aimock does not start")


def _start(port: int, fixtures: Path, options: tuple[str, ...]) -> subprocess.Popen[bytes]:
    command = [NODE, CLI, "-p", str(port), "-h", "127.0.0.1", "-f", fixtures]
    return subprocess.Popen(
        [*command, "--log-level", "silent", *options],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


async def _ready(
    process: subprocess.Popen[bytes], base_url: str, http: aiohttp.ClientSession
) -> bool:
    async with asyncio.timeout(READY_TIMEOUT):
        while process.poll() is None:
            try:
                async with http.get(f"{base_url}/health") as response:
                    if response.status == 200:
                        return process.poll() is None
            except aiohttp.ClientError:
                pass
            await asyncio.sleep(READY_INTERVAL)
    return False


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(STOP_TIMEOUT)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
