"""fakellm: a server of both APIs that nobody here wrote, and not aimock's authors either."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from tests.fakes.ports import free_port

READY_TIMEOUT = 60.0  # seconds
READY_INTERVAL = 0.05  # seconds
STOP_TIMEOUT = 5.0  # seconds
STARTS = 5  # tries: another process may take the free port first


@asynccontextmanager
async def running(folder: Path, rules: Sequence[Mapping[str, Any]]) -> AsyncGenerator[str]:
    """Start one with these rules; its address, without a path."""
    config = folder / "fakellm.yaml"
    config.write_text(json.dumps({"version": 1, "rules": rules}), "utf-8")  # JSON is YAML
    for _ in range(STARTS):
        port = free_port()
        process = _start(port, config)
        try:
            if await _ready(process, f"http://127.0.0.1:{port}"):
                yield f"http://127.0.0.1:{port}"
                return
        finally:
            await asyncio.to_thread(_stop, process)
    raise RuntimeError("fakellm does not start")


def _start(port: int, config: Path) -> subprocess.Popen[bytes]:
    code = "from fakellm.cli import main; main()"
    return subprocess.Popen(
        [sys.executable, "-c", code, "serve", "--port", str(port), "--config", str(config)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


async def _ready(process: subprocess.Popen[bytes], address: str) -> bool:
    async with asyncio.timeout(READY_TIMEOUT), aiohttp.ClientSession() as http:
        while process.poll() is None:
            try:
                async with http.get(f"{address}/_fakellm/stats") as response:
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
