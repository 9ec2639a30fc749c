"""What the engine keeps for channels over a restart: their own small texts, and a reply's draft."""

import asyncio

from bot.testing import InMemoryChannel, ScriptedModel
from tests.support import running, until


class Drafting(InMemoryChannel):
    """A channel that remembers the ids of drafts."""

    def __init__(self) -> None:
        super().__init__()
        self.ids: list[str] = []

    async def draft(self, address, draft_id, text):
        self.ids.append(draft_id)
        await super().draft(address, draft_id, text)


async def test_a_channels_texts_are_kept_until_an_empty_one_comes(tmp_path):
    async with running(tmp_path) as engine:
        keep = engine.channel.engine.keep
        await keep("memory", "default", "update 1", "one")
        await keep("memory", "default", "update 2", "two")
        await keep("memory", "default", "update 2", "two again")
        await keep("memory", "default_2", "update 1", "another account's")
        await keep("mem%ry", "default", "update 1", "another channel's")
    async with running(tmp_path) as engine:
        keep, kept = engine.channel.engine.keep, engine.channel.engine.kept
        assert await kept("memory", "default") == {"update 1": "one", "update 2": "two again"}
        await keep("memory", "default", "update 1", "")
        await keep("memory", "default", "update 3", "")
        assert await kept("memory", "default") == {"update 2": "two again"}
        assert await kept("memory", "default_2") == {"update 1": "another account's"}
        assert await kept("other", "default") == {}


async def test_a_reply_names_the_draft_it_was_shown_as(tmp_path):
    channel = Drafting()
    async with running(tmp_path, channel=channel) as engine:
        await engine.ask("hello")
        await engine.ask("/whoami")
        await engine.ask("and again")
    replies = [sent.draft for sent in channel.sent]
    assert replies == [channel.ids[0], "", channel.ids[-1]]
    assert replies[0] != replies[2]


async def test_a_turn_that_is_run_again_shows_the_same_draft(tmp_path, monkeypatch):
    monkeypatch.setattr("bot.app.STOP_GRACE", 0.01)
    model, channel = ScriptedModel(gate=asyncio.Event()), Drafting()
    async with running(tmp_path, model=model, channel=channel) as engine:
        await engine.say("hello there")
        await until(lambda: bool(channel.ids))
    assert channel.sent == []
    again = Drafting()
    async with running(tmp_path, channel=again):
        (sent,) = await again.wait_sent(1)
    assert {sent.draft, *again.ids} == {*channel.ids}


async def test_a_turn_nothing_comes_of_takes_away_what_showed_before(tmp_path):
    channel = Drafting()
    model = ScriptedModel(script=lambda _request: "NO_REPLY")
    async with running(tmp_path, model=model, channel=channel) as engine:
        await engine.say("hello there")
        await until(lambda: bool(channel.drafts))
    assert channel.drafts == [""]
    assert channel.sent == []
