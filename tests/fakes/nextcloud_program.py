"""A whole Confidant on the fake Nextcloud."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from adapters.nextcloud_talk import plugin
from adapters.nextcloud_talk.channel import NextcloudTalk
from bot.app import App, Parts
from bot.settings import config_model
from bot.testing import ScriptedModel
from tests.fakes.nextcloud import QUICK, WITH_API_USER, FakeNextcloud, settings
from tests.support import FakeClock, until


@asynccontextmanager
async def confidant(
    folder: Path, fake: FakeNextcloud, port: int, model: ScriptedModel, **changes: Any
) -> AsyncIterator[NextcloudTalk]:
    """It runs, and its webhook listens; `changes` are options of the channel."""
    options = {"dm_policy": "open", "allow_from": ["*"], **WITH_API_USER, **changes}
    section = settings(fake, port, **options)
    data = {
        "agent": {"timezone": "UTC"},
        "storage": {"dir": folder, "backup_hours": 0},
        "memory": {"embedder": {"provider": "none"}, "watch": False},
    }
    config = config_model({plugin.name: plugin}).model_validate(data)
    channel = NextcloudTalk(section, QUICK)
    object.__setattr__(config.channels, plugin.name, section)
    parts = Parts(clock=FakeClock(), remote=model, channels={plugin.name: channel}, dashboard=False)
    async with App(config, {plugin.name: plugin}, parts):
        await until(lambda: channel._server is not None and channel._server.listening.is_set())
        yield channel
