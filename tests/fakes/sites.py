"""Servers of a test's own, on this machine, and waiting for what they are asked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web


@asynccontextmanager
async def serving(app: web.Application, **options: Any) -> AsyncGenerator[str]:
    """Serve on a free port within an `async with`; the address, without a slash at its end.

    `options` are those of `aiohttp.web.AppRunner`.
    """
    runner = web.AppRunner(app, shutdown_timeout=0.1, **options)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0][:2]
        yield f"http://{host}:{port}"
    finally:
        await runner.cleanup()


@dataclass
class Changed:
    """Something to wait for: waiters are asked again after every change."""

    waiters: list[Any] = field(default_factory=list)

    def notify(self) -> None:
        for ready, waiter in self.waiters:
            if not waiter.done() and ready():
                waiter.set_result(None)

    async def wait_for(self, ready: Any, within: float = 60.0) -> None:
        if ready():
            return
        waiter = asyncio.get_running_loop().create_future()
        entry = (ready, waiter)
        self.waiters.append(entry)
        try:
            async with asyncio.timeout(within):
                await waiter
        finally:
            self.waiters.remove(entry)
