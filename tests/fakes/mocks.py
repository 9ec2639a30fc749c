"""Servers of tests as processes of their own: mocks that nobody here wrote, and our fakes."""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from tests.fakes.ports import free_port

READY_INTERVAL = 0.02  # seconds
STOP_TIMEOUT = 5.0  # seconds
STARTS = 5  # tries: another process may take the free port first

Command = Callable[[int], Sequence[str | Path]]


@contextmanager
def serving(command: Command, health: str, within: float) -> Generator[str]:
    """Start the command for a port; its address, once it answers at `health` (within seconds)."""
    for _ in range(STARTS):
        port = free_port()
        process = _start(command(port))
        try:
            if _ready(process, f"http://127.0.0.1:{port}{health}", within):
                yield f"http://127.0.0.1:{port}"
                return
        finally:
            _stop(process)
    raise RuntimeError("the mock does not start")


def _start(command: Sequence[str | Path]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def _ready(process: subprocess.Popen[bytes], url: str, within: float) -> bool:
    end = time.monotonic() + within
    while process.poll() is None and time.monotonic() < end:
        try:
            with urlopen(url, timeout=within):  # noqa: S310 - ours
                return process.poll() is None
        except OSError:
            time.sleep(READY_INTERVAL)
    return False


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(STOP_TIMEOUT)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def run_fake(make: Callable[[], Any], port: int) -> None:
    """Run a fake platform as a program of its own, until it is told to end."""

    async def serve() -> None:
        fake = make()
        await fake.start(port)
        print(f"listening on {fake.url}", flush=True)
        try:
            await asyncio.Event().wait()
        finally:
            await fake.stop()

    run = asyncio.run
    with suppress(ImportError):
        import uvloop

        run = uvloop.run  # so that a benchmark measures the bot, not this
    with suppress(KeyboardInterrupt):
        run(serve())
