"""Nodes as real processes on one PostgreSQL, each behind proxies of its own that can fail."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Self

import aiohttp
import psutil
import psycopg

from tests.fakes import postgres
from tests.fakes.ports import free_port
from tests.fakes.postgres import PostgresServer
from tests.fakes.tcp_proxy import TcpProxy
from tests.fakes.telegram_nodes import NodesTelegram
from tests.proofs.cluster.model import Model, a_model
from tests.proofs.cluster.zygote import LOG

NODE_TIMEOUT = 2.0  # seconds of silence after which a node counts as gone; also below
UP = 60.0  # seconds a start may take on a machine that others keep busy
ROOM = -1001

_CONFIGURATION = """\
[channels.telegram]
dm_policy = "open"
allow_from = ["*"]
group_policy = "open"
streaming = false

[session.reset]
mode = "none"

[session.reset.by_chat."telegram:4"]
mode = "idle"
idle_minutes = 4

[session.queue]
cap = 1000  # each message has an answer of its own

[storage]
node_timeout = 2.0

[memory.embedder]
provider = "none"

[context]
tokenizer = "estimate"

[log]
level = "info"
format = "json"
"""


class Node:
    """One process, and the three ways it is connected to the world by."""

    def __init__(self, number: int, folder: Path) -> None:
        self.number = number
        self.folder = folder
        self.port = free_port()  # of its page
        self.pid = 0
        self.is_paused = False
        self.telegram: TcpProxy
        self.model: TcpProxy
        self.database: TcpProxy

    @property
    def url(self) -> str:
        """Where its page is."""
        return f"http://127.0.0.1:{self.port}/"

    @property
    def running(self) -> int:
        """Its process, which must be there: 0 would be a signal to whoever runs this."""
        assert self.pid > 0
        return self.pid

    @property
    def runs(self) -> bool:
        """True when it is there and not paused."""
        return self.pid > 0 and not self.is_paused

    def log(self) -> str:
        """The end of what it said."""
        path = self.folder / LOG
        return path.read_text("utf-8", "replace")[-6_000:] if path.exists() else ""


class Cluster:
    """The nodes, the server and the platforms. `async with` starts all but the nodes."""

    def __init__(
        self, folder: Path, nodes: int = 3, *, seed: int = 1, options: Sequence[str] = ()
    ) -> None:
        self.telegram = NodesTelegram()
        self.model: Model
        self.database_url = ""
        self.server = PostgresServer(options=tuple(options))
        self._folder = folder
        self._seed = seed
        self._stack = AsyncExitStack()
        self._process: asyncio.subprocess.Process | None = None
        self._asking = asyncio.Lock()
        self.nodes = [Node(number, folder / f"node-{number}") for number in range(1, nodes + 1)]

    async def __aenter__(self) -> Self:
        try:
            await self._open()
        except BaseException:
            await self._close()
            raise
        return self

    async def __aexit__(self, *exc: object) -> None:
        if exc[0] is not None:
            for node in self.nodes:
                print(f"--- node {node.number}\n{node.log()}")
        await self._close()

    async def _open(self) -> None:
        self._stack.callback(self.server.close)
        await asyncio.to_thread(self.server.start)
        self.database_url = self._stack.enter_context(postgres.a_database(self.server.admin_url))
        await self._stack.enter_async_context(self.telegram)
        self.telegram.room(ROOM)
        self.model = await self._stack.enter_async_context(a_model(self._seed))
        self._folder.mkdir(exist_ok=True)
        self.configuration.write_text(_CONFIGURATION)
        for node in self.nodes:
            node.folder.mkdir()
            node.telegram = self._stack.enter_context(TcpProxy.before(self.telegram.url))
            node.model = self._stack.enter_context(TcpProxy.before(self.model.url))
            node.database = self._stack.enter_context(TcpProxy.before(self.database_url))
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.proofs.cluster.zygote"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        assert await self._line() == "ready"

    async def _close(self) -> None:
        for node in self.nodes:
            if node.pid:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(node.pid, signal.SIGKILL)
        if self._process is not None:
            self._process.stdin.close()
            await self._process.wait()
        await self._stack.aclose()

    @property
    def configuration(self) -> Path:
        """The one file all nodes read."""
        return self._folder / "confidant.toml"

    # --- nodes ------------------------------------------------------------------------------------

    async def start(self, *nodes: Node, **more: str) -> None:
        """Start nodes (all, when none is named) and return once they take messages.

        One of them listens to Telegram by then: which one is `owner`.
        """
        for node in nodes or self.nodes:
            await self.launch(node, **more)
        async with asyncio.TaskGroup() as group:
            for node in nodes or self.nodes:
                group.create_task(self.ready(node))
        await self.telegram.wait_for(lambda: self.owner() is not None)

    async def launch(self, node: Node, **more: str) -> None:
        """Start a node; `more` is added to its environment."""
        assert not node.pid
        environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": os.pathsep.join(sys.path),
            "TELEGRAM_BOT_TOKEN": self.telegram.token,
            "ANTHROPIC_API_KEY": "x",
            "CONFIDANT_STORAGE__DIR": str(node.folder / "data"),
            "CONFIDANT_STORAGE__URL": node.database.url(self.database_url),
            "CONFIDANT_DASHBOARD__PORT": str(node.port),
            "CONFIDANT_CHANNELS__TELEGRAM__API_ROOT": node.telegram.url(
                self.telegram.url_of(node.number)
            ),
            "CONFIDANT_MODELS__ANTHROPIC__BASE_URL": node.model.url(self.model.url),
            **more,
        }
        arguments = ["run", "--config", str(self.configuration)]
        node.pid = int(
            await self._ask(start=arguments, environment=environment, folder=str(node.folder))
        )
        node.is_paused = False

    async def ready(self, node: Node) -> None:
        """Return once a node says that it is ready."""
        async with asyncio.timeout(UP), aiohttp.ClientSession() as http:
            while True:
                with contextlib.suppress(aiohttp.ClientError):
                    async with http.get(f"{node.url}readyz") as response:
                        if response.status == 200:
                            return
                assert psutil.Process(node.pid).status() != psutil.STATUS_ZOMBIE, node.log()
                await asyncio.sleep(0.05)  # it is another process

    async def kill(self, node: Node) -> None:
        """End a node as hard as can be."""
        os.kill(node.running, signal.SIGKILL)
        assert await self._ask(reap=node.pid) == str(-signal.SIGKILL)
        node.pid, node.is_paused = 0, False

    async def stop(self, node: Node) -> None:
        """End a node as an operator does."""
        os.kill(node.running, signal.SIGTERM)
        assert await self._ask(reap=node.pid) == "0", node.log()
        node.pid = 0

    def pause(self, node: Node) -> None:
        """Let a node stand still, with all its connections."""
        os.kill(node.running, signal.SIGSTOP)
        node.is_paused = True

    def resume(self, node: Node) -> None:
        """Let it go on as if nothing had been."""
        os.kill(node.running, signal.SIGCONT)
        node.is_paused = False

    def owner(self) -> Node | None:
        """The node that polled Telegram last."""
        number = self.telegram.owner
        return next((node for node in self.nodes if node.number == number), None)

    def asking(self, port: int) -> Node:
        """The node whose proxy to the model is at a port."""
        return next(node for node in self.nodes if node.model.port == port)

    # --- the database -----------------------------------------------------------------------------

    async def restart_database(self, away: float) -> None:
        """End the server at once, and start it again after so many seconds."""
        await asyncio.to_thread(self.server.kill)
        await asyncio.sleep(away)
        await asyncio.to_thread(self.server.start)

    async def query(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        """What stands in the database."""

        def ask() -> list[tuple[Any, ...]]:
            with psycopg.connect(self.database_url, autocommit=True) as connection:
                return connection.execute(sql, values).fetchall()  # pyright: ignore[reportArgumentType]

        return await asyncio.to_thread(ask)

    # --- the zygote -------------------------------------------------------------------------------

    async def _ask(self, **command: object) -> str:
        async with self._asking:
            self._process.stdin.write(f"{json.dumps(command)}\n".encode())
            return await self._line()

    async def _line(self) -> str:
        return (await self._process.stdout.readline()).decode().strip()
