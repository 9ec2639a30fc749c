"""Memory as tools for other agents, over MCP: each sees what its person sees, and no more."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import httpx2
import pytest
from mcp.client import ClientSession
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

from bot.shares import Share
from tests.fakes.page_people import Browser, browser, serving
from tests.integration.test_completions import key_of
from tests.support import Engine

TOOLS = ["memory_get", "memory_search", "memory_write", "transcript_search"]


@asynccontextmanager
async def agent(engine: Engine, key: str) -> AsyncIterator[ClientSession]:
    """Another agent, on the official client."""
    assert engine.app.address is not None
    headers = {"Authorization": f"Bearer {key}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=30) as http,
        streamable_http_client(f"{engine.app.address.url}mcp", http_client=http) as streams,
        ClientSession(*streams[:2]) as session,
    ):
        await session.initialize()
        yield session


@asynccontextmanager
async def people(engine: Engine) -> AsyncIterator[tuple[Browser, Browser]]:
    """The owner and Bo, who was let in."""
    async with browser(engine) as owner, browser(engine) as bo:
        await owner.log_in()
        await bo.post("/enter", key=await owner.link("bo"))
        yield owner, bo


async def use(session: ClientSession, tool: str, **given: Any) -> str:
    found = await session.call_tool(tool, given)
    return "\n".join(each.text for each in found.content)


async def test_an_agent_reads_and_writes_memory_as_its_person(tmp_path):
    async with serving(tmp_path) as engine, people(engine) as (owner, bo):
        async with agent(engine, await key_of(owner)) as at:
            listed = await at.list_tools()
            assert sorted(each.name for each in listed.tools) == TOOLS
            await use(at, "memory_write", text="The boat is called Orinoco.")
            assert "editor: The boat is called Orinoco." in await use(
                at, "memory_search", query="what is the boat called?"
            )
            (note,) = (tmp_path / "workspace").rglob("memory/2*.md")
            kept = note.read_text()
            assert "editor: The boat is called Orinoco." in kept
            assert "untrusted" in kept
            assert "owner" not in kept
        async with agent(engine, await key_of(bo)) as theirs:
            for tool in ("memory_search", "transcript_search"):
                assert "Orinoco" not in await use(theirs, tool, query="Orinoco boat")
            path = str(note.relative_to(tmp_path / "workspace"))
            assert "Orinoco" not in await use(theirs, "memory_get", path=path)


async def test_a_program_that_is_started_gives_the_same(tmp_path):
    async with serving(tmp_path) as engine, browser(engine) as owner:
        await owner.log_in()
        key = await key_of(owner)
        config = tmp_path / "config.toml"
        config.write_text(f'[storage]\ndir = "{engine.app.core.settings.now.storage.folder}"\n')
        environment = {"MCP_API_KEY": key, "PATH": os.environ["PATH"]}
        started = StdioServerParameters(
            command=sys.executable,
            args=["-m", "bot.cli", "mcp", "--config", str(config)],
            env=environment,
        )
        async with stdio_client(started) as streams, ClientSession(*streams) as session:
            await session.initialize()
            assert sorted(each.name for each in (await session.list_tools()).tools) == TOOLS
            await use(session, "memory_write", text="The boat is called Orinoco.")
            assert "Orinoco" in await use(session, "memory_search", query="boat")


@pytest.mark.parametrize(
    ("key", "why"),
    [("", "Set MCP_API_KEY"), ("confidant-" + "0" * 64, "rejects the key")],
)
async def test_without_a_key_it_says_what_to_do(tmp_path, key, why):
    async with serving(tmp_path) as engine:
        config = tmp_path / "config.toml"
        config.write_text(f'[storage]\ndir = "{engine.app.core.settings.now.storage.folder}"\n')
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "bot.cli", "mcp", "--config", str(config)),
            env={"MCP_API_KEY": key, "PATH": os.environ["PATH"]},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, told = await process.communicate()
    assert (out, process.returncode) == (b"", 1)
    assert why in told.decode()


@pytest.mark.parametrize(
    ("tool", "given", "why"),
    [
        ("memory_erase", {}, "there is no tool"),
        ("memory_write", {}, "text"),
        ("memory_write", {"text": " "}, "text"),
        ("memory_write", {"text": "the code of the safe is 4711"}, "gives access"),
        ("memory_get", {"path": "../../etc/passwd"}, "can be read here"),
        ("memory_search", {"query": "x" * 9_000}, "at most 500"),
    ],
)
async def test_what_cannot_be_done_is_said(tmp_path, tool, given, why):
    async with serving(tmp_path) as engine, browser(engine) as owner:
        await owner.log_in()
        async with agent(engine, await key_of(owner)) as at:
            found = await at.call_tool(tool, given)
            assert found.is_error
            assert why in str(found.content)


async def test_nobody_without_a_key(tmp_path):
    async with serving(tmp_path) as engine, browser(engine) as owner:
        await owner.log_in()
        assert (await owner.get("/mcp"))[0] == 401
        assert (await owner.post("/mcp"))[0] == 401
        async with aiohttp.ClientSession(owner.url) as client:
            headers = {"Authorization": f"Bearer {await key_of(owner)}"}
            async with client.post("/mcp", headers=headers, data=b"[" * 70_000) as answer:
                assert answer.status == 413
            async with client.post("/mcp", headers=headers, data=b"[") as answer:
                assert 400 <= answer.status < 500


async def test_too_many_calls_at_once_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("bot.dashboard.mcp.TALKS", Share(at_once=0, each=0, waiting=0))
    async with serving(tmp_path) as engine, browser(engine) as owner:
        await owner.log_in()
        headers = {"Authorization": f"Bearer {await key_of(owner)}"}
        async with (
            aiohttp.ClientSession(owner.url) as client,
            client.post("/mcp", headers=headers, json={}) as answer,
        ):
            assert answer.status == 429
