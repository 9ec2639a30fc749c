"""A Discord and a Nextcloud nobody writes in: what the bot is connected to beside the load.

`python -m bench.neighbours` prints one line of JSON that says where they are. The bot connects to
Discord's gateway; Nextcloud Talk would call its webhook.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Self

import aiohttp
import uvloop

from bench.bots import server
from tests.fakes.discord import FakeDiscord
from tests.fakes.discord_parts import TOKEN
from tests.fakes.nextcloud import API_PASSWORD, API_USER, SECRET, FakeNextcloud
from tests.fakes.ports import free_port

CONNECT_TIMEOUT = 30.0  # seconds
_POLL = 0.02  # seconds
_CHANNELS = "CONFIDANT_CHANNELS__"


@dataclass(frozen=True, slots=True)
class Neighbours:
    """Where they are; `port` is where the bot is to listen for Nextcloud Talk."""

    discord: str
    nextcloud: str
    port: int

    @classmethod
    def parse(cls, line: str) -> Self:
        """From the line the process prints."""
        return cls(**json.loads(line), port=free_port())

    def settings(self) -> dict[str, str]:
        """The environment that connects Confidant to both."""
        return {
            f"{_CHANNELS}DISCORD__TOKEN": TOKEN,
            f"{_CHANNELS}DISCORD__API_ROOT": f"{self.discord}/api/v10",
            f"{_CHANNELS}DISCORD__GATEWAY_URL": f"{self.discord.replace('http', 'ws', 1)}/gateway",
            f"{_CHANNELS}NEXTCLOUD_TALK__BASE_URL": self.nextcloud,
            f"{_CHANNELS}NEXTCLOUD_TALK__BOT_SECRET": SECRET,
            f"{_CHANNELS}NEXTCLOUD_TALK__API_USER": API_USER,
            f"{_CHANNELS}NEXTCLOUD_TALK__API_PASSWORD": API_PASSWORD,
            f"{_CHANNELS}NEXTCLOUD_TALK__WEBHOOK_PORT": str(self.port),
        }

    async def connected(self) -> None:
        """Return once the bot is online in Discord and listens for Nextcloud Talk.

        Raises:
            TimeoutError: it is not, in time.
        """
        async with asyncio.timeout(CONNECT_TIMEOUT), aiohttp.ClientSession() as client:
            while not await self._is_connected(client):  # noqa: ASYNC110  # another process
                await asyncio.sleep(_POLL)

    async def _is_connected(self, client: aiohttp.ClientSession) -> bool:
        webhook = f"http://127.0.0.1:{self.port}/nextcloud-talk"
        try:
            async with client.get(f"{self.discord}/control/state") as answer:
                online = (await answer.json())["online"]
            async with client.post(webhook) as refused:
                return online == 1 and 400 <= refused.status < 500
        except aiohttp.ClientError:
            return False


@asynccontextmanager
async def neighbours() -> AsyncGenerator[Neighbours]:
    """Start both in a process of their own; end it afterwards."""
    async with server("bench.neighbours") as (line, _):
        yield Neighbours.parse(line)


async def _serve() -> None:
    async with FakeDiscord(record_calls=False) as discord, FakeNextcloud() as nextcloud:
        print(json.dumps({"discord": discord.url, "nextcloud": nextcloud.url}), flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        uvloop.run(_serve())
