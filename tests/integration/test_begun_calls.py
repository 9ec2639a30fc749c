"""A call that must not be made twice is not, whatever ends the turn that began it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from bot.agent.models import Request, ToolSpec
from bot.agent.tools import ToolContext
from bot.errors import StorageError
from bot.gateway.commits import Approvals, TurnRecorder
from bot.messages import ToolResult
from bot.storage import Transaction
from bot.storage.sqlite import SqliteDatabase
from bot.testing import ScriptedModel, calls
from tests.fakes.brain import query
from tests.support import running, until

RULES = ({"tools": ("bake", "look"), "action": "allow", "ask": False},)
SCHEMA = {"type": "object", "properties": {}}


class Oven:
    """A tool that does something each time it is called."""

    def __init__(self, name: str, *, repeatable: bool = False) -> None:
        self.spec = ToolSpec(name, "Use the oven.", SCHEMA, repeatable=repeatable)
        self.calls = 0

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> str:
        self.calls += 1
        return f"the {self.spec.name} is done"


def uses(name: str) -> Any:
    """A model that calls the tool, and tells what came of it."""

    def script(request: Request) -> Any:
        last = request.messages[-1].blocks[-1]
        return f"Told: {last.text}" if isinstance(last, ToolResult) else calls(name)

    return script


@pytest.mark.parametrize(("name", "repeatable"), [("bake", False), ("look", True)])
async def test_a_restart_tells_the_model_of_a_call_and_does_not_repeat_it(
    tmp_path, monkeypatch, name, repeatable
):
    oven, reached = Oven(name, repeatable=repeatable), asyncio.Event()
    monkeypatch.setattr("bot.app.STOP_GRACE", 0.01)

    async def never(*_: Any, **__: Any) -> None:
        reached.set()
        await asyncio.Event().wait()

    model = ScriptedModel(script=uses(name))
    with monkeypatch.context() as patch:
        patch.setattr(TurnRecorder, "commit", never)
        async with running(tmp_path, model=model, tools=(oven,), tool_rules=RULES) as engine:
            await engine.say("use it")
            await reached.wait()
    assert oven.calls == 1
    async with running(tmp_path, model=model, tools=(oven,), tool_rules=RULES) as engine:
        await engine.channel.wait_sent(1)
        (told,) = engine.sent_to("ada")
        assert oven.calls == (2 if repeatable else 1)
        assert ("its result was lost" in told) == (not repeatable)
        await engine.ask("/status")
        assert not query(tmp_path, "SELECT 1 FROM meta WHERE key LIKE 'started:%'")
        # Another message is another call.
        await engine.ask("use it")
        assert oven.calls == (3 if repeatable else 2)


async def test_a_turn_that_could_not_be_stored_does_not_call_again(tmp_path, monkeypatch):
    oven, failures = Oven("bake"), [RuntimeError("planned")]
    commit = TurnRecorder.commit

    async def failing(self: TurnRecorder, *given: Any, **how: Any) -> None:
        if failures:
            raise failures.pop()
        await commit(self, *given, **how)

    monkeypatch.setattr(TurnRecorder, "commit", failing)
    monkeypatch.setattr("bot.workers.RETRY_DELAY", 0)
    model = ScriptedModel(script=uses("bake"))
    async with running(tmp_path, model=model, tools=(oven,), tool_rules=RULES) as engine:
        assert "its result was lost" in await engine.ask("use it")
        assert oven.calls == 1


async def test_what_cannot_be_noted_is_not_done(tmp_path, monkeypatch):
    async def full(*_: Any) -> None:
        raise StorageError("the disk is full")

    monkeypatch.setattr(Approvals, "start", full)
    oven, model = Oven("bake"), ScriptedModel(script=uses("bake"))
    async with running(tmp_path, model=model, tools=(oven,), tool_rules=RULES) as engine:
        assert "nothing was done" in await engine.ask("use it")
        assert oven.calls == 0


async def test_other_turns_write_no_more_than_before(tmp_path, monkeypatch):
    writes: list[object] = []
    write = SqliteDatabase.write

    async def noted(self: SqliteDatabase, work: Any) -> Any:
        def looked(tx: Transaction) -> Any:
            writes.append(work)
            return work(tx)

        return await write(self, looked)

    oven, model = Oven("look", repeatable=True), ScriptedModel(script=uses("look"))
    async with running(tmp_path, model=model, tools=(oven,), tool_rules=RULES) as engine:
        await engine.ask("hello")
        await until(lambda: not query(tmp_path, "SELECT 1 FROM outbox WHERE state = 'waiting'"))
        monkeypatch.setattr(SqliteDatabase, "write", noted)
        await engine.ask("use it")
        await until(lambda: not query(tmp_path, "SELECT 1 FROM outbox WHERE state = 'waiting'"))
        assert len(writes) == 3  # the message, its turn, and that it was sent
