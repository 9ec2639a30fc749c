"""Every line of a JSON log is JSON: ours, those of libraries, and what Python itself has to say."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest

from tests.fakes.discord import FakeDiscord
from tests.fakes.discord_parts import TOKEN as DISCORD_TOKEN
from tests.fakes.nextcloud import API_PASSWORD, API_USER, SECRET, FakeNextcloud
from tests.fakes.ports import free_port
from tests.fakes.telegram import TOKEN, FakeTelegram
from tests.fakes.terminal import environment

pytestmark = pytest.mark.slow

SECONDS = 120.0
CHANNELS = {"discord", "nextcloud_talk", "telegram", "web"}
# What libraries, threads and the interpreter do wrong, at a signal.
MISDEEDS = """
import asyncio, logging, signal, sys, threading, warnings

class Unruly:
    def __del__(self):
        raise ValueError("from a finalizer")

async def forgotten():
    raise KeyError("nobody looks at this task")

def act():
    warnings.simplefilter("always")
    warnings.warn("a library says that\\nsomething is old", DeprecationWarning)
    try:
        raise OSError("with a trace")
    except OSError:
        logging.getLogger("discord.client").exception("two\\nlines")
    logging.getLogger("uvicorn.error").error("%d is no number", "x")
    logging.getLogger("aiohttp.server").warning("half a character \\udc80")
    thread = threading.Thread(target=lambda: 1 / 0, name="lost")
    thread.start()
    thread.join()
    Unruly()
    task = asyncio.ensure_future(forgotten())
    task.add_done_callback(lambda _: None)

signal.signal(signal.SIGUSR1, lambda *_: asyncio.get_running_loop().call_soon(act))
from bot.cli import main
main()
"""
BROKEN = """
from bot.cli import serve
serve.embed.missing = lambda _: 1 / 0
from bot.cli import main
main()
"""


@asynccontextmanager
async def platforms() -> AsyncGenerator[tuple[dict[str, str], FakeTelegram]]:
    """A Telegram, a Discord and a Nextcloud of this machine, and what connects a bot to them."""
    prefix = "CONFIDANT_CHANNELS__"
    async with FakeTelegram() as telegram, FakeDiscord() as discord, FakeNextcloud() as nextcloud:
        yield (
            {
                f"{prefix}TELEGRAM__TOKEN": TOKEN,
                f"{prefix}TELEGRAM__API_ROOT": telegram.url,
                f"{prefix}DISCORD__TOKEN": DISCORD_TOKEN,
                f"{prefix}DISCORD__API_ROOT": discord.api_root,
                f"{prefix}DISCORD__GATEWAY_URL": discord.gateway_url,
                f"{prefix}NEXTCLOUD_TALK__BASE_URL": nextcloud.url,
                f"{prefix}NEXTCLOUD_TALK__BOT_SECRET": SECRET,
                f"{prefix}NEXTCLOUD_TALK__API_USER": API_USER,
                f"{prefix}NEXTCLOUD_TALK__API_PASSWORD": API_PASSWORD,
                f"{prefix}NEXTCLOUD_TALK__WEBHOOK_PORT": str(free_port()),
            },
            telegram,
        )


class Log:
    """The log of a program; every line that comes is parsed."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stderr is not None
        self._lines = process.stderr
        self.events: list[dict[str, Any]] = []

    async def has(self, event: str, **fields: str) -> dict[str, Any]:
        """Read until there is such an event."""
        wanted = {"event": event, **fields}
        seen = 0
        async with asyncio.timeout(SECONDS):
            while True:
                for each in self.events[seen:]:
                    if wanted.items() <= each.items():
                        return each
                seen = len(self.events)
                assert await self._one(), [each["event"] for each in self.events]

    async def rest(self) -> None:
        """Read to the end."""
        async with asyncio.timeout(SECONDS):
            while await self._one():
                pass

    async def _one(self) -> bool:
        line = await self._lines.readline()
        if line:
            event = orjson.loads(line)
            assert {"event", "level", "timestamp"} <= event.keys(), event
            self.events.append(event)
        return bool(line)


