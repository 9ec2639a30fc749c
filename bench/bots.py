"""The programs that are measured: how each is started, watched and ended."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[1]
STOP_TIMEOUT = 30.0  # seconds a program may take to end when it is asked to
# What the environment of whoever runs this says about bots must not reach the ones measured.
_FOREIGN = ("CONFIDANT_", "TELEGRAM_", "DISCORD_", "NEXTCLOUD_", "ANTHROPIC_", "PYTHON")
_PROXIES = frozenset({"http_proxy", "https_proxy", "all_proxy"})


@dataclass(frozen=True, slots=True)
class Bot:
    """A program to measure; `title` is its row in the table, `variables` are its own.

    One with `neighbours` is connected to Discord and Nextcloud Talk too, where nobody writes.
    """

    title: str
    command: tuple[str, ...]
    variables: tuple[tuple[str, str], ...] = ()
    neighbours: bool = False


HTTPX = Bot("floor on httpx", (sys.executable, "-m", "bench.floor", "httpx"))
AIOHTTP = Bot("floor on aiohttp + uvloop", (sys.executable, "-m", "bench.floor", "aiohttp"))
WHOLE = Bot("floor that does not stream", (*AIOHTTP.command, "whole"))
CONFIDANT = Bot("Confidant", (str(Path(sys.executable).with_name("confidant")), "run"))
WORDS_ONLY = Bot(
    "Confidant, searching by words alone",
    CONFIDANT.command,
    (("CONFIDANT_MEMORY__EMBEDDER__PROVIDER", "none"),),
)
ALL_CHANNELS = Bot(
    "Confidant, Discord and Nextcloud Talk on too", CONFIDANT.command, neighbours=True
)
BOTS = (HTTPX, AIOHTTP, WHOLE, CONFIDANT, ALL_CHANNELS, WORDS_ONLY)


class Running:
    """A program that runs: its costs so far."""

    def __init__(self, pid: int, started: float) -> None:
        self._process = psutil.Process(pid)
        self.started = started  # time.monotonic() just before it was started

    def cpu(self) -> float:
        """Seconds of processor time, user and system, of all its threads."""
        times = self._process.cpu_times()
        return times.user + times.system

    def kill(self) -> None:
        """End it as hard as can be."""
        self._process.kill()

    def resident(self) -> float:
        """Megabytes (10^6 bytes) of memory."""
        return self._process.memory_info().rss / 1e6


@asynccontextmanager
async def running(
    command: tuple[str, ...], folder: Path, environment: Mapping[str, str]
) -> AsyncGenerator[Running]:
    """Start a program in a folder, its output in `output.log` there; end it afterwards."""
    with (folder / "output.log").open("wb") as output:
        started = time.monotonic()
        process = await asyncio.create_subprocess_exec(
            *command,
            cwd=folder,
            env=_environment(environment),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    try:
        yield Running(process.pid, started)
    finally:
        await stop(process)


@asynccontextmanager
async def server(module: str, *arguments: str) -> AsyncGenerator[tuple[str, Running]]:
    """Start a fake server; the line it says where it is with, and its costs."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", module, *arguments),
        cwd=ROOT,
        env=_environment({}),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
    )
    started = time.monotonic()
    try:
        if process.stdout is None:
            raise RuntimeError(f"{module} has no output")
        line = (await process.stdout.readline()).decode().strip()
        if not line:
            raise RuntimeError(f"{module} does not start")
        yield line, Running(process.pid, started)
    finally:
        await stop(process)


def settings(folder: Path, telegram: str, token: str, model_url: str) -> dict[str, str]:
    """The environment that points every program at the fake servers."""
    return {
        "TELEGRAM_BOT_TOKEN": token,
        "BENCH_TELEGRAM_URL": telegram,
        "BENCH_MODEL_URL": model_url,
        "ANTHROPIC_API_KEY": "x",
        "CONFIDANT_MODELS__ANTHROPIC__BASE_URL": model_url,
        "CONFIDANT_CHANNELS__TELEGRAM__API_ROOT": telegram,
        "CONFIDANT_CHANNELS__TELEGRAM__DM_POLICY": "open",
        "CONFIDANT_CHANNELS__TELEGRAM__ALLOW_FROM": "*",
        "CONFIDANT_SESSION__RESET__MODE": "none",
        "CONFIDANT_STORAGE__DIR": str(folder),
        "CONFIDANT_DASHBOARD__PORT": "0",
        "CONFIDANT_CONTEXT__TOKENIZER": "estimate",  # ranks would take 80 MB where they are
    }


async def stop(process: asyncio.subprocess.Process) -> None:
    """Ask a program to end; end it when it does not."""
    if process.returncode is not None:
        return
    process.terminate()
    try:
        await asyncio.wait_for(process.wait(), STOP_TIMEOUT)
    except TimeoutError:
        process.kill()
        await process.wait()


def _environment(more: Mapping[str, str]) -> dict[str, str]:
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(_FOREIGN) and name.lower() not in _PROXIES
    }
    return {**kept, "PYTHONPATH": str(ROOT), **more}
