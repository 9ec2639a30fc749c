"""Editing a message and trying again, through the whole engine: what follows becomes a branch."""

from __future__ import annotations

import asyncio

import orjson
import pytest

from bot.agent.models import Request
from bot.channel import HistoryItem
from bot.errors import OutOfSight
from bot.memory.search import Findings, Hit
from bot.sessions import branches
from bot.storage.tables import TABLES
from bot.testing import ScriptedModel, calls
from tests.fakes.brain import query
from tests.fakes.pair import pair
from tests.integration.test_conversation_pages import browsing_with
from tests.support import NOON, Engine, running, until


async def history(engine: Engine) -> list[HistoryItem]:
    assert engine.channel.engine is not None
    return list(await engine.channel.engine.history(engine.message("").address, 50))


async def texts(engine: Engine) -> list[str]:
    return [line.text for line in await history(engine)]


async def switch(engine: Engine, message_id: str) -> bool:
    assert engine.channel.engine is not None
    return await engine.channel.engine.switch(engine.message("").address, message_id)


def asked(request: Request) -> list[str]:
    """What its person said, as the model is shown it."""
    return [message.text for message in request.messages if message.role == "user"]


async def test_an_edited_message_replaces_its_turn_and_the_model_sees_no_more_of_it(engine):
    first = await engine.say("my dog is called Rex", message_id="one")
    await engine.channel.wait_until(lambda _: engine.sent_to("ada"))
    await engine.ask_each("what does he eat?")
    reply = await engine.ask("my cat is called Tom", message_id="two", replaces=first.message_id)
    assert asked(engine.model.requests[-1]) == ["my cat is called Tom"]
    assert await texts(engine) == ["my cat is called Tom", reply]
    assert [line.versions for line in await history(engine)] == [("one", "two"), ()]
    await engine.ask("and now?")
    assert asked(engine.model.requests[-1]) == ["my cat is called Tom", "and now?"]
    assert await switch(engine, "one")
    assert len(await texts(engine)) == 4
    await engine.ask("and he?")
    said = asked(engine.model.requests[-1])
    assert said == ["my dog is called Rex", "what does he eat?", "and he?"]
    assert "Tom" not in str(engine.model.requests[-1])


async def test_it_is_the_same_after_a_restart(tmp_path):
    async with running(tmp_path) as engine:
        await engine.ask("one", message_id="one")
        await engine.ask("another one", message_id="two", replaces="one")
        before = await history(engine)
    async with running(tmp_path) as engine:
        assert await history(engine) == before
        await engine.ask("more")
        assert asked(engine.model.requests[-1]) == ["another one", "more"]
        assert await switch(engine, "one")
        await engine.ask("again")
        assert asked(engine.model.requests[-1]) == ["one", "again"]


async def test_what_is_out_of_sight_is_neither_found_nor_recalled_nor_quoted(tmp_path):
    async with browsing_with(tmp_path, memory={"recall": "every_turn"}) as (engine, browser):
        await engine.ask("the heron nests behind the boathouse", message_id="one")
        await engine.ask("the kingfisher nests below the bridge", message_id="two", replaces="one")
        listed = orjson.loads(await browser.get("/api/conversations"))["items"][0]
        assert listed["title"] == "the kingfisher nests below the bridge"
        assert "heron" not in await browser.get("/conversations")
        for path in ("", ".md", ".jsonl"):
            said = await browser.get(f"/conversations/{listed['id']}{path}")
            assert "kingfisher" in said, path
            assert "heron" not in said, path
        assert "boathouse" not in (await browser.get("/conversations?q=heron")).replace(
            "value=", ""
        )
        assert "boathouse" not in await engine.ask("/memory search heron")
        await engine.ask_each("/new", "where does the heron nest?")
        shown = str(engine.model.requests[-1])
        assert "boathouse" not in shown
        await engine.ask(f"/continue {listed['id']}")
        assert await switch(engine, "one")
        assert "boathouse" in await browser.get("/conversations?q=heron")
        await engine.ask_each("/new", "where does the kingfisher nest?")
        assert "bridge" not in str(engine.model.requests[-1])


