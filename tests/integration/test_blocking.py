"""Somebody who is blocked, or not let in any more, gets nothing, and nothing of theirs is kept."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from bot.agent.models import Request, ToolSpec
from bot.errors import SendLater
from bot.messages import ToolResult
from bot.sessions import pairing
from bot.storage import Transaction
from bot.testing import ScriptedModel, calls
from tests.fakes.brain import LONG, Brain, added, query, settled
from tests.integration.test_tasks import AT_THREE, due, ran
from tests.support import Engine, running, until

CHANNELS = {"memory": {"dm_policy": "pairing", "allow_from": ()}}
SEAT = ("memory", "ada")


async def let_in(engine: Engine, *names: str) -> None:
    """Have people ask, and let them in."""
    database = engine.app.core.database
    for name in names:
        await engine.ask("hello", sender=name)
        (code,) = query(engine.folder, "SELECT code FROM pairing WHERE sender = ?", name)[0]
        await database.write(
            lambda tx, code=code: pairing.approve(tx, "memory", code, engine.clock())
        )
    await engine.app.core.read_books()


async def block(engine: Engine, how: str = "block") -> None:
    """Ada is blocked, or her pairing revoked."""

    def work(tx: Transaction) -> Any:
        if how == "block":
            return pairing.block(tx, SEAT, engine.clock())
        return pairing.revoke(tx, *SEAT)

    await engine.app.core.database.write(work)
    await engine.app.core.read_books()
    # What is to be dropped is, once the sweep has gone by.
    await engine.app.engine.dismissals.sweep()


async def unblock(engine: Engine) -> None:
    await engine.app.core.database.write(lambda tx: pairing.let_in_again(tx, SEAT, engine.clock()))
    await engine.app.core.read_books()


def notes(engine: Engine) -> str:
    workspace = engine.folder / "workspace"
    return "\n".join(path.read_text() for path in workspace.rglob("*-*-*.md"))


@pytest.mark.parametrize("how", ["block", "revoke"])
async def test_a_running_turn_ends_and_writes_and_says_nothing(tmp_path, how):
    model = ScriptedModel()
    async with running(tmp_path, model=model, channels=CHANNELS) as engine:
        await let_in(engine, "ada", "bob")
        model.gate = asyncio.Event()
        await engine.say("remember that my boat is called Wanda")
        await engine.say("and another thing")
        await model.started.wait()
        before = len(engine.sent_to("ada"))
        await block(engine, how)
        model.gate.set()
        await until(lambda: not query(tmp_path, "SELECT 1 FROM inbox WHERE state = 'waiting'"))
        assert await engine.ask("hello", sender="bob") == "You said: hello"
        assert len(engine.sent_to("ada")) == before
        assert "Wanda" not in notes(engine)
        assert not query(tmp_path, "SELECT 1 FROM entries WHERE line LIKE '%Wanda%'")
        assert len(model.requests) == 2
        if how == "block":
            await unblock(engine)
            assert await engine.ask("I am back") == "You said: I am back"
            assert len(engine.sent_to("ada")) == before + 1


async def test_a_tool_is_not_called_for_somebody_who_was_just_blocked(tmp_path):
    reached, gate = asyncio.Event(), asyncio.Event()

    class Slow:
        def __init__(self, spec: Any) -> None:
            self.spec = spec

        async def run(self, arguments: Mapping[str, Any], context: Any) -> str:
            reached.set()
            await gate.wait()
            return "done"

    def script(request: Request) -> Any:
        last = request.messages[-1]
        if isinstance(last.blocks[-1], ToolResult):
            return calls("memory_write", text="The boat is called Wanda.")
        return calls("look")

    tool = Slow(ToolSpec("look", "Look.", {"type": "object", "properties": {}}, repeatable=True))
    rules = ({"tools": ("look",), "action": "allow", "ask": False},)
    model = ScriptedModel(script=script)
    async with running(
        tmp_path, model=model, channels=CHANNELS, tools=(tool,), tool_rules=rules
    ) as engine:
        await let_in(engine, "ada")
        await engine.say("my boat is called Wanda")
        await reached.wait()
        await block(engine)
        gate.set()
        await until(lambda: not len(engine.app.engine.maintenance.running))
        assert len(model.requests) == 1
        assert "Wanda" not in notes(engine)


async def test_reminders_and_tasks_are_neither_said_nor_made_up_for(tmp_path):
    model = ScriptedModel()
    async with running(tmp_path, model=model, channels=CHANNELS) as engine:
        await let_in(engine, "ada")
        await engine.ask("/remind in 1 hour water the plants")
        await engine.ask_each("/remind every day at 14:00 feed the cat", AT_THREE)
        before = len(engine.sent_to("ada"))
        await block(engine)
        await due(engine, hours=4)
        await engine.app.engine.reminders.fire(engine.clock())
        await ran(engine)
        assert len(engine.sent_to("ada")) == before
        assert not model.requests
        await unblock(engine)
        await engine.app.engine.reminders.fire(engine.clock())
        await engine.app.engine.tasks.begin()
        assert await engine.ask("hello") == "You said: hello"
        assert len(engine.sent_to("ada")) == before + 1


async def test_a_task_that_runs_ends_and_says_nothing(tmp_path):
    model = ScriptedModel()
    async with running(tmp_path, model=model, channels=CHANNELS) as engine:
        await let_in(engine, "ada")
        await engine.ask(AT_THREE)
        model.gate = asyncio.Event()
        await due(engine, hours=3)
        await model.started.wait()
        before = len(engine.sent_to("ada"))
        await block(engine)
        model.gate.set()
        await ran(engine)
        assert len(engine.sent_to("ada")) == before
        assert query(tmp_path, "SELECT state FROM repeat_runs") == [("stopped",)]


async def test_what_waits_to_be_sent_is_not_sent_also_after_they_are_let_in_again(tmp_path):
    async with running(tmp_path, channels=CHANNELS) as engine:
        await let_in(engine, "ada")
        before = len(engine.sent_to("ada"))
        engine.channel.errors = [SendLater(0.05)] * 3
        await engine.say("a secret plan")
        await until(lambda: bool(query(tmp_path, "SELECT 1 FROM outbox WHERE text LIKE '%plan%'")))
        await block(engine)
        await until(lambda: not query(tmp_path, "SELECT 1 FROM outbox WHERE state = 'waiting'"))
        await unblock(engine)
        assert await engine.ask("hello") == "You said: hello"
        assert len(engine.sent_to("ada")) == before + 1


async def test_what_is_being_saved_is_not_written(tmp_path):
    brain = Brain(flush=lambda request: added(request, "The boat is called Wanda."))
    context = {"enable_memory_flush": True}
    async with running(tmp_path, model=brain, channels=CHANNELS, context=context) as engine:
        await let_in(engine, "ada")
        await engine.ask(f"my boat is called Wanda {LONG}")
        brain.held["flush"] = asyncio.Event()
        await engine.ask("/new")
        await until(lambda: len(brain.asked("flush")) == 1)
        await block(engine)
        brain.held.pop("flush").set()
        await settled()
        assert "Wanda" not in notes(engine)
        assert len(brain.asked("flush")) == 1


async def test_who_was_let_in_by_the_configuration_of_before_gets_nothing_after_a_restart(
    tmp_path, monkeypatch
):
    monkeypatch.setattr("bot.app.SEND_GRACE", 0.0)
    monkeypatch.setattr("bot.app.STOP_GRACE", 0.0)
    async with running(tmp_path) as engine:
        await engine.ask("hello")
        engine.channel.errors = [SendLater(60)]
        await engine.say("a secret plan")
        await until(lambda: bool(query(tmp_path, "SELECT 1 FROM outbox WHERE text LIKE '%plan%'")))
    closed = {"memory": {"dm_policy": "allowlist", "allow_from": ("bob",)}}
    async with running(tmp_path, channels=closed) as engine:
        assert await engine.ask("hello", sender="bob") == "You said: hello"
        assert engine.sent_to("ada") == []
    async with running(tmp_path) as engine:
        assert await engine.ask("hello") == "You said: hello"
        assert len(engine.sent_to("ada")) == 1