async def start(folder: Path, script: str, variables: dict[str, str]) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", script, "run", "--log", "json"),
        cwd=folder,
        env=variables,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        limit=1 << 22,
    )


async def test_every_line_is_json_with_every_channel_and_whatever_goes_wrong(tmp_path):
    async with platforms() as (variables, _telegram):
        process = await start(tmp_path, MISDEEDS, environment(tmp_path, **variables))
        try:
            log = Log(process)
            page = (await log.has("program.started"))["page"]
            for channel in CHANNELS:
                await log.has("channel.health", channel=channel, health="up")
            async with aiohttp.ClientSession() as client:  # what a server's library would tell
                async with client.get(f"{page}no-such-page") as answer:
                    assert answer.status in {303, 401, 404}, answer.status
                port = int(page.rstrip("/").rsplit(":", 1)[1])
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(b"no HTTP at all\r\n\r\n")
                await reader.read()
                writer.close()
            process.send_signal(signal.SIGUSR1)
            warned = await log.has("library", logger="py.warnings")
            assert "something is old" in warned["message"]
            traced = await log.has("library", logger="discord.client")
            assert (traced["message"], traced["level"]) == ("two\nlines", "error")
            assert "OSError: with a trace" in traced["exception"]
            wrong = await log.has("library", logger="uvicorn.error")
            assert wrong["message"] == "%d is no number"
            await log.has("library", logger="aiohttp.server")
            assert "ZeroDivisionError" in (await log.has("thread.failed"))["exception"]
            assert "from a finalizer" in (await log.has("program.unraisable"))["exception"]
            lost = await log.has("library", logger="asyncio")
            assert "nobody looks at this task" in lost["exception"]
            process.send_signal(signal.SIGTERM)
            await log.rest()
            assert await process.wait() == 0
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        assert process.stdout is not None
        assert await process.stdout.read() == b""  # where both are one stream it is JSON too
    assert [each["event"] for each in log.events[-1:]] == ["program.stopped"]
    told = orjson.dumps(log.events).decode()
    assert not [secret for secret in (TOKEN, DISCORD_TOKEN, SECRET, API_PASSWORD) if secret in told]


@pytest.mark.parametrize(
    ("script", "more", "event", "words"),
    [
        (BROKEN, {}, "program.crashed", "ZeroDivisionError"),
        (MISDEEDS, {"CONFIDANT_DASHBOARD__HOST": "0.0.0.0"}, "program.not_started", "TOKEN"),
        (MISDEEDS, {"CONFIDANT_STORAGE__DIR": "/dev/null/x"}, "program.not_started", "dir"),
        (MISDEEDS, {"CONFIDANT_AGENT__NAMES": "x"}, "program.not_started", "CONFIDANT_AGENT__NAME"),
    ],
)
async def test_what_keeps_it_from_starting_is_json_too(tmp_path, script, more, event, words):
    process = await start(tmp_path, script, environment(tmp_path, **more))
    log = Log(process)
    found = await log.has(event)
    await log.rest()
    assert await process.wait() == 1
    assert words in orjson.dumps(found).decode()


@pytest.mark.parametrize("form", ["json", "console", "plain"])
async def test_a_log_that_cannot_be_written_stops_nothing(tmp_path, form):
    here = environment(tmp_path, CONFIDANT_LOG__LEVEL="debug", CONFIDANT_LOG__FORMAT="auto")
    full = os.open("/dev/full", os.O_WRONLY)
    try:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", "from bot.cli import main; main()", "run"),
            *(("--log", form) if form != "json" else ()),
            cwd=tmp_path,
            env=here,
            stdout=asyncio.subprocess.PIPE,
            stderr=full,
        )
    finally:
        os.close(full)
    assert process.stdout is not None
    try:
        async with asyncio.timeout(SECONDS):
            while not (line := await process.stdout.readline()).startswith(b"Confidant is at "):
                assert line
            url = line.decode().split()[-1]
            async with aiohttp.ClientSession() as client, client.get(f"{url}readyz") as answer:
                assert answer.status == 200
            process.send_signal(signal.SIGTERM)
            # Python itself says 120 where it could not flush standard error at the end.
            assert await process.wait() in {0, 120}
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
