from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest

from bot.agent.models import Request
from bot.agent.tools import ToolContext
from bot.agent.tools.toolbox import Toolbox
from bot.agent.turn import Turn, TurnRequest
from bot.errors import ModelContextFull, ModelError, ModelOverloaded, ModelRefused, ModelTimeout
from bot.identity.view import MemoryView
from bot.messages import Message, Text, ToolResult, ToolUse
from bot.testing import ScriptedModel, calls, says
from tests.fakes.time_limits import TimeIsUp

ASKED = Message("user", (Text("hello"),))


def turn(model: ScriptedModel, *, timeout: float = 10, max_steps: int = 4) -> Turn:
    view = MemoryView(space="", keys=(), private=False)
    request = TurnRequest(
        model=model,
        model_name="scripted",
        system="",
        tools=(),
        history=(),
        messages=(ASKED,),
        context=ToolContext(view=view, session_id="s", now=datetime(2026, 11, 21, tzinfo=UTC)),
        language="en",
        max_tokens=1000,
        max_steps=max_steps,
        timeout=timeout,
    )
    return Turn(request, Toolbox(()), None)


async def test_a_turn_stopped_before_its_first_step_has_a_result():
    model = ScriptedModel()
    found = turn(model)
    task = asyncio.create_task(found.run())
    found.stop()
    result = await asyncio.wait_for(task, 60)
    assert (result.stopped, result.reply, result.messages) == (True, "", (ASKED,))
    assert model.requests == []


async def test_stopping_more_than_once_and_afterwards_is_harmless():
    model = ScriptedModel(script=lambda _: "one two", gate=asyncio.Event())
    found = turn(model)
    task = asyncio.create_task(found.run())
    await model.started.wait()
    found.stop()
    found.stop()
    result = await asyncio.wait_for(task, 60)
    assert result.stopped
    assert result.reply == "one"
    assert result.messages == (ASKED, Message("assistant", (Text("one"),)))
    found.stop()


async def test_a_turn_stopped_while_its_last_words_come_is_stopped():
    model = ScriptedModel(script=lambda _: "one two", gate=asyncio.Event())
    found = turn(model)
    task = asyncio.create_task(found.run())
    await model.started.wait()
    model.gate.set()
    found.stop()
    result = await asyncio.wait_for(task, 60)
    assert (result.stopped, result.reply) == (True, "one two")


async def test_a_turn_that_is_cancelled_from_outside_has_no_result():
    model = ScriptedModel(gate=asyncio.Event())
    task = asyncio.create_task(turn(model).run())
    await model.started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (ModelOverloaded(), ModelOverloaded),
        (KeyError("ours"), ModelError),
        (says("no", stop="refusal"), ModelRefused),
        (says("", stop="context_full"), ModelContextFull),
    ],
)
async def test_every_failure_is_a_result_that_keeps_what_was_asked(answer, error):
    result = await turn(ScriptedModel(script=lambda _: answer)).run()
    assert type(result.error) is error
    assert result.messages[0] == ASKED


async def test_a_model_that_takes_too_long_keeps_what_it_wrote(monkeypatch):
    model = ScriptedModel(script=lambda _: "one two", gate=TimeIsUp(monkeypatch))
    result = await turn(model).run()
    assert type(result.error) is ModelTimeout
    assert result.reply == "one"


async def test_tools_without_end_end_after_the_most_steps_with_every_call_answered():
    model = ScriptedModel(script=lambda _: calls("nothing", x=1))
    result = await turn(model, max_steps=3).run()
    assert [request.may_call for request in model.requests] == [True, True, True, False]
    assert result.exhausted
    assert result.reply == ""
    uses = [b for m in result.messages for b in m.blocks if isinstance(b, ToolUse)]
    answers = [b for m in result.messages for b in m.blocks if isinstance(b, ToolResult)]
    assert len(uses) == len(answers) == 3


async def test_a_turn_stopped_between_a_call_and_its_result_answers_the_call():
    def script(request: Request):
        return calls("nothing") if len(request.messages) == 1 else "one two"

    model = ScriptedModel(script=script)
    found = turn(model)
    model.gate = asyncio.Event()
    task = asyncio.create_task(found.run())
    await model.started.wait()
    found.stop()
    result = await asyncio.wait_for(task, 60)
    uses = [b.id for m in result.messages for b in m.blocks if isinstance(b, ToolUse)]
    answers = [
        b.tool_use_id for m in result.messages for b in m.blocks if isinstance(b, ToolResult)
    ]
    assert uses == answers


async def test_after_the_most_steps_the_model_is_asked_for_words_once_more():
    model = ScriptedModel(
        script=lambda r: calls("nothing") if r.may_call else "What I found so far"
    )
    result = await turn(model, max_steps=3).run()
    assert (result.reply, result.stop, result.exhausted) == ("What I found so far", "end", False)
    last = model.requests[-1]
    assert "no more tools" in last.messages[-1].blocks[-1].text
    # The program's own words are no part of the conversation.
    assert all("no more tools" not in str(message) for message in result.messages)
    assert result.messages[-1] == Message("assistant", (Text("What I found so far"),))
