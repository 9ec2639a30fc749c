"""`/stop` reaches whatever works for a conversation, and says what it was."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bot.agent.models import Request
from bot.agent.recall import Recaller
from bot.channel import Media
from bot.errors import ModelContextFull
from bot.gateway.media import MediaReader
from bot.testing import ScriptedModel
from tests.fakes.brain import LONG, Brain, query, says, settled
from tests.integration.test_tasks import AT_THREE, due, entries, ran, tasks
from tests.support import Engine, running, until

pytestmark = pytest.mark.usefixtures("believes_every_figure")
KEY = "agent:main:memory:dm:ada"


async def stopped(engine: Engine) -> str:
    """The answer to `/stop`, which comes at once; then nothing is left to be answered."""
    answer = await asyncio.wait_for(engine.ask("/stop"), 10)
    await until(lambda: not query(engine.folder, "SELECT 1 FROM inbox WHERE state = 'waiting'"))
    return answer


@pytest.mark.parametrize("what", ["files", "recall"])
async def test_a_turn_is_stopped_before_its_reply_and_its_message_is_kept(
    tmp_path, monkeypatch, what
):
    at_work = asyncio.Event()

    async def never(*_: Any, **__: Any) -> Any:
        at_work.set()
        await asyncio.Event().wait()

    owner, name = (MediaReader, "read") if what == "files" else (Recaller, "recall")
    async with running(tmp_path) as engine:
        await engine.ask("hello")
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, never)
            media = (Media("document", name="plan.txt", ref="r1", size=5),)
            await engine.say("look at the plan", media=media)
            await at_work.wait()
            assert await stopped(engine) == "Stopped."
        assert len(engine.sent_to("ada")) == 2
        assert await engine.ask("and now?") == "You said: and now?"
        said = [each[2] for each in await entries(engine, KEY) if each[1] == "user"]
        assert said == ["hello", "/stop", "look at the plan", "and now?"]
        assert "look at the plan" in str(engine.model.requests[-1].messages)


async def test_a_turn_that_waits_for_a_place_is_stopped(tmp_path):
    model = ScriptedModel(gate=asyncio.Event())
    async with running(tmp_path, model=model, session={"max_turns": 1}) as engine:
        await engine.say("a long story", sender="bob")
        await model.started.wait()
        await engine.say("hello")
        await until(lambda: KEY in engine.app.engine.maintenance.running)
        assert await engine.ask("/stop") == "Stopped."
        assert model.gate is not None
        model.gate.set()
        await engine.channel.wait_until(lambda _: bool(engine.sent_to("bob")))
        await stopped(engine)
        assert len(engine.sent_to("ada")) == 2
        assert len(model.requests) == 1


async def test_making_room_is_stopped(tmp_path):
    def chat(request: Request) -> Any:
        return ModelContextFull() if request.messages[-1].text == "now" else says("Yes.", 2_000)

    brain = Brain(chat=chat)
    brain.held["summary"] = asyncio.Event()
    async with running(tmp_path, model=brain, context={"context_tokens": 200_000}) as engine:
        for _ in range(4):
            await engine.ask(LONG)
        await engine.say("now")
        await until(lambda: bool(brain.asked("summary")))
        told = await stopped(engine)
        assert told == (
            "Stopped making room for the reply, so there won't be one. Nothing else changed."
        )
        brain.held["summary"].set()
        await settled()
        assert engine.sent_to("ada")[4:] == [told]
        assert len(brain.asked("chat")) == 5
        assert not query(tmp_path, "SELECT 1 FROM sessions WHERE compaction IS NOT NULL")


async def test_a_summary_that_was_wished_is_stopped(tmp_path):
    brain = Brain()
    brain.held["summary"] = asyncio.Event()
    async with running(tmp_path, model=brain, context={"context_tokens": 200_000}) as engine:
        for _ in range(4):
            await engine.ask(LONG)
        begun = await engine.ask("/compact")
        await until(lambda: bool(brain.asked("summary")))
        told = await stopped(engine)
        assert told == "Stopped the summary. The conversation is as it was."
        brain.held["summary"].set()
        await settled()
        assert engine.sent_to("ada")[4:] == [begun, told]
        assert await engine.ask("/stop") == "Nothing is running."


async def test_a_task_is_stopped_and_says_nothing_more(engine):
    await engine.ask(AT_THREE)
    engine.model.gate = asyncio.Event()
    await due(engine, hours=3)
    await engine.model.started.wait()
    assert await stopped(engine) == (
        "Stopped the task that was running. It will run again at its next time."
    )
    engine.model.gate.set()
    await ran(engine)
    assert len(engine.sent_to("ada")) == 2
    assert "Last due Sat 2026-11-21 15:00 (UTC): stopped" in await engine.ask("/reminders 1")
    (task,) = await tasks(engine)
    assert (task.state, task.failures) == ("waiting", 0)
    await due(engine, days=1)
    await engine.channel.wait_until(lambda _: engine.sent_to("ada")[-1].startswith("🔁"))


async def test_a_reply_and_a_task_are_stopped_together(engine):
    await engine.ask(AT_THREE)
    engine.model.gate = asyncio.Event()
    await due(engine, hours=3)
    await until(lambda: len(engine.model.requests) == 1)
    await engine.say("hello there")
    await until(lambda: len(engine.model.requests) == 2)
    await until(lambda: bool(engine.channel.drafts))
    assert (await engine.ask("/stop")).startswith("Stopped.\nStopped the task")
    await ran(engine)
