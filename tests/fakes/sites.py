"""Servers of a test's own, on this machine."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
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
