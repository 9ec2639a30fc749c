"""Running a tool: whatever happens, the model gets an answer and nobody's words get into a log."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import pytest
from structlog.testing import capture_logs

from bot.agent.models import ToolSpec
from bot.agent.tools import ToolContext
from bot.agent.tools.toolbox import Toolbox
from bot.errors import NotVisible, ToolError
from bot.identity.view import MemoryView
from bot.messages import ToolResult, ToolUse

SECRET = "what somebody said"
CONTEXT = ToolContext(MemoryView("", (), private=False), "s1", datetime(2026, 7, 1, tzinfo=UTC))


class Doing:
    """A tool that does what it is given."""

    def __init__(self, name: str, work: Callable[[], Awaitable[str]]) -> None:
        self.spec = ToolSpec(name, "", {"type": "object"}, built_in=True)
        self._work = work
        self.given: list[Mapping[str, Any]] = []

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> str:
        self.given.append(arguments)
        assert context is CONTEXT
        return await self._work()


def asked(name: str, **arguments: Any) -> ToolUse:
    return ToolUse("t", name, arguments)


async def well() -> str:
    return "done"


def raising(error: Exception) -> Callable[[], Awaitable[str]]:
    async def work() -> str:
        raise error

    return work


async def test_a_tools_answer_is_the_answer():
    tool = Doing("look", well)
    assert await Toolbox([tool]).run(asked("look", a=1), CONTEXT) == ToolResult("t", "done")
    assert tool.given == [{"a": 1}]


async def test_arguments_that_were_no_json_are_told_and_nothing_is_done():
    tool = Doing("look", well)
    answer = await Toolbox([tool]).run(ToolUse("t", "look", {}, garbled='{"a": '), CONTEXT)
    assert answer.is_error
    assert "no JSON object; nothing was done" in answer.text
    assert tool.given == []


def test_the_order_is_always_the_same():
    tools = [Doing(name, well) for name in ("b", "c", "a")]
    assert [spec.name for spec in Toolbox(tools).specs] == ["a", "b", "c"]
    assert Toolbox(tools).specs == Toolbox(reversed(tools)).specs


def test_two_tools_of_one_name_are_a_mistake():
    with pytest.raises(ValueError, match="same name"):
        Toolbox([Doing("a", well), Doing("a", well)])


def test_a_name_stays_with_the_tool_that_had_it_first():
    own, first, second = Doing("a", well), Doing("b", well), Doing("b", well)
    more: list[Doing] = [Doing("a", well), first, second, Doing("c", well)]
    toolbox = Toolbox([own], more=lambda: tuple(more))
    assert toolbox.left_out == ("a", "b")
    assert [spec.name for spec in toolbox.specs] == ["a", "b", "c"]
    assert [toolbox._now()[name] for name in ("a", "b")] == [own, first]
    more[:] = [second]
    assert toolbox.left_out == ()
    assert toolbox._now()["b"] is second


@pytest.mark.parametrize(
    ("error", "answer"),
    [
        (ToolError("'text' is empty"), "Error: 'text' is empty"),
        (NotVisible(), "Error: Nothing by that name can be read here."),
        (RuntimeError(SECRET), "Error: the tool failed."),
        (KeyError(SECRET), "Error: the tool failed."),
    ],
)
async def test_an_error_is_an_answer(error: Exception, answer: str):
    with capture_logs() as logs:
        toolbox = Toolbox([Doing("look", raising(error))])
        result = await toolbox.run(asked("look", text=SECRET), CONTEXT)
    assert (result.text, result.is_error) == (answer, True)
    assert len(logs) == 1
    assert SECRET not in str(logs)


@pytest.mark.parametrize("name", ["", "rm -rf", SECRET])
async def test_an_unknown_tool_is_an_answer(name: str):
    result = await Toolbox([Doing("look", well)]).run(asked(name), CONTEXT)
    assert result.is_error
    assert "look" in result.text


async def test_a_tool_that_hangs_is_given_up():
    never = asyncio.Event()
    cancelled: list[bool] = []

    async def hang() -> str:
        try:
            await never.wait()
        except asyncio.CancelledError:
            cancelled.append(True)
            raise
        return ""

    toolbox = Toolbox([Doing("look", hang)], timeout=0.01)
    result = await toolbox.run(asked("look"), CONTEXT)
    assert result.is_error
    assert "in time" in result.text
    assert cancelled == [True]


async def test_a_stopped_turn_stops_its_tool():
    started = asyncio.Event()

    async def hang() -> str:
        started.set()
        await asyncio.Event().wait()
        return ""

    task = asyncio.create_task(Toolbox([Doing("look", hang)]).run(asked("look"), CONTEXT))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
