"""A whole Confidant on the fake Nextcloud: what a person writes in Talk is answered in Talk."""

from __future__ import annotations

import pytest

from bot.testing import ScriptedModel
from tests.fakes.nextcloud import FakeNextcloud, Fault, reply_to, shared
from tests.fakes.nextcloud_program import confidant
from tests.fakes.ports import free_port


@pytest.fixture
async def fake():
    async with FakeNextcloud() as server:
        yield server


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


@pytest.mark.parametrize("api_user", [True, False])
async def test_in_a_room_a_reply_to_the_bot_is_answered_also_after_a_restart(
    tmp_path, fake, api_user
):
    fake.kinds["n3xtc10ud"] = 2
    port, model = free_port(), ScriptedModel()
    own = {} if api_user else {"api_user": "", "api_password": None}
    changes = {"group_policy": "open", "public_url": "https://bot.example.org", **own}
    async with confidant(tmp_path, fake, port, model, **changes):
        assert await fake.switch(fake.bots[0], "n3xtc10ud") == 200
        await fake.say("Confidant, shall we?")
        await fake.wait_posted(1)
        answer = reply_to(fake.records[-1])
    async with confidant(tmp_path, fake, port, model, **changes):
        await fake.say("by the way")
        await fake.say("yes, at noon", reply=answer)
        posted = await fake.wait_posted(2)
    assert "yes, at noon" in posted[-1].text
    assert len(model.requests) == 2


async def test_a_poll_in_a_direct_chat_is_answered_as_what_it_is(tmp_path, fake):
    model = ScriptedModel()
    async with confidant(tmp_path, fake, free_port(), model):
        poll = shared("talk-poll", "3", "Lunch at noon?")
        assert await fake.say("{object}", parameters=poll, type="Activity") == [200]
        await fake.wait_posted(1)
    shown = "".join(block.text for block in model.requests[0].messages[-1].blocks)
    assert "> [poll: Lunch at noon?]\n" in shown