async def test_forgetting_goes_through_all_branches_and_so_does_erasing(tmp_path):
    async with browsing_with(tmp_path) as (engine, browser):
        await engine.ask("the heron nests there", message_id="one")
        await engine.ask("the kingfisher nests there", message_id="two", replaces="one")
        await engine.ask("/memory forget heron nests")
        await engine.ask("/memory forget yes")
        assert await switch(engine, "one")
        line = (await history(engine))[0]
        assert (line.text, line.versions) == ("", ("one", "two"))
        await engine.ask("hello?")
        assert "heron nests" not in str(engine.model.requests[-1])
        assert await switch(engine, "two")
        id_ = orjson.loads(await browser.get("/api/conversations"))["items"][0]["id"]
        await browser.post(f"/conversations/{id_}/delete")
        with pytest.raises(OutOfSight):
            await engine.say("from another tab", replaces="two")
        with pytest.raises(OutOfSight):
            await switch(engine, "one")
    owned = {table.name for table in TABLES if table.owner}
    assert {"branches", "unseen"} <= owned


async def test_what_is_refused_is_not_stored(engine):
    await engine.ask("one", message_id="one")
    before = await history(engine)
    for wrong in ("nothing", "%", "o_e", ""):
        if wrong:
            with pytest.raises(OutOfSight):
                await engine.say("new", message_id="new", replaces=wrong)
        with pytest.raises(OutOfSight):
            await switch(engine, wrong)
    assert await history(engine) == before
    # The same id is still free.
    await engine.ask("new", message_id="new", replaces="one")
    assert (await history(engine))[0].versions == ("one", "new")
    before = await history(engine)
    await engine.say("new", message_id="new", replaces="one")  # offered again: a copy
    assert await history(engine) == before


async def test_a_command_replaces_nothing(engine):
    await engine.ask("one", message_id="one")
    await engine.ask("/help", message_id="help", replaces="one")
    assert (await history(engine))[0].versions == ()


async def test_a_running_turn_is_ended_and_what_waits_stays_behind(tmp_path):
    model = ScriptedModel(gate=asyncio.Event())
    async with running(tmp_path, model=model) as engine:
        await engine.say("one", message_id="one")
        await asyncio.wait_for(model.started.wait(), 30)
        await engine.say("two", message_id="two")
        assert not await switch(engine, "one")
        await engine.say("better", message_id="better", replaces="one")
        await until(lambda: len(model.requests) == 2)
        assert [line.text for line in await history(engine)] == ["better"]
        assert model.gate is not None
        model.gate.set()
        await engine.channel.wait_until(lambda _: engine.sent_to("ada"))
        assert engine.sent_to("ada") == ["You said: better"]
        assert asked(model.requests[-1]) == ["better"]
        assert await switch(engine, "one")
        assert await texts(engine) == ["one", "two"]
        await engine.ask("what did I ask?")
    assert {row[0] for row in query(tmp_path, "SELECT state FROM inbox")} == {"done"}


async def test_one_that_waits_is_exchanged_and_the_running_turn_goes_on(tmp_path):
    model = ScriptedModel(gate=asyncio.Event())
    async with running(tmp_path, model=model) as engine:
        await engine.say("one", message_id="one")
        await asyncio.wait_for(model.started.wait(), 30)
        await engine.say("two", message_id="two")
        await engine.say("better", message_id="better", replaces="two")
        assert await texts(engine) == ["one", "better"]
        assert model.gate is not None
        model.gate.set()
        await engine.channel.wait_until(lambda _: len(engine.sent_to("ada")) == 2)
        assert engine.sent_to("ada") == ["You said: one", "You said: better"]


async def test_a_conversation_that_is_over_goes_on_when_a_message_of_it_is_edited(tmp_path):
    async with running(tmp_path, session={"reset": {"mode": "idle", "idle_minutes": 60}}) as engine:
        await engine.ask("one", message_id="one")
        engine.clock.advance(hours=3)
        await engine.ask("better", message_id="two", replaces="one")
        assert await texts(engine) == ["better", "You said: better"]
        engine.clock.advance(minutes=5)
        await engine.ask("and so on")
        assert len(await texts(engine)) == 4


