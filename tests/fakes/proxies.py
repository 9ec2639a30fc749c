"""Real proxies from PyPI, each a process on this machine: proxy.py for HTTP, pproxy for SOCKS5.

Only they know the hosts below "example": what arrives at one has come through a proxy.
"""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import DEVNULL
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from yarl import URL

from tests.fakes.ports import free_port
from tests.support import PATIENCE, pause

HOST = "server.example"
LOGIN = "ada:s3cret"
_PLACE = Path(__file__).with_name("proxied")


@asynccontextmanager
async def running(kind: str, login: str = "") -> AsyncIterator[str]:
    """The address of a proxy that wants a login, or none; `kind` is "http" or "socks5"."""
    port = free_port()
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(_PLACE)}
    command = _http(port, login) if kind == "http" else _socks(port, login)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, *command), env=environment, stdout=DEVNULL, stderr=DEVNULL
    )
    try:
        async with asyncio.timeout(PATIENCE):
            while not await _listens(port):
                await pause(0.02)
        yield f"{kind}://{f'{login}@' if login else ''}127.0.0.1:{port}"
    finally:
        process.terminate()
        await process.wait()


def through(address: str) -> str:
    """An address on this machine, by a name that only the proxies know."""
    return str(URL(address).with_host(HOST))


def _http(port: int, login: str) -> list[str]:
    few = ("--num-workers", "1", "--num-acceptors", "1", "--log-level", "ERROR", "--threaded")
    asked = ("--basic-auth", login) if login else ()
    return ["-m", "proxy", "--hostname", "127.0.0.1", "--port", str(port), *few, *asked]


def _socks(port: int, login: str) -> list[str]:
    return [str(_PLACE / "socks.py"), f"socks5://127.0.0.1:{port}{f'#{login}' if login else ''}"]


async def _listens(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True
