"""A whole Confidant on the fake Nextcloud: what a person writes in Talk is answered in Talk."""

from __future__ import annotations

from contextlib import asynccontextmanager

import pytest

from adapters.nextcloud_talk import plugin
from adapters.nextcloud_talk.channel import NextcloudTalk
from bot.app import App, Parts
from bot.settings import config_model
from bot.testing import ScriptedModel
from tests.fakes.nextcloud import QUICK, WITH_API_USER, FakeNextcloud, Fault, free_port, settings
from tests.support import FakeClock, until


@pytest.fixture
async def fake():
    async with FakeNextcloud() as server:
        yield server


@asynccontextmanager
async def confidant(folder, fake, port, model):
    section = settings(fake, port, dm_policy="open", allow_from=["*"], **WITH_API_USER)
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
        await until(lambda: channel._server._runner.addresses)
        yield channel


async def test_a_direct_chat_is_answered_once(tmp_path, fake):
    async with confidant(tmp_path, fake, free_port(), ScriptedModel()):
        assert await fake.say("hello there") == [200]
        posted = await fake.wait_posted(1)
    assert "You said: hello there" in posted[-1].text
    assert posted[-1].room == "n3xtc10ud"


async def test_a_message_that_comes_twice_and_a_lost_answer_give_one_reply(tmp_path, fake):
    fake.fail_next("/message", Fault(drop=True, after=True))
    async with confidant(tmp_path, fake, free_port(), ScriptedModel()):
        assert await fake.say("hello", id=2000) == [200]
        assert await fake.say("hello", id=2000) == [200]
        await fake.say("and now?")
        await fake.wait_posted(2)
    said = [posted.text for posted in fake.posted]
    assert len(said) == 2
    assert "You said: and now?" in said[1]


async def test_what_was_stored_is_answered_after_a_restart(tmp_path, fake):
    port, model = free_port(), ScriptedModel()
    fake.fail_next("/message", Fault(500), times=1000)
    async with confidant(tmp_path, fake, port, model):
        assert await fake.say("hello") == [200]
        await model.started.wait()
    fake._faults.clear()
    async with confidant(tmp_path, fake, port, model):
        await fake.wait_posted(1)
    assert ["You said: hello" in posted.text for posted in fake.posted] == [True]


async def test_what_is_said_in_a_room_nobody_listed_never_reaches_the_model(tmp_path, fake):
    fake.kinds["n3xtc10ud"] = 2
    model = ScriptedModel()
    async with confidant(tmp_path, fake, free_port(), model):
        assert await fake.say("Confidant, hello") == [200]
    assert model.requests == []
    assert not any("You said" in posted.text for posted in fake.posted)
