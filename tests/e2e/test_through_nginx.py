"""Two nodes behind a real nginx with the configuration of docs/cluster.md, and a browser before it.

The node that a page is connected to is killed while a reply is being written; then the one that
writes it.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import psutil
import pytest
import pytest_asyncio
from aiohttp import web
from playwright.async_api import Page, expect

from tests.fakes.messages_api import end, model_info, running, sse, start, text
from tests.fakes.nginx import Nginx
from tests.fakes.ports import free_port
from tests.support import PATIENCE

pytestmark = [pytest.mark.proof, pytest.mark.asyncio(loop_scope="session")]

PAGE = Path(__file__).resolve().parents[2] / "docs" / "cluster.md"
TOKEN = "0123456789abcdef0123456789abcdef"
MODEL = "claude-sonnet-5-5"
START_SECONDS = 2 * PATIENCE
LONG = 3 * PATIENCE * 1000  # ms
HALF, WHOLE = "The harbour was quiet", "The harbour was quiet, and nobody saw the heron."


@dataclass
class Node:
    """A node as a process."""

    folder: Path
    model: str
    database: str
    port: int = field(default_factory=free_port)
    process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        self.folder.mkdir(exist_ok=True)
        self.process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", "from bot.cli import main; main()", "run"),
            cwd=self.folder,
            env={
                "PATH": os.environ["PATH"],
                "PYTHONPATH": os.pathsep.join(sys.path),
                "HOME": str(self.folder),
                "ANTHROPIC_API_KEY": "x",
                "CONFIDANT_AGENT__MODEL": MODEL,
                "CONFIDANT_MODELS__ANTHROPIC__BASE_URL": self.model,
                "CONFIDANT_STORAGE__URL": self.database,
                "CONFIDANT_STORAGE__NODE_TIMEOUT": "4",
                "CONFIDANT_DASHBOARD__PORT": str(self.port),
                "CONFIDANT_DASHBOARD__TOKEN": TOKEN,
                "CONFIDANT_MEMORY__EMBEDDER__PROVIDER": "none",
            },
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )

    async def is_one_of(self, count: int) -> None:
        """Return once it knows of so many nodes, itself among them."""
        async with asyncio.timeout(START_SECONDS), aiohttp.ClientSession() as session:
            while True:
                with suppress(aiohttp.ClientError):
                    async with session.get(f"http://127.0.0.1:{self.port}/readyz") as response:
                        nodes = (await response.json())["checks"].get("nodes", {})
                        if nodes.get("detail") == f"{count} alive":
                            return
                await asyncio.sleep(0.05)  # it is another process

    @property
    def has_page(self) -> bool:
        """Whether somebody's WebSocket is open there."""
        assert self.process is not None
        found = psutil.Process(self.process.pid).net_connections("tcp")
        return any(
            each.laddr.port == self.port and each.status == psutil.CONN_ESTABLISHED
            for each in found
        )

    async def kill(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            await self.process.wait()
            self.process = None


@dataclass
class Cluster:
    """Two nodes, what is before them, and the replies that wait in the middle."""

    nodes: list[Node]
    url: str = ""
    gate: asyncio.Event | None = None
    writers: list[int] = field(default_factory=list)  # the nodes that asked the model

    def model_of(self, node: int) -> Any:
        async def answer(request: web.Request) -> web.StreamResponse:
            body = await request.json()
            wanted = "tell" in str(body["messages"][-1]["content"])
            words = WHOLE if wanted else "All right."
            response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
            with suppress(ConnectionResetError):  # who asked may be gone
                await response.prepare(request)
                halves = text(0, words[: len(HALF)], words[len(HALF) :])
                opening = (start(input_tokens=20), *halves[:2])
                await response.write(b"".join(map(sse, opening)))
                if wanted:
                    self.writers.append(node)
                    if self.gate is not None:
                        await self.gate.wait()
                await response.write(b"".join(map(sse, (*halves[2:], *end(output_tokens=5)))))
                await response.write_eof()
            return response

        return answer


@pytest_asyncio.fixture(loop_scope="session")
async def cluster(postgres_url, tmp_path):
    (block,) = re.findall(r"```nginx\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    cluster = Cluster([])
    async with AsyncExitStack() as stack:
        for number in range(2):
            api = await stack.enter_async_context(running(cluster.model_of(number)))
            api.models[MODEL] = model_info(MODEL, 200_000, 64_000)
            node = Node(tmp_path / f"{number}", api.base_url, postgres_url)
            stack.push_async_callback(node.kill)
            cluster.nodes.append(node)
        nginx = Nginx(block, [node.port for node in cluster.nodes])
        stack.callback(nginx.close)
        for node in cluster.nodes:
            await node.start()
        for node in cluster.nodes:
            await node.is_one_of(len(cluster.nodes))
        await asyncio.to_thread(nginx.start)
        cluster.url = nginx.url
        yield cluster
        if cluster.gate is not None:
            cluster.gate.set()


async def say(page: Page, words: str) -> None:
    await page.fill("#message", words)
    await page.press("#message", "Enter")


async def shows(page: Page, people: list[str], bot: list[str]) -> None:
    """Return once each line stands there once, and nothing else."""
    for role, texts in (("user", people), ("bot", bot)):
        body = page.locator(f"#log .line.{role} .body")
        await expect(body).to_have_text(texts, timeout=LONG)
    await expect(page.locator("#tail .draft")).to_have_count(0, timeout=LONG)


async def test_a_page_goes_on_when_a_node_behind_the_proxy_is_killed(browser, cluster):
    context = await browser.new_context(locale="en-GB", ignore_https_errors=True)
    page = await context.new_page()
    page.set_default_timeout(LONG)
    await page.goto(cluster.url)
    await page.fill("#token", TOKEN)
    await page.click("button")
    await page.wait_for_selector("#state[data-state=open]")
    await say(page, "hello")
    people, bot = ["hello"], ["All right."]
    await shows(page, people, bot)
    for turn, whose in enumerate(("page", "reply")):
        cluster.gate, cluster.writers = asyncio.Event(), []
        await say(page, f"tell me {turn}")
        people.append(f"tell me {turn}")
        await expect(page.locator("#tail .draft .body")).to_have_text(HALF, timeout=LONG)
        if whose == "page":
            (killed,) = (node for node in cluster.nodes if node.has_page)
        else:
            killed = cluster.nodes[cluster.writers[-1]]
        (other,) = (node for node in cluster.nodes if node is not killed)
        await killed.kill()
        await say(page, f"are you there? {turn}")
        people.append(f"are you there? {turn}")
        await other.is_one_of(1)
        cluster.gate.set()
        bot += [WHOLE, "All right."]
        await shows(page, people, bot)
        if whose == "page":
            await killed.start()
            await killed.is_one_of(2)
    await page.reload()
    await page.wait_for_selector("#state[data-state=open]")
    await shows(page, people, bot)
    await say(page, "good bye")
    await shows(page, [*people, "good bye"], [*bot, "All right."])
    await context.close()