@pytest.mark.parametrize("step", ["_leave", "_settle"])
async def test_a_branch_that_is_not_stored_whole_is_not_there(tmp_path, monkeypatch, step):
    """The pointer and the message are one transaction: what ends between them leaves neither."""
    async with running(tmp_path) as engine:
        await engine.ask("one", message_id="one")
        before = await history(engine)

        def fails(*_: object) -> None:
            raise KeyError(step)

        with monkeypatch.context() as broken:
            broken.setattr(branches, step, fails)
            with pytest.raises(KeyError):
                await engine.say("two", message_id="two", replaces="one")
        assert await history(engine) == before
        assert query(tmp_path, "SELECT count(*) FROM branches") == [(0,)]
        await engine.ask("two", message_id="two", replaces="one")  # it is offered again
        assert (await history(engine))[0].versions == ("one", "two")


async def test_a_program_that_ends_while_the_new_version_is_answered_answers_it_again(
    tmp_path, monkeypatch
):
    async with running(tmp_path) as engine:
        await engine.ask("one", message_id="one")
    model = ScriptedModel(gate=asyncio.Event())
    with monkeypatch.context() as ending:
        ending.setattr("bot.app.STOP_GRACE", 0.01)
        async with running(tmp_path, model=model) as engine:
            await engine.say("two", message_id="two", replaces="one")
            await model.started.wait()
            assert await texts(engine) == ["two"]
    async with running(tmp_path) as engine:
        await engine.channel.wait_until(lambda _: engine.sent_to("ada"))
        assert await texts(engine) == ["two", "You said: two"]
        assert asked(engine.model.requests[-1]) == ["two"]


class Remembering:
    """An index that still has all that was ever said."""

    def __init__(self) -> None:
        self.said: dict[str, str] = {}

    async def search(self, query: str, *_: object, **_when: object) -> Findings:
        words = {*query.lower().split()}
        hits = [
            Hit(id_.rpartition(".")[0], id_, 1, 1, 0.9, text, "transcript", at=NOON)
            for id_, text in self.said.items()
            if words & {*text.lower().split()}
        ]
        return Findings(tuple(hits), "words")


async def test_what_the_index_has_of_another_branch_is_neither_recalled_nor_found(tmp_path):
    index = Remembering()
    model = ScriptedModel(script=lambda _: "A bird.")
    async with running(tmp_path, model=model, searcher=index) as engine:
        await engine.ask("the heron nests at Oldmill", message_id="one")
        await engine.ask("the heron nests at Newmill", message_id="two", replaces="one")
        for id_, line in query(tmp_path, "SELECT id, line FROM entries WHERE role = 'user'"):
            index.said[str(id_)] = orjson.loads(str(line))["message"]["text"]
        assert len(index.said) == 2
        await engine.ask("/new")
        searching = iter([calls("memory_search", query="heron nests"), "there"])
        model.script = lambda _: next(searching)
        await engine.ask("where does the heron nest?")
    shown = str(model.requests[-1])
    assert shown.count("Newmill") > 1  # recalled, and found by the model
    assert "Oldmill" not in shown


async def test_two_nodes_show_the_same_branch_and_end_the_turn_of_the_other(postgres_url, tmp_path):
    model = ScriptedModel()
    async with pair(postgres_url, tmp_path, model) as nodes:
        await nodes.one.say("one", message_id="one")
        await nodes.answered(1)
        await nodes.other.say("two", message_id="two")
        await nodes.answered(2)
        model.gate = asyncio.Event()
        await nodes.one.say("three", message_id="three")
        await until(lambda: len(model.requests) == 3)
        await nodes.other.say("better", message_id="better", replaces="two")
        model.gate.set()
        assert (await nodes.answered(3))[-1] == "You said: better"
        for node in (nodes.one, nodes.other):
            assert await texts(node) == ["one", "You said: one", "better", "You said: better"]
        assert asked(model.requests[-1]) == ["one", "better"]
        assert await switch(nodes.one, "two")
        await nodes.other.say("and more", message_id="more")
        await nodes.answered(4)
        assert asked(model.requests[-1]) == ["one", "two", "and more"]
