"""docs/cluster.md, followed to the letter: its statements and files; three nodes, one killed."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import psycopg
import pytest

from tests.fakes import commands
from tests.fakes.postgres import PostgresServer, with_database
from tests.support import PATIENCE, pause

pytestmark = pytest.mark.slow

PAGE = Path(__file__).resolve().parents[2] / "docs" / "cluster.md"
TOKEN = "0123456789abcdef0123456789abcdef"
NODES = 3


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)


@pytest.fixture
def server():
    """One of its own: roles belong to a whole server."""
    found = PostgresServer()
    try:
        found.start()
        yield found
    finally:
        found.close()


def set_up(server: PostgresServer) -> None:
    first, second = blocks("sql")
    with psycopg.connect(server.admin_url, autocommit=True) as connection:
        for statement in filter(str.strip, first.split(";")):
            connection.execute(statement.encode())
    with psycopg.connect(server.url("confidant"), autocommit=True) as connection:
        connection.execute(second.encode())


async def start(folder: Path, url: str, *words: str) -> asyncio.subprocess.Process:
    """A command of a node, with the page's configuration."""
    folder.mkdir(exist_ok=True)
    configuration, *_ = blocks("toml")  # the first is all that it takes to set nodes up
    (folder / "confidant.toml").write_text(configuration)
    kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH", "LANG") if name in os.environ}
    return await asyncio.create_subprocess_exec(
        *commands.argv(),
        *words,
        cwd=folder,
        env={
            **kept,
            "HOME": str(folder),
            "CONFIDANT_STORAGE__URL": url,
            "CONFIDANT_STORAGE__NODE_TIMEOUT": "2",
            "CONFIDANT_DASHBOARD__HOST": "127.0.0.1",
            "CONFIDANT_DASHBOARD__PORT": "0",
            "CONFIDANT_DASHBOARD__TOKEN": TOKEN,
            "CONFIDANT_MEMORY__EMBEDDER__PROVIDER": "none",
        },
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT if words == ("run",) else asyncio.subprocess.DEVNULL,
    )


async def said(folder: Path, url: str, *words: str) -> str:
    process = await start(folder, url, *words)
    out, _ = await asyncio.wait_for(process.communicate(), PATIENCE)
    assert process.returncode == 0
    return out.decode()


async def address(process: asyncio.subprocess.Process) -> str:
    """Where the page of a node is, once it is there."""
    assert process.stdout is not None
    said = ""
    async with asyncio.timeout(PATIENCE):
        while not (found := re.search(r"Confidant is at (http://\S+)", said)):
            line = (await process.stdout.readline()).decode()
            assert line, said
            said += line
    return found[1]


async def alive(session: aiohttp.ClientSession, url: str, count: int) -> None:
    """Return once a node says that so many are alive."""
    async with asyncio.timeout(PATIENCE):
        while True:
            async with session.get(f"{url}readyz") as response:
                checks: dict[str, Any] = (await response.json())["checks"]
            if checks["nodes"] == {"state": "ok", "detail": f"{count} alive"}:
                return
            await pause(0.02)  # it is another process


async def test_the_page_leads_to_three_nodes_of_which_one_may_die(server, tmp_path):
    set_up(server)
    base = with_database(server.admin_url, "confidant")
    owner = base.replace("postgres@", "confidant_owner@")
    runs = base.replace("postgres@", "confidant@")
    assert "are those of this version" in await said(tmp_path / "first", owner, "migrate")
    processes = [await start(tmp_path / f"{n}", runs, "run") for n in range(NODES)]
    try:
        urls = [await address(process) for process in processes]
        async with aiohttp.ClientSession() as session:
            for url in urls:
                await alive(session, url, NODES)
            with psycopg.connect(server.admin_url) as connection:
                rows = connection.execute(
                    "SELECT application_name, count(*) FROM pg_stat_activity "
                    "WHERE application_name LIKE 'confidant %' GROUP BY 1"
                ).fetchall()
            assert len(rows) == NODES
            assert max(count for _, count in rows) <= 15  # as the page says
            processes[0].send_signal(signal.SIGKILL)
            await processes[0].wait()
            for url in urls[1:]:
                await alive(session, url, NODES - 1)
        found = orjson.loads(await said(tmp_path / "first", runs, "nodes", "--json"))
        assert len(found["nodes"]) == NODES - 1
    finally:
        for process in processes:
            if process.returncode is None:
                process.kill()
                await process.wait()


def test_the_proxy_of_the_page_passes_on_what_the_page_needs():
    (nginx,) = blocks("nginx")
    assert "Upgrade" in nginx
    assert "proxy_set_header Host $http_host;" in nginx  # with its port, as the origin has it
