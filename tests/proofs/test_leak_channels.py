"""Nothing leaks between the real channels either: their SDKs, five platforms, chats and rooms.

Everybody tells the bot a secret of their own chat, then everybody tries to get at the others'.
Every prompt and every message that reaches a platform is looked through.
"""

from __future__ import annotations

import asyncio
import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from bot.agent.models import Request
from bot.app import App, Parts
from bot.messages import Text, ToolResult
from bot.settings import load
from bot.testing import ScriptedModel, calls
from tests.fakes import synapse
from tests.fakes.discord import FakeDiscord
from tests.fakes.nextcloud import FakeNextcloud
from tests.fakes.slack import FakeSlack
from tests.fakes.telegram import FakeTelegram
from tests.proofs.crash import Platform, Said
from tests.proofs.crash_platforms import (
    OverDiscord,
    OverMatrix,
    OverNextcloud,
    OverSlack,
    OverTelegram,
)

pytestmark = pytest.mark.slow

CANARY = re.compile(r"canary-[a-z]+-\w+")
TELEGRAM_GROUP = "-100500"
BOT = "confidant_bot"
TRIES = (
    "search canary",
    "/memory search canary",
    "/whosees canary",
    "/memory show MEMORY.md",
    "/context detail",
    "/new search canary",
    "search canary",
)


class OverTelegramWithGroup(OverTelegram):
    """The direct chats, and a group in which two people mention the bot."""

    rooms = frozenset({TELEGRAM_GROUP})
    chats = (*OverTelegram.chats, TELEGRAM_GROUP)

    def __init__(self, fake: FakeTelegram) -> None:
        super().__init__(fake)
        fake.room(int(TELEGRAM_GROUP))

    def settings(self):
        return {**super().settings(), "CONFIDANT_CHANNELS__TELEGRAM__GROUP_POLICY": "open"}

    async def say(self, chat, name, text, *, to_bot=True):
        if chat not in self.rooms:
            await super().say(chat, name, text)
            return
        words = text if text.startswith("/") else f"@{BOT} {text}"
        self.fake.say(int(chat), 1, words)


@dataclass
class World:
    """The platforms with what was said there; a chat is named by its platform and id."""

    platforms: dict[str, Platform]
    model: ScriptedModel
    numbers: itertools.count[int] = field(default_factory=itertools.count)

    def chats(self) -> list[tuple[str, str]]:
        return [(name, chat) for name, each in self.platforms.items() for chat in each.chats]

    def said(self, name: str, chat: str) -> list[Said]:
        return [said for said in self.platforms[name].said() if said.chat == chat]

    async def ask(self, name: str, chat: str, text: str) -> None:
        """Say something to the bot, and wait until it has answered."""
        before = len(self.said(name, chat))
        await self.platforms[name].say(chat, f"n{next(self.numbers)}", text)
        platform = self.platforms[name]
        await platform.wait_for(lambda: len(self.said(name, chat)) > before, 60)


def secret(name: str, chat: str) -> str:
    """What is told in a chat, and nowhere else."""
    return f"canary-{name}-{re.sub('[^0-9a-z]', '', chat)}"


def brain(request: Request):
    """A model that stores what it is told and repeats whatever it finds."""
    last = request.messages[-1]
    results = [block.text for block in last.blocks if isinstance(block, ToolResult)]
    if results:
        return "found: " + " ".join(CANARY.findall(" ".join(results))) + f" {len(results)}"
    words = last.text
    if "remember" in words:
        return calls("memory_write", text=words.partition("remember")[2].strip())
    if "search" in words:
        return calls("memory_search" if len(words) % 2 else "transcript_search", query="canary")
    return "yes"


def words_of(request: Request) -> str:
    """Everything a model is shown."""
    blocks = [block for message in request.messages for block in message.blocks]
    shown = [b.text for b in blocks if isinstance(b, (Text, ToolResult))]
    return "\n".join((request.system, *shown))


def scan(world: World, plants: Sequence[str] = ()) -> int:
    """Look through everything; how many rightful sightings there were."""
    sightings = 0
    for name, chat in world.chats():
        for said in [*(each.text for each in world.said(name, chat)), *plants]:
            seen = {*CANARY.findall(said)}
            assert seen <= {secret(name, chat)}, f"{seen} was shown in {name} {chat}"
            sightings += len(seen)
    for request in world.model.requests:
        seen = {*CANARY.findall(words_of(request))}
        assert len(seen) <= 1, f"one prompt holds {seen}"
        sightings += len(seen)
    return sightings


async def test_no_chat_of_any_platform_is_shown_what_was_said_in_another(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    folder, server = tmp_path / "data", await asyncio.to_thread(synapse.shared)
    matrix = OverMatrix(server, await server.register())
    async with (
        FakeTelegram() as telegram,
        FakeDiscord() as discord,
        FakeNextcloud() as nextcloud,
        FakeSlack() as slack,
        synapse.person(server, "ada") as ada,
        synapse.person(server, "bob") as bob,
    ):
        await matrix.furnish(ada, bob)
        platforms: dict[str, Platform] = {
            "telegram": OverTelegramWithGroup(telegram),
            "discord": OverDiscord(discord),
            "slack": OverSlack(slack),
            "nextcloud": OverNextcloud(nextcloud, folder),
            "matrix": matrix,
        }
        settings = {
            "CONFIDANT_STORAGE__DIR": str(folder),
            "CONFIDANT_STORAGE__BACKUP_HOURS": "0",
            "CONFIDANT_MEMORY__EMBEDDER__PROVIDER": "none",
        }
        for platform in platforms.values():
            settings |= platform.settings()
        loaded = load(None, settings, tmp_path)
        model = ScriptedModel(script=brain)
        world = World(platforms, model)
        parts = Parts(remote=model, dashboard=False)
        async with App(loaded.config, loaded.plugins, parts):
            for platform in platforms.values():
                await platform.up()
            async with asyncio.timeout(200):
                for name, chat in world.chats():
                    await world.ask(name, chat, f"remember {secret(name, chat)} is mine")
                for attempt in TRIES:
                    for name, chat in world.chats():
                        await world.ask(name, chat, attempt)
        sightings = scan(world)
        assert sightings > 5 * len(world.chats())
        with pytest.raises(AssertionError, match="was shown in"):
            scan(world, [f"a planted {secret('telegram', '1')}"])
    log = capsys.readouterr()
    assert not CANARY.findall(log.out + log.err)
    with capsys.disabled():
        print(
            f"\nreal channels: {len(world.chats())} chats on 5 platforms, "
            f"{len(model.requests)} prompts, {sightings} rightful sightings, 0 others"
        )
