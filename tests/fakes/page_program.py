"""A node with its page as a program of its own, which can be killed.

Its arguments: a folder, the database's URL, the push service's, and "holds" where no reply ends.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from adapters.web import nodes
from bot.net.addresses import Guard
from bot.push.pusher import Endpoints
from bot.testing import ScriptedModel
from tests.fakes.page_nodes import on_postgres, page_node
from tests.support import PATIENCE

ROOT = Path(__file__).resolve().parents[2]


@asynccontextmanager
async def page_program(
    folder: Path, url: str, service: str, mode: str = "answers"
) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    """Start it; the process, and where its page is."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.fakes.page_program", str(folder), url, service, mode),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(PATIENCE):
            while not (line := (await process.stdout.readline()).decode()).startswith("page at "):
                assert line, "it ended"
        reading = asyncio.create_task(process.stdout.read())  # what it says must not fill the pipe
        yield process, line.removeprefix("page at ").strip()
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
    await reading


async def main(folder: str, url: str, service: str, mode: str) -> None:
    nodes.SEEN_SECONDS = 0.0
    model = ScriptedModel(gate=asyncio.Event() if mode == "holds" else None)
    endpoints = Endpoints(Guard.from_hosts([service.removeprefix("http://")]), frozenset({"http"}))
    async with page_node(Path(folder), on_postgres(url), model, endpoints) as engine:
        assert engine.app.address is not None
        print(f"page at {engine.app.address.url.rstrip('/')}", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
